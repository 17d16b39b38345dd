//! The processor's control hardware as the guest's kernel knows it: AMD's "Platform Quality of Service" extensions, which
//! the kernel's resctrl needs, and so what is built on that: their `cpuid` leaves and registers. What is written to the
//! registers goes to the model.
//!
//! Source of leaves and registers: "AMD64 Technology Platform Quality of Service Extensions", publication 56375, and
//! Linux, `arch/x86/kernel/cpu/resctrl`. As in AMD's processors, limits are of all CPUs of a class that share a cache:
//! the model's are of each CPU, so each has an equal part.

use model::{ControlHardware, Controls, Model, Share};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Monitors ("RMIDs").
const MONITORS: usize = 64;
/// Most bits of a mask.
const MOST_BITS: u32 = 32;
/// A unit of limits is an eighth of a GB/s, and this many units are no limit.
const UNIT_BYTES_PER_S: u64 = 125_000_000;
const NO_LIMIT_BITS: u32 = 11;
const NO_LIMIT: u64 = 1 << NO_LIMIT_BITS;
/// Bytes of a counted unit: a line.
const LINE_BYTES: u32 = 64;
/// What the kernel adds to a counter's 24 bits: 62 in all.
const COUNTER_BITS: u32 = 62 - 24;

/// Model-specific registers.
mod msr {
    /// The monitor and the class of the running thread.
    pub const ASSOCIATION: u32 = 0xc8f;
    /// Which event of which monitor is read, and its count.
    pub const EVENT: u32 = 0xc8d;
    pub const COUNT: u32 = 0xc8e;
    /// The masks of the classes.
    pub const MASKS: u32 = 0xc90;
    /// The limits of the classes.
    pub const LIMITS: u32 = 0xc000_0200;
}

/// Events of a monitor.
const ALL_BYTES: u32 = 2;
const LOCAL_BYTES: u32 = 3;
/// The count of an event that there is none of.
const NO_COUNT: u64 = 1 << 63;

/// The control hardware's registers.
#[derive(Debug)]
pub(crate) struct ResourceDirector {
    hardware: ControlHardware,
    /// Ways of a bit of a mask.
    ways_per_bit: u32,
    state: Mutex<State>,
    obeying: Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// By CPU.
    classes: Vec<usize>,
    monitors: Vec<usize>,
    events: Vec<(u32, usize)>,
    /// By class and cache.
    masks: Vec<Vec<u64>>,
    limits: Vec<Vec<u64>>,
    /// Lines by monitor and cache: all, and those of the CPU's own node.
    counts: Vec<Vec<[u64; 2]>>,
    /// Each CPU's lines at the last look.
    seen: Vec<[u64; 2]>,
}

