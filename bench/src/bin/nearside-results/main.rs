//! Runs every workload under every policy on virtual machines, and writes the results: docs/results.md.

mod cases;
mod page;
mod result_cache;
mod targets;

use bench::Error;
use cases::{CASES, Case, MACHINES, Machine, OF_MIX};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use report::CompareReport;
use result_cache::ResultCache;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

/// Limit of host time for a boot, s.
const TIMEOUT_S: u32 = 3600;

/// Compare all policies on all workloads in the lab, and print a page of Markdown
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Only these workloads [default: all]
    #[arg(value_name = "WORKLOAD", value_parser = one_of(CASES.iter().map(|case| case.verb)))]
    only: Vec<String>,
    /// Only on these machines
    #[arg(long, value_name = "PRESET", value_delimiter = ',', value_parser = one_of(presets()))]
    machines: Vec<String>,
    /// Number of virtual machines at a time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// Fail if a target is missed
    #[arg(long)]
    check: bool,
    /// Write the page to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep the results of each policy in this folder; existing ones are not run again
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Run these policies again, even if they have results
    #[arg(long, value_name = "POLICY", value_delimiter = ',', value_parser = one_of(OF_MIX.split(',')))]
    again: Vec<String>,
}

/// The comparisons of one boot.
type Boot = (&'static Machine, Vec<&'static Case>);

/// A workload on a machine, under all policies.
struct Compared {
    machine: &'static Machine,
    verb: &'static str,
    /// The policies to run.
    policies: &'static str,
    report: CompareReport,
}

/// Each preset once.
fn presets() -> impl Iterator<Item = &'static str> {
    MACHINES.iter().filter(|machine| !machine.has_longer_rounds()).map(|machine| machine.preset)
}

/// A parser that accepts these names only.
fn one_of(names: impl Iterator<Item = &'static str>) -> PossibleValuesParser {
    PossibleValuesParser::new(names)
}

fn main() -> ExitCode {
    bench::exit_code("nearside-results", results(&Arguments::parse()))
}

fn results(arguments: &Arguments) -> Result<ExitCode, Error> {
    let is_named = |machine: &&Machine| {
        arguments.machines.is_empty() || arguments.machines.iter().any(|name| name == machine.preset)
    };
    let scratch = tempfile::tempdir().map_err(Error::system("make a temporary folder"))?;
    let cache = ResultCache { folder: arguments.keep.as_deref().unwrap_or(scratch.path()), again: &arguments.again };
    let wanted = |case: &&Case| arguments.only.is_empty() || arguments.only.iter().any(|name| name == case.verb);
    let mut boots: Vec<Boot> = Vec::new();
    for machine in MACHINES.iter().filter(is_named) {
        let cases: Vec<&'static Case> = machine.cases.iter().filter(wanted).collect();
        boots.extend(cases.chunks(machine.cases_per_boot).map(|cases| (machine, cases.to_vec())));
    }
    let all = compare_all(&boots, arguments.jobs.into(), &cache)?;
    let targets = targets::of(&all);
    let text = page::of(&all, &targets);
    match &arguments.output {
        Some(file) => std::fs::write(file, text).map_err(Error::system(format!("write {}", file.display())))?,
        None => print!("{text}"),
    }
    let is_missed = targets.iter().any(targets::Target::is_missed);
    Ok(if arguments.check && is_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs several boots at a time: a virtual machine keeps little more than one host CPU busy, and its own clock does not
/// depend on the host's load.
fn compare_all(boots: &[Boot], jobs: usize, cache: &ResultCache) -> Result<Vec<Compared>, Error> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, Vec<Compared>)>, Error> {
        let indices = std::iter::from_fn(|| Some(next.fetch_add(1, Relaxed)));
        let mine = indices.map_while(|index| boots.get(index).map(|boot| (index, boot)));
        mine.map(|(index, (machine, cases))| Ok((index, compare(machine, cases, cache)?))).collect()
    };
    let mut all = Vec::new();
    let done = thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect::<Vec<_>>()
    });
    for done in done {
        all.extend(done?);
    }
    all.sort_unstable_by_key(|(index, _)| *index);
    Ok(all.into_iter().flat_map(|(_, compared)| compared).collect())
}

/// Runs the missing comparisons in one boot.
fn compare(machine: &'static Machine, cases: &[&'static Case], cache: &ResultCache) -> Result<Vec<Compared>, Error> {
    let mut missing = Vec::new();
    for case in cases {
        missing.extend(cache.missing(machine, case)?.into_iter().map(|policy| (*case, policy)));
    }
    if !missing.is_empty() {
        let file = |case| cache.file(machine, case);
        let script: String = missing.iter().map(|(case, policy)| case.script(policy, machine, &file(case))).collect();
        let (nearside, path) = bench::programs()?;
        let mut run = Command::new(nearside);
        run.args(["lab", "run", "--quiet", "--machine", machine.preset, "--out"]).arg(cache.folder_of(machine));
        // These programs are so small that a huge page would be a large part of each thread's memory.
        run.args([
            "--thp",
            "never",
            "--time-scale",
            &machine.time_scale.to_string(),
            "--timeout",
            &TIMEOUT_S.to_string(),
        ]);
        if let Some(cpus) = machine.cpus_per_node {
            run.args(["--cpus-per-node", &cpus.to_string()]);
        }
        run.args(["--", "sh", "-c", &script]).env("PATH", path).stdin(Stdio::null());
        let names: Vec<String> = missing.iter().map(|(case, policy)| format!("{} {policy}", case.verb)).collect();
        eprintln!("{}: {}", machine.preset, names.join(", "));
        let status = run.status().map_err(Error::system("run nearside"))?;
        if !status.success() {
            let command = format!("nearside lab run --machine {}", machine.preset);
            return Err(Error::Failed { command, status: status.to_string(), said: String::new() });
        }
    }
    let read = |case: &&'static Case| {
        let report = CompareReport::new(cache.comparison(machine, case)?);
        Ok(Compared { machine, verb: case.verb, policies: case.policies, report })
    };
    cases.iter().map(read).collect()
}
