//! Pages of an object, and huge pages that several nodes use without sharing anything in them.

use crate::flow::Flow;
use crate::ids::{ObjectId, ProcessId, ThreadId};
use crate::profile::Access;
use crate::statistics::{Confidence, Share};
use crate::tally::Tally;
use machine::NodeId;
use rustc_hash::{FxBuildHasher, FxHashMap};
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

/// A small page, bytes.
pub const SMALL_PAGE: u64 = 4096;
/// A huge page, bytes.
pub const HUGE_PAGE: u64 = 2 << 20;
/// From this share of successive accesses by one node on, small pages are one node's each.
pub(crate) const APART: f64 = 0.9;
/// The last node of so many small pages fits into a core's caches.
const REMEMBERED: usize = 1 << 16;
/// So many accesses of an object show whether it has huge pages at all.
const LOOKED_AT: usize = 1 << 14;

/// Accesses to one small page.
#[derive(Clone, Debug, PartialEq)]
pub struct PageUse {
    /// Whose it is.
    pub process: ProcessId,
    /// Its first address.
    pub address: u64,
    /// The accesses.
    pub tally: Tally,
    /// How many samples each thread has.
    pub threads: BTreeMap<ThreadId, u64>,
    /// The nodes of the CPUs that accessed it.
    pub from: BTreeSet<NodeId>,
    /// How often it was seen at another physical address than before.
    pub moves: u64,
}

/// A huge page, or 2 MiB that one could be, which several nodes use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HugePageUse {
    /// Whose it is.
    pub process: ProcessId,
    /// Its first address.
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    /// It is a huge page: the kernel placed it as one, or all that was seen of it lies in physical memory as it would in
    /// one. Otherwise it is not known.
    pub is_huge: bool,
    /// The objects in it that were accessed.
    pub objects: Vec<ObjectId>,
    /// Of successive accesses to the same small page those that come from one node; the threshold is 0.9.
    pub same_node_in_small_pages: Share,
    /// Of successive accesses to the huge page those that come from one node; the threshold is 0.9.
    pub same_node: Share,
    /// Observed accesses that went to another node.
    pub remote_samples: u64,
}

impl HugePageUse {
    /// Whether nodes use parts of the page of their own: small pages could be where they are used, the huge page
    /// cannot.
    pub fn is_falsely_shared(&self) -> bool {
        self.same_node_in_small_pages.is_reached() && !self.same_node.is_reached() && self.remote_samples > 0
    }

    /// How sure that is.
    pub fn confidence(&self) -> Confidence {
        self.same_node_in_small_pages.confidence().min(self.same_node.confidence())
    }
}

/// Where 2 MiB of addresses lie in physical memory. Small pages lie so by chance once in 512 times at most.
#[derive(Clone, Copy, Default)]
struct Frames {
    /// How far the first access's physical address is from its virtual one, and its small page.
    first: Option<(u64, u64)>,
    is_several: bool,
    is_torn: bool,
}

impl Frames {
    fn add(&mut self, access: &Access) {
        let Some(physical) = access.physical else { return };
        let (offset, small) = (physical.wrapping_sub(access.address), access.address / SMALL_PAGE);
        let first = *self.first.get_or_insert((offset, small));
        self.is_torn |= offset != first.0 || !offset.is_multiple_of(HUGE_PAGE);
        self.is_several |= small != first.1;
    }

    fn are_of_a_huge_page(self) -> bool {
        self.is_several && !self.is_torn
    }
}

#[derive(Default)]
struct Successions {
    frames: Frames,
    last: Option<NodeId>,
    /// Pairs of the same node, and pairs: in the page, and in its small pages.
    same: (u64, u64),
    same_in_small: (u64, u64),
    remote: u64,
    objects: BTreeSet<ObjectId>,
    last_object: Option<ObjectId>,
}

impl Successions {
    /// `last_of_small` is the node that accessed the small page before.
    fn add(&mut self, access: &Access, from: NodeId, last_of_small: Option<NodeId>) {
        let count = |pairs: &mut (u64, u64), last: Option<NodeId>| {
            if let Some(last) = last {
                pairs.0 += u64::from(last == from);
                pairs.1 += 1;
            }
        };
        count(&mut self.same, self.last.replace(from));
        count(&mut self.same_in_small, last_of_small);
        self.remote += u64::from(access.is_remote());
        self.frames.add(access);
        if self.last_object.replace(access.object) != Some(access.object) {
            self.objects.insert(access.object);
        }
    }
}

