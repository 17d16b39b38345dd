//! The facts in the study's schema, for a Prolog system.

use crate::facts::{Facts, Table};
use machine::{CacheKind, CpuId};
use queueing::Resource;
use std::fmt::Write;

/// A machine's facts as Prolog: a fact a line. Latencies are in ns and bandwidths in 10^6 bytes/s, where the study has
/// cycles and 2^20 bytes/s. Linux hides physical addresses, so `memory_affinity` has the size in place of a range.
pub fn prolog(facts: &Facts) -> String {
    let mut text = String::from("% latency: ns; bandwidth: 10^6 bytes/s; memory_affinity(_, Bytes, Node)\n");
    // Writing to a String cannot fail.
    let _ = write(facts, &mut text);
    text
}

fn write(facts: &Facts, text: &mut String) -> std::fmt::Result {
    let machine = &facts.machine;
    for (number, core) in facts.cores.iter().enumerate() {
        for (thread, cpu) in core.cpus.iter().enumerate() {
            let package = machine.packages.iter().find(|package| package.cpus.contains(cpu));
            let package = package.map_or_else(|| "_".to_owned(), |package| package.id.to_string());
            writeln!(text, "cpu_thread({cpu}, {package}, {number}, {thread}).")?;
            writeln!(text, "cpu_affinity({cpu}, _, {}).", core.node)?;
        }
    }
    for node in machine.nodes.iter().filter(|node| node.memory_bytes > 0) {
        writeln!(text, "memory_affinity(_, {}, {}).", node.memory_bytes, node.id)?;
    }
    for cache in machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction) {
        for cpus in machine.cache_instances(cache) {
            let cpus: Vec<CpuId> = cpus.iter().collect();
            for (position, one) in cpus.iter().enumerate() {
                for other in &cpus[position + 1..] {
                    writeln!(text, "cache_share({one}, {other}, {}).", cache.level)?;
                }
            }
        }
    }
    for from in &machine.nodes {
        for to in &machine.nodes {
            let hops = facts.route(from.id, to.id);
            let hop_count = if from.id == to.id { Some(0) } else { hops.as_ref().map(Vec::len) };
            if let Some(hops) = hop_count {
                writeln!(text, "node_distance({}, {}, {hops}).", from.id, to.id)?;
            }
            if let Some(first) = hops.as_ref().and_then(|hops| hops.first()) {
                writeln!(text, "hypertransport_link({}, {}, {}).", from.id, to.id, first.link)?;
            }
        }
    }
    for core in &facts.cores {
        for to in facts.memory_nodes() {
            for cpu in core.cpus.iter() {
                if let Some(ns) = facts.latency_ns(core.node, to) {
                    writeln!(text, "mem_latency({cpu}, {to}, {ns:.1}).")?;
                }
                for (table, name) in [(Table::Read, "read"), (Table::Write, "write")] {
                    if let Some(rate) = facts.value(table, core.node, to) {
                        writeln!(text, "mem_bandwidth_{name}({cpu}, {to}, {:.0}).", rate / 1e6)?;
                    }
                }
            }
        }
    }
    for to in facts.memory_nodes() {
        if let Some(capacity) = facts.capacity(Resource::Controller(to)) {
            let (read, write) = (capacity.read / 1e6, capacity.write / 1e6);
            writeln!(text, "controller_capacity({to}, {read:.0}, {write:.0}).")?;
        }
    }
    Ok(())
}
