//! `auto`: each process has a home node chosen by cache pressure, and memory follows (Müller, 2013, 5.3).

use super::{Occupancy, Placed, Rules, Threads, by_process};
use crate::action::{Action, AddressRange, Step};
use crate::batches::Limits;
use crate::observation::{Observation, Process, Range, Thread};
use crate::reason::{Quantity, Reason, Rule};
use machine::{CpuSet, NodeId, Pid, Tid};
use std::collections::BTreeMap;

/// Demand may exceed a node's CPUs by this without counting as more: CPU times are read slightly before or after the
/// end of a round.
const MARGIN_CPUS: f64 = 0.5;
/// Consecutive rounds in which a process must need more than its node, or no longer, before this takes effect.
const WIDE_ROUNDS: u64 = 2;

/// A process, its threads, and their load in a round.
struct ProcessRound<'a> {
    process: &'a Process,
    threads: Vec<&'a Thread>,
    /// Misses per thousand instructions, each thread weighted by how busy it is.
    pressure: f64,
    /// Number of CPUs that its threads ran on or waited for.
    busy_cpus: f64,
}

impl<'a> ProcessRound<'a> {
    fn new((process, threads): (&'a Process, Vec<&'a Thread>)) -> Self {
        let pressure = |thread: &&Thread| {
            let instructions = thread.instructions.filter(|&count| count > 0)?;
            Some(thread.cache_misses? as f64 * 1000.0 / instructions as f64 * thread.cpu_share)
        };
        let pressure = threads.iter().filter_map(pressure).sum();
        let busy_cpus = threads.iter().map(|thread| thread.cpu_share + thread.waiting_share).sum();
        Self { process, threads, pressure, busy_cpus }
    }
}

impl Threads {
    /// Chooses homes, then moves threads to them. Each thread moves at most once.
    pub(super) fn auto(&mut self, observation: &Observation, rules: Rules) -> Vec<Step> {
        let seen: Vec<ProcessRound> = by_process(observation).into_iter().map(ProcessRound::new).collect();
        for ProcessRound { process, .. } in &seen {
            if !self.processes.contains_key(&process.pid) {
                let placed = self.place(process, rules);
                self.processes.insert(process.pid, placed);
            }
        }
        let mut steps = self.release_wide(&seen, rules);
        let moved = self.even_out_pressure(observation.round, &seen, rules);
        steps.extend(self.map_to_homes(&seen, rules, moved.as_ref()));
        steps
    }

    /// Leaves processes that need more than their node to the kernel, until they need less.
    fn release_wide(&mut self, seen: &[ProcessRound], rules: Rules) -> Vec<Step> {
        let mut steps = Vec::new();
        for seen in seen {
            let Some(placed) = self.processes.get_mut(&seen.process.pid) else { continue };
            let cpus = placed.node.map_or(0, |node| rules.cpus_of(node, seen.process).len());
            if cpus == 0 || cpus == seen.process.cpus.len() {
                continue;
            }
            let is_other = if placed.is_wide {
                seen.busy_cpus <= cpus as f64 - MARGIN_CPUS
            } else {
                seen.busy_cpus > cpus as f64 + MARGIN_CPUS
            };
            placed.other_rounds = if is_other { placed.other_rounds + 1 } else { 0 };
            if placed.other_rounds < WIDE_ROUNDS {
                continue;
            }
            (placed.is_wide, placed.other_rounds) = (!placed.is_wide, 0);
            if !placed.is_wide {
                continue;
            }
            placed.threads.values_mut().for_each(|cpus| *cpus = None);
            let reason = Reason::new(Rule::TooWide).against(Quantity::BusyCpus, seen.busy_cpus, cpus as f64);
            let free =
                seen.threads.iter().filter_map(|thread| Some((thread.tid, rules.allowed(seen.process, thread)?)));
            steps.extend(free.map(|(tid, cpus)| Step {
                action: Action::MoveThread { pid: seen.process.pid, tid, cpus },
                reason: reason.clone(),
            }));
        }
        steps
    }

