//! `nearside record`: which object, which thread, which node, written down while a program runs.

pub mod folder;
mod options;
mod program;
mod recorder;

pub use options::{EXIT_CODES, RecordOptions};

use crate::machine_source;
use clap::{Args, ValueEnum};
use program::{NotStarted, Program};
use recorder::{RecordError, Recorded, Recorder, Sources};
use report::{RecordLoss, RecordReport, RecordSource};
use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};
use trace::live::{LabPmu, LabPmuError, SideBand, Target};
use trace::objects::{ObjectOptions, ObjectRings, library, obstacle};
use trace::{About, TickClock};

/// Everything that is not the program's own failure has a status that programs seldom use.
const FAILED: u8 = 125;
/// Of the virtual PMU: one miss in so many.
const LAB_PERIOD: u64 = 1000;
/// A program that is ahead of the recorder waits rather than lose events: on a busy machine it may be the recorder that has
/// to wait for a CPU.
const PATIENCE: Duration = Duration::from_secs(1);

/// Record a program's accesses to memory, and the objects that they are to
///
/// Starts the program with this terminal, environment and user, and writes a trace of it into a folder: sampled accesses
/// to memory (who, where from, which address, which node, how long), and the lives of its processes, threads, mappings
/// and objects. The program is not changed; what it starts is recorded, too.
///
/// Ctrl-C goes to the program as ever, and the trace is complete when that ends; a second one ends the recording at once.
/// The recording ends with the program: what that has left running goes on without being recorded.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  nearside record -- ./program --its-options
  nearside record -o before --small-objects 256 -- make check
  nearside lab run --machine opteron-6164x2 --out traces -- nearside record -o traces/first -- ./program

{EXIT_CODES}

Environment: NEARSIDE_PRELOAD (the library that tells of objects, where it is not installed beside nearside)."))]
pub struct Arguments {
    #[command(flatten)]
    options: RecordOptions,

    /// Who observes accesses to memory
    #[arg(long, value_enum, default_value = "auto")]
    source: Source,

    /// Write what came of it as JSON to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// The program and its arguments
    #[arg(last = true, value_name = "CMD", required = true)]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Source {
    /// The best that is there
    Auto,
    /// The virtual PMU of the lab
    Lab,
    /// Nobody: objects, processes and mappings only
    None,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let status = record(arguments).unwrap_or_else(|error| {
        crate::report(error.as_ref());
        error.downcast_ref::<NotStarted>().map_or(FAILED, NotStarted::status)
    });
    ExitCode::from(status)
}

fn record(arguments: &Arguments) -> Result<u8, Box<dyn Error>> {
    let folder = arguments.options.output.clone().unwrap_or_else(|| folder::unused(Path::new("")));
    let (machine, simulated) = machine_source::running()?;
    let (sources, library) = sources(arguments)?;
    let mut recorder = Recorder::begin(sources, &folder, &machine, about(&arguments.command, simulated))?;
    let mut program = match Program::start(&arguments.command, &recorder.environment(library.as_deref())) {
        Ok(program) => program,
        Err(error) => {
            recorder.take_back()?;
            return Err(error.into());
        }
    };
    recorder.add_process(program.pid());
    let recorded = follow(recorder, &mut program, arguments.options.duration);
    if let Err(error) = &recorded {
        crate::report(error);
    }
    // The program's end is its own affair.
    while program.status()?.is_none() && !program.is_to_be_left() {
        program.wait(Duration::from_secs(1));
    }
    let Ok(recorded) = recorded else { return Ok(FAILED) };
    let status = program.status()?;
    tell(arguments, &recorded, status)?;
    Ok(status.map_or(0, |status| (status & 0xff) as u8))
}

/// Records until the program ends, the user has enough, or so long.
fn follow(mut recorder: Recorder, program: &mut Program, duration: Option<Duration>) -> Result<Recorded, RecordError> {
    let end = duration.and_then(|duration| Instant::now().checked_add(duration));
    loop {
        let patience = recorder.drain()?;
        let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        let ended = !matches!(program.status(), Ok(None));
        if ended || left.is_zero() || program.is_to_be_left() {
            return recorder.finish();
        }
        program.wait(patience.min(left));
    }
}

