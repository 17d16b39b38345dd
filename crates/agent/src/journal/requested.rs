//! The CPUs that a thread requests, and those that the kernel gives it: within its cpuset.

use linux::Cpusets;
use machine::{CpuId, CpuSet};
use std::sync::LazyLock;

/// Upper bound of CPUs: `NR_CPUS` of x86-64.
const MOST_CPUS: u32 = 8192;

/// All CPUs that there can be, without isolated ones: as a requested affinity, all those of the cpuset, also those that
/// are added to it later.
pub(crate) fn all_cpus() -> CpuSet {
    static ALL: LazyLock<CpuSet> =
        LazyLock::new(|| Cpusets::find().without_isolated((0..MOST_CPUS).map(CpuId).collect()));
    ALL.clone()
}

/// The affinity that a thread has requested, from the CPUs that it has. Since Linux 6.2 the kernel remembers it. A thread
/// that has its whole cpuset has requested none, which is as good as all CPUs.
pub(crate) fn requested(now: CpuSet, allowed: &CpuSet) -> CpuSet {
    let all = all_cpus();
    // One with isolated CPUs has chosen them, or is in a cpuset of them.
    if allowed.is_subset(&now) && now.is_subset(&all) { all } else { now }
}

/// The CPUs that a thread has by what it requested: those of its cpuset, or all of them if it requested none of these.
pub(super) fn granted(requested: &CpuSet, cpuset: Option<&CpuSet>) -> CpuSet {
    let Some(cpuset) = cpuset else { return requested.clone() };
    Some(requested.intersection(cpuset)).filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| cpuset.clone())
}
