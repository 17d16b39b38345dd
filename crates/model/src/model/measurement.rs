//! A measurement: its begin, and what was counted since.

use super::Model;
use crate::LINE_BYTES;
use crate::coherence::Coherence;
use crate::counters::{ControllerCounters, Counters, LinkCounters, Load};
use crate::resources::{Lines, columns};
use crate::totals::Totals;
use crate::windows::Waited;
use machine::imbalance;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

impl Model {
    /// Begins a measurement at this time, ps: counters are reset and queues emptied; caches keep their contents. The
    /// time may be before that of earlier accesses: CPUs may count theirs from 0 again.
    pub fn begin(&self, now_ps: u64) {
        self.slowest_ps.store(now_ps, Relaxed);
        self.windows.begin(now_ps, &self.cpus);
        self.cpus.iter().for_each(|cpu| cpu.write_buffer.clear());
        self.coherence.iter().for_each(Coherence::begin);
        let totals = self.totals(now_ps);
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = totals;
    }

    /// The counts from the last [`Model::begin`] to `now_ps`. Exact while no CPU runs; otherwise each number is a
    /// recent one.
    pub fn counters(&self, now_ps: u64) -> Counters {
        let now = self.totals(now_ps);
        let waited = self.windows.waited();
        let began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        let time_s = now_ps.saturating_sub(began.time_ps) as f64 * 1e-12;
        let counts = now.counts.since(began.counts);
        let lines: Vec<u64> = now.lines.iter().zip(&began.lines).map(|(now, began)| now.wrapping_sub(*began)).collect();
        let cpus = now.cpus_since(&began, self.nodes.len());
        drop(began);

        let nodes = self.nodes.len();
        let read = || lines.chunks(columns(nodes)).map(|row| &row[..nodes]);
        let dram_accesses: u64 = read().flatten().sum();
        let share = |part: f64| (dram_accesses > 0).then(|| part / dram_accesses as f64);
        let local: u64 = read().enumerate().map(|(node, row)| row[node]).sum();
        let carried = self.windows.resources().carried(&lines);
        let load = |resource: usize, bandwidth: f64| {
            let bytes = (carried[resource] * LINE_BYTES as f64).round() as u64;
            let utilisation = if time_s > 0.0 { bytes as f64 / (bandwidth * time_s) } else { 0.0 };
            Load { bytes, utilisation, queue_delay_mean_ns: waited.get(resource).copied().map_or(0.0, Waited::mean_ns) }
        };
        let first = self.windows.resources().controllers;
        let by_controller = self.controllers.iter().map(|&(node, _)| carried[first + node] as u64 as f64);
        Counters {
            time_s,
            loads: counts.loads,
            stores: counts.stores,
            instruction_fetches: counts.instructions,
            l1_hits: counts.l1_hits(),
            l2_hits: counts.l2_hits,
            l3_hits: counts.l3_hits,
            stream_misses: counts.stream_misses,
            dram_accesses,
            peer_hits: counts.peer_hits,
            page_walks: counts.page_walks,
            write_backs: counts.write_backs,
            dram_latency_mean_ns: share(counts.dram_latency_ps as f64 / 1000.0),
            local_access_ratio: share(local as f64),
            imbalance: imbalance(by_controller),
            nodes: self.nodes.to_vec(),
            dram_accesses_by_node: read().map(<[u64]>::to_vec).collect(),
            controllers: self
                .controllers
                .iter()
                .map(|&(node, bandwidth)| ControllerCounters {
                    node: self.nodes[node],
                    load: load(first + node, bandwidth),
                })
                .collect(),
            links: self
                .links
                .iter()
                .map(|link| LinkCounters {
                    from: link.from,
                    to: link.to,
                    load: load(link.resource, link.bandwidth_bytes_per_s),
                })
                .collect(),
            cpus,
        }
    }

    /// Lines that a CPU read from each node's memory since the model was created.
    ///
    /// # Panics
    ///
    /// When there is no such CPU.
    pub fn dram_accesses_of(&self, cpu: usize) -> Vec<u64> {
        self.cpus[cpu].lines.sums(self.nodes.len())
    }

    /// Lines that a CPU read from memory and wrote back since the model was created: all, and those of its own node.
    ///
    /// # Panics
    ///
    /// When there is no such CPU.
    pub fn memory_lines_of(&self, cpu: usize) -> [u64; 2] {
        let (cpu, nodes) = (&self.cpus[cpu], self.nodes.len());
        let lines = cpu.lines.sums(columns(nodes));
        let of = |node: usize| {
            [Lines::Read, Lines::Written]
                .map(|kind| lines[kind.column(nodes, node)])
                .into_iter()
                .fold(0, u64::wrapping_add)
        };
        [(0..nodes).fold(0, |sum, node| sum.wrapping_add(of(node))), of(cpu.node.into())]
    }

    fn totals(&self, time_ps: u64) -> Totals {
        Totals::new(time_ps, &self.cpus, self.nodes.len())
    }
}
