//! Cost of the library that reports a program's objects, compared with heaptrack.

use crate::host_time::Cycles;
use crate::target::{Row, Target, median};
use bench::{Error, nearside};
use observe::TickClock;
use observe::objects::{ObjectLosses, ObjectOptions, ObjectRings, ObjectsError, library};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use trace::Stacks;

/// Number of runs of each, alternating.
const RUNS: usize = 7;
/// Number of events after which the recorder drains again at once.
const BUSY: usize = 1000;
/// Bursts with rests between them: the recorder keeps up, so that no thread waits.
const BURSTS: [&str; 7] =
    ["allocate", "--json", "--threads=2", "--bytes=64", "--pairs=1000", "--bursts=300", "--rest=1000"];
/// No rests: the recorder has to keep up, on CPUs that the program uses.
const WITHOUT_REST: [&str; 6] = ["allocate", "--json", "--threads=2", "--bytes=64", "--pairs=1000", "--bursts=1000"];

/// Times pairs of malloc and free: plain, recorded, counted by site, and under heaptrack if that is installed.
pub fn measure() -> Result<Vec<Row>, Error> {
    eprintln!("pairs of malloc and free, in several ways");
    let small = ObjectOptions { small_bytes: 1024, ..ObjectOptions::default() };
    let all = ObjectOptions::default();
    let [mut told, mut counted, mut kept_up, mut theirs, mut theirs_kept_up] = [const { Vec::new() }; 5];
    let mut lost = 0;
    for _ in 0..RUNS {
        let plain = printed(Command::new(workloads()?).args(BURSTS), "/median_ns")?;
        let plain_mean = printed(Command::new(workloads()?).args(WITHOUT_REST), "/mean_ns")?;
        let mut record = |arguments: &[&str], options: &ObjectOptions, figure: &str| {
            recorded(arguments, options, figure).map(|(ns, losses)| {
                lost += losses.lost + losses.malformed;
                ns
            })
        };
        told.push(record(&BURSTS, &all, "/median_ns")? - plain);
        counted.push(record(&BURSTS, &small, "/median_ns")? - plain);
        kept_up.push(record(&WITHOUT_REST, &all, "/mean_ns")? - plain_mean);
        theirs.extend(heaptrack(&BURSTS, "/median_ns")?.map(|ns| ns - plain));
        theirs_kept_up.extend(heaptrack(&WITHOUT_REST, "/mean_ns")?.map(|ns| ns - plain_mean));
    }
    let row = |what: &str, target, measured, unit, command: &[&str]| Row {
        what: what.to_owned(),
        target,
        measured,
        unit,
        command: format!("nearside-workloads {}", command.join(" ")),
    };
    let (ours, ours_kept_up) = (median(told), median(kept_up));
    let mut rows = vec![
        row("a recorded pair of malloc and free, 2 threads, over plain", Target::AtMost(60.0), ours, "ns", &BURSTS),
        row(
            "an event of an object, half of that; MemProf's library, claim C68: 400",
            Target::AtMost(400.0),
            Cycles::of_host().of_ns(ours / 2.0),
            "cycles",
            &BURSTS,
        ),
        row("such a pair, counted by site only", Target::None, median(counted), "ns", &BURSTS),
        row("a recorded pair, without rest, the mean", Target::None, ours_kept_up, "ns", &WITHOUT_REST),
        row("events lost in all of these", Target::AtMost(0.0), lost as f64, "", &WITHOUT_REST),
    ];
    if !theirs.is_empty() {
        let (theirs, theirs_kept_up) = (median(theirs), median(theirs_kept_up));
        let of_theirs = ours_kept_up / theirs_kept_up * 100.0;
        rows.push(row("heaptrack, a pair over plain", Target::None, theirs, "ns", &BURSTS));
        rows.push(row("heaptrack, without rest, the mean", Target::None, theirs_kept_up, "ns", &WITHOUT_REST));
        rows.push(row("without rest, of heaptrack's", Target::AtMost(10.0), of_theirs, "%", &WITHOUT_REST));
    }
    Ok(rows)
}

fn workloads() -> Result<std::path::PathBuf, Error> {
    Ok(nearside()?.with_file_name("nearside-workloads"))
}

/// The number that a command printed at this path, and the number of lost events.
fn recorded(arguments: &[&str], options: &ObjectOptions, figure: &str) -> Result<(f64, ObjectLosses), Error> {
    let failed = |why: ObjectsError| Error::system("record objects")(std::io::Error::other(why));
    let library = library().map_err(failed)?;
    let mut clock = TickClock::detect();
    let mut rings = ObjectRings::create(options, &clock).map_err(failed)?;
    let mut command = Command::new(workloads()?);
    command.args(arguments).envs(rings.environment(&library, None)).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(Error::system("run nearside-workloads"))?;
    let (mut stacks, mut events) = (Stacks::new(), Vec::new());
    while child.try_wait().map_err(Error::system("wait for nearside-workloads"))?.is_none() {
        rings.look(&mut clock).map_err(failed)?;
        rings.drain(&clock, &mut stacks, &mut events);
        if events.len() < BUSY {
            std::thread::sleep(Duration::from_micros(500));
        }
        events.clear();
    }
    rings.look(&mut clock).map_err(failed)?;
    rings.finish(&clock, &mut stacks, &mut events);
    let output = child.wait_with_output().map_err(Error::system("read what nearside-workloads prints"))?;
    Ok((read_figure(&output.stdout, figure)?, rings.losses()))
}

fn printed(command: &mut Command, figure: &str) -> Result<f64, Error> {
    let output = command.stderr(Stdio::null()).output().map_err(Error::system("run nearside-workloads"))?;
    read_figure(&output.stdout, figure)
}

fn read_figure(printed: &[u8], figure: &str) -> Result<f64, Error> {
    let said = String::from_utf8_lossy(printed).into_owned();
    if let [ns] = explore::numbers(&said, figure)[..] {
        return Ok(ns);
    }
    let command = "nearside-workloads allocate --json".to_owned();
    Err(Error::NoFigure { command, figure: figure.to_owned(), said })
}

/// The same under heaptrack; `None` if that is not installed.
fn heaptrack(arguments: &[&str], figure: &str) -> Result<Option<f64>, Error> {
    let folder = tempfile::tempdir().map_err(Error::system("make a temporary folder"))?;
    let mut command = Command::new("heaptrack");
    command.arg("--output").arg(folder.path().join("trace"));
    command.arg(workloads()?).args(arguments);
    if !std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|path| is_there(&path)) {
        return Ok(None);
    }
    printed(&mut command, figure).map(Some)
}

fn is_there(folder: &Path) -> bool {
    folder.join("heaptrack").exists()
}