impl ResourceDirector {
    /// That of a machine with control hardware.
    pub(crate) fn new(hardware: ControlHardware) -> Self {
        let (cpus, caches, classes) = (hardware.cpus(), hardware.caches.len(), usize::from(hardware.classes));
        let ways = hardware.ways.map_or(1, |ways| ways.all.count_ones());
        // A mask of more ways than it may have bits has several a bit.
        let ways_per_bit =
            (1..=ways).find(|each| ways.is_multiple_of(*each) && ways / each <= MOST_BITS).unwrap_or(ways);
        let bits = u64::MAX >> (u64::BITS - (ways / ways_per_bit).clamp(1, MOST_BITS));
        let state = State {
            classes: vec![0; cpus],
            monitors: vec![0; cpus],
            events: vec![(0, 0); cpus],
            masks: vec![vec![bits; caches]; classes],
            limits: vec![vec![NO_LIMIT; caches]; classes],
            counts: vec![vec![[0; 2]; caches]; MONITORS],
            seen: vec![[0; 2]; cpus],
        };
        Self { hardware, ways_per_bit, state: Mutex::new(state), obeying: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The guest's kernel writes to a register: its lower and upper half.
    pub(crate) fn write(&self, cpu: usize, register: u32, [lower, upper]: [u32; 2], model: &Model) {
        // One CPU at a time lets the model obey, or an older change could overtake a newer one.
        let _one = self.obeying.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.is_at_start();
        let is_new = self.set(cpu, register, lower, upper, || lines(model));
        // The kernel also writes what a CPU that it starts has anyway, and the control words may be in force.
        if is_new && !(before && self.is_at_start()) {
            model.obey(&self.controls());
        }
    }

    /// What `cpuid` returns: `eax`, `ebx`, `ecx` and `edx`.
    pub(crate) fn identity(&self, leaf: u32, part: u32, [a, b, c, d]: [u32; 4]) -> [u32; 4] {
        let (monitors, classes) = (MONITORS as u32 - 1, u32::from(self.hardware.classes) - 1);
        let (has_ways, has_limits) = (self.hardware.ways.is_some(), self.hardware.step_bytes_per_s.is_some());
        let bits = self.hardware.ways.map_or(1, |ways| ways.all.count_ones() / self.ways_per_bit);
        match (leaf, part) {
            (0, _) => [a.max(0x10), b, c, d],
            // Monitoring and allocation.
            (7, 0) => [a, b | 1 << 12 | 1 << 15, c, d],
            (0xf, 0) => [0, monitors, 0, 1 << 1],
            (0xf, 1) => [COUNTER_BITS, LINE_BYTES, monitors, 1 << 1 | 1 << 2],
            (0x10, 0) => [0, u32::from(has_ways) << 1, 0, 0],
            (0x10, 1) if has_ways => [bits - 1, 0, 0, classes],
            (0x8000_0000, _) => [a.max(0x8000_0020), b, c, d],
            (0x8000_0008, _) => [a, b | u32::from(has_limits) << 6, c, d],
            (0x8000_0020, 0) => [0, u32::from(has_limits) << 1, 0, 0],
            (0x8000_0020, 1) if has_limits => [NO_LIMIT_BITS, 0, 0, classes],
            (0xf | 0x10 | 0x8000_0020, _) => [0; 4],
            _ => [a, b, c, d],
        }
    }

    /// The value of a register; none if it is not one of these.
    pub(crate) fn read(&self, cpu: usize, register: u32, model: &Model) -> Option<u64> {
        self.value(cpu, register, || lines(model))
    }

    fn value(&self, cpu: usize, register: u32, lines: impl Fn() -> Vec<[u64; 2]>) -> Option<u64> {
        let mut state = self.state();
        match register {
            msr::ASSOCIATION => Some((state.classes[cpu] as u64) << 32 | state.monitors[cpu] as u64),
            msr::EVENT => Some((state.events[cpu].1 as u64) << 32 | u64::from(state.events[cpu].0)),
            msr::COUNT => {
                self.look(&mut state, &lines());
                let (event, monitor) = state.events[cpu];
                let of = match event {
                    ALL_BYTES => 0,
                    LOCAL_BYTES => 1,
                    _ => return Some(NO_COUNT),
                };
                let cache = self.hardware.cache_of(cpu);
                Some(cache.and_then(|cache| Some(state.counts.get(monitor)?[cache][of])).unwrap_or(NO_COUNT))
            }
            _ => {
                let (class, is_mask) = self.class_of(register)?;
                let cache = self.hardware.cache_of(cpu)?;
                Some(if is_mask { state.masks[class][cache] } else { state.limits[class][cache] })
            }
        }
    }

    /// Sets a register. Returns whether the model has to obey other controls.
    fn set(&self, cpu: usize, register: u32, low: u32, high: u32, lines: impl Fn() -> Vec<[u64; 2]>) -> bool {
        let mut state = self.state();
        match register {
            msr::ASSOCIATION => {
                let (monitor, class) = (low as usize, high as usize);
                if monitor >= MONITORS || class >= self.hardware.classes.into() {
                    return false;
                }
                if state.monitors[cpu] != monitor {
                    self.look(&mut state, &lines());
                    state.monitors[cpu] = monitor;
                }
                std::mem::replace(&mut state.classes[cpu], class) != class
            }
            msr::EVENT => {
                state.events[cpu] = (low & 0xff, high as usize);
                false
            }
            _ => {
                let Some(((class, is_mask), cache)) = self.class_of(register).zip(self.hardware.cache_of(cpu)) else {
                    return false;
                };
                let values = if is_mask { &mut state.masks } else { &mut state.limits };
                values[class][cache] = low.into();
                true
            }
        }
    }

    /// The class that a register belongs to, and whether it is that of its mask.
    fn class_of(&self, register: u32) -> Option<(usize, bool)> {
        let classes = u32::from(self.hardware.classes);
        let within = |first: u32| register.checked_sub(first).filter(|class| *class < classes);
        let mask = within(msr::MASKS).filter(|_| self.hardware.ways.is_some()).map(|class| (class as usize, true));
        let limit = within(msr::LIMITS).filter(|_| self.hardware.step_bytes_per_s.is_some());
        mask.or_else(|| limit.map(|class| (class as usize, false)))
    }

    /// Counts each CPU's lines since the last look for the monitor that it has.
    fn look(&self, state: &mut State, lines: &[[u64; 2]]) {
        for (cpu, &now) in lines.iter().enumerate() {
            let before = std::mem::replace(&mut state.seen[cpu], now);
            let Some(cache) = self.hardware.cache_of(cpu) else { continue };
            let counts = &mut state.counts[state.monitors[cpu]][cache];
            for (count, (now, before)) in counts.iter_mut().zip(now.into_iter().zip(before)) {
                *count = count.wrapping_add(now.wrapping_sub(before)) & (u64::MAX >> 2);
            }
        }
    }

    /// Whether no CPU has a class, and no class a limit.
    fn is_at_start(&self) -> bool {
        let (state, bits) = (self.state(), self.bits());
        let has_all = |masks: &Vec<u64>| masks.iter().all(|mask| *mask == bits);
        let is_free = |limits: &Vec<u64>| limits.iter().all(|limit| *limit >= NO_LIMIT);
        state.classes.iter().all(|class| *class == 0)
            && state.masks.iter().all(has_all)
            && state.limits.iter().all(is_free)
    }

    /// A mask of all ways.
    fn bits(&self) -> u64 {
        let ways = self.hardware.ways.map_or(1, |ways| ways.all.count_ones());
        u64::MAX >> (u64::BITS - (ways / self.ways_per_bit).clamp(1, MOST_BITS))
    }

    /// What the model is to obey.
    fn controls(&self) -> Controls {
        let state = self.state();
        let share = |class: usize, cache: usize| {
            let limit = Some(state.limits[class][cache]).filter(|limit| *limit < NO_LIMIT);
            let of_cache = |cpu: &usize| self.hardware.cache_of(*cpu) == Some(cache) && state.classes[*cpu] == class;
            let cpus = (0..self.hardware.cpus()).filter(of_cache).count().max(1) as u64;
            Share {
                ways: self.ways(state.masks[class][cache]),
                // The least limit is not 0, which is none.
                bytes_per_s: limit.map_or(0, |limit| (limit * UNIT_BYTES_PER_S / cpus).max(1_000_000)),
            }
        };
        let caches = self.hardware.caches.len();
        let shares = (0..state.masks.len()).map(|class| (0..caches).map(|cache| share(class, cache)).collect());
        Controls { classes: state.classes.iter().map(|class| *class as u64).collect(), shares: shares.collect() }
    }

    /// The ways of a mask's bits.
    fn ways(&self, mask: u64) -> u64 {
        let Some(all) = self.hardware.ways.map(|ways| ways.all) else { return 0 };
        let each = u64::MAX >> (u64::BITS - self.ways_per_bit);
        let bits = (0..MOST_BITS).filter(|bit| mask >> bit & 1 == 1);
        let ways = bits.fold(0, |ways, bit| ways | each << (bit * self.ways_per_bit).min(63)) & all;
        // AMD's masks may be empty; the model's CPUs fill at least one way.
        if ways == 0 { each } else { ways }
    }
}

fn lines(model: &Model) -> Vec<[u64; 2]> {
    (0..model.cpus()).map(|cpu| model.memory_lines_of(cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;

    const ALL: u64 = (1 << 40) - 1;

    fn director() -> ResourceDirector {
        let machine = presets::find("magny-cours-4p-control").unwrap();
        ResourceDirector::new(ControlHardware::of(&machine).unwrap())
    }

    fn none() -> Vec<[u64; 2]> {
        vec![[0; 2]; 48]
    }

    #[test]
    fn the_processor_says_what_the_machine_has() {
        let director = director();
        let of = |leaf, part| director.identity(leaf, part, [0; 4]);
        // 40 ways are 20 bits of two, for 16 classes.
        assert_eq!((of(0x10, 0)[1], of(0x10, 1)), (1 << 1, [19, 0, 0, 15]));
        assert_eq!((of(0x8000_0008, 0)[1], of(0x8000_0020, 1)), (1 << 6, [11, 0, 0, 15]));
        assert_eq!(of(0xf, 1), [38, 64, 63, 0b110]);
        // What other leaves have, and other features, stay.
        assert_eq!(director.identity(1, 0, [1, 2, 3, 4]), [1, 2, 3, 4]);
        assert_eq!(director.identity(7, 0, [1, 1, 1, 1]), [1, 1 | 1 << 12 | 1 << 15, 1, 1]);
        assert_eq!(director.identity(0x10, 3, [1; 4]), [0; 4], "QEMU repeats another leaf there");
    }

    #[test]
    fn masks_and_limits_are_of_a_cache_and_a_class() {
        let director = director();
        let set = |cpu, register, low, high| director.set(cpu, register, low, high, none);
        assert!(set(7, msr::MASKS + 3, 0x3ff, 0) && set(7, msr::LIMITS + 3, 16, 0));
        assert_eq!(
            (director.value(8, msr::MASKS + 3, none), director.value(0, msr::MASKS + 3, none)),
            (Some(0x3ff), Some(0xf_ffff))
        );
        assert_eq!(director.value(8, msr::LIMITS + 3, none), Some(16));
        // Two CPUs of the second cache get the class, and share its limit.
        assert!(set(6, msr::ASSOCIATION, 5, 3) && set(9, msr::ASSOCIATION, 5, 3) && !set(9, msr::ASSOCIATION, 6, 3));
        assert_eq!(director.value(9, msr::ASSOCIATION, none), Some(3 << 32 | 6));
        let controls = director.controls();
        assert_eq!((controls.classes[6], controls.classes[9], controls.classes[7]), (3, 3, 0));
        assert_eq!(controls.shares[3][1], Share { ways: (1 << 20) - 1, bytes_per_s: 1_000_000_000 });
        assert_eq!(controls.shares[3][0], Share { ways: ALL, bytes_per_s: 0 });
        // An empty mask is one way of the model's, and the least limit is no freedom.
        assert!(set(7, msr::MASKS + 3, 0, 0) && set(7, msr::LIMITS + 3, 0, 0));
        assert_eq!(director.controls().shares[3][1], Share { ways: 0b11, bytes_per_s: 1_000_000 });
    }

    #[test]
    fn registers_and_classes_that_are_not_there_change_nothing() {
        let director = director();
        let set = |register, low, high| director.set(0, register, low, high, none);
        assert!(!set(msr::ASSOCIATION, 64, 0) && !set(msr::ASSOCIATION, 0, 16) && !set(msr::MASKS + 16, 1, 0));
        assert!(!set(msr::LIMITS + 16, 1, 0) && !set(0x10, 1, 1) && !set(msr::EVENT, 2, u32::MAX));
        assert_eq!((director.value(0, 0x10, none), director.value(0, msr::COUNT, none)), (None, Some(NO_COUNT)));
        assert_eq!(director.controls().classes, [0; 48]);
        // What the kernel writes of a CPU that it starts is as at the start.
        assert!(set(msr::MASKS, 0xf_ffff, 0) && set(msr::LIMITS, 2048, 0) && director.is_at_start());
        assert!(set(msr::MASKS, 1, 0) && !director.is_at_start());
    }

    #[test]
    fn lines_count_for_the_monitor_that_their_cpu_had() {
        let director = director();
        let lines = |of_0: u64, of_1: u64| {
            move || {
                let mut lines = none();
                (lines[0], lines[1]) = ([of_0, of_0 / 2], [of_1, 0]);
                lines
            }
        };
        let count = |event, monitor, lines: Vec<[u64; 2]>| {
            director.set(3, msr::EVENT, event, monitor, none);
            director.value(3, msr::COUNT, || lines.clone())
        };
        director.set(0, msr::ASSOCIATION, 5, 0, lines(100, 10));
        assert_eq!(count(ALL_BYTES, 5, lines(150, 20)()), Some(50));
        assert_eq!(
            (count(LOCAL_BYTES, 5, lines(150, 20)()), count(ALL_BYTES, 0, lines(150, 20)())),
            (Some(25), Some(120))
        );
        director.set(0, msr::ASSOCIATION, 0, 0, lines(160, 20));
        assert_eq!(
            (count(ALL_BYTES, 5, lines(900, 20)()), count(ALL_BYTES, 0, lines(900, 20)())),
            (Some(60), Some(860))
        );
        assert_eq!(count(1, 5, none()), Some(NO_COUNT), "occupancy is not counted");
    }
}
