//! Cost of recording for the recorded program, and losses at high rates.

use crate::target::{Row, Target, median};
use bench::{Error, FULL, Run, nearside, run};
use serde_json::Value;
use std::process::Command;

const MACHINE: &str = "small-4x2";
/// Number of runs in each way.
const RUNS: usize = 3;
/// Memory-bound: all threads read memory of one node.
const PROGRAM: &str = "nearside-workloads streamcluster --pin 0-7 --repeat 10 --json";
const CPUS: f64 = 8.0;
/// Sampling periods of a CPU in cycles, with the published profiler's slow-down at that period, %, and the number of
/// that claim.
const PACES: [(f64, f64, &str); 2] = [(60_000.0, 5.0, "C65"), (20_000.0, 20.0, "C66")];
/// Minimum number of samples kept.
const SAMPLES: f64 = 10_000.0;
/// The summary goes to the stream that the program does not use.
const RECORD: &str = "nearside record --quiet --json /dev/stderr -o /tmp/nearside-bench-trace";
/// Two events per pair, for at least a second.
const PAIRS: [&str; 6] = ["allocate", "--json", "--threads=2", "--bytes=64", "--pairs=1000", "--bursts=500"];
const EVENTS_PER_S: f64 = 200_000.0;

/// Runs a program in the lab with and without a recorder, and lets programs produce events faster than recorders can
/// drain.
pub fn measure() -> Result<Vec<Row>, Error> {
    let mut rows = slow_down()?;
    rows.extend(losses()?);
    Ok(rows)
}

/// A program recorded in one way, with as many runs as without.
#[derive(Default)]
struct Recorded {
    command: String,
    seconds: Vec<f64>,
    samples: Vec<f64>,
    /// Running time of all CPUs, s.
    cpu_seconds: Vec<f64>,
}

impl Recorded {
    fn with(options: &str) -> Self {
        Self { command: format!("{RECORD} {options}-- {PROGRAM}"), ..Self::default() }
    }

    fn run(&mut self) -> Result<(), Error> {
        let run = run_words(&self.command)?;
        self.seconds.push(run.figure("/seconds")?);
        self.samples.push(number_of(&told(&run.complained, &self.command)?, "/samples"));
        self.cpu_seconds.push(run.report.measured.cpu_time_s);
        Ok(())
    }
}

fn slow_down() -> Result<Vec<Row>, Error> {
    let core = machine::presets::find(MACHINE)?.core;
    let clock_hz = core.map_or(f64::NAN, |core| core.clock_hz);
    let mut plain = Vec::new();
    let mut usual = Recorded::with("");
    let mut paced = PACES.map(|(cycles, ..)| Recorded::with(&format!("--rate {:.0} ", clock_hz / cycles)));
    for number in 1..=RUNS {
        eprintln!("{PROGRAM}, plain and recorded, run {number} of {RUNS}");
        plain.push(run_words(PROGRAM)?.figure("/seconds")?);
        usual.run()?;
        paced.iter_mut().try_for_each(Recorded::run)?;
    }
    let plain = median(plain);
    let row = |what: String, target, measured, unit, recorded: &Recorded| Row {
        what: format!("{what}, 8 threads in the lab"),
        target,
        measured,
        unit,
        command: bench::shown(MACHINE, FULL, &[&recorded.command]),
    };
    let longer = |recorded: &Recorded| median(recorded.seconds.iter().copied()) - plain;
    let kept = |recorded: &Recorded| median(recorded.samples.iter().copied());
    let slower = |recorded: &Recorded| longer(recorded) / plain * 100.0;
    let mut rows = vec![
        row("slow-down of streamcluster while it is recorded".into(), Target::AtMost(3.0), slower(&usual), "%", &usual),
        row("samples kept during these runs".into(), Target::AtLeast(SAMPLES), kept(&usual), "", &usual),
    ];
    for (recorded, (cycles, theirs, claim)) in paced.iter().zip(PACES) {
        let apart = median(recorded.cpu_seconds.iter().copied()) * clock_hz / kept(recorded);
        eprintln!("a sample each {:.0} k cycles", apart / 1e3);
        let what = format!("likewise, a sample each {:.0} k cycles; MemProf, claim {claim}: {theirs} %", cycles / 1e3);
        rows.push(row(what, Target::AtMost(theirs), slower(recorded), "%", recorded));
        let of_each = longer(recorded) * CPUS * clock_hz / kept(recorded);
        let (spacing, published) = (cycles / 1e3, cycles * theirs / 100.0);
        let what = format!("what each sample in {spacing:.0} k cycles costs; MemProf: {published:.0}");
        rows.push(row(what, Target::None, of_each, "cycles", recorded));
    }
    Ok(rows)
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
    // A pair is recorded if its object is; the losses account for at most that many others.
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
        row("pairs neither recorded nor counted as lost", Target::AtMost(0.0), unaccounted, ""),
        row("events counted as lost", Target::None, lost, ""),
    ])
}

/// The summary of `nearside record`.
fn told(text: &str, command: &str) -> Result<Value, Error> {
    let start = text.find('{').unwrap_or(0);
    serde_json::from_str(text.get(start..).unwrap_or_default())
        .map_err(|why| Error::Report { command: command.to_owned(), why })
}

fn number_of(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN)
}
