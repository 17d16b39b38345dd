//! Memory of a process that no policy moves: what has a policy of its own (`mbind`) is left where its owner wants it, and
//! named ranges with a place are put there.

use crate::regions::{OrderedRange, RegionOrders};
use linux::{Process, Tid, parse_numa_maps, thread_policy};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Ranges are read again after this multiple of the time that reading them took: the kernel walks all pages for it.
const PAUSE_FACTOR: u32 = 500;
/// Likewise of mappings, of which the kernel walks no pages.
const NAMES_PAUSE_FACTOR: u32 = 50;

/// Ranges with a policy of their own.
#[derive(Debug, Default)]
pub(crate) struct OwnersRanges {
    /// Ascending.
    ranges: Vec<Range<u64>>,
    /// When they may be read again.
    next: Option<Instant>,
    /// Named ranges with a place, ascending.
    ordered: Vec<OrderedRange>,
    /// When they may be looked at again.
    next_ordered: Option<Instant>,
    /// They were just looked at, or are not all at their places, and whether they are others than before.
    looked: Option<bool>,
}

impl OwnersRanges {
    /// Reads the ranges again when due. None if they cannot be read.
    pub fn refresh(&mut self, process: &Process) {
        let began = Instant::now();
        if self.next.is_some_and(|next| began < next) {
            return;
        }
        self.ranges = read(process).unwrap_or_default();
        self.next = Some(Instant::now() + (began.elapsed() * PAUSE_FACTOR).max(Duration::from_millis(1)));
    }

    /// Reads the named ranges with a place again when due.
    pub fn order(&mut self, process: &Process, orders: &mut RegionOrders) {
        if self.next_ordered.is_some_and(|next| Instant::now() < next) {
            return;
        }
        let began = Instant::now();
        let found = process.mappings().map(|mappings| orders.ranges(&mappings)).unwrap_or_default();
        self.next_ordered = Some(Instant::now() + began.elapsed() * NAMES_PAUSE_FACTOR);
        self.looked = Some(found != self.ordered);
        self.ordered = found;
    }

    /// Moving them is to go on in the next round, without another look.
    pub fn go_on(&mut self) {
        self.looked = Some(false);
    }

    /// Whether the named ranges are others than before, once after each look and each [`go_on`](Self::go_on).
    pub fn take_ordered(&mut self) -> Option<bool> {
        self.looked.take()
    }

    /// The named ranges with a place.
    pub fn ordered(&self) -> &[OrderedRange] {
        &self.ordered
    }

    /// Looks at the named ranges again after this time, or later.
    pub fn look_again_after(&mut self, time: Duration) {
        self.next_ordered = self.next_ordered.max(Some(Instant::now() + time));
    }

    pub fn contain(&self, address: u64) -> bool {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let is_owners =
            after.checked_sub(1).and_then(|index| self.ranges.get(index)).is_some_and(|range| range.contains(&address));
        is_owners || self.is_ordered(&(address..address.saturating_add(1)))
    }

    /// Whether a named range with a place is among these addresses.
    pub fn is_ordered(&self, addresses: &Range<u64>) -> bool {
        let after = self.ordered.partition_point(|ordered| ordered.range.end <= addresses.start);
        self.ordered.get(after).is_some_and(|ordered| ordered.range.start < addresses.end)
    }
}

fn read(process: &Process) -> Option<Vec<Range<u64>>> {
    let own = thread_policy(process, Tid(process.pid().0))?;
    let numa = parse_numa_maps(&process.text("numa_maps").ok()?).ok()?;
    let bound = || numa.iter().filter(|mapping| mapping.policy != own).map(|mapping| mapping.start);
    if bound().next().is_none() {
        return Some(Vec::new());
    }
    let mappings = process.mappings().ok()?;
    let range = |start: u64| {
        let index = mappings.binary_search_by_key(&start, |mapping| mapping.range.start).ok()?;
        mappings.get(index).map(|mapping| mapping.range.clone())
    };
    Some(bound().filter_map(range).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::Pid;
    use saved_files::SavedFiles;

    #[test]
    fn what_has_a_policy_of_its_own_is_the_owners() {
        let root = SavedFiles::new();
        let numa = "1000 bind:3 anon=1 N3=1 kernelpagesize_kB=4\n2000 default file=/bin/a\n5000 prefer:1\n";
        root.put("7/numa_maps", numa);
        root.put("7/task/7/numa_maps", numa);
        root.put("7/maps", "1000-2000 rw-p 0 0:0 0\n2000-3000 r-xp 0 0:0 5 /bin/a\n5000-7000 rw-p 0 0:0 0\n");
        let mut owners = OwnersRanges::default();
        owners.refresh(&Process::open_in(root.path(), Pid(7)).unwrap());
        let told = [0xfff, 0x1000, 0x1fff, 0x2000, 0x6fff, 0x7000].map(|address| owners.contain(address));
        assert_eq!(told, [false, true, true, false, true, false]);
    }
}
