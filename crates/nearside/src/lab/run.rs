//! `nearside lab run`: one command on a virtual machine.

use super::terminal::{Raw, progress_line};
use clap::{Args, ValueEnum};
use lab::protocol::Task;
use lab::setup::Assets;
use lab::{Changes, LabError, Outcome, Run, Shape, Stage};
use machine::{presets, size};
use report::{LabReport, Samples};
use rustix::fs::{Access, access};
use rustix::process::{getgid, getgroups, getuid};
use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Run a command on a virtual NUMA machine
///
/// The command runs with this working directory, environment and user, and sees this host's files. Standard input, output and error are
/// connected; its exit status is this program's. It can read what you can read; what it writes is discarded when it ends, but for
/// files in the folder that --out names. There is no network but loopback. Ctrl-C ends it at once.
///
/// Afterwards a table on standard error says what the memory of the virtual machine did.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside lab run --machine opteron-6164x2 -- numactl --hardware
  nearside lab run --machine opteron-6164x2 -- numactl --cpunodebind=0 --membind=3 ./my-program
  nearside lab run --machine small-4x2 --numa-balancing off --json report.json -- make check
  nearside lab run --machine ./my-machine.toml --shell

Exit codes: the command's own; 128 + n when signal n ended it. Of nearside itself: 124 --timeout ran out, 125 the lab failed,
126 the command cannot be run, 127 there is no such command, 128 + n when signal n ended nearside, 2 the command line is wrong.

Environment: NEARSIDE_QEMU, NEARSIDE_KERNEL_DIR (see `nearside lab setup --help`), NEARSIDE_PLUGIN (the plugin's file, where it is
not installed beside nearside).")]
pub struct Arguments {
    /// The machine: a preset (see `nearside lab list`), or a machine file (a path with a / or ending in .toml)
    #[arg(long, short, value_name = "PRESET|FILE")]
    machine: String,

    /// Memory of each node that has any, such as 512M or 2G. Memory is taken from the host only as the guest uses it
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "1G")]
    memory_per_node: u64,

    /// Use only the first so many CPUs of each node
    #[arg(long, value_name = "N")]
    cpus_per_node: Option<u32>,

    /// Switch the kernel's own NUMA balancing on or off [default: as the kernel has it, on]
    #[arg(long, value_enum)]
    numa_balancing: Option<Switch>,

    /// Transparent huge pages [default: as the kernel has it, always]
    #[arg(long, value_enum)]
    thp: Option<HugePages>,

    /// Divide the periods of kernel services that work in seconds (NUMA balancing, khugepaged) by this, so that an experiment
    /// with them fits in a short run; reports name it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    time_scale: u32,

    /// Keep the files that the command writes below this folder, which is made if it is missing
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// End the run after this much host time, booting included
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,

    /// Give the command a terminal in place of three streams; without a command, run your shell
    #[arg(long)]
    shell: bool,

    /// Write the report as JSON to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Print no report and no progress on standard error
    #[arg(long, short)]
    quiet: bool,

    /// Sample one first-level cache miss in so many, on each CPU
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "samples", value_parser = clap::value_parser!(u64).range(1..))]
    sample_period: u64,

    /// Write samples to this file, one JSON object a line: time, CPU, pid, tid, thread name, instruction, virtual and physical address,
    /// node, cache level (4 is memory), latency, load or store
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,

    /// The command and its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present = "shell")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HugePages {
    Always,
    Madvise,
    Never,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    match prepare_and_run(arguments) {
        Ok(status) => Ok(status),
        Err(error) => {
            crate::report(error.as_ref());
            // Everything that is not the command's own failure has a status that commands seldom use.
            let status = error.downcast_ref::<LabError>().map_or(125, LabError::status);
            Ok(ExitCode::from(u8::try_from(status).unwrap_or(125)))
        }
    }
}

