//! What recording costs the recorded program, and what is lost of much.

use crate::target::{Row, Target, median};
use bench::{Error, FULL, Run, nearside, run};
use serde_json::Value;
use std::process::Command;

const MACHINE: &str = "small-4x2";
/// How often the program is run in each way.
const RUNS: usize = 3;
/// Bound by memory: all threads read what one node has.
const PROGRAM: &str = "nearside-workloads streamcluster --pin 0-7 --repeat 10 --json";
/// Samples that are to be kept at least.
const SAMPLES: f64 = 10_000.0;
/// What came of it is told on the stream that the program leaves alone.
const RECORD: &str = "nearside record --quiet --json /dev/stderr -o /tmp/nearside-bench-trace --";
/// Two events a pair, for a second or more.
const PAIRS: [&str; 6] = ["allocate", "--json", "--threads=2", "--bytes=64", "--pairs=1000", "--bursts=500"];
const EVENTS_PER_S: f64 = 200_000.0;

/// Runs a program in the lab with and without a recorder, and lets programs tell faster than recorders have to take it.
pub fn measure() -> Result<Vec<Row>, Error> {
    let mut rows = slow_down()?;
    rows.extend(losses()?);
    Ok(rows)
}

fn slow_down() -> Result<Vec<Row>, Error> {
    let recorded_command = format!("{RECORD} {PROGRAM}");
    let (mut plain, mut recorded, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..=RUNS {
        eprintln!("{PROGRAM}, plain and recorded, run {number} of {RUNS}");
        plain.push(run_words(PROGRAM)?.figure("/seconds")?);
        let run = run_words(&recorded_command)?;
        recorded.push(run.figure("/seconds")?);
        kept.push(number_of(&told(&run.complained, &recorded_command)?, "/samples"));
    }
    let row = |what: &str, target, measured, unit| Row {
        what: format!("{what}, 8 threads in the lab"),
        target,
        measured,
        unit,
        command: bench::shown(MACHINE, FULL, &[&recorded_command]),
    };
    let slower = (median(recorded) / median(plain) - 1.0) * 100.0;
    Ok(vec![
        row("slow-down of streamcluster while it is recorded", Target::AtMost(3.0), slower, "%"),
        row("samples kept meanwhile", Target::AtLeast(SAMPLES), median(kept), ""),
    ])
}

fn run_words(command: &str) -> Result<Run, Error> {
    run(MACHINE, FULL, &command.split_whitespace().collect::<Vec<_>>())
}

fn losses() -> Result<Vec<Row>, Error> {
    eprintln!("pairs of malloc and free, recorded");
    let folder = tempfile::tempdir().map_err(Error::system("make a temporary folder"))?;
    let nearside = nearside()?;
    let mut command = Command::new(&nearside);
    command.args(["record", "--quiet", "--source", "none", "--json", "/dev/stderr", "-o"]);
    command.arg(folder.path().join("trace")).arg("--").arg(nearside.with_file_name("nearside-workloads")).args(PAIRS);
    let shown = format!("nearside record -- nearside-workloads {}", PAIRS.join(" "));
    let output = command.output().map_err(Error::system("run nearside record"))?;
    let [printed, complained] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    if !output.status.success() {
        return Err(Error::Failed { command: shown, status: output.status.to_string(), said: printed + &complained });
    }
    let told = told(&complained, &shown)?;
    let pairs = explore::numbers(&printed, "/number").first().copied().unwrap_or(f64::NAN);
    let lost: f64 = told["lost"].as_array().into_iter().flatten().map(|loss| number_of(loss, "/count")).sum();
    // A pair is told if its object is; what is lost is at most that many of the others.
    let unaccounted = (pairs - number_of(&told, "/objects") - lost).max(0.0);
    let row = |what: &str, target, measured, unit| Row {
        what: what.to_owned(),
        target,
        measured,
        unit,
        command: shown.clone(),
    };
    let per_s = number_of(&told, "/events") / number_of(&told, "/seconds");
    Ok(vec![
        row("events recorded", Target::AtLeast(EVENTS_PER_S), per_s, "/s"),
        row("pairs neither told nor counted as lost meanwhile", Target::AtMost(0.0), unaccounted, ""),
        row("events lost and counted meanwhile", Target::None, lost, ""),
    ])
}

/// What `nearside record` told of itself.
fn told(text: &str, command: &str) -> Result<Value, Error> {
    let start = text.find('{').unwrap_or(0);
    serde_json::from_str(text.get(start..).unwrap_or_default())
        .map_err(|why| Error::Report { command: command.to_owned(), why })
}

fn number_of(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN)
}
