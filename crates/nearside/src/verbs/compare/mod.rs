//! `nearside compare`: one program under several policies, side by side.

mod candidate;
mod in_lab;
mod numad;
mod opened_files;
mod oracle;
mod page_cache;
mod placed;
mod run_once;
mod runs;
mod seconds;

use crate::interrupt::interrupted;
use crate::options::machine_source;
use crate::output;
use crate::verbs::lab::MachineOptions;
use crate::verbs::record::program::find as program_file;
use candidate::Candidate;
use clap::Args;
use linux::NodeState;
use machine::Machine;
use page_cache::PageCache;
use placement::{Policy, PolicyName, Settings};
use report::{CompareReport, Comparison, Simulation, comparison_to_html};
use run_once::Runner;
use runs::Runs;
use seconds::Seconds;
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trace::live::LabCounters;

/// Run a program under several memory and thread policies, and compare
///
/// The program runs the given number of times under each policy, on this machine or, with --machine, in the lab.
/// Policies take turns, so that drift affects all of them alike. Standard input is empty, and output is shown only if
/// the program fails. A table shows the run time with the 95 % confidence interval of its mean, the speed-up over first
/// touch, where memory accesses went, how many pages were moved and what the policy itself cost. A sentence names the
/// fastest policy, if the difference is significant.
///
/// Where accesses went is counted by the lab's virtual PMU, for the whole machine; on a real machine it is not known.
/// Pages moved are all those that the kernel moved between nodes, for any program. Before each run the page cache is
/// emptied, free memory is compacted, and every file that the program opens is read, so that no run pays for reading
/// them; a first, unmeasured run shows which files those are. This needs root; --keep-caches skips it. The kernel's
/// NUMA balancing is switched off for every policy but `kernel` and restored at the end, which also needs root. Without
/// privileges, rows say what could not be done.
#[derive(Debug, Args)]
#[command(mut_arg("machine", |arg| arg.required(false)))]
#[command(after_help = format!("\
Policies:
{}

NODES are as in `nearside run`, without commas: 0-3, all, !0. Policies that place threads, and carrefour, are carried out by \
`nearside place`: see its manual for what they need.

Examples:
  nearside compare --policies first-touch,interleave,oracle -- ./program
  nearside compare --machine opteron-6164x2 --repeat 5 --html result.html -- ./program
  nearside compare -m small-4x2 --time-scale 20 --seconds /seconds -- nearside-workloads streamcluster --json
  nearside compare --seconds '{{}}s total' -- gm benchmark convert photo.bmp -negate null:

Exit codes: 0 all runs went well; 1 one did not, or the system refused; 125 the lab failed; 127 there is no such program; 2 the \
command line is wrong. Ctrl-C ends the program, restores everything, and reports the runs so far.

Environment: with --machine, as of `nearside lab run`.", candidate::list()))]
pub struct Arguments {
    #[command(flatten)]
    machine: Option<MachineOptions>,

    /// The policies, separated by commas
    #[arg(
        long,
        short,
        value_name = "POLICY,…",
        value_delimiter = ',',
        default_value = "first-touch,kernel,numad,interleave,carrefour"
    )]
    policies: Vec<Candidate>,

    /// Runs of the program under each policy
    #[arg(long, short, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,

    /// Take the time in seconds from what the program prints, instead of from its start and end: a JSON pointer into a
    /// line of JSON (/seconds), or a text with {} for the number ('{}s total'). Where the same JSON has `began_ns`, the
    /// `CLOCK_MONOTONIC` time at which the measured part began, memory accesses are counted from then on
    #[arg(long, value_name = "PATTERN")]
    seconds: Option<Seconds>,

    /// Static bindings that `oracle` tries, one run each, before the best one runs as often as the others: interleaved,
    /// a node's CPUs with its memory, all CPUs with one node's memory, and so on in turn
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    oracle_runs: u32,

    /// Leave the page cache and free memory as each run leaves them
    #[arg(long)]
    keep_caches: bool,

    /// Write the comparison as JSON to this file; - is standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a page with pictures to this file: self-contained, in light and dark
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print nothing as each run ends
    #[arg(long, short)]
    quiet: bool,

    /// In the lab: write the JSON after each run, and print no table.
    #[arg(long, hide = true, requires = "json")]
    inside: bool,

    /// The program and its arguments
    #[arg(last = true, value_name = "CMD", required = true)]
    command: Vec<OsString>,
}

