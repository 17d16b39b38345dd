//! What control hardware can do, and in which unit it limits bandwidth.

use super::control_word::{ControlWord, Interface};
use machine::{CpuId, CpuSet};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;

/// The class of all CPUs that no grant has.
pub(crate) const REST: usize = 0;
/// The class of grants that share the rest's ways, but not its limits.
pub(crate) const UNLIMITED: usize = 1;

/// What control hardware can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Classes that a CPU can be in.
    pub classes: u32,
    /// Masks of the ways of each cache.
    pub ways: Option<WayMasks>,
    /// Limits of bandwidth.
    pub limits: Option<LimitUnit>,
    /// The CPUs of each L3 cache.
    pub caches: Vec<CpuSet>,
    /// Whether what the rest of the machine draws is counted.
    pub counts_bytes: bool,
}

/// Masks of ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WayMasks {
    /// All of them.
    pub all: u64,
    /// Fewest ways in a mask.
    pub least: u32,
    /// Whether masks may have gaps.
    pub may_have_gaps: bool,
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitUnit {
    /// Bytes/s of each CPU of the class, in steps of this.
    EachCpu {
        /// The step.
        step_bytes_per_s: u64,
    },
    /// What all CPUs of the class that share a cache draw, in units of this.
    Together {
        /// The unit.
        unit_bytes_per_s: u64,
        /// The least limit, in units.
        least: u64,
        /// Limits from this on are none.
        none: u64,
    },
    /// Percent, in steps.
    Percent {
        /// The least limit.
        least: u64,
        /// The step.
        step: u64,
        /// Whether it is of what a core can draw, or else of what a controller carries.
        of_core: bool,
    },
}

/// What the rest of the machine may draw through a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share {
    /// Each of its CPUs, bytes/s.
    pub each_bytes_per_s: f64,
    /// Its CPUs.
    pub cpus: usize,
    /// What a core draws at most, bytes/s.
    pub core_bytes_per_s: f64,
    /// What the controller carries, bytes/s.
    pub controller_bytes_per_s: f64,
}

impl Share {
    /// What all its CPUs may draw.
    pub fn bytes_per_s(&self) -> f64 {
        self.each_bytes_per_s * self.cpus as f64
    }
}

impl Offer {
    /// The L3 cache of a CPU, by its index.
    pub fn cache_of(&self, cpu: usize) -> Option<usize> {
        let cpu = CpuId(u32::try_from(cpu).ok()?);
        self.caches.iter().position(|cache| cache.contains(cpu))
    }

    /// Least limit and step of percents that a closed loop corrects: what they mean in bytes/s differs by factors.
    pub fn corrected(&self) -> Option<(u64, u64)> {
        match self.limits {
            Some(LimitUnit::Percent { least, step, .. }) if self.counts_bytes => Some((least, step)),
            _ => None,
        }
    }
}

impl LimitUnit {
    /// The hardware's limit for a share, rounded down, and at least its least; 0 where the share needs none.
    pub fn limit(self, share: &Share) -> u64 {
        match self {
            Self::EachCpu { step_bytes_per_s: step } => (share.each_bytes_per_s as u64 / step * step).max(step),
            Self::Together { unit_bytes_per_s, least, none } => {
                let limit = ((share.bytes_per_s() / unit_bytes_per_s as f64) as u64).max(least);
                if limit < none { limit } else { 0 }
            }
            Self::Percent { least, step, .. } => {
                let percent = (100.0 * share.each_bytes_per_s / self.whole(share)) as u64;
                let limit = (percent / step * step).max(least);
                if limit < 100 { limit } else { 0 }
            }
        }
    }

    /// Bytes/s of each CPU by its least limit.
    pub fn least_bytes_per_s(self, share: &Share) -> u64 {
        let cpus = share.cpus.max(1) as u64;
        match self {
            Self::EachCpu { step_bytes_per_s } => step_bytes_per_s,
            Self::Together { unit_bytes_per_s, least, .. } => unit_bytes_per_s.saturating_mul(least) / cpus,
            Self::Percent { least, .. } => (self.whole(share) * least as f64 / 100.0) as u64,
        }
    }

