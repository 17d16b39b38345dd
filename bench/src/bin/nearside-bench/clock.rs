//! How long threads wait for each other in the lab, and that this does not depend on the host's load.

use crate::busy::Busy;
use crate::target::{Row, Target, median, spread_percent};
use bench::{Error, FULL, Run, run, shown};

const MACHINE: &str = "opteron-6164x2";
/// Runs of each wait on an idle host, and again on a busy one.
const RUNS: usize = 10;
/// Waiting rounds of one run: the kernel's own work, which takes tens of microseconds now and then, is a small part of it.
/// More rounds narrow the spread of two CPUs little, and take minutes on the busy host.
const ROUNDS: usize = 1000;

/// A kind of wait, with its targets.
struct Wait {
    how: &'static str,
    cpus: &'static str,
    /// Maximum duration of a round, us: the median.
    most_us: f64,
    /// Maximum spread of the runs, hundredths.
    spread: Target,
}

const fn wait(how: &'static str, cpus: &'static str, most_us: f64, spread: Target) -> Wait {
    Wait { how, cpus, most_us, spread }
}

const WAITS: [Wait; 8] = [
    wait("futex", "0-1", 20.0, Target::None),
    wait("futex", "0,12", 40.0, Target::None),
    wait("timer", "3", 155.0, Target::None),
    wait("awake", "0-1", 4.0, Target::AtMost(1.0)),
    wait("awake", "0-7", 8.0, Target::AtMost(1.0)),
    wait("awake", "0-23", 12.0, Target::AtMost(1.0)),
    wait("asleep", "0-7", 72.0, Target::AtMost(3.0)),
    wait("asleep", "0-23", 195.0, Target::AtMost(3.0)),
];

/// Runs each kind of wait on an idle host and on a busy one, and a sleep.
pub fn measure() -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for wait in &WAITS {
        let command =
            format!("nearside-workloads waits --wait {} --pin {} --repeat {ROUNDS} --json", wait.how, wait.cpus);
        let idle = repeated(&command)?;
        let busy = {
            let _busy = Busy::start()?;
            repeated(&command)?
        };
        let all = [idle, busy].concat();
        let row = |what: String, target, measured, unit| {
            let command = shown(MACHINE, FULL, &[&command]);
            Row { what, target, measured, unit, command }
        };
        let name = format!("{}, CPUs {}", wait.how, wait.cpus);
        let (median_us, spread) = (median(all.iter().copied()), spread_percent(&all));
        // A wait takes minutes.
        eprintln!("{name}: {median_us:.3} us, spread {spread:.2} %");
        rows.push(row(format!("clock: {name}"), Target::AtMost(wait.most_us), median_us, "us"));
        let what = format!("clock: spread of {} runs, half of them on a busy host, {name}", all.len());
        rows.push(row(what, wait.spread, spread, "%"));
    }
    let slept = run(MACHINE, FULL, &["sleep", "10"])?;
    rows.push(Row {
        what: "clock: host time of `sleep 10`".to_owned(),
        target: Target::AtMost(0.5),
        measured: slept.report.host_s,
        unit: "s",
        command: slept.command,
    });
    Ok(rows)
}

/// Duration of a round in each of several runs, in one boot, us.
fn repeated(command: &str) -> Result<Vec<f64>, Error> {
    eprintln!("{command}, {RUNS} runs");
    let script = format!("for run in $(seq {RUNS}); do {command} || exit; done");
    let run: Run = run(MACHINE, FULL, &["sh", "-c", &script])?;
    let rounds = explore::numbers(&run.printed, "/mean_us");
    if rounds.len() == RUNS { Ok(rounds) } else { Err(run.no_figure("/mean_us")) }
}
