//! `nearside lab record`: records a program's memory accesses on a virtual machine, in one step.

use super::machine_options::MachineOptions;
use super::run::{self as lab_run, Recording};
use crate::verbs::record::{EXIT_CODES, RecordOptions, folder};
use clap::Args;
use lab::LabError;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// File in the trace's folder with the summary of the guest's `nearside record`: only that folder's files come back.
const REPORT: &str = "report.json";

/// Record a program's memory accesses on a virtual NUMA machine
///
/// Boots the machine as `nearside lab run` does, runs `nearside record` in it, and puts the trace where it would be on
/// this host. Samples come from the model, through the lab's virtual PMU, and times are simulated. Functions and
/// variables are named from this host's files, which are those of the guest. Ctrl-C ends the program, and the trace is
/// complete; a second one ends the machine at once.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  nearside lab record --machine opteron-6164x2 -- ./my-program
  nearside lab record --machine small-4x2 --json result.json -- ./my-program
  nearside lab record --machine small-4x2 --numa-balancing off --period 100 -o trace -- make check

{EXIT_CODES} 124: --timeout has expired; 125 also: the machine failed.

Environment: as of `nearside lab run`; NEARSIDE_PRELOAD (the library that reports objects, if it is not installed beside \
nearside)."))]
pub struct Arguments {
    #[command(flatten)]
    options: MachineOptions,

    #[command(flatten)]
    recording: RecordOptions,

    /// Write the result as JSON to this file; - is standard output. `run` is what the machine measured, as in `nearside
    /// lab run --json`; `recording` is as in `nearside record --json`, or null if the recording failed
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// The program and its arguments
    #[arg(last = true, value_name = "CMD", required = true)]
    command: Vec<OsString>,
}

impl Arguments {
    /// Records a command on a machine.
    pub fn new(options: MachineOptions, recording: RecordOptions, command: Vec<OsString>) -> Self {
        Self { options, recording, json: None, command }
    }
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let Arguments { options, recording, json, command } = arguments;
    if let Err(error) = recording.check() {
        crate::print_error(error.as_ref());
        return ExitCode::from(2);
    }
    let folder = recording.output.clone().unwrap_or_else(|| folder::unused(Path::new("")));
    let made = !folder.exists();
    let told = json.as_ref().map(|_| folder.join(REPORT));
    let run = guest_command(&folder, recording, told.as_deref(), command).map(|command| lab_run::Arguments {
        options: options.clone(),
        out: Some(folder.clone()),
        as_root: false,
        shake: None,
        shell: false,
        json: json.clone(),
        quiet: recording.quiet,
        recording: Some(Recording { report: told }),
        sample_period: 0,
        samples: None,
        command,
    });
    let status = match run {
        Ok(run) => lab_run::run(&run),
        Err(error) => {
            crate::print_error(&error);
            ExitCode::from(lab_run::FAILED)
        }
    };
    if made {
        // The folder is empty only if nothing was recorded.
        let _ = fs::remove_dir(&folder);
    }
    status
}

/// The guest runs this same program: its file has the same path there.
fn guest_command(
    folder: &Path,
    options: &RecordOptions,
    told: Option<&Path>,
    command: &[OsString],
) -> Result<Vec<OsString>, LabError> {
    let program =
        std::env::current_exe().map_err(|why| LabError::Host { what: "find out where this program is", why })?;
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|why| LabError::File { what: "find", path: path.to_owned(), why })
    };
    let mut all: Vec<OsString> = vec![program.into(), "record".into(), "--output".into(), absolute(folder)?.into()];
    if let Some(told) = told {
        all.extend(["--json".into(), absolute(told)?.into()]);
    }
    all.extend(options.passed_on());
    all.push("--".into());
    all.extend_from_slice(command);
    Ok(all)
}
