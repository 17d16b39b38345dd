//! Which CPUs have threads: full cores are taken first, and second CPUs of cores last.

use super::Placed;
use crate::costs::Costs;
use crate::reason::Rule;
use machine::{CpuId, CpuSet, NodeId, Pid};
use std::collections::BTreeMap;

/// How many threads have each CPU for themselves.
#[derive(Default)]
pub(super) struct Occupancy {
    threads: BTreeMap<CpuId, usize>,
}

impl Occupancy {
    /// As all processes are placed.
    pub fn of(processes: &BTreeMap<Pid, Placed>) -> Self {
        let mut occupancy = Self::default();
        let threads = processes.values().flat_map(|placed| placed.threads.values());
        threads.flatten().for_each(|cpus| occupancy.add(cpus));
        occupancy
    }

    /// A thread that has one CPU takes it.
    pub fn add(&mut self, cpus: &CpuSet) {
        if let Some(cpu) = cpus.first().filter(|_| cpus.len() == 1) {
            *self.threads.entry(cpu).or_default() += 1;
        }
    }

    /// Whether no thread has any of them for itself.
    pub fn is_free(&self, cpus: &CpuSet) -> bool {
        cpus.iter().all(|cpu| self.on(cpu) == 0)
    }

    /// Where a thread goes on a node: to a core without threads, else to a CPU without threads, else anywhere. None
    /// where the node has no CPU that is allowed.
    pub fn free_cpu(&self, node: NodeId, allowed: &CpuSet, costs: &Costs) -> Option<(CpuSet, Rule)> {
        let cpus = &costs.nodes()[costs.place(node)?].cpus;
        let on_core = |cpu: CpuId| {
            let core = costs.core_of_cpu(cpu);
            cpus.iter().filter(|&&other| costs.core_of_cpu(other) == core).map(|&other| self.on(other)).sum::<usize>()
        };
        let usable: Vec<CpuId> = cpus.iter().copied().filter(|&cpu| allowed.contains(cpu)).collect();
        let free = usable.iter().copied().filter(|&cpu| self.on(cpu) == 0);
        match free.min_by_key(|&cpu| on_core(cpu)) {
            Some(cpu) if on_core(cpu) == 0 => Some(([cpu].into_iter().collect(), Rule::FreeCore)),
            Some(cpu) => Some(([cpu].into_iter().collect(), Rule::FreeSibling)),
            None if usable.is_empty() => None,
            None => Some((usable.into_iter().collect(), Rule::NodeIsFull)),
        }
    }

    fn on(&self, cpu: CpuId) -> usize {
        self.threads.get(&cpu).copied().unwrap_or(0)
    }
}
