//! What CPUs may take of caches and bandwidth: classes of CPUs, each with a mask of ways and a limit for each L3 cache. The
//! hardware says what it accepts.

use machine::{CONTROLLED_LEVEL, CpuId, CpuSet, Machine};

/// A machine's control hardware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlHardware {
    /// Classes that a CPU can be in.
    pub classes: u8,
    /// The ways of each L3 cache, if it has masks of them.
    pub ways: Option<Ways>,
    /// Unit of limits, bytes/s, if there are any.
    pub step_bytes_per_s: Option<u64>,
    /// The CPUs of each L3 cache.
    pub caches: Vec<CpuSet>,
    /// For each CPU in ascending order, its L3 cache.
    caches_of: Vec<Option<usize>>,
}

/// Ways of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    /// All of them, as a mask.
    pub all: u64,
    /// Fewest of them in a mask.
    pub least: u32,
}

/// What CPUs of one class that share a cache may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The ways that they fill.
    pub ways: u64,
    /// The limit of each CPU's lines to and from memory, bytes/s; 0 for none.
    pub bytes_per_s: u64,
}

/// The class of each CPU, and the share of each class of each cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controls {
    /// By CPU, in ascending order.
    pub classes: Vec<u64>,
    /// By class and cache.
    pub shares: Vec<Vec<Share>>,
}

/// What the hardware does not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unacceptable {
    /// The class of a CPU.
    Class(usize),
    /// The mask of a class and cache.
    Ways(usize, usize),
    /// The limit of a class and cache.
    Limit(usize, usize),
}

impl ControlHardware {
    /// That of a machine, if it has any.
    pub fn of(machine: &Machine) -> Option<Self> {
        let control = machine.control.as_ref()?;
        let level3 = machine.caches.iter().filter(|cache| cache.level == CONTROLLED_LEVEL);
        let caches: Vec<CpuSet> = level3.flat_map(|cache| machine.cache_instances(cache)).collect();
        let cache_of = |cpu: CpuId| caches.iter().position(|cache| cache.contains(cpu));
        let all = machine.controlled_ways().map(|ways| u64::MAX >> (u64::BITS - ways.clamp(1, u64::BITS)));
        Some(Self {
            classes: u8::try_from(control.classes).unwrap_or(u8::MAX),
            ways: all.zip(control.least_ways).map(|(all, least)| Ways { all, least }),
            step_bytes_per_s: control.bandwidth_step_bytes_per_s.map(|step| (step as u64).max(1)),
            caches_of: machine.cpus().iter().map(cache_of).collect(),
            caches,
        })
    }

    /// The number of CPUs.
    pub fn cpus(&self) -> usize {
        self.caches_of.len()
    }

    /// The L3 cache of a CPU, by its index.
    pub fn cache_of(&self, cpu: usize) -> Option<usize> {
        self.caches_of.get(cpu).copied().flatten()
    }

    /// All CPUs in the first class, and all classes without limits.
    pub fn at_start(&self) -> Controls {
        let share = Share { ways: self.ways.map_or(0, |ways| ways.all), bytes_per_s: 0 };
        let shares = vec![vec![share; self.caches.len()]; self.classes.into()];
        Controls { classes: vec![0; self.cpus()], shares }
    }

    /// The first of these controls that the hardware does not accept.
    pub fn unacceptable(&self, controls: &Controls) -> Option<Unacceptable> {
        let wrong = controls.classes.iter().position(|&class| class >= self.classes.into());
        let of_shares = || {
            let all = controls.shares.iter().enumerate();
            let mut all = all.flat_map(|(class, shares)| shares.iter().enumerate().map(move |one| (class, one)));
            all.find_map(|(class, (cache, share))| match share {
                share if !self.accepts_ways(share.ways) => Some(Unacceptable::Ways(class, cache)),
                share if !self.accepts_limit(share.bytes_per_s) => Some(Unacceptable::Limit(class, cache)),
                _ => None,
            })
        };
        wrong.map(Unacceptable::Class).or_else(of_shares)
    }

    /// Masks may have gaps.
    fn accepts_ways(&self, mask: u64) -> bool {
        match self.ways {
            None => mask == 0,
            Some(Ways { all, least }) => mask & !all == 0 && mask.count_ones() >= least.max(1),
        }
    }

    fn accepts_limit(&self, bytes_per_s: u64) -> bool {
        bytes_per_s == 0 || self.step_bytes_per_s.is_some_and(|step| bytes_per_s.is_multiple_of(step))
    }
}

impl Controls {
    /// What a class may take of a cache, to change it.
    pub fn share_mut(&mut self, class: usize, cache: usize) -> Option<&mut Share> {
        self.shares.get_mut(class)?.get_mut(cache)
    }

    /// What a CPU may take of a cache.
    pub(crate) fn share_of(&self, cpu: usize, cache: usize) -> Option<Share> {
        let class = usize::try_from(*self.classes.get(cpu)?).ok()?;
        self.shares.get(class)?.get(cache).copied()
    }
}
