//! Pages of an object, and falsely shared huge pages: several nodes use them, but each its own parts.

use crate::flow::Flow;
use crate::ids::{ObjectId, ProcessId, ThreadId};
use crate::profile::Access;
use crate::statistics::{Confidence, Share};
use crate::tally::Tally;
use machine::{HUGE_PAGE, NodeId, SMALL_PAGE};
use rustc_hash::{FxBuildHasher, FxHashMap};
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

/// Share of successive accesses by one node from which on a small page counts as used by one node.
pub(crate) const APART: f64 = 0.9;
/// Number of small pages whose last node is remembered: these fit into a core's caches.
const REMEMBERED: usize = 1 << 16;
/// Number of accesses that show whether an object has huge pages at all.
const LOOKED_AT: usize = 1 << 14;

/// Accesses to one small page.
#[derive(Clone, Debug, PartialEq)]
pub struct PageUse {
    /// Its process.
    pub process: ProcessId,
    /// Its first address.
    pub address: u64,
    /// The accesses.
    pub tally: Tally,
    /// Number of samples by thread.
    pub threads: BTreeMap<ThreadId, u64>,
    /// Nodes of the CPUs that accessed it.
    pub from: BTreeSet<NodeId>,
    /// How often it was seen at a different physical address than before.
    pub moves: u64,
}

/// A huge page, or an aligned 2 MiB range that could be one, which several nodes use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HugePageUse {
    /// Its process.
    pub process: ProcessId,
    /// Its first address.
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    /// Whether it is a huge page: the kernel placed it as one, or all its observed physical addresses are consistent
    /// with one. Otherwise it is not known.
    pub is_huge: bool,
    /// The accessed objects in it.
    pub objects: Vec<ObjectId>,
    /// The share of successive accesses to the same small page that come from one node; the threshold is 0.9.
    pub same_node_in_small_pages: Share,
    /// The share of successive accesses to the huge page that come from one node; the threshold is 0.9.
    pub same_node: Share,
    /// Samples that went to another node.
    pub remote_samples: u64,
}

impl HugePageUse {
    /// Whether each node uses its own parts of the page: as small pages they could be local, as a huge page they
    /// cannot.
    pub fn is_falsely_shared(&self) -> bool {
        self.same_node_in_small_pages.is_reached() && !self.same_node.is_reached() && self.remote_samples > 0
    }

    /// The confidence in that.
    pub fn confidence(&self) -> Confidence {
        self.same_node_in_small_pages.confidence().min(self.same_node.confidence())
    }
}

/// Where a 2 MiB range is in physical memory. Small pages are consistent with a huge page by chance in at most one of
/// 512 cases.
#[derive(Clone, Copy, Default)]
struct Frames {
    /// Offset of the first access's physical address from its virtual one, and its small page.
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
    /// Pairs from the same node, and all pairs: in the page, and in its small pages.
    same: (u64, u64),
    same_in_small: (u64, u64),
    remote: u64,
    objects: BTreeSet<ObjectId>,
    last_object: Option<ObjectId>,
}

impl Successions {
    /// `last_of_small` is the node of the previous access to the small page.
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
    /// Whether some of its pages may be huge, from its first accesses only: most objects have none, and examining all
    /// accesses takes time.
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

    /// The 2 MiB ranges that several nodes access, by process and address.
    pub fn huge_pages(&self) -> Vec<HugePageUse> {
        self.huge_pages_within(usize::MAX)
    }

    /// A random subset, small enough to be examined without cache misses.
    pub(crate) fn some_huge_pages(&self) -> Vec<HugePageUse> {
        self.huge_pages_within(REMEMBERED)
    }

    /// A subset that needs at most `remembered` small pages to be remembered.
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
        // If too many pages are left, half of them are dropped.
        let mut left_out = 0;
        let is_left = |process: ProcessId, address: u64, left_out: u64| {
            // Uses other bits than hash tables do.
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

/// Hexadecimal text, because many JSON readers round numbers of more than 53 bits.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
pub(crate) fn hexadecimal<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:#x}"))
}
