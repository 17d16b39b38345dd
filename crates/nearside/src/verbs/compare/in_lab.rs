//! `nearside compare --machine`: the comparison in the lab, with one boot.
//!
//! The guest runs this same program with the same options, and hands over the result of each run through the output
//! folder; tables and pages are made on the host.

use super::{Arguments, BETWEEN};
use crate::options::policy::note;
use crate::options::usage_error::UsageError;
use crate::verbs::lab::{LAB_FAILED, LabArguments, MachineOptions, Recording, run_in_lab};
use compare::Progress;
use lab::LabError;
use machine::Machine;
use report::{Comparison, Simulation};
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks at the file.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Name of the file that the guest hands over.
const FILE: &str = "comparison.json";

/// How a comparison in the lab ended.
pub struct Compared {
    /// Its results so far and the machine; none if the lab ended before the first, which is reported already.
    pub results: Option<(Comparison, Machine)>,
    /// Nearside's exit code, if it does not follow from the results.
    pub exit_code: Option<ExitCode>,
}

/// Compares in the lab.
pub fn compare(arguments: &Arguments, options: &MachineOptions) -> Result<Compared, Box<dyn Error>> {
    let shape = match options.shape() {
        Ok(shape) => shape,
        Err(error) => {
            crate::print_error(error.as_ref());
            return Ok(Compared { results: None, exit_code: Some(ExitCode::from(LAB_FAILED)) });
        }
    };
    compare::check(&arguments.policies, &shape.machine).map_err(UsageError::boxed)?;
    let folder = tempfile::tempdir().map_err(|why| LabError::Host { what: "make a temporary folder", why })?;
    let file = folder.path().join(FILE);
    let lab = LabArguments {
        options: options.clone(),
        out: Some(folder.path().to_owned()),
        as_root: false,
        shake: None,
        shell: false,
        json: None,
        quiet: arguments.quiet,
        // The comparison prints no table of the lab's.
        recording: Some(Recording { report: None }),
        sample_period: 0,
        samples: None,
        command: guest_command(arguments, &file)?,
    };
    let is_over = AtomicBool::new(false);
    let status = thread::scope(|scope| {
        if !arguments.quiet {
            scope.spawn(|| print_progress(&file, &is_over));
        }
        let status = run_in_lab(&lab);
        is_over.store(true, Relaxed);
        status
    });
    let text = match fs::read_to_string(&file) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            return Ok(Compared { results: None, exit_code: Some(status) });
        }
        read => read.map_err(|why| LabError::File { what: "read", path: file.clone(), why })?,
    };
    let mut comparison: Comparison = serde_json::from_str(&text)?;
    comparison.machine.clone_from(&shape.machine.name);
    comparison.simulation = Some(Simulation {
        model_version: model::VERSION.to_owned(),
        model_without: options.mechanisms().missing(),
        time_scale: options.time_scale,
        // Only the guest knows its kernel.
        kernel: comparison.simulation.map_or_else(String::new, |inside| inside.kernel),
    });
    // Ctrl-C ends the machine at once: the run in progress has not been handed over.
    comparison.interrupted |= is_unfinished(&comparison);
    let is_the_labs = [ExitCode::from(LabError::TIMED_OUT), ExitCode::from(LAB_FAILED)].contains(&status);
    Ok(Compared { results: Some((comparison, shape.machine)), exit_code: is_the_labs.then_some(status) })
}

/// Says how long the rest takes as each run ends, in the time of this host, which the guest does not know.
fn print_progress(file: &Path, is_over: &AtomicBool) {
    let mut first: Option<(usize, Instant)> = None;
    let mut told = Instant::now();
    let mut last = 0;
    while !is_over.load(Relaxed) {
        thread::sleep(POLL_INTERVAL);
        let read = fs::read_to_string(file).ok().and_then(|text| serde_json::from_str::<Comparison>(&text).ok());
        let progress = read.map(|comparison| Progress::of(&comparison.policies, comparison.repeat));
        let Some(progress) = progress.filter(|progress| progress.ended > last) else { continue };
        last = progress.ended;
        // What came before the first handover is not all its run.
        let (ended, began) = *first.get_or_insert((progress.ended, Instant::now()));
        let text = progress.text(progress.ended - ended, began.elapsed());
        if let Some(text) = text.filter(|_| told.elapsed() >= BETWEEN) {
            note(&text);
            told = Instant::now();
        }
    }
}

/// Whether runs are missing.
fn is_unfinished(comparison: &Comparison) -> bool {
    let is_over = |policy: &report::PolicyRuns| {
        policy.runs.len() == comparison.repeat || policy.left_out.is_some() || policy.failed.is_some()
    };
    !comparison.policies.iter().all(is_over)
}

/// Writes the results so far, for the host. The file is replaced atomically.
pub fn hand_over(comparison: &Comparison, file: &Path) -> Result<(), Box<dyn Error>> {
    let new = file.with_extension("new");
    let text = serde_json::to_string(comparison)?;
    trace::create_private_file(&new)
        .and_then(|mut created| created.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&new, file))
        .map_err(|why| LabError::File { what: "write", path: file.to_owned(), why }.into())
}

/// The guest runs this same program: its file has the same path there.
fn guest_command(arguments: &Arguments, file: &Path) -> Result<Vec<OsString>, LabError> {
    let program =
        std::env::current_exe().map_err(|why| LabError::Host { what: "find out where this program is", why })?;
    let mut all: Vec<OsString> =
        vec![program.into(), "compare".into(), "--inside".into(), "--json".into(), file.into()];
    let mut give = |name: &str, value: String| all.extend([name.into(), value.into()]);
    let policies: Vec<String> = arguments.policies.iter().map(ToString::to_string).collect();
    give("--policies", policies.join(","));
    give("--repeat", arguments.repeat.to_string());
    if let Some(runs) = arguments.warm_ups {
        give("--warm-ups", runs.to_string());
    }
    give("--oracle-runs", arguments.oracle_runs.to_string());
    if let Some(pattern) = &arguments.seconds {
        give("--seconds", pattern.to_string());
    }
    all.extend(arguments.place_options().into_iter().map(OsString::from));
    let switches = [("--keep-caches", arguments.keep_caches), ("--quiet", arguments.quiet)];
    all.extend(switches.iter().filter(|(_, on)| *on).map(|(name, _)| OsString::from(name)));
    all.push("--".into());
    all.extend_from_slice(&arguments.command);
    Ok(all)
}
