//! SMT: CPUs of one core share its path to memory. Each counts by window how long it kept the path busy. When a window
//! is closed, the ratio of demand to capacity is known, and a few windows later everything on that core takes longer by
//! this factor.

use crate::own_counts::{SLOTS, WINDOW_PS, add};
use machine::{CpuSet, Machine};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The factor 1, in the units of [`PathUse::stretched`].
const WHOLE: u32 = 1 << 8;

/// One CPU's use of its core's path to memory. Only its own thread counts.
pub(crate) struct PathUse {
    /// By slot of the ring of windows, ps. Only grows.
    busy_ps: [AtomicU64; SLOTS],
    /// By slot: the stretch factor.
    stretch: [AtomicU32; SLOTS],
}

impl Default for PathUse {
    fn default() -> Self {
        Self { busy_ps: Default::default(), stretch: [const { AtomicU32::new(WHOLE) }; SLOTS] }
    }
}

impl PathUse {
    /// Counts a time that the path is busy, ps, and returns its length beside the core's other CPUs.
    #[inline]
    pub(crate) fn stretched(&self, slot: usize, busy_ps: u64) -> u64 {
        add(&self.busy_ps[slot], busy_ps);
        (busy_ps * u64::from(self.stretch[slot].load(Relaxed))) >> 8
    }
}

/// Use of a core's path in a slot, ps.
fn busy_ps<'a>(core: &[usize], slot: usize, path_use: &impl Fn(usize) -> &'a PathUse) -> u64 {
    core.iter().map(|&cpu| path_use(cpu).busy_ps[slot].load(Relaxed)).fold(0, u64::wrapping_add)
}

/// The cores with more than one CPU.
pub(crate) struct Siblings {
    /// The indexes of their CPUs.
    cores: Box<[Box<[usize]>]>,
    /// By slot and core: the count when the slot was last closed, ps.
    seen_ps: Box<[u64]>,
}

impl Siblings {
    /// `together`: whether they share their path at all.
    pub(crate) fn new(machine: &Machine, together: bool) -> Self {
        let ids: Vec<_> = machine.cpus().iter().collect();
        let index =
            |cpus: &CpuSet| -> Box<[usize]> { cpus.iter().filter_map(|cpu| ids.binary_search(&cpu).ok()).collect() };
        let cores: Box<[_]> = machine.smt_cores.iter().map(index).filter(|core| together && core.len() > 1).collect();
        Self { seen_ps: vec![0; SLOTS * cores.len()].into(), cores }
    }

    /// Forgets all use so far, and what it stretched.
    pub(crate) fn begin<'a>(&mut self, path_use: impl Fn(usize) -> &'a PathUse) {
        for (slot, seen_ps) in self.seen_ps.chunks_mut(self.cores.len().max(1)).enumerate() {
            for (core, seen_ps) in self.cores.iter().zip(seen_ps) {
                *seen_ps = busy_ps(core, slot, &path_use);
                core.iter().for_each(|cpu| path_use(*cpu).stretch[slot].store(WHOLE, Relaxed));
            }
        }
    }

    /// Whether any slot has use that was not read, or a stretch that may have to end.
    pub(crate) fn has_news<'a>(&self, path_use: impl Fn(usize) -> &'a PathUse) -> bool {
        self.seen_ps.chunks(self.cores.len().max(1)).enumerate().any(|(slot, seen_ps)| {
            self.cores.iter().zip(seen_ps).any(|(core, seen_ps)| {
                let stretched = || core.iter().any(|cpu| path_use(*cpu).stretch[slot].load(Relaxed) != WHOLE);
                busy_ps(core, slot, &path_use) != *seen_ps || stretched()
            })
        })
    }

    /// Reads a window's use from its slot and sets the stretch of another one.
    pub(crate) fn close<'a>(&mut self, slot: usize, decided: usize, path_use: impl Fn(usize) -> &'a PathUse) {
        for (core, seen_ps) in self.cores.iter().zip(&mut self.seen_ps[slot * self.cores.len()..]) {
            let busy_ps = busy_ps(core, slot, &path_use);
            let asked = busy_ps.wrapping_sub(*seen_ps) as f64 / WINDOW_PS as f64;
            *seen_ps = busy_ps;
            let Some(&first) = core.first() else { continue };
            // The demand in multiples of the capacity, at the stretch that was in force.
            let stretch = (f64::from(path_use(first).stretch[slot].load(Relaxed)) * asked).round();
            let stretch = (stretch as u32).clamp(WHOLE, WHOLE * core.len() as u32);
            for &cpu in core {
                path_use(cpu).stretch[decided].store(stretch, Relaxed);
            }
        }
    }
}
