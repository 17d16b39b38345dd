//! The part of the machine in which grants are made.

use crate::facts::Facts;
use machine::CpuSet;

/// Where grants may have cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// The CPUs of the zone; `None` for all.
    pub cpus: Option<CpuSet>,
    /// CPUs that no grant gets.
    pub keep_back: CpuSet,
}

impl Zone {
    /// Whether a grant may have the core of these CPUs.
    pub(crate) fn has(&self, cpus: &CpuSet) -> bool {
        self.cpus.as_ref().is_none_or(|zone| cpus.is_subset(zone))
            && !cpus.iter().any(|cpu| self.keep_back.contains(cpu))
    }

    /// CPUs that are named but not on the machine.
    pub fn unknown(&self, facts: &Facts) -> CpuSet {
        let all = facts.machine.cpus();
        let named = self.cpus.iter().flat_map(CpuSet::iter).chain(self.keep_back.iter());
        named.filter(|&cpu| !all.contains(cpu)).collect()
    }
}