/// Opens all that is asked for, as far as it is there.
fn sources(arguments: &Arguments) -> Result<(Sources, Option<PathBuf>), Box<dyn Error>> {
    let mut notes = Vec::new();
    let pmu = match arguments.source {
        Source::None => None,
        Source::Lab => {
            Some(LabPmu::find()?.ok_or("there is no virtual PMU: this is not the lab (see `nearside lab run`)")?)
        }
        Source::Auto => LabPmu::find().unwrap_or_else(|error: LabPmuError| {
            notes.push(error.to_string());
            None
        }),
    };
    if let Some(pmu) = &pmu {
        pmu.set_period(arguments.options.period.unwrap_or(LAB_PERIOD));
    } else {
        notes.push("no accesses to memory were sampled".to_owned());
    }
    // The guest's clock stands still for microseconds; programs and the virtual PMU have a finer one in common.
    let clock = if pmu.is_some() { TickClock::tsc() } else { TickClock::detect() };
    let mut objects = None;
    if !arguments.options.no_objects {
        match library().and_then(|library| Ok((rings(arguments, &clock)?, library))) {
            Ok(found) => objects = Some(found),
            Err(error) => notes.push(format!("no objects were recorded: {error}")),
        }
        let path = std::env::var_os("PATH");
        let program = arguments.command.first().and_then(|program| program::find(program, path.as_deref()));
        if let Some(Ok(Some(obstacle))) = program.map(|program| obstacle(&program)) {
            notes.push(format!("no objects were recorded: {obstacle}"));
        }
    }
    let side_band = SideBand::open(&Target::Program);
    let side_band =
        side_band.map_err(|error| notes.push(format!("processes are known by their objects only: {error}"))).ok();
    let (objects, library) = objects.unzip();
    Ok((Sources { clock, objects, side_band, pmu, notes }, library))
}

fn rings(arguments: &Arguments, clock: &TickClock) -> Result<ObjectRings, trace::objects::ObjectsError> {
    let small_bytes = usize::try_from(arguments.options.small_objects).unwrap_or(usize::MAX);
    ObjectRings::create(&ObjectOptions { small_bytes, patience: PATIENCE, ..ObjectOptions::default() }, clock)
}

fn about(command: &[OsString], simulated: bool) -> About {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    About {
        host: text(uname.nodename()),
        kernel: text(uname.release()),
        architecture: text(uname.machine()),
        began_unix_s: began.map_or(0, |began| began.as_secs()),
        simulated,
        ..About::of_command(command.iter().map(|part| part.to_string_lossy().into_owned()).collect())
    }
}

fn tell(arguments: &Arguments, recorded: &Recorded, exit_status: Option<i32>) -> Result<(), Box<dyn Error>> {
    let Recorded { folder, about, counts, processes, duration } = recorded;
    let sources = about
        .sources
        .iter()
        .map(|source| RecordSource { event: source.event.clone(), cannot_see: source.cannot_see.clone() });
    let lost = about.lost.iter().map(|loss| RecordLoss { what: loss.what.clone(), count: loss.count });
    let report = RecordReport {
        trace: folder.display().to_string(),
        bytes: bytes(folder),
        simulated: about.simulated,
        exit_status,
        seconds: duration.as_secs_f64(),
        samples: counts.samples,
        events: counts.events,
        objects: counts.objects,
        processes: *processes,
        sources: sources.collect(),
        lost: lost.collect(),
        notes: about.notes.clone(),
    };
    if !arguments.options.quiet {
        // There is nobody left to tell when standard error is closed.
        let _ = write!(std::io::stderr(), "{report}");
    }
    if let Some(file) = &arguments.json {
        let file = Some(file.as_path()).filter(|file| *file != Path::new("-"));
        crate::output::write(&(serde_json::to_string_pretty(&report)? + "\n"), file)?;
    }
    Ok(())
}

/// Of all files of a folder. What is gone meanwhile has none.
fn bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}
