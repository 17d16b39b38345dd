//! The command line of `nearside place`.

use crate::options::candidates;
use crate::options::process_name::{Named, processes};
use crate::options::regions::RegionPlaces;
use crate::options::seconds::seconds;
use crate::options::thresholds::ThresholdOptions;
use crate::verbs::record::Source;
use clap::{Args, ValueEnum};
use clap_complete::ArgValueCompleter;
use machine::size;
use placement::{NameError, POLICIES, PolicyName, policy_list};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Length of a round where none is given, before it is divided by the time scale.
const USUAL_ROUND: Duration = Duration::from_secs(1);
/// Longest round, where none is given, of policies that can decide by the samples of so short a time.
const PROMPT_ROUND: Duration = Duration::from_millis(100);
const USAGE: &str = "nearside place [OPTIONS] -- <CMD>...
       nearside place [OPTIONS] --pid <PID>,...
       nearside place [OPTIONS] --system";

/// Place a program's pages and threads according to a policy, while it runs
///
/// Starts the program with this terminal, environment and user, observes which threads access which memory, and moves
/// pages and threads, round by round. The program is not changed. Its child processes are placed, too. Threads and
/// memory that the program or its owner has already placed (affinity, memory policies, cpusets) stay there.
///
/// Policies for threads give a program CPUs before it starts, as `taskset` does: OpenMP and others make as many threads as
/// they may use CPUs then, which is a single one under `auto`, `fixed` and `rr-threads`.
///
/// Ctrl-C and other signals are passed to the program, no matter how many arrive. When the program ends, or with --pid
/// and --system at Ctrl-C, CPU affinities and kernel switches are restored; pages stay where they are.
#[derive(Debug, Args)]
#[command(after_help = help(), override_usage = USAGE)]
#[allow(clippy::struct_excessive_bools, reason = "switches of their own, each")]
pub struct Arguments {
    /// The policy: see below [default: predict; kernel with --memory]
    #[arg(long, short, value_name = "POLICY", add = ArgValueCompleter::new(candidates::policies))]
    pub policy: Option<String>,

    /// The policy for memory, if --policy is one for threads: `--policy balanced --memory local` is balanced+local
    #[arg(long, short, value_name = "POLICY")]
    pub memory: Option<String>,

    /// Decide and print what would be done, but change nothing
    #[arg(long, short = 'n')]
    pub dry_run: bool,

    /// Forget what earlier runs of this command taught `predict` about it, before it starts; with --dry-run only begin
    /// without it
    #[arg(long, conflicts_with_all = ["pid", "system"])]
    pub forget: bool,

    /// Print each step and its reason as it is taken
    #[arg(long, short)]
    pub explain: bool,

    /// Write all decisions and their inputs to this file, for `nearside replay`
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,

    /// Write the result as JSON to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// For `nearside compare`: write when the program ran to this file
    #[arg(long, hide = true, value_name = "FILE")]
    pub times: Option<PathBuf>,

    /// Print no summary
    #[arg(long, short)]
    pub quiet: bool,

    #[command(flatten)]
    pub thresholds: ThresholdOptions,

    /// Length of a round, in seconds [default: 1; at most 0.1 for `predict` without --system]
    #[arg(long, value_name = "SECONDS", value_parser = seconds(0.01..=3600.0))]
    pub round: Option<Duration>,

    /// Divide the length of rounds by this [default: in the lab its --time-scale, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub time_scale: Option<u32>,

    /// Maximum to move per second: bytes, or a number of KiB, MiB or GiB with K, M or G [default: the policy's choice]
    #[arg(long, value_name = "BYTES", value_parser = parse_budget)]
    pub budget: Option<u64>,

