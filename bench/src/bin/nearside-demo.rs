//! Shows what memory placement costs three programs on a virtual machine.

use bench::{Error, FULL, Run, run};
use clap::Parser;
use machine::number::percent;
use report::Table;
use std::path::PathBuf;
use std::process::ExitCode;

/// Two packages of two nodes, 24 CPUs.
const MACHINE: &str = "opteron-6164x2";
/// Smaller changes of a share explain nothing.
const NOTABLE: f64 = 0.1;

/// Run three programs on a virtual machine with 4 nodes, each with its memory placed in two ways
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// A picture to process
    picture: PathBuf,
}

/// A program and two placements of its memory.
struct Program {
    name: &'static str,
    command: String,
    placements: [Placement; 2],
    /// The program's own time, in the unit of the next field.
    own_time: fn(&Run) -> Result<f64, Error>,
    unit: &'static str,
}

struct Placement {
    name: &'static str,
    numactl: &'static str,
}

/// Result of one run.
struct Placed {
    own_time: f64,
    local_access_ratio: f64,
    imbalance: f64,
    dram_latency_ns: f64,
    /// Share of the busiest controller in all lines served.
    busiest_controller: f64,
}

fn main() -> ExitCode {
    let done = demo(&Arguments::parse()).map(|text| {
        print!("{text}");
        ExitCode::SUCCESS
    });
    bench::exit_code("nearside-demo", done)
}

fn demo(arguments: &Arguments) -> Result<String, Error> {
    let programs = programs(&arguments.picture.display().to_string());
    let machine = machine::presets::find(MACHINE)?;
    eprintln!("Booting a virtual {MACHINE} for each of {} runs:", 2 * programs.len());
    let mut table = Table::new(["program, memory", "its own time", "", "local", "imbalance", "DRAM latency"]);
    let mut sentences = Vec::new();
    for program in &programs {
        let [before, after] = &program.placements;
        let (a, b) = (placed(program, before)?, placed(program, after)?);
        for (placement, placed, change) in [(before, &a, String::new()), (after, &b, change(a.own_time, b.own_time))] {
            table.row([
                format!("{}, {}", program.name, placement.name),
                format!("{:.1} {}", placed.own_time, program.unit),
                change,
                percent(placed.local_access_ratio),
                format!("{:.2}", placed.imbalance),
                format!("{:.0} ns", placed.dram_latency_ns),
            ]);
        }
        sentences.push(format!("{}: {}\n", program.name, explain(after.name, &a, &b)));
    }
    Ok(format!("\nSimulated: {}.\n\n{table}\n{}", machine.description, sentences.concat()))
}

fn programs(picture: &str) -> [Program; 3] {
    let interleaved = || {
        let spread = Placement { name: "interleaved", numactl: "numactl --interleave=all" };
        [Placement { name: "first touch", numactl: "" }, spread]
    };
    let negate = "-negate ".repeat(20);
    [
        Program {
            name: "chase",
            command: "nearside-workloads chase --json".into(),
            placements: [
                Placement { name: "local", numactl: "numactl --cpunodebind=0 --membind=0" },
                Placement { name: "remote", numactl: "numactl --cpunodebind=0 --membind=1" },
            ],
            own_time: |run| run.figure("/mean_ns"),
            unit: "ns a load",
        },
        Program {
            name: "streamcluster",
            // Pinned: the scheduler would otherwise place threads differently in each run.
            command: "nearside-workloads streamcluster --pin 0-23 --repeat 20 --json".into(),
            placements: interleaved(),
            own_time: |run| Ok(run.figure("/seconds")? * 1e3),
            unit: "ms",
        },
        Program {
            name: "GraphicsMagick",
            // Threads that spin while they wait would be simulated as busy.
            command: format!("env OMP_WAIT_POLICY=passive gm benchmark convert {picture} {negate}null:"),
            placements: interleaved(),
            own_time: |run| {
                Ok(benchmark_seconds(&run.printed)
                    .or_else(|| benchmark_seconds(&run.complained))
                    .ok_or_else(|| run.no_figure("time"))?
                    * 1e3)
            },
            unit: "ms",
        },
    ]
}