fn prepare_and_run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let preset = presets::load(&arguments.machine)?;
    let changes = Changes { memory_per_node: Some(arguments.memory_per_node), cpus_per_node: arguments.cpus_per_node };
    let shape = lab::shape(&preset, changes).map_err(LabError::from)?;
    let assets = Assets::find().map_err(LabError::from)?;
    // Files are made before the machine is, so that a mistake costs no time.
    let out = arguments.out.as_deref().map(out_folder).transpose()?;
    let json = arguments.json.as_deref().map(create).transpose()?;
    let samples = arguments.samples.as_deref().map(create).transpose()?;
    let run = Run { task: task(arguments, out)?, shape, timeout: arguments.timeout.map(Duration::from_secs) };
    let outcome = {
        let _raw = if arguments.shell { Some(Raw::enter().map_err(no_terminal)?) } else { None };
        boot_and_run(&assets, &run, arguments.quiet)?
    };
    if let Some(mut samples) = samples {
        for sample in &outcome.samples {
            serde_json::to_writer(&mut samples, sample)?;
            samples.write_all(b"\n")?;
        }
        samples.flush()?;
    }
    let report = report(arguments, &run, &assets, &outcome);
    if let Some(mut json) = json {
        serde_json::to_writer_pretty(&mut json, &report)?;
        json.write_all(b"\n")?;
        json.flush()?;
    }
    if !arguments.quiet {
        let _ = write!(io::stderr(), "\n{report}");
    }
    Ok(ExitCode::from(u8::try_from(report.exit_status & 0xff)?))
}

fn boot_and_run(assets: &Assets, run: &Run, quiet: bool) -> Result<Outcome, LabError> {
    let mut line = (!quiet).then(progress_line);
    lab::run(assets, run, &mut |stage| match (stage, &line) {
        (Stage::Booting, Some(line)) => line.set_message("booting the virtual machine"),
        (Stage::Preparing, Some(line)) => line.set_message("starting the command"),
        // From here on the terminal is the command's.
        (Stage::Running, Some(_)) => {
            if let Some(line) = line.take() {
                line.finish_and_clear();
            }
        }
        (_, None) => {}
    })
}

fn task(arguments: &Arguments, out: Option<PathBuf>) -> io::Result<Task> {
    let mut command = arguments.command.clone();
    if command.is_empty() {
        command.push(std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into()));
    }
    Ok(Task {
        command,
        environment: std::env::vars_os().collect(),
        directory: std::env::current_dir()?,
        uid: getuid().as_raw(),
        gid: getgid().as_raw(),
        groups: getgroups()?.into_iter().map(rustix::process::Gid::as_raw).collect(),
        terminal: if arguments.shell { lab::terminal_size().or(Some((24, 80))) } else { None },
        out,
        modules: Vec::new(),
        numa_balancing: arguments.numa_balancing.map(|switch| switch == Switch::On),
        transparent_huge_pages: arguments.thp.map(|mode| format!("{mode:?}").to_lowercase()),
        time_scale: arguments.time_scale,
        sample_period: if arguments.samples.is_some() { arguments.sample_period } else { 0 },
        sample_names: true,
    })
}

/// The folder whose files come back, as an absolute path.
fn out_folder(folder: &Path) -> Result<PathBuf, LabError> {
    let failed = |what| move |why: io::Error| LabError::File { what, path: folder.to_owned(), why };
    std::fs::create_dir_all(folder).map_err(failed("make the folder"))?;
    let folder = std::fs::canonicalize(folder).map_err(failed("find the folder"))?;
    access(&folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|why| failed("write to the folder")(why.into()))?;
    Ok(folder)
}

fn create(path: &Path) -> Result<Box<dyn Write>, LabError> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdout()));
    }
    let file = File::create(path).map_err(|why| LabError::File { what: "create", path: path.to_owned(), why })?;
    Ok(Box::new(BufWriter::new(file)))
}

fn no_terminal(why: io::Error) -> LabError {
    LabError::Host { what: "use standard input as a terminal, which --shell needs", why }
}

fn report(arguments: &Arguments, run: &Run, assets: &Assets, outcome: &Outcome) -> LabReport {
    let Shape { machine, .. } = &run.shape;
    LabReport {
        simulated: true,
        machine: machine.name.clone(),
        model_version: model::VERSION.into(),
        time_scale: arguments.time_scale,
        cpus: machine.cpus().len(),
        memory_bytes: machine.nodes.iter().map(|node| node.memory_bytes).collect(),
        kernel: assets.kernel_version.clone(),
        command: run.task.command.iter().map(|part| part.to_string_lossy().into_owned()).collect(),
        exit_status: outcome.ended.status(),
        boot_s: outcome.boot.as_secs_f64(),
        host_s: outcome.ran.as_secs_f64(),
        samples: arguments.samples.as_ref().map(|_| Samples {
            period: arguments.sample_period,
            taken: outcome.samples.len(),
            dropped: outcome.samples_dropped,
        }),
        measured: outcome.measured.clone(),
    }
}
