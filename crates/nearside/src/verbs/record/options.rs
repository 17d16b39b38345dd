//! What to record and where to write it: options of `nearside record`, here and in the lab.

use crate::options::regions::RegionsFile;
use crate::options::seconds::seconds;
use crate::options::usage_error::UsageError;
use crate::output;
use clap::{Args, ValueEnum};
use machine::{Machine, size};
use observe::{AccessSource, SourceOptions, Target, UNPACED};
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The end of the help text.
pub const EXIT_CODES: &str = "\
Exit codes: the program's own, 128 + n if signal n ended it, or was the second one and ended the recording. Nearside's own: \
125 the recording failed, or ended early because the disk was full (what was written can be read), 126 the program cannot be run, 127 there \
is no such program, 2 the command line is wrong.";

const UNSAMPLED: &str = "this source takes no samples: --period and --rate have no effect";

/// Source of memory access samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// The best one available
    Auto,
    /// The virtual PMU of the lab
    Lab,
    /// The processor's own sampling: AMD's IBS, Intel's load latency and store events, Arm's SPE
    Perf,
    /// Page faults of the kernel's NUMA balancing, which is switched on for this: which thread uses which page. Needs
    /// root
    HintFaults,
    /// Counters of memory traffic only, without samples: it is not known which page was used
    Counters,
    /// No samples: only objects, processes and mappings
    None,
}

impl Source {
    /// Rejects a sampling period or rate for a source that has none.
    pub fn check_pace(self, said: bool) -> Result<(), Box<dyn Error>> {
        match self {
            Self::HintFaults if said => Err(UsageError::boxed(UNPACED)),
            Self::Counters | Self::None if said => Err(UsageError::boxed(UNSAMPLED)),
            _ => Ok(()),
        }
    }
}

impl From<Source> for AccessSource {
    fn from(source: Source) -> Self {
        match source {
            Source::Auto => Self::Best,
            Source::Lab => Self::Lab,
            Source::Perf => Self::Perf,
            Source::HintFaults => Self::HintFaults,
            Source::Counters => Self::Counters,
            Source::None => Self::None,
        }
    }
}

/// What to record and where to write it.
#[derive(Clone, Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "switches of their own, each")]
pub struct RecordOptions {
    /// The folder of the trace, which must be empty if it exists [default: nearside-trace, or with a number appended if
    /// that exists]
    #[arg(long, short, value_name = "TRACE")]
    pub output: Option<PathBuf>,

    /// Source of memory access samples
    #[arg(long, value_enum, default_value = "auto")]
    pub source: Source,

    /// Sample one event in N; not for hint faults and counters. With lab, misses of the first-level cache [default: 1000]; with
    /// perf, AMD's micro-operations, Intel's slow loads and stores, each, or Arm's operations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub period: Option<u64>,

    /// Sample about this many accesses per second on each CPU that the program uses; not for hint faults and counters [default with
    /// perf: 1000]
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..=1_000_000), conflicts_with = "period")]
    pub rate: Option<u64>,

    /// End the recording after this many seconds; the program continues
    #[arg(long, value_name = "SECONDS", value_parser = seconds(0.001..=31_536_000.0))]
    pub duration: Option<Duration>,

    /// Do not record the program's objects
    #[arg(long)]
    pub no_objects: bool,

    /// Only count objects up to this size, by allocating code, which costs the program less: bytes, or a number with K
    /// or M
    #[arg(long, value_name = "BYTES", value_parser = size::parse, default_value = "0", conflicts_with = "no_objects")]
    pub small_objects: u64,

    /// Also record what the kernel does meanwhile: physical memory that it allocates for the program, and numbers of
    /// threads that the scheduler and NUMA balancing move. Needs tracefs, which only root may read
    #[arg(long)]
    pub kernel_events: bool,

    /// Also count what serves the accesses of each CPU, of all programs: its node's memory, another node's, or other
    /// caches. On hosts, needs the right to observe all programs, and a processor whose events are known
    #[arg(long)]
    pub cpu_counters: bool,

    #[command(flatten)]
    pub names: RegionsFile,

    /// Print nothing unless something fails
    #[arg(long, short)]
    pub quiet: bool,

    /// Do not name the folder, which will be removed.
    #[arg(long, hide = true)]
    pub scratch: bool,
}

impl RecordOptions {
    /// Rejects options that would have no effect, and a file of names that cannot be used.
    pub fn check(&self) -> Result<(), Box<dyn Error>> {
        if self.output.as_deref().is_some_and(output::is_output) {
            return Err(UsageError::boxed(
                "a trace is a folder, which standard output cannot be: name one after --output",
            ));
        }
        self.names.rules()?;
        self.source.check_pace(self.has_pace())
    }

    /// The sources that these options ask for.
    pub fn sources<'a>(
        &self,
        target: &'a Target,
        command: &'a [OsString],
        machine: &'a Machine,
    ) -> Result<SourceOptions<'a>, Box<dyn Error>> {
        let small_bytes = usize::try_from(self.small_objects).unwrap_or(usize::MAX);
        Ok(SourceOptions {
            target,
            command,
            machine,
            accesses: self.source.into(),
            period: self.period,
            rate: self.rate,
            objects: (!self.no_objects).then_some(small_bytes),
            regions: self.names.rules()?,
            kernel_events: self.kernel_events,
            cpu_counters: self.cpu_counters,
        })
    }

    /// Whether a sampling period or rate was given.
    fn has_pace(&self) -> bool {
        self.period.is_some() || self.rate.is_some()
    }

    /// These options as arguments for another `nearside record`, without the folder.
    pub fn passed_on(&self) -> Vec<OsString> {
        let mut all: Vec<OsString> = Vec::new();
        let give = |all: &mut Vec<OsString>, name: &str, value: String| all.extend([name.into(), value.into()]);
        if let Some(source) = self.source.to_possible_value() {
            give(&mut all, "--source", source.get_name().to_owned());
        }
        if let Some(period) = self.period {
            give(&mut all, "--period", period.to_string());
        }
        if let Some(rate) = self.rate {
            give(&mut all, "--rate", rate.to_string());
        }
        if let Some(duration) = self.duration {
            give(&mut all, "--duration", duration.as_secs_f64().to_string());
        }
        if let Some(file) = &self.names.regions {
            all.extend(["--regions".into(), file.clone().into()]);
        }
        if self.small_objects > 0 {
            give(&mut all, "--small-objects", self.small_objects.to_string());
        }
        let switches = [
            ("--kernel-events", self.kernel_events),
            ("--cpu-counters", self.cpu_counters),
            ("--no-objects", self.no_objects),
            ("--quiet", self.quiet),
            ("--scratch", self.scratch),
        ];
        all.extend(switches.iter().filter(|(_, on)| *on).map(|(name, _)| OsString::from(name)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        options: RecordOptions,
    }

    #[test]
    fn options_are_passed_on_as_they_are() {
        for line in [
            "",
            " --period 7",
            " --period 7 --duration 0.25 --small-objects 64 --quiet",
            " --regions names.toml --kernel-events --cpu-counters --no-objects",
        ] {
            let line = format!("--source hint-faults{line}");
            let words: Vec<&str> = line.split_whitespace().collect();
            let options = Alone::parse_from(std::iter::once("alone").chain(words.clone())).options;
            assert_eq!(options.passed_on(), words, "{line}");
        }
    }
}
