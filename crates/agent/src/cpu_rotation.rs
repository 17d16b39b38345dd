//! Rotates the CPU that the agent runs on.

use linux::{affinity, current_cpu, set_affinity};
use machine::{CpuId, CpuSet, Tid};
use std::fs;

/// Moves the calling thread to the next CPU if all CPUs are busy. In a program whose threads wait for each other, the
/// slowest thread sets the pace: taking a little time from each CPU delays it less than taking all of it from one. If
/// CPUs are idle, the kernel picks one by itself.
pub(crate) fn rotate_cpu() {
    let Ok(allowed) = affinity(Tid::CALLER) else { return };
    let Ok((now, _)) = current_cpu() else { return };
    if running(&fs::read_to_string("/proc/loadavg").unwrap_or_default()).is_none_or(|running| running <= allowed.len())
    {
        return;
    }
    if let Some(next) = next(now, &allowed) {
        visit(next, &allowed);
    }
}

/// The CPU after this one, or the first.
fn next(now: CpuId, allowed: &CpuSet) -> Option<CpuId> {
    allowed.iter().find(|cpu| *cpu > now).or_else(|| allowed.first())
}

/// Only moves there: the mask is reset, and the kernel is free to choose again at the next wakeup. Fails if the CPU is
/// taken away meanwhile.
fn visit(cpu: CpuId, allowed: &CpuSet) {
    if set_affinity(Tid::CALLER, &[cpu].into_iter().collect()).is_ok() {
        let _ = set_affinity(Tid::CALLER, allowed);
    }
}

/// The number of runnable threads, including this one, from `0.20 0.18 0.12 25/284 4711`.
fn running(loadavg: &str) -> Option<usize> {
    loadavg.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_threads_are_counted() {
        assert_eq!(running("0.20 0.18 0.12 25/284 4711\n"), Some(25));
        assert_eq!(["", "0.20", "1 2 3 4 5", "1 2 3 x/5"].map(running), [None; 4]);
        assert!(running(&fs::read_to_string("/proc/loadavg").unwrap()) >= Some(1));
    }

    #[test]
    fn each_cpu_has_its_turn_and_the_thread_may_run_wherever_it_could_before() {
        let of_three: CpuSet = "1,3,5".parse().unwrap();
        assert_eq!([1, 3, 4, 5].map(|now| next(CpuId(now), &of_three)), [3, 5, 5, 1].map(|cpu| Some(CpuId(cpu))));
        assert_eq!(next(CpuId(1), &CpuSet::new()), None);
        let before = affinity(Tid::CALLER).unwrap();
        for cpu in before.iter() {
            visit(cpu, &before);
            assert_eq!(affinity(Tid::CALLER).unwrap(), before);
        }
        visit(CpuId(100_000), &before);
        rotate_cpu();
        assert_eq!(affinity(Tid::CALLER).unwrap(), before);
    }
}