/// No such program; the exit code that shells use.
const NO_PROGRAM: u8 = 127;

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    if let Some(twice) = twice(&arguments.policies) {
        return Err(crate::options::usage_error::UsageError::boxed(format!("the policy {twice} is named twice")));
    }
    let path = std::env::var_os("PATH");
    let program = arguments.command.first().cloned().unwrap_or_default();
    if program_file(&program, path.as_deref()).is_none_or(|file| !file.is_file()) {
        crate::print_error(&*Box::<dyn Error>::from(format!("there is no program {}", program.display())));
        return Ok(ExitCode::from(NO_PROGRAM));
    }
    let (comparison, machine) = match &arguments.machine {
        Some(options) => match in_lab::compare(arguments, options)? {
            Ok(compared) => compared,
            Err(status) => return Ok(status),
        },
        None => here(arguments)?,
    };
    tell(arguments, &CompareReport::new(comparison), &machine)
}

/// Checks that the machine has the nodes that policies name.
fn check(policies: &[Candidate], machine: &Machine) -> Result<(), Box<dyn Error>> {
    for policy in policies {
        // Policies of the same name have the same requirements.
        if let Ok(name) = policy.to_string().parse::<PolicyName>() {
            Policy::new(name, machine, Settings::default()).map_err(crate::options::usage_error::UsageError::boxed)?;
        }
    }
    Ok(())
}

/// A policy that is named twice.
fn twice(policies: &[Candidate]) -> Option<&Candidate> {
    let mut rest = policies.iter();
    std::iter::from_fn(|| rest.next().map(|policy| (policy, rest.clone())))
        .find_map(|(policy, mut rest)| rest.any(|other| other == policy).then_some(policy))
}

/// Compares on this machine.
fn here(arguments: &Arguments) -> Result<(Comparison, Machine), Box<dyn Error>> {
    let (machine, simulated) = machine_source::running()?;
    check(&arguments.policies, &machine)?;
    let mut remarks = Vec::new();
    let counters = LabCounters::find().unwrap_or_else(|error| {
        remarks.push(error.to_string());
        None
    });
    let nodes = NodeState::read(Path::new("/sys"))?;
    if nodes.online.len() == 1 {
        remarks
            .push("This machine has one node: there is nothing to place, and all policies are equivalent.".to_owned());
    }
    let seconds_are = arguments.seconds.as_ref().map_or_else(
        || "from the start of the command to its end".to_owned(),
        |pattern| format!("what the command prints ({pattern})"),
    );
    let time_scale = std::env::var(lab::TIME_SCALE).ok().and_then(|scale| scale.parse().ok()).unwrap_or(1);
    let simulation = Simulation {
        model_version: model::VERSION.to_owned(),
        model_without: Vec::new(),
        time_scale,
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
    };
    let mut comparison = Comparison {
        command: arguments.command.iter().map(|part| part.to_string_lossy().into_owned()).collect(),
        machine: machine.name.clone(),
        nodes: nodes.online.len(),
        cpus: machine.cpus().len(),
        simulation: simulated.then_some(simulation),
        repeat: arguments.repeat as usize,
        seconds_are,
        policies: Vec::new(),
        notes: remarks,
        interrupted: false,
    };
    let nearside = std::env::current_exe()?;
    let mut runs = Runs {
        command: &arguments.command,
        candidates: &arguments.policies,
        repeat: arguments.repeat as usize,
        seconds: arguments.seconds.as_ref(),
        oracle_tries: arguments.oracle_runs as usize,
        page_cache: (!arguments.keep_caches).then(|| PageCache::new(&arguments.command, &nearside)),
        quiet: arguments.quiet,
        simulated,
        nodes,
        nearside,
    };
    let mut runner = Runner::new(counters, interrupted()?);
    let so_far = |comparison: &Comparison| {
        // A failure to write is reported at the end.
        let _ = arguments.json.as_deref().filter(|_| arguments.inside).map(|file| in_lab::hand_over(comparison, file));
    };
    runs.run(&mut comparison, &mut runner, so_far);
    Ok((comparison, machine))
}

fn tell(arguments: &Arguments, report: &CompareReport, machine: &Machine) -> Result<ExitCode, Box<dyn Error>> {
    if arguments.inside {
        let file = arguments.json.as_deref().unwrap_or(Path::new("-"));
        in_lab::hand_over(&report.comparison, file)?;
    } else {
        let on_output = arguments.json.as_deref() == Some(Path::new("-"));
        if let Some(file) = &arguments.json {
            let json = serde_json::to_string_pretty(report)? + "\n";
            output::write(&json, Some(file.as_path()).filter(|_| !on_output))?;
        }
        if let Some(file) = &arguments.html {
            output::write(&comparison_to_html(report, machine)?, Some(file))?;
        }
        if !on_output {
            output::write(&report.to_string(), None)?;
        }
    }
    Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_has_one_row() {
        let policies = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<Candidate>>();
        assert_eq!(twice(&policies(&["kernel", "bind:0", "bind:1"])), None);
        assert_eq!(twice(&policies(&["kernel", "bind:0", "kernel"])), Some(&Candidate::Kernel));
    }
}
