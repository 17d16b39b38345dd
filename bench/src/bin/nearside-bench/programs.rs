//! Repeatability of simulated times of programs that were not written for nearside: OpenMP, threads, and a server with
//! its client.

use crate::busy::Busy;
use crate::target::{Row, Target, median, spread_percent};
use bench::{Error, FULL, run};
use machine::Random;
use std::fs;
use std::path::Path;

const MACHINE: &str = "small-4x2";
/// Runs on an idle host, and again on a busy one; each boots its own machine.
const RUNS: usize = 2;
/// Count of numbers in the text to compress.
const NUMBERS: usize = 250_000;
/// Number of proteins to align, and their length.
const PROTEINS: usize = 6;
const RESIDUES: usize = 60;
const AMINO_ACIDS: &[u8; 20] = b"ACDEFGHIKLMNPQRSTVWY";

/// Programs of the Debian packages with the same names. Threads that sleep a lot are pinned: where Linux puts them by
/// itself depends on the boot, and a run in four then takes 8 to 20 % longer.
const PROGRAMS: [(&str, &str); 3] = [
    ("clustalo", "OMP_PROC_BIND=close OMP_NUM_THREADS=8 clustalo --threads=8 --in proteins --out /tmp/aligned"),
    ("pigz", "pigz --processes 8 --stdout numbers | wc -c"),
    (
        "redis-server",
        "taskset -c 0 redis-server --save '' >/tmp/log & sleep 0.1; \
         taskset -c 2 redis-benchmark -n 3000 -c 16 -q -t set,get; redis-cli shutdown; wait",
    ),
];

/// Runs each program on an idle host and on a busy one.
pub fn measure() -> Result<Vec<Row>, Error> {
    let folder = tempfile::tempdir().map_err(Error::system("make a temporary folder"))?;
    write_inputs(folder.path()).map_err(Error::system("write the programs' input"))?;
    let mut rows = Vec::new();
    for (name, script) in PROGRAMS {
        let in_folder = format!("cd {} && {script}", folder.path().display());
        let times = || -> Result<Vec<f64>, Error> {
            (0..RUNS)
                .map(|number| {
                    let time_s = run(MACHINE, FULL, &["sh", "-c", &in_folder])?.report.measured.counters.time_s;
                    // Runs take minutes: what is measured is shown, also if a later one fails.
                    eprintln!("{name}, run {} of {RUNS}: {:.3} ms simulated", number + 1, time_s * 1e3);
                    Ok(time_s)
                })
                .collect()
        };
        let idle = times()?;
        let busy = {
            let _busy = Busy::start()?;
            times()?
        };
        let all = [idle, busy].concat();
        let row =
            |what: String, target, measured, unit| Row { what, target, measured, unit, command: script.to_owned() };
        rows.push(row(format!("programs: {name}, simulated"), Target::None, median(all.iter().copied()) * 1e3, "ms"));
        let what = format!("programs: {name}, spread of {} runs, half of them on a busy host", all.len());
        rows.push(row(what, Target::AtMost(3.0), spread_percent(&all), "%"));
    }
    Ok(rows)
}

fn write_inputs(folder: &Path) -> std::io::Result<()> {
    let numbers: Vec<String> = (0..NUMBERS).map(|number| number.to_string()).collect();
    fs::write(folder.join("numbers"), numbers.join("\n"))?;
    let mut random = Random(1);
    let mut residue = |_| char::from(AMINO_ACIDS[random.below(AMINO_ACIDS.len())]);
    let protein = |number| format!(">{number}\n{}\n", (0..RESIDUES).map(&mut residue).collect::<String>());
    fs::write(folder.join("proteins"), (0..PROTEINS).map(protein).collect::<String>())
}
