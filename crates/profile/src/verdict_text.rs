//! Verdicts in words.

use crate::verdict::{IdealPlacement, Metric, Potential, Problem, SATURATED_ALONE, WORTH_IT};

/// What is wrong, and what can be gained. `from_cores` is the part of the accesses that take lines of other cores.
pub(super) fn text(
    problem: Problem,
    metrics: &[Metric],
    (samples, from_cores): (u64, f64),
    potential: Option<&Potential>,
) -> String {
    let value = |name: &str| metrics.iter().find(|metric| metric.name == name).and_then(|metric| metric.value);
    let number = |name: &str, digits: usize| {
        value(name).map_or_else(|| "unknown".to_owned(), |value| format!("{value:.digits$}"))
    };
    let percent = |name: &str| {
        value(name).map_or_else(|| "an unknown share".to_owned(), |value| format!("{:.1} %", 100.0 * value))
    };
    let local = percent("local_access_ratio");
    let latency = value("latency_over_idle").map(|latency| format!("{latency:.1} times its idle latency"));
    match problem {
        Problem::Unknown => format!(
            "{samples} {} reached memory: too few to tell; record longer, or sample more often (--period, --rate)",
            if samples == 1 { "sample" } else { "samples" }
        ),
        Problem::NotMemoryBound => {
            let (accesses, waits) = (number("accesses_per_instruction", 4), percent("memory_bound"));
            format!(
                "NUMA is not the problem: the program hardly uses memory ({accesses} accesses an instruction, threads \
                 wait {waits} of the time)"
            )
        }
        Problem::None => {
            let latency = latency.map(|latency| format!(", and the slowest memory takes {latency}"));
            format!("NUMA is not the problem: {local} of the accesses are local{}", latency.unwrap_or_default())
        }
        Problem::Bandwidth => {
            let latency = latency.map(|latency| format!(" ({latency})")).unwrap_or_default();
            format!(
                "NUMA is not the problem: all nodes' memory is busy alike{latency}, {local} of the accesses are local"
            )
        }
        Problem::Contention => {
            of_numa(&format!("{}; {local} of the accesses are local", contention(metrics)), potential)
        }
        Problem::SharedLines => shared_lines(from_cores),
        Problem::Distance => of_numa(&format!("only {local} of the accesses are local"), potential),
    }
}

/// What is contended, and whether all of the time: nodes that are in turn have loads that are balanced as a whole.
fn contention(metrics: &[Metric]) -> String {
    let of = |name: &str| metrics.iter().find(|metric| metric.name == name);
    let bad = |name: &str| of(name).filter(|metric| metric.is_bad);
    let value = |name: &str| of(name).and_then(|metric| metric.value);
    let latency = value("latency_over_idle").map(|latency| format!("{latency:.1} times its idle latency"));
    let (what, details) = if let Some(alone) = bad(SATURATED_ALONE).and_then(|metric| metric.value) {
        let alone = format!("{:.1} % of these accesses while that of another is not", 100.0 * alone);
        ("one node's memory after another".to_owned(), [latency, Some(alone)])
    } else {
        let node = bad("latency_over_idle").and_then(|metric| metric.of.as_ref());
        let imbalance = value("imbalance").map(|imbalance| format!("imbalance {imbalance:.2}"));
        (node.map_or_else(|| "memory".to_owned(), |node| format!("memory of node {node}")), [latency, imbalance])
    };
    let details: Vec<String> = details.into_iter().flatten().collect();
    if details.is_empty() {
        format!("{what} is contended")
    } else {
        format!("{what} is contended ({})", details.join(", "))
    }
}

fn shared_lines(from_cores: f64) -> String {
    format!(
        "cores wait for each other's cache lines: {:.1} % of the accesses that leave a core's caches take a line that \
         another core has; where memory is does not matter for these",
        100.0 * from_cores
    )
}

/// What is added where enough accesses are local, but a part of the interval is below the threshold.
pub(super) fn not_sure(problem: Problem, metrics: &[Metric], (low, high): (f64, f64)) -> String {
    let local = metrics.iter().find(|metric| metric.name == "local_access_ratio" && !metric.is_bad);
    match local {
        Some(Metric { threshold, .. }) if problem == Problem::None && low < *threshold => format!(
            "; that at least {:.0} % are local is not sure ({:.1} to {:.1} %): record longer",
            100.0 * threshold,
            100.0 * low,
            100.0 * high
        ),
        _ => String::new(),
    }
}

/// Whether it is worth acting on, and what can be gained.
fn of_numa(why: &str, potential: Option<&Potential>) -> String {
    let Some(potential) = potential else {
        return format!(
            "NUMA may be the problem: {why}; what can be gained is not known without latencies of the accesses and the \
             machine"
        );
    };
    let Potential { placement, speedup, speedup_interval: (low, high) } = potential;
    let memory = match placement {
        IdealPlacement::Local => "all memory local",
        IdealPlacement::Interleaved => "all memory interleaved",
    };
    let gain = format!("with {memory} it would be {speedup:.2} times as fast (95 % interval {low:.2} to {high:.2})");
    match potential.is_worth_it() {
        true => format!("NUMA is the problem: {why}; {gain}"),
        false if *high >= WORTH_IT => format!(
            "NUMA is not worth acting on, as far as these samples tell: {why}; {gain}, and {WORTH_IT} is not sure: \
             record longer"
        ),
        false => format!("NUMA is not worth acting on: {why}; {gain}"),
    }
}
