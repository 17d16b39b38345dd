//! Which CPUs have threads: idle cores are filled first, and SMT siblings last.

use super::Placed;
use crate::costs::Costs;
use crate::reason::Rule;
use machine::{CpuId, CpuSet, NodeId, Pid};
use std::collections::BTreeMap;

/// Number of threads assigned to each CPU.
#[derive(Default)]
pub(super) struct Occupancy {
    threads: BTreeMap<CpuId, usize>,
}

impl Occupancy {
    /// From the placement of all processes.
    pub fn new(processes: &BTreeMap<Pid, Placed>) -> Self {
        let mut occupancy = Self::default();
        let threads = processes.values().flat_map(|placed| placed.threads.values());
        threads.flatten().for_each(|cpus| occupancy.add(cpus));
        occupancy
    }

    /// Adds a thread that is assigned to a single CPU.
    pub fn add(&mut self, cpus: &CpuSet) {
        if let Some(cpu) = cpus.first().filter(|_| cpus.len() == 1) {
            *self.threads.entry(cpu).or_default() += 1;
        }
    }

    /// Whether no thread is assigned to any of them.
    pub fn is_free(&self, cpus: &CpuSet) -> bool {
        cpus.iter().all(|cpu| self.on(cpu) == 0)
    }

    /// A CPU for a thread on a node: on an idle core, else a CPU without threads, else any. None if the node has no
    /// allowed CPU.
    pub fn free_cpu(&self, node: NodeId, allowed: &CpuSet, costs: &Costs) -> Option<(CpuSet, Rule)> {
        let cpus = &costs.nodes()[costs.index_of(node)?].cpus;
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
