//! Cost of nearside's commands that act on programs, compared with bare system calls and with numactl.

use crate::target::{Row, Target, median};
use bench::{Error, FULL, Machine, nearside};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const MACHINE: &str = "small-4x2";
/// Leaves room for 1 GiB on each node.
const MEMORY_PER_NODE: u64 = 2500 << 20;
/// Pages of 4 KiB in 1 GiB.
const PAGES: usize = 262_144;
/// Limit of host time, generous for a busy host, s.
const TIMEOUT_S: u64 = 1800;
/// Number of program starts; runs with nearside and with numactl alternate.
const STARTS: usize = 200;

/// A process holds 1 GiB of small pages, which move between nodes: with a bare loop, with nearside, and so on. Prints
/// one line of JSON for each move.
const SCRIPT: &str = "
echo never > /sys/kernel/mm/transparent_hugepage/enabled
numactl --membind 0 nearside-workloads hold --size 1G > /tmp/held & pid=$!
until grep -q holding /tmp/held; do sleep 0.1; done
range=$(sed 's/holding //' /tmp/held)
for round in 1 2 3; do for node in 1 0; do
    nearside-workloads move-pages $pid ${range%-*} 262144 $node
    nearside migrate $pid --to $((node + 2)) --range $range --quiet --json | tr -d '\\n'; echo
done; done
kill $pid
";

/// Runs both benchmarks.
pub fn measure() -> Result<Vec<Row>, Error> {
    let mut rows = vec![moving()?];
    rows.extend(starting()?);
    Ok(rows)
}

fn moving() -> Result<Row, Error> {
    let machine =
        Machine { memory_per_node: Some(MEMORY_PER_NODE), timeout_s: TIMEOUT_S, ..Machine::new(MACHINE, FULL) };
    eprintln!("moving 1 GiB, by a bare loop and by nearside");
    let run = machine.run(&["sh", "-c", SCRIPT], |_| ())?;
    let figures = |path: &str| explore::numbers(&run.printed, path);
    let seconds = figures("/seconds");
    let all_moved = |path: &str| {
        let pages = figures(path);
        pages.len() == seconds.len() / 2 && pages.iter().all(|pages| *pages as usize == PAGES)
    };
    if seconds.is_empty() || !all_moved("/pages") || !all_moved("/moved/pages") {
        return Err(run.no_figure("1 GiB moved, each time"));
    }
    let (bare, ours) = (seconds.iter().step_by(2), seconds.iter().skip(1).step_by(2));
    Ok(Row {
        what: "migrate: rate of moving 1 GiB of 4 KiB pages, of a bare loop's".to_owned(),
        target: Target::AtLeast(95.0),
        measured: median(bare.copied()) / median(ours.copied()) * 100.0,
        unit: "%",
        command: format!("nearside lab run -m {MACHINE} --memory-per-node 2500M -- nearside migrate PID --to NODE"),
    })
}

/// `None` if numactl is missing or not permitted.
fn starting() -> Result<Option<Row>, Error> {
    let nearside = nearside()?;
    let numactl = Path::new("numactl");
    let start = |program: &Path, options: &[&str]| -> Result<Option<f64>, Error> {
        let mut command = Command::new(program);
        command.args(options).args(["--localalloc", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
        let begin = Instant::now();
        match command.status() {
            Ok(status) if status.success() => Ok(Some(begin.elapsed().as_secs_f64() * 1e3)),
            Ok(_) => Ok(None),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(Error::system(format!("run {}", program.display()))(why)),
        }
    };
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        theirs.extend(start(numactl, &[])?);
        ours.extend(start(&nearside, &["run"])?);
    }
    if theirs.len() < STARTS || ours.len() < STARTS {
        eprintln!("numactl is missing or forbidden here: starts are not compared");
        return Ok(None);
    }
    Ok(Some(Row {
        what: "run: start of a program, more than numactl's".to_owned(),
        target: Target::AtMost(2.0),
        measured: median(ours) - median(theirs),
        unit: "ms",
        command: "nearside run --localalloc true".to_owned(),
    }))
}
