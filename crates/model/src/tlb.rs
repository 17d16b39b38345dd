//! The TLBs of one CPU.

use crate::LINE_BYTES;
use crate::cache::Cache;
use crate::error::ModelError;
use crate::resources::picoseconds;
use machine::{HUGE_PAGE, Machine, PageSize, SMALL_PAGE};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zerocopy::AllocError;

/// Recently used pages, by their low bits: using one of them again needs no TLB lookup.
const RECENT: usize = 16;
/// Maximum number of ways of a set; fully associative TLBs get sets of this size, which hold nearly the same pages.
const MAX_WAYS: u32 = 8;
/// No page has this number.
const NOTHING: u64 = u64::MAX;

/// The result of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Translated {
    /// A hit, with its latency in ps.
    Known(u32),
    /// A miss: the page table must be read.
    Unknown,
}

/// The TLBs of one CPU. Only its own thread may use them.
pub(crate) struct Tlb {
    recent: [AtomicU64; RECENT],
    buffers: Box<[Cache]>,
    /// For each page size, the TLBs of the first and the second level.
    small: [Option<usize>; 2],
    huge: [Option<usize>; 2],
    /// Time until which the single page walker is busy, ps.
    pub(crate) walker_until_ps: AtomicU64,
}

impl Tlb {
    /// `None` for a machine without TLBs: then every translation is free.
    pub(crate) fn new(machine: &Machine) -> Result<Option<Self>, ModelError> {
        let no_room = |_: AllocError| ModelError::OutOfRange {
            machine: machine.name.clone(),
            field: "tlb.entries".to_owned(),
            value: format!("for {} CPUs", machine.cpus().len()),
            rule: "the host has no room for the TLBs of all CPUs",
        };
        let buffer = |(index, tlb): (usize, &machine::Tlb)| {
            let latency_ps = match tlb.latency_ns.unwrap_or(0.0) {
                0.0 => 0,
                ns => picoseconds(machine, ns, || format!("tlb[{index}].latency_ns"))?,
            };
            Cache::new(u64::from(tlb.entries) * LINE_BYTES, tlb.ways.min(MAX_WAYS), latency_ps).map_err(no_room)
        };
        let find = |size, level| machine.tlbs.iter().position(|tlb| tlb.level == level && tlb.pages.contains(&size));
        let levels = |size| [1, 2].map(|level| find(size, level));
        if machine.tlbs.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            recent: [const { AtomicU64::new(NOTHING) }; RECENT],
            buffers: machine.tlbs.iter().enumerate().map(buffer).collect::<Result<_, _>>()?,
            small: levels(PageSize::Small),
            huge: levels(PageSize::Huge),
            walker_until_ps: AtomicU64::new(0),
        }))
    }

    /// Translates an address. After a miss the page must be [learned](Self::learn).
    #[inline]
    pub(crate) fn translate(&self, virtual_address: u64, physical: u64) -> Translated {
        let small = page(virtual_address, false);
        if self.is_recent(small) {
            return Translated::Known(0);
        }
        let huge = may_be_huge(virtual_address, physical).then(|| page(virtual_address, true));
        if huge.is_some_and(|huge| self.is_recent(huge)) {
            return Translated::Known(0);
        }
        let huge = huge.and_then(|page| self.look_up(&self.huge, page));
        huge.or_else(|| self.look_up(&self.small, small)).map_or(Translated::Unknown, Translated::Known)
    }

    /// Enters the page of an address.
    pub(crate) fn learn(&self, virtual_address: u64, huge: bool) {
        // Processors without entries for huge pages keep their small parts.
        let huge = huge && self.huge.iter().any(Option::is_some);
        let page = page(virtual_address, huge);
        self.use_recently(page);
        // All levels take the page, as caches do with lines.
        for buffer in self.of_levels(if huge { &self.huge } else { &self.small }) {
            buffer.access(page, false);
        }
    }

    fn is_recent(&self, page: u64) -> bool {
        self.recent[page as usize % RECENT].load(Relaxed) == page
    }

    fn use_recently(&self, page: u64) {
        self.recent[page as usize % RECENT].store(page, Relaxed);
    }

    /// Latency of the first level that has a page, ps.
    fn look_up(&self, levels: &[Option<usize>], page: u64) -> Option<u32> {
        let knows = self.of_levels(levels).position(|buffer| buffer.holds(page))?;
        self.use_recently(page);
        let used = self.of_levels(levels).take(knows + 1).map(|buffer| {
            buffer.access(page, false);
            buffer.latency_ps
        });
        used.last()
    }

    fn of_levels(&self, levels: &[Option<usize>]) -> impl Iterator<Item = &Cache> {
        levels.iter().flatten().filter_map(|&buffer| self.buffers.get(buffer))
    }

    /// Flushes all entries, for another address space.
    pub(crate) fn forget(&self) {
        for page in &self.recent {
            page.store(NOTHING, Relaxed);
        }
        self.buffers.iter().for_each(Cache::clear);
    }
}

const HUGE_BITS: u32 = HUGE_PAGE.trailing_zeros();
const SMALL_BITS: u32 = SMALL_PAGE.trailing_zeros();

/// Whether an address may be in a huge page: its offset in 2 MiB is the same in both kinds of addresses. Small pages
/// can match by chance, and many in a row do if the kernel had contiguous memory.
#[inline]
pub(crate) fn may_be_huge(virtual_address: u64, physical: u64) -> bool {
    (virtual_address ^ physical) & (HUGE_PAGE - SMALL_PAGE) == 0
}

