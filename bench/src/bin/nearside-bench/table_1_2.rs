//! What programs in the lab see of the memory of presets A and B, against what was measured on the real machines:
//! Lepers, "Improving performance on NUMA systems", 2014, table 1.2.

use crate::target::{Row, Target};
use bench::{Error, run, shown};

/// Latencies may be so many hundredths off, and bandwidths so many.
const LATENCY_PERCENT: f64 = 3.0;
const BANDWIDTH_PERCENT: f64 = 10.0;

const CHASE: &str = "nearside-workloads chase --repeat 2 --json";
/// All CPUs of the node.
const STREAM: &str = "nearside-workloads stream --size 32M --repeat 5 --json";
const CHASE_FIGURE: &str = "/mean_ns";
/// Of the kernels copy, scale, add, triad and read the last: it has no writes.
const STREAM_FIGURE: &str = "/kernels/4/mean_mb_per_s";

/// A machine of table 1.2.
struct Measured {
    preset: &'static str,
    clock_ghz: f64,
    /// What is between the CPUs of node 0 and the memory, its node, and the latency in cycles.
    latencies: &'static [(&'static str, u32, f64)],
    /// Likewise, and the bandwidth in MB/s.
    bandwidths: &'static [(&'static str, u32, f64)],
}

const MACHINES: [Measured; 2] = [
    Measured {
        preset: "opteron-8380x4",
        clock_ghz: 2.5,
        latencies: &[("local", 0, 261.0), ("1 hop", 1, 286.0), ("2 hops", 3, 377.0)],
        bandwidths: &[("controller", 0, 7580.0), ("link", 1, 2850.0)],
    },
    Measured {
        preset: "opteron-6164x2",
        clock_ghz: 1.7,
        latencies: &[("local", 0, 175.0), ("1 hop", 1, 247.0)],
        bandwidths: &[("controller", 0, 5850.0), ("link", 1, 4810.0), ("narrow link", 3, 2100.0)],
    },
];

/// Runs `chase` and `stream` on both machines.
pub fn measure() -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for machine in &MACHINES {
        rows.extend(on(machine)?);
    }
    Ok(rows)
}

fn on(machine: &Measured) -> Result<Vec<Row>, Error> {
    eprintln!("chase and stream on {}", machine.preset);
    let placed = |node: u32, program: &str| format!("numactl -N0 -m{node} {program}");
    let mut rows: Vec<Row> = Vec::new();
    let mut row = |what, target, unit, command: &str| {
        let command = shown(machine.preset, &[command]);
        rows.push(Row { what, target, measured: f64::NAN, unit, command });
    };
    let mut script = Vec::new();
    for &(distance, node, cycles) in machine.latencies {
        let command = placed(node, CHASE);
        let target = Target::Within { percent: LATENCY_PERCENT, of: cycles / machine.clock_ghz };
        row(format!("{}: latency, {distance}", machine.preset), target, "ns", &command);
        script.push(command);
    }
    for &(what, node, bandwidth) in machine.bandwidths {
        let command = placed(node, STREAM);
        let target = Target::Within { percent: BANDWIDTH_PERCENT, of: bandwidth };
        row(format!("{}: bandwidth, {what}", machine.preset), target, "MB/s", &command);
        script.push(command);
    }
    // One boot for all of them.
    let run = run(machine.preset, &["sh", "-c", &script.join(" && ")])?;
    let figures: Vec<f64> = [CHASE_FIGURE, STREAM_FIGURE].into_iter().flat_map(|figure| run.figures(figure)).collect();
    if figures.len() != rows.len() {
        return Err(run.no_figure(&format!("{} latencies and bandwidths", rows.len())));
    }
    for (row, figure) in rows.iter_mut().zip(figures) {
        row.measured = figure;
    }
    Ok(rows)
}
