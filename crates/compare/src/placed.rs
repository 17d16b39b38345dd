//! A run under one of nearside's own policies: the report of `nearside place`.

use agent::PlaceReport;
use placement::PolicyName;
use std::ffi::OsString;
use std::fs;
use std::io;
use tempfile::NamedTempFile;

/// The exit status of `nearside place` when placing failed.
pub const FAILED: i32 = 125;

/// The file to which `nearside place` writes its report.
pub struct Placed(NamedTempFile);

impl Placed {
    pub fn new() -> io::Result<Self> {
        NamedTempFile::new().map(Self)
    }

    /// The verb and its options.
    pub fn arguments(&self, policy: &PolicyName, options: &[String]) -> Vec<OsString> {
        let words = ["place", "--quiet", "--forget", "--policy"].map(OsString::from);
        let rest = ["--json".into(), self.0.path().into()];
        words
            .into_iter()
            .chain([policy.to_string().into()])
            .chain(options.iter().map(OsString::from))
            .chain(rest)
            .collect()
    }

    /// Its report; `None` if it placed nothing.
    pub fn report(&self) -> Option<PlaceReport> {
        serde_json::from_str(&fs::read_to_string(self.0.path()).ok()?).ok()
    }
}