/// The page number of an address, reduced to the size of entries.
#[inline]
fn page(virtual_address: u64, huge: bool) -> u64 {
    /// Low bits that distinguish neighbours; higher bits are mixed in.
    const NUMBER_BITS: u32 = 28;
    let page = virtual_address >> if huge { HUGE_BITS } else { SMALL_BITS };
    let above = (page >> NUMBER_BITS).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - NUMBER_BITS);
    let number = (page ^ above) & ((1 << NUMBER_BITS) - 1);
    number | u64::from(huge) << NUMBER_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;
    use proptest::prelude::*;

    use machine::{HUGE_PAGE as HUGE, SMALL_PAGE as SMALL};

    /// At another offset in 2 MiB than the virtual address.
    fn frame(virtual_address: u64) -> u64 {
        virtual_address + SMALL
    }

    fn tlb(tlbs: &[(u8, &[PageSize], u32, u32, f64)]) -> Tlb {
        let mut machine = presets::find("small-2x2").unwrap();
        machine.tlbs = tlbs
            .iter()
            .map(|&(level, pages, entries, ways, ns)| machine::Tlb {
                level,
                pages: pages.to_vec(),
                entries,
                ways,
                latency_ns: Some(ns),
                source: None,
            })
            .collect();
        Tlb::new(&machine).unwrap().unwrap()
    }

    /// Translates, and learns after a miss. Returns whether it missed.
    fn learns(tlb: &Tlb, virtual_address: u64, physical: u64, huge: bool) -> bool {
        let unknown = tlb.translate(virtual_address, physical) == Translated::Unknown;
        if unknown {
            tlb.learn(virtual_address, huge);
        }
        unknown
    }

    fn unknown(tlb: &Tlb, pages: impl Iterator<Item = u64>) -> usize {
        pages.filter(|&page| learns(tlb, page, frame(page), false)).count()
    }

    #[test]
    fn as_many_neighbours_are_known_as_there_are_entries() {
        for start in [0x7f12_3456_7000, 0x5555_5555_4000, 0xffff_8881_0000_0000] {
            let tlb = tlb(&[(1, &[PageSize::Small], 48, 48, 0.01), (2, &[PageSize::Small], 512, 4, 3.0)]);
            let pages = |count: u64| (0..count).map(move |page| start + page * SMALL);
            assert_eq!(unknown(&tlb, pages(512)), 512);
            assert_eq!(unknown(&tlb, pages(512)), 0);
            assert!(unknown(&tlb, pages(2048)) >= 1536);
            tlb.forget();
            assert_eq!(unknown(&tlb, pages(48)), 48);
        }
    }

    #[test]
    fn a_latency_that_the_model_cannot_have_is_refused() {
        let mut machine = presets::find("small-2x2").unwrap();
        machine.tlbs = vec![machine::Tlb {
            level: 2,
            pages: vec![PageSize::Small],
            entries: 512,
            ways: 4,
            latency_ns: Some(1e7),
            source: None,
        }];
        let refused = Tlb::new(&machine).err().map(|why| why.to_string()).unwrap();
        assert!(refused.contains("tlb[0].latency_ns = 10000000, but a latency must be"), "{refused}");
    }

    #[test]
    fn the_second_level_takes_longer() {
        let tlb = tlb(&[(1, &[PageSize::Small], 16, 4, 0.0), (2, &[PageSize::Small], 512, 4, 3.0)]);
        let pages = || (0..256).map(|page| page * SMALL);
        assert_eq!(unknown(&tlb, pages()), 256);
        let known: Vec<_> = pages().map(|page| tlb.translate(page, frame(page))).collect();
        assert!(known.iter().filter(|&&known| known == Translated::Known(3000)).count() >= 240, "{known:?}");
        assert_eq!(tlb.translate(255 * SMALL + 8, frame(255 * SMALL + 8)), Translated::Known(0));
    }

    #[test]
    fn huge_pages_have_buffers_of_their_own_or_share_them() {
        let tlb = tlb(&[(1, &[PageSize::Small], 4, 4, 0.0), (1, &[PageSize::Huge], 4, 4, 0.0)]);
        assert!(learns(&tlb, HUGE + 77, 5 * HUGE + 77, true));
        assert_eq!(tlb.translate(2 * HUGE - 1, 6 * HUGE - 1), Translated::Known(0), "the same page's end");
        unknown(&tlb, (0..64).map(|page| (1 << 30) + page * SMALL));
        assert_eq!(tlb.translate(HUGE, 5 * HUGE), Translated::Known(0), "small pages push out small pages");
    }

    #[test]
    fn small_pages_that_lie_like_a_huge_one_are_small() {
        let tlb = tlb(&[(1, &[PageSize::Small, PageSize::Huge], 1024, 8, 0.0)]);
        let learned =
            |from: u64| (0..512).filter(|page| learns(&tlb, from + page * SMALL, from + page * SMALL, false)).count();
        assert_eq!((learned(HUGE), learned(HUGE)), (512, 0));
    }

    proptest! {
        #[test]
        fn what_was_used_last_is_known(pages in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 1..200)) {
            let tlb = tlb(&[(1, &[PageSize::Small, PageSize::Huge], 16, 16, 0.0)]);
            for (virtual_address, physical, huge) in pages {
                let huge = huge && may_be_huge(virtual_address, physical);
                learns(&tlb, virtual_address, physical, huge);
                prop_assert_eq!(tlb.translate(virtual_address, physical), Translated::Known(0));
            }
        }
    }
}
