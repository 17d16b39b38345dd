//! When a program ran that another verb of nearside started, whose own start and end are not the program's time.

use crate::run_once::RunOutput;
use machine::bounded;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Seek};
use std::path::Path;
use tempfile::NamedTempFile;

/// The hidden option of `place`, `run` and `hugepages cure` with the file to write the times to.
const OPTION: &str = "--times";
/// Most of such a file.
const MOST_BYTES: u64 = 4096;

/// When a program ran, by `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramTimes {
    /// When it was executed, ns.
    pub began_ns: u64,
    /// When it ended, ns; none if that is when the verb ended, too.
    pub ended_ns: Option<u64>,
}

impl ProgramTimes {
    /// Writes them for the comparison that asked for them.
    pub fn write(self, file: &Path) -> io::Result<()> {
        fs::write(file, serde_json::to_vec(&self)?)
    }

    /// These times, limited to those of the verb: the program could have written to the file, too.
    pub(crate) fn within(self, began_ns: u64, ended_ns: u64) -> (u64, u64) {
        let ended = self.ended_ns.unwrap_or(ended_ns).clamp(began_ns, ended_ns);
        (self.began_ns.clamp(began_ns, ended), ended)
    }
}

/// The file that a verb writes the times to.
#[derive(Debug)]
pub struct TimesFile(NamedTempFile);

impl TimesFile {
    /// A new temporary file.
    pub fn new() -> io::Result<Self> {
        NamedTempFile::new().map(Self)
    }

    /// The verb's option, and its value.
    pub fn arguments(&self) -> [OsString; 2] {
        [OPTION.into(), self.0.path().into()]
    }

    /// Limits the result of a run of the verb to the program's own time, and empties the file for another run. The result stays
    /// as it is if the program was not started.
    pub fn limit(&self, output: &mut RunOutput) {
        if let Some(times) = self.read() {
            output.limit_to(times);
        }
        // What cannot be emptied is written anew.
        let _ = self.0.as_file().set_len(0);
    }

    fn read(&self) -> Option<ProgramTimes> {
        // The program could have put another file in its place.
        let mut file = self.0.as_file();
        file.rewind().ok()?;
        serde_json::from_slice(&bounded::bytes_of(file, MOST_BYTES).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_within_those_of_the_verb() {
        let file = TimesFile::new().unwrap();
        assert_eq!(file.read(), None);
        let times = |began_ns, ended_ns| ProgramTimes { began_ns, ended_ns };
        times(120, Some(170)).write(Path::new(&file.arguments()[1])).unwrap();
        assert_eq!(file.read(), Some(times(120, Some(170))));
        let within = |times: ProgramTimes| times.within(100, 200);
        assert_eq!(within(times(120, Some(170))), (120, 170));
        assert_eq!(within(times(120, None)), (120, 200));
        assert_eq!([within(times(0, Some(300))), within(times(300, Some(0)))], [(100, 200), (100, 100)]);
    }
}