    /// Step 2: moves at most one process, from the node with the most cache pressure to that with the least, if this
    /// makes them more alike.
    fn even_out_pressure(&mut self, round: u64, seen: &[ProcessRound], rules: Rules) -> Option<(Pid, Reason)> {
        let thresholds = &rules.settings.thresholds;
        let mut nodes: BTreeMap<NodeId, (f64, f64)> =
            rules.costs.cpu_nodes().iter().map(|node| (node, (0.0, 0.0))).collect();
        for seen in seen {
            if let Some(node) = self.home(seen.process.pid).and_then(|home| nodes.get_mut(&home)) {
                node.0 += seen.pressure;
                node.1 += seen.busy_cpus;
            }
        }
        let by_pressure = |a: &(&NodeId, &(f64, f64)), b: &(&NodeId, &(f64, f64))| a.1.0.total_cmp(&b.1.0);
        let (&hot, &(hot_pressure, hot_busy)) = nodes.iter().max_by(by_pressure)?;
        let (&cold, &(cold_pressure, cold_busy)) = nodes.iter().min_by(by_pressure)?;
        let gap = hot_pressure - cold_pressure;
        if gap < thresholds.cache_pressure_gap_min || hot == cold {
            return None;
        }
        let cpus_of = |node| rules.costs.cpus_of(&[node].into_iter().collect()).len().max(1) as f64;
        // The other node's CPUs must not become busier than this node's are, unless it has enough of them.
        let most_busy = (hot_busy / cpus_of(hot)).max(1.0);
        let may_move = |seen: &&ProcessRound| {
            let placed = self.processes.get(&seen.process.pid);
            let rests = |placed: &Placed| {
                placed.moved.is_some_and(|moved| round < moved.saturating_add(thresholds.home_rounds))
            };
            placed.is_some_and(|placed| !rests(placed))
                && self.home(seen.process.pid) == Some(hot)
                && !rules.cpus_of(cold, seen.process).is_empty()
                && seen.threads.iter().all(|thread| rules.allowed(seen.process, thread).is_some())
                && (cold_busy + seen.busy_cpus) / cpus_of(cold) <= most_busy
        };
        let after = |seen: &ProcessRound| (gap - 2.0 * seen.pressure).abs();
        let best = seen.iter().filter(may_move).min_by(|a, b| after(a).total_cmp(&after(b)))?;
        if after(best) >= gap {
            return None;
        }
        let pid = best.process.pid;
        let placed = self.processes.get_mut(&pid)?;
        (placed.node, placed.moved) = (Some(cold), Some(round));
        placed.cpus = Some(rules.cpus_of(cold, best.process));
        let reason = Reason::new(Rule::CachePressure)
            .against(Quantity::CachePressureGap, gap, thresholds.cache_pressure_gap_min)
            .with(Quantity::CachePressureGapAfter, after(best))
            .with(Quantity::CachePressure, best.pressure);
        Some((pid, reason))
    }

