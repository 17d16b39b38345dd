//! Speed of the lab on this host, and the repeatability of its times.

use crate::target::{Row, Target, median, spread_percent};
use bench::{Error, FULL, Machine, Run, run};

/// 8 CPUs on 4 nodes.
const SMALL: &str = "small-4x2";
/// 48 CPUs on 8 nodes.
const LARGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/machines/8-nodes-48-cpus.toml");
/// The same in the page of figures.
const LARGE_SHOWN: &str = "bench/machines/8-nodes-48-cpus.toml";
/// Boots of the large machine: each takes long, and they differ little.
const LARGE_BOOTS: usize = 3;

/// A program that runs several times.
struct Program {
    command: &'static str,
    fidelity: &'static str,
    threads: usize,
    /// JSON pointer of its own time, in any unit.
    own_time: &'static str,
    /// Target: accesses per second, millions.
    speed: Target,
    /// Target: spread of its own time, hundredths.
    spread: Target,
}

const READERS: &str = "nearside-workloads readers --pin 0-7 --repeat 10 --json";

/// `readers` mostly hits in its caches; the others miss more often.
const PROGRAMS: [Program; 5] = [
    Program {
        command: READERS,
        fidelity: FULL,
        threads: 8,
        own_time: "/seconds",
        speed: Target::AtLeast(60.0),
        spread: Target::AtMost(3.0),
    },
    Program {
        command: READERS,
        fidelity: "fast",
        threads: 8,
        own_time: "/seconds",
        speed: Target::AtLeast(60.0),
        spread: Target::AtMost(3.0),
    },
    Program {
        command: "nearside-workloads streamcluster --pin 0-7 --repeat 10 --json",
        fidelity: FULL,
        threads: 8,
        own_time: "/seconds",
        speed: Target::AtLeast(25.0),
        spread: Target::AtMost(3.0),
    },
    Program {
        command: "nearside-workloads chase --pin 0-7 --threads 8 --size 16M --json",
        fidelity: FULL,
        threads: 8,
        own_time: "/mean_ns",
        speed: Target::AtLeast(14.0),
        spread: Target::AtMost(3.0),
    },
    Program {
        command: "nearside-workloads chase --pin 0 --size 32M --json",
        fidelity: FULL,
        threads: 1,
        own_time: "/mean_ns",
        speed: Target::None,
        spread: Target::AtMost(0.5),
    },
];

/// Runs each program `runs` times, and boots the large machine.
pub fn measure(runs: usize) -> Result<Vec<Row>, Error> {
    let (mut speeds, mut spreads, mut boots) = (Vec::new(), Vec::new(), Vec::new());
    for program in &PROGRAMS {
        let runs = repeat(SMALL, program.fidelity, program.command, runs)?;
        let command = || runs.first().map_or(String::new(), |run| run.command.clone());
        let name = program.command.split_whitespace().nth(1).unwrap_or_default();
        let threads = if program.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", program.threads) };
        let threads = if program.fidelity == FULL { threads } else { format!("{threads}, {}", program.fidelity) };
        speeds.push(Row {
            what: format!("lab: simulated accesses, {name}, {threads}"),
            target: program.speed,
            measured: median(runs.iter().map(accesses_per_s)) / 1e6,
            unit: "M/s",
            command: command(),
        });
        let own_times = runs.iter().map(|run| run.figure(program.own_time)).collect::<Result<Vec<_>, _>>()?;
        spreads.push(Row {
            what: format!("lab: spread of {} runs' own time, {name}, {threads}", runs.len()),
            target: program.spread,
            measured: spread_percent(&own_times),
            unit: "%",
            command: command(),
        });
        boots.extend(runs.iter().map(|run| run.report.boot_s));
    }
    let large = repeat(LARGE, FULL, "true", LARGE_BOOTS)?;
    let large = large.iter().map(|run| run.report.boot_s);
    let boots = [
        boot("8 CPUs, 4 nodes", 4.0, SMALL, median(boots)),
        boot("48 CPUs, 8 nodes", 15.0, LARGE_SHOWN, median(large)),
        continued(LARGE_BOOTS)?,
    ];
    Ok(speeds.into_iter().chain(boots).chain(spreads).collect())
}

fn repeat(machine: &str, fidelity: &'static str, command: &str, runs: usize) -> Result<Vec<Run>, Error> {
    let words: Vec<&str> = command.split_whitespace().collect();
    (0..runs)
        .map(|number| {
            eprintln!("{command}, run {} of {runs}", number + 1);
            run(machine, fidelity, &words)
        })
        .collect()
}

fn accesses_per_s(run: &Run) -> f64 {
    let counters = &run.report.measured.counters;
    (counters.loads + counters.stores) as f64 / run.report.host_s
}

/// How long the large machine takes to continue its saved boot.
fn continued(runs: usize) -> Result<Row, Error> {
    let machine = Machine { fresh_boot: false, ..Machine::new(LARGE, FULL) };
    // It boots if it has not before.
    machine.run(&["true"], |_| ())?;
    let continued = (0..runs).map(|_| {
        let run = machine.run(&["true"], |_| ())?;
        if run.report.saved_boot { Ok(run.report.boot_s) } else { Err(run.no_figure("saved_boot")) }
    });
    let measured = median(continued.collect::<Result<Vec<_>, Error>>()?);
    let command = Machine { fresh_boot: false, ..Machine::new(LARGE_SHOWN, FULL) }.shown(&["true"]);
    let what = "lab: continuing a saved boot, 48 CPUs, 8 nodes".to_owned();
    Ok(Row { what, target: Target::AtMost(3.0), measured, unit: "s", command })
}

fn boot(what: &str, most: f64, machine: &str, measured: f64) -> Row {
    let command = bench::shown(machine, FULL, &["true"]);
    Row { what: format!("lab: boot, {what}"), target: Target::AtMost(most), measured, unit: "s", command }
}
