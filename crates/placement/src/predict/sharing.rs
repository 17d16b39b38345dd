//! Memory that several processes map (`MAP_SHARED`). With [`Settings::shared`](crate::Settings::shared) one decision
//! holds for all of them: the process that has most of it stands for the others.

use crate::observation::{NodeBytes, Page, Range, SharedMemory};
use machine::{NodeId, Pid};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The mappings of shared memory, by its file system and inode.
#[derive(Default)]
pub(super) struct Sharing<'a>(FxHashMap<(u64, u64), Vec<&'a Range>>);

impl<'a> Sharing<'a> {
    /// Of these mappings, as far as they are of shared memory.
    pub fn new(ranges: &[&'a Range]) -> Self {
        let mut all: FxHashMap<(u64, u64), Vec<&Range>> = FxHashMap::default();
        for range in ranges {
            if let Some(memory) = range.shared {
                all.entry(key(memory)).or_default().push(*range);
            }
        }
        for ranges in all.values_mut() {
            let mut resident: FxHashMap<Pid, u64> = FxHashMap::default();
            for range in &*ranges {
                let all = resident.entry(range.pid).or_default();
                *all = all.saturating_add(bytes(range));
            }
            ranges.sort_by_key(|range| (Reverse(resident[&range.pid]), range.pid, range.start));
        }
        Self(all)
    }

    /// The mappings of the same memory, those of the process that stands for all first.
    fn of(&self, range: &Range) -> &[&'a Range] {
        range.shared.and_then(|memory| self.0.get(&key(memory))).map_or(&[], Vec::as_slice)
    }

    /// Whether several processes have the memory of this mapping.
    pub fn are_several(&self, range: &Range) -> bool {
        self.of(range).iter().any(|other| other.pid != range.pid)
    }

    /// Whether a mapping counts for itself: it is private, or of the process that stands for all.
    pub fn stands(&self, range: &Range) -> bool {
        self.of(range).first().is_none_or(|first| first.pid == range.pid)
    }

    /// Where the process that stands for all has a page of this mapping; none if it has not mapped that part.
    pub fn stand_in(&self, range: &'a Range, page: &Page) -> Option<(&'a Range, u64)> {
        if self.stands(range) {
            return Some((range, page.address));
        }
        let all = self.of(range);
        let offset = range.shared?.offset.checked_add(page.address.checked_sub(range.start)?)?;
        all.iter().take_while(|other| other.pid == all[0].pid).find_map(|other| {
            let address = other.start.checked_add(offset.checked_sub(other.shared?.offset)?)?;
            (address < other.end).then_some((*other, address))
        })
    }

    /// The other processes that have the same memory at the same addresses, and the resident bytes of all, at most.
    /// Those that have it elsewhere move nothing: pages would be dealt to other nodes there.
    pub fn others(&self, range: &Range) -> (Vec<Pid>, u64) {
        let is_same = |other: &&&Range| {
            let first = |range: &Range| range.shared.map(|memory| memory.offset.wrapping_sub(range.start));
            other.pid != range.pid
                && (other.start, other.end) == (range.start, range.end)
                && first(other) == first(range)
        };
        let others: Vec<&&Range> = self.of(range).iter().filter(is_same).collect();
        let resident = others.iter().fold(bytes(range), |sum, other| sum.saturating_add(bytes(other)));
        (others.iter().map(|other| other.pid).collect(), resident.min(range.end.saturating_sub(range.start)))
    }
}

/// Memory by node, of these mappings. Of shared memory each node counts what the process with most of it there has mapped.
pub fn resident<'a>(ranges: impl IntoIterator<Item = &'a Range>) -> Vec<NodeBytes> {
    let mut all: BTreeMap<NodeId, u64> = BTreeMap::new();
    let mut shared: BTreeMap<((u64, u64), NodeId), BTreeMap<Pid, u64>> = BTreeMap::new();
    for range in ranges {
        for on in &range.bytes {
            let bytes = match range.shared {
                Some(memory) => shared.entry((key(memory), on.node)).or_default().entry(range.pid).or_default(),
                None => all.entry(on.node).or_default(),
            };
            *bytes = bytes.saturating_add(on.bytes);
        }
    }
    for ((_, node), by_process) in shared {
        let bytes = all.entry(node).or_default();
        *bytes = bytes.saturating_add(by_process.into_values().max().unwrap_or_default());
    }
    all.into_iter().map(|(node, bytes)| NodeBytes { node, bytes }).collect()
}

fn key(memory: SharedMemory) -> (u64, u64) {
    (memory.device, memory.inode)
}

fn bytes(range: &Range) -> u64 {
    range.bytes.iter().fold(0, |sum, on| sum.saturating_add(on.bytes))
}