    /// 100 % for each CPU.
    fn whole(self, share: &Share) -> f64 {
        let of_core = matches!(self, Self::Percent { of_core: true, .. });
        let whole =
            if of_core { share.core_bytes_per_s } else { share.controller_bytes_per_s / share.cpus.max(1) as f64 };
        whole.max(1.0)
    }
}

/// The longest run of ways of a mask, the lowest if there are several.
pub(crate) fn longest_run(mask: u64) -> u64 {
    let runs = (0..u64::BITS).filter(|&way| mask >> way & 1 == 1).map(|way| {
        let length = (mask >> way).trailing_ones();
        (length, (u64::MAX >> (u64::BITS - length)) << way)
    });
    runs.fold((0, 0), |longest, run| if run.0 > longest.0 { run } else { longest }).1
}

/// Values of control words.
pub(crate) type Words = BTreeMap<ControlWord, String>;

/// Control hardware.
pub(crate) trait ControlDevice: Debug + Sync {
    /// How it is reached.
    fn interface(&self) -> Interface;

    /// What it can do.
    fn offer(&self) -> &Offer;

    /// The values of all words.
    fn values(&self) -> io::Result<Words>;

    /// Changes a word. The hardware obeys before this returns.
    fn set(&self, word: ControlWord, text: &str) -> io::Result<()>;

    /// The value of a word.
    fn value(&self, word: ControlWord) -> io::Result<String> {
        self.values()?.remove(&word).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Classes that other programs than nearside have.
    fn others_classes(&self) -> io::Result<u32> {
        Ok(0)
    }

    /// What other programs have set that is in the way of new grants of the CPUs `wanted`, where grants have the CPUs
    /// `known`.
    fn in_the_way(&self, _known: &CpuSet, _wanted: &CpuSet) -> io::Result<Option<String>> {
        Ok(None)
    }

    /// Bytes that the rest of the machine has drawn through a cache so far, where they are counted.
    fn rest_bytes(&self, _cache: usize) -> Option<u64> {
        None
    }

    /// Removes what has no use any more.
    fn tidy(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_in_the_hardwares_unit() {
        let share =
            Share { each_bytes_per_s: 850e6, cpus: 5, core_bytes_per_s: 5.949e9, controller_bytes_per_s: 13.9e9 };
        let amd = LimitUnit::Together { unit_bytes_per_s: 125_000_000, least: 1, none: 2048 };
        let (intel, arm) = (
            LimitUnit::Percent { least: 10, step: 10, of_core: true },
            LimitUnit::Percent { least: 1, step: 1, of_core: false },
        );
        let each = LimitUnit::EachCpu { step_bytes_per_s: 125_000_000 };
        // 4.25 GB/s in all: 34 eighths of a GB/s; 14 % of a core's 5.949 GB/s; 30 % of 13.9 GB/s.
        assert_eq!([amd, intel, arm, each].map(|unit| unit.limit(&share)), [34, 10, 30, 750_000_000]);
        assert_eq!(
            [amd, intel, arm, each].map(|unit| unit.least_bytes_per_s(&share)),
            [25_000_000, 594_900_000, 27_800_000, 125_000_000]
        );
        let little = Share { each_bytes_per_s: 1e6, ..share };
        assert_eq!([amd, intel, arm].map(|unit| unit.limit(&little)), [1, 10, 1]);
        let much = Share { each_bytes_per_s: 100e9, ..share };
        assert_eq!([amd, intel, arm].map(|unit| unit.limit(&much)), [0; 3]);
    }

    #[test]
    fn the_longest_run_is_what_a_mask_without_gaps_can_have() {
        for (mask, run) in [(0, 0), (0b1, 0b1), (0b1101, 0b1100), (0b1011, 0b11), (0b101, 0b1), (u64::MAX, u64::MAX)] {
            assert_eq!(longest_run(mask), run, "{mask:b}");
        }
    }
}