    /// CPU time that observing and deciding may take, in percent of one CPU, averaged over some dozens of rounds; the
    /// sampling rate is lowered to stay within it
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = parse_percent)]
    pub cpu_limit: f64,

    /// Also place threads and memory that the program or its owner has placed already; cpusets are respected in any
    /// case
    #[arg(long = "override")]
    pub overrides: bool,

    /// Also move memory that other processes map. `predict` makes one decision for all placed processes. Needs
    /// `CAP_SYS_NICE`
    #[arg(long)]
    pub shared: bool,

    #[command(flatten)]
    pub regions: RegionPlaces,

    /// Whether to switch off the kernel's own NUMA balancing while a policy runs that moves pages or threads. Needs
    /// root
    #[arg(long, value_enum, default_value = "off")]
    pub kernel_balancing: KernelBalancing,

    /// Source of memory access samples
    #[arg(long, value_enum, default_value = "auto")]
    pub source: Source,

    /// The measured description of this machine, as written by `nearside measure --output`
    #[arg(long, value_name = "FILE")]
    pub machine: Option<String>,

    /// Place running processes and their children, until they end or Ctrl-C: numbers or names, separated by commas
    #[arg(long, value_name = "PID", value_parser = processes, value_delimiter = ',', conflicts_with_all = ["command", "system"])]
    pub pid: Vec<Named>,

    /// Place all busy processes, until Ctrl-C: those of other users only as root
    #[arg(long, conflicts_with = "command")]
    pub system: bool,

    /// The program and its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present_any = ["pid", "system"])]
    pub command: Vec<OsString>,
}

impl Arguments {
    pub fn policy_name(&self) -> Result<PolicyName, NameError> {
        let policy = self.policy.as_deref();
        match &self.memory {
            // The default places memory itself.
            Some(memory) => PolicyName::with_memory(policy.unwrap_or("kernel"), memory),
            None => policy.unwrap_or("predict").parse(),
        }
    }

    /// Length of a round of this policy; `time_scale` divides it.
    pub fn round(&self, policy: &PolicyName, time_scale: u32) -> Duration {
        let round = self.round.unwrap_or(USUAL_ROUND) / time_scale;
        let is_prompt = self.round.is_none() && !self.system && policy.is_predict_alone();
        if is_prompt { round.min(PROMPT_ROUND) } else { round }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KernelBalancing {
    /// Switched off during the run, if permitted
    Off,
    /// Left as it is
    Keep,
}

fn help() -> String {
    let policies = policy_list(&POLICIES);
    format!(
        "\
Policies:
{policies}

predict, carrefour, auto, auto-threads and thread-clustering need observed accesses: by the processor (AMD's IBS, Intel's PEBS, Arm's SPE), by the lab's \
virtual PMU, or by hint faults while NUMA balancing is on; for predict, counters of memory traffic are enough. The others decide when processes and threads start.

Privileges: none for your own programs, if `kernel.perf_event_paranoid` allows observing them (2 or less); splitting huge \
pages and switching off the kernel's balancing need root. Pages that other processes also map stay where they are, or are copied; --shared needs CAP_SYS_NICE.

Examples:
  nearside place -- ./program --its-options
  nearside place --policy balanced --memory local -- make
  nearside place --dry-run --explain -- ./program
  sudo nearside place --policy auto --pid 4711,4712 --budget 200M
  nearside lab run --machine opteron-6164x2 --time-scale 20 -- nearside place --log /tmp/decisions -- ./program

Exit codes: the program's own, 128 + n if signal n ended it. Nearside's own, with nothing started: 2 the command line is wrong, \
or names nodes or CPUs that the machine lacks, 125 another part of the request cannot be done, 126 the program cannot \
be run, 127 there is no such program. 125 also if placing fails later: the program runs on, and nearside exits when it ends.
Without a program: 0 it was interrupted, or the processes ended; 125 it failed.

Environment: NEARSIDE_TIME_SCALE (the default of --time-scale)."
    )
}

fn parse_percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.01..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("a share of one CPU in percent, from 0.01 to 100".to_owned()),
    }
}

fn parse_budget(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        0 => Err("above 0; without this option the policy chooses".to_owned()),
        budget => Ok(budget),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Place {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn memory_alone_leaves_threads_to_the_kernel() {
        let policy = |options: &[&str]| {
            let words = [&["place"], options, &["--", "true"]].concat();
            Place::try_parse_from(words).ok().unwrap().arguments.policy_name().map(|name| name.to_string())
        };
        assert_eq!(policy(&[]).unwrap(), "predict");
        assert_eq!(policy(&["--memory", "interleave"]).unwrap(), "interleave");
        assert_eq!(policy(&["--memory", "local", "--policy", "balanced"]).unwrap(), "balanced+local");
        let both = policy(&["--memory", "interleave", "--policy", "predict"]).unwrap_err().to_string();
        assert!(both.starts_with("`predict` and `interleave` both place memory"), "{both}");
    }
}