/// Parses `Results: 24 threads 1 iter 5.01s user 0.370047s total 2.702 iter/s 0.200 iter/cpu`.
fn benchmark_seconds(said: &str) -> Option<f64> {
    let words: Vec<&str> = said.lines().find(|line| line.starts_with("Results:"))?.split_whitespace().collect();
    let total = words.iter().position(|word| *word == "total")?;
    words.get(total.checked_sub(1)?)?.strip_suffix('s')?.parse().ok()
}

fn placed(program: &Program, placement: &Placement) -> Result<Placed, Error> {
    eprintln!("  {}, {}", program.name, placement.name);
    let command: Vec<&str> = placement.numactl.split_whitespace().chain(program.command.split_whitespace()).collect();
    let run = run(MACHINE, FULL, &command)?;
    let counters = &run.report.measured.counters;
    let bytes = || counters.controllers.iter().map(|controller| controller.load.bytes);
    let number = |number: Option<f64>, what| number.ok_or_else(|| run.no_figure(what));
    Ok(Placed {
        own_time: (program.own_time)(&run)?,
        local_access_ratio: number(counters.local_access_ratio, "local access ratio")?,
        imbalance: number(counters.imbalance, "imbalance")?,
        dram_latency_ns: number(counters.dram_latency_mean_ns, "DRAM latency")?,
        busiest_controller: bytes().max().unwrap_or(0) as f64 / bytes().sum::<u64>() as f64,
    })
}

/// The speed-up or slow-down.
fn change(before: f64, after: f64) -> String {
    if after > before { format!("{:.2}x slower", after / before) } else { format!("{:.2}x faster", before / after) }
}

/// The cause of the difference: distance of memory, balance of the controllers, or neither.
fn explain(placement: &str, before: &Placed, after: &Placed) -> String {
    let mut causes = Vec::new();
    let remote = |placed: &Placed| 1.0 - placed.local_access_ratio;
    if (remote(after) - remote(before)).abs() >= NOTABLE {
        let (to, from) = (percent(remote(after)), percent(remote(before)));
        causes.push(format!("{to} of its memory accesses cross a link instead of {from}"));
    }
    if (after.busiest_controller - before.busiest_controller).abs() >= NOTABLE {
        let (to, from) = (percent(after.busiest_controller), percent(before.busiest_controller));
        causes.push(format!("the busiest memory controller serves {to} of its memory accesses instead of {from}"));
    }
    if causes.is_empty() {
        causes.push("its memory accesses go where they went".to_owned());
    }
    let change = change(before.own_time, after.own_time);
    let (to, from) = (after.dram_latency_ns, before.dram_latency_ns);
    format!("{change} when {placement}: {}, and each takes {to:.0} ns instead of {from:.0}.", causes.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(own_time: f64, local_access_ratio: f64, busiest_controller: f64, dram_latency_ns: f64) -> Placed {
        Placed { own_time, local_access_ratio, imbalance: 0.0, dram_latency_ns, busiest_controller }
    }

    #[test]
    fn an_explanation_names_the_cause_that_the_numbers_show() {
        let local = placed(100.0, 0.99, 0.98, 105.0);
        assert_eq!(
            explain("remote", &local, &placed(141.0, 0.01, 0.97, 145.4)),
            "1.41x slower when remote: 99.0 % of its memory accesses cross a link instead of 1.0 %, and each takes 145 ns instead of 105."
        );
        assert_eq!(
            explain("interleaved", &placed(180.0, 0.3, 0.98, 300.0), &placed(90.0, 0.25, 0.26, 150.0)),
            "2.00x faster when interleaved: the busiest memory controller serves 26.0 % of its memory accesses instead of 98.0 %, and each takes 150 ns instead of 300."
        );
        assert!(explain("same", &local, &local).contains("go where they went"));
    }

    #[test]
    fn graphicsmagick_says_how_long_it_took() {
        let said = "x\nResults: 24 threads 1 iter 5.01s user 0.370047s total 2.702 iter/s 0.200 iter/cpu\n";
        assert_eq!(benchmark_seconds(said), Some(0.370_047));
        assert_eq!(benchmark_seconds("Results: total"), None);
        assert_eq!(benchmark_seconds("gm: no such file"), None);
    }
}
