//! An observed interval as a report.

use linux::NodeFiles;
use machine::Machine;
use observe::{Interval, Observed, ProcessMemory};
use profile::{Filter, NoSymbols, Recording};
use report::{TopKind, TopNode, TopReport, TopRow};
use trace::Stacks;

/// The report of an interval.
pub fn report(machine: &Machine, interval: Interval, stacks: &Stacks) -> TopReport {
    let Interval { at_s, seconds, nodes, nodes_before, notes, cannot_see, observed } = interval;
    let nodes = nodes.iter().map(|node| node_of(node, &nodes_before, seconds)).collect();
    let mut report = TopReport { at_s, interval_s: seconds, nodes, notes, cannot_see, ..TopReport::default() };
    match observed {
        Observed::Accesses { source, samples, events, counts } => {
            report.source = source;
            let mut recording = Recording::new(machine.clone()).with_counts(counts);
            recording.add_events(events);
            recording.add_samples(samples);
            report.add(&recording.into_profile(stacks, &NoSymbols).view(&Filter::default()));
        }
        Observed::Memory(processes) => report.rows = processes.into_iter().map(row_of).collect(),
    }
    report
}

fn node_of(node: &NodeFiles, before: &[NodeFiles], interval_s: f64) -> TopNode {
    let before = before.iter().find(|before| before.node == node.node).unwrap_or(node);
    let taken = |name: &str| {
        let of = |files: &NodeFiles| files.allocations.get(name).copied().unwrap_or(0);
        of(node).saturating_sub(of(before)) as f64 / interval_s.max(1e-9)
    };
    let memory = |name: &str| node.memory.get(name).copied().unwrap_or(0);
    TopNode {
        node: node.node,
        memory_bytes: memory("MemTotal"),
        free_bytes: memory("MemFree"),
        accesses_per_s: None,
        share: None,
        load: None,
        taken_local_per_s: taken("local_node"),
        taken_remote_per_s: taken("other_node"),
    }
}

fn row_of(process: ProcessMemory) -> TopRow {
    let ProcessMemory { pid, name, bytes } = process;
    let all: f64 = bytes.values().sum();
    let memory_on = bytes.into_iter().map(|(node, part)| (node, part / all)).collect();
    TopRow {
        kind: TopKind::Process,
        pid: pid.0,
        tid: None,
        name,
        memory_bytes: Some(all as u64),
        samples: 0,
        accesses_per_s: None,
        local_access_ratio: None,
        latency_mean_ns: None,
        remote_cost: None,
        memory_on,
    }
}