    /// Step 1: threads run on their homes, each on a separate CPU while there are enough.
    fn map_to_homes(&mut self, seen: &[ProcessRound], rules: Rules, moved: Option<&(Pid, Reason)>) -> Vec<Step> {
        let mut steps = Vec::new();
        for node in rules.costs.cpu_nodes().iter() {
            let at_home = |seen: &&ProcessRound| self.home(seen.process.pid) == Some(node);
            let threads: Vec<(&Process, Tid, CpuSet)> = seen
                .iter()
                .filter(at_home)
                .flat_map(|seen| seen.threads.iter().map(|thread| (seen.process, *thread)))
                .filter_map(|(process, thread)| {
                    let allowed = rules.allowed(process, thread)?.intersection(&rules.cpus_of(node, process));
                    Some((process, thread.tid, allowed)).filter(|(.., allowed)| !allowed.is_empty())
                })
                .collect();
            let is_full = threads.len() > rules.costs.cpus_of(&[node].into_iter().collect()).len();
            let mut occupancy = Occupancy::default();
            let mut waiting = Vec::new();
            for (process, tid, allowed) in threads {
                let own =
                    self.processes.get(&process.pid).and_then(|placed| placed.threads.get(&tid)).cloned().flatten();
                let stays = own.as_ref().is_some_and(|own| own.is_subset(&allowed) && own.len() == 1);
                match own {
                    Some(own) if stays && !is_full && occupancy.is_free(&own) => occupancy.add(&own),
                    own => waiting.push((process.pid, tid, allowed, own)),
                }
            }
            for (pid, tid, allowed, own) in waiting {
                let free = if is_full { None } else { occupancy.free_cpu(node, &allowed, rules.costs) };
                let (cpus, rule) = free.unwrap_or((allowed, Rule::NodeIsFull));
                occupancy.add(&cpus);
                if own.as_ref() == Some(&cpus) {
                    continue;
                }
                let reason = match moved {
                    Some((moved, reason)) if *moved == pid => reason.clone(),
                    _ => Reason::new(rule),
                };
                if let Some(placed) = self.processes.get_mut(&pid) {
                    placed.threads.insert(tid, Some(cpus.clone()));
                }
                steps.push(Step { action: Action::MoveThread { pid, tid, cpus }, reason });
            }
        }
        steps
    }

    /// Step 3: memory follows its process if many of its accesses are remote. Mappings that are interleaved, or placed
    /// by their owner, stay.
    pub fn follow(&self, observation: &Observation, rules: Rules) -> Vec<Step> {
        let thresholds = &rules.settings.thresholds;
        let mut limits = Limits::new(observation, rules.costs, thresholds, u64::MAX);
        let mut steps = Vec::new();
        for (process, threads) in by_process(observation) {
            let pid = process.pid;
            let (Some(home), false) = (self.home(pid), process.memory_policy.is_some() && rules.settings.respect_owner)
            else {
                continue;
            };
            let memory = rules.costs.memory_nodes().intersection(&process.nodes);
            let Some(node) = rules.costs.nearest(home, &memory) else { continue };
            let mut accesses: BTreeMap<NodeId, f64> = BTreeMap::new();
            for by in threads.iter().flat_map(|thread| &thread.accesses) {
                *accesses.entry(by.node).or_default() += by.accesses as f64;
            }
            let all: f64 = accesses.values().sum();
            let remote: f64 = accesses.iter().filter(|(at, _)| **at != node).map(|(_, count)| count).sum();
            let more = |(at, count): (&NodeId, &f64)| {
                count * (rules.costs.remoteness(home, *at) - rules.costs.remoteness(home, node)).max(0.0)
            };
            let cost = accesses.iter().map(more).sum::<f64>() / all;
            if all == 0.0 || cost < thresholds.remote_cost_min {
                continue;
            }
            let away = |range: &Range| range.bytes.iter().filter(|on| on.node != node).map(|on| on.bytes).sum::<u64>();
            let stays = |range: &Range| match &range.memory_policy {
                Some(policy) => rules.settings.respect_owner || policy.is_interleaved(),
                None => false,
            };
            let mut ranges: Vec<&Range> = observation
                .ranges
                .iter()
                .filter(|range| range.pid == pid && !stays(range) && away(range) > 0)
                .collect();
            ranges.sort_by_key(|range| range.start);
            let bytes = limits.take(node, ranges.iter().map(|range| away(range)).sum(), rules.costs);
            if bytes == 0 {
                continue;
            }
            let ranges = ranges.iter().map(|range| AddressRange { start: range.start, end: range.end }).collect();
            let reason = Reason::new(Rule::RemoteAccesses).with(Quantity::RemoteRatio, remote / all).against(
                Quantity::RemoteCost,
                cost,
                thresholds.remote_cost_min,
            );
            steps.push(Step { action: Action::MoveRanges { pid, node, ranges, bytes, most_s: None }, reason });
        }
        steps
    }
}
