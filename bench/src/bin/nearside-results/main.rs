//! Runs every workload under every policy on virtual machines, and writes what came of it: docs/results.md.

mod cases;
mod page;
mod targets;

use bench::Error;
use cases::{Case, MACHINES, Machine};
use clap::Parser;
use report::{CompareReport, Comparison};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Host time after which a boot is given up, s.
const TIMEOUT_S: u32 = 3600;

/// Compare all policies on all workloads in the lab, and print a page of Markdown
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Only these workloads [default: all]
    #[arg(value_name = "WORKLOAD")]
    only: Vec<String>,
    /// Only on these machines
    #[arg(long, value_name = "PRESET", value_delimiter = ',')]
    machines: Vec<String>,
    /// One workload on a small machine, in less than a minute
    #[arg(long, conflicts_with_all = ["only", "machines"])]
    quick: bool,
    /// Fail when a target is missed
    #[arg(long)]
    check: bool,
    /// Write the page to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep the JSON of each comparison in this folder; those that are there already are not made again
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

/// A workload on a machine, under all policies.
struct Compared {
    machine: &'static Machine,
    verb: &'static str,
    report: CompareReport,
}

fn main() -> ExitCode {
    bench::exit_code("nearside-results", results(&Arguments::parse()))
}

fn results(arguments: &Arguments) -> Result<ExitCode, Error> {
    let machines: Vec<&Machine> = if arguments.quick {
        vec![&cases::QUICK]
    } else {
        let wanted = |machine: &&Machine| {
            arguments.machines.is_empty() || arguments.machines.iter().any(|name| name == machine.preset)
        };
        MACHINES.iter().filter(wanted).collect()
    };
    let scratch = tempfile::tempdir().map_err(Error::system("make a temporary folder"))?;
    let folder = arguments.keep.as_deref().unwrap_or(scratch.path());
    let mut all = Vec::new();
    for machine in machines {
        let wanted = |case: &&Case| arguments.only.is_empty() || arguments.only.iter().any(|name| name == case.verb);
        let cases: Vec<&Case> = machine.cases.iter().filter(wanted).collect();
        for boot in cases.chunks(machine.cases_per_boot) {
            all.extend(compare(machine, boot, folder)?);
        }
    }
    let targets = targets::of(&all);
    let text = if arguments.quick { page::targets(&targets) } else { page::of(&all, &targets) };
    match &arguments.output {
        Some(file) => std::fs::write(file, text).map_err(Error::system(format!("write {}", file.display())))?,
        None => print!("{text}"),
    }
    let is_missed = targets.iter().any(targets::Target::is_missed);
    Ok(if arguments.check && is_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Compares with one boot.
fn compare(machine: &'static Machine, cases: &[&Case], folder: &Path) -> Result<Vec<Compared>, Error> {
    let file = |case: &Case| folder.join(machine.preset).join(format!("{}.json", case.verb));
    let missing: Vec<&Case> = cases.iter().copied().filter(|case| !file(case).exists()).collect();
    if !missing.is_empty() {
        let out = folder.join(machine.preset);
        std::fs::create_dir_all(&out).map_err(Error::system(format!("make {}", out.display())))?;
        let script: String = missing.iter().map(|case| case.script(machine, &file(case))).collect();
        let (nearside, path) = bench::programs()?;
        let mut run = Command::new(nearside);
        run.args(["lab", "run", "--quiet", "--machine", machine.preset, "--out"]).arg(&out);
        run.args(["--time-scale", &machine.time_scale.to_string(), "--timeout", &TIMEOUT_S.to_string()]);
        if let Some(cpus) = machine.cpus_per_node {
            run.args(["--cpus-per-node", &cpus.to_string()]);
        }
        run.args(["--", "sh", "-c", &script]).env("PATH", path).stdin(Stdio::null());
        let names: Vec<&str> = missing.iter().map(|case| case.verb).collect();
        eprintln!("{}: {}", machine.preset, names.join(", "));
        let status = run.status().map_err(Error::system("run nearside"))?;
        if !status.success() {
            let command = format!("nearside lab run --machine {}", machine.preset);
            return Err(Error::Failed { command, status: status.to_string(), said: String::new() });
        }
    }
    let read = |case: &&Case| {
        let text =
            std::fs::read_to_string(file(case)).map_err(Error::system(format!("read {}", file(case).display())))?;
        let comparison: Comparison = serde_json::from_str(&text)
            .map_err(|why| Error::Report { command: format!("nearside compare … {}", case.verb), why })?;
        Ok(Compared { machine, verb: case.verb, report: CompareReport::of(comparison) })
    };
    cases.iter().map(read).collect()
}