impl Flow<'_> {
    /// Whether some of its pages may be huge, by the first of its accesses: most objects have none, and to look at all
    /// of them takes time.
    pub(crate) fn may_have_huge_pages(&self) -> bool {
        if self.profile().placements().iter().any(|placement| placement.bytes >= HUGE_PAGE) {
            return true;
        }
        let mut all: FxHashMap<(ProcessId, u64), Frames> = FxHashMap::default();
        for access in self.accesses().filter(Access::reaches_memory).take(LOOKED_AT) {
            let process = self.profile().threads()[access.thread.index()].process;
            all.entry((process, access.address / HUGE_PAGE)).or_default().add(&access);
        }
        all.into_values().any(Frames::are_of_a_huge_page)
    }

    /// Its small pages, by process and address.
    pub fn pages(&self) -> Vec<PageUse> {
        let mut pages: BTreeMap<(ProcessId, u64), (PageUse, Option<u64>)> = BTreeMap::new();
        for access in self.accesses() {
            let process = self.profile().threads()[access.thread.index()].process;
            let address = access.address & !(SMALL_PAGE - 1);
            let (page, frame) = pages.entry((process, address)).or_insert_with(|| {
                let page = PageUse {
                    process,
                    address,
                    tally: Tally::default(),
                    threads: BTreeMap::new(),
                    from: BTreeSet::new(),
                    moves: 0,
                };
                (page, None)
            });
            page.tally.add(&access);
            *page.threads.entry(access.thread).or_default() += 1;
            page.from.extend(access.from);
            if let Some(physical) = access.physical {
                let now = physical / SMALL_PAGE;
                page.moves += u64::from(frame.replace(now).is_some_and(|before| before != now));
            }
        }
        pages.into_values().map(|(page, _)| page).collect()
    }

    /// The pages of 2 MiB that several nodes access, by process and address.
    pub fn huge_pages(&self) -> Vec<HugePageUse> {
        self.huge_pages_within(usize::MAX)
    }

    /// As many of them, chosen by chance, as can be looked at without waiting for memory.
    pub(crate) fn some_huge_pages(&self) -> Vec<HugePageUse> {
        self.huge_pages_within(REMEMBERED)
    }

    /// Those of them that no more than so many small pages have to be remembered for.
    fn huge_pages_within(&self, remembered: usize) -> Vec<HugePageUse> {
        let profile = self.profile();
        let huge: BTreeSet<(ProcessId, u64)> = profile
            .placements()
            .iter()
            .filter(|placement| placement.bytes >= HUGE_PAGE)
            .flat_map(|placement| {
                let pages = (placement.bytes / HUGE_PAGE).min(1 << 10);
                (0..pages).map(|page| (placement.process, placement.address.wrapping_add(page * HUGE_PAGE)))
            })
            .collect();
        let mut pages: FxHashMap<(ProcessId, u64), Successions> = FxHashMap::default();
        let mut small_pages: FxHashMap<(ProcessId, u64), NodeId> = FxHashMap::default();
        // Half of those that are left are left out where they are too many.
        let mut left_out = 0;
        let is_left = |process: ProcessId, address: u64, left_out: u64| {
            // Others bits than those that tables go by.
            (FxBuildHasher.hash_one((process, address / HUGE_PAGE)) >> 32) & left_out == 0
        };
        for access in self.accesses().filter(Access::reaches_memory) {
            let process = profile.threads()[access.thread.index()].process;
            if let Some(from) = access.from.filter(|_| is_left(process, access.address, left_out)) {
                let last_of_small = small_pages.insert((process, access.address / SMALL_PAGE), from);
                let page = pages.entry((process, access.address & !(HUGE_PAGE - 1))).or_default();
                page.add(&access, from, last_of_small);
                if small_pages.len() > remembered {
                    left_out = left_out << 1 | 1;
                    small_pages.retain(|(process, page), _| is_left(*process, page * SMALL_PAGE, left_out));
                    pages.retain(|(process, address), _| is_left(*process, *address, left_out));
                }
            }
        }
        let share = |(part, of)| Share { part, of, threshold: APART };
        let page = |((process, address), found): ((ProcessId, u64), Successions)| HugePageUse {
            process,
            address,
            is_huge: huge.contains(&(process, address)) || found.frames.are_of_a_huge_page(),
            objects: found.objects.into_iter().collect(),
            same_node_in_small_pages: share(found.same_in_small),
            same_node: share(found.same),
            remote_samples: found.remote,
        };
        let shared = |found: &Successions| found.same.0 < found.same.1;
        let mut pages: Vec<_> = pages.into_iter().filter(|(_, found)| shared(found)).collect();
        pages.sort_by_key(|(place, _)| *place);
        pages.into_iter().map(page).collect()
    }
}

/// Many readers of JSON round numbers of more than 53 bits.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
pub(crate) fn hexadecimal<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:#x}"))
}
