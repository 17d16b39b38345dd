//! Physical memory that the kernel allocated, and where it is in a process. The kernel does not say: the first sample in
//! it does.

use crate::ids::ProcessId;
use machine::{CpuId, is_kernel_address};
use std::collections::BTreeMap;

/// Physical memory that the kernel allocated on behalf of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageAllocation {
    /// When, ns.
    pub time_ns: u64,
    /// The process.
    pub process: ProcessId,
    /// The CPU, if known.
    pub cpu: Option<CpuId>,
    /// Its first physical address.
    pub physical: u64,
    /// Its size.
    pub bytes: u64,
    /// Its first virtual address; none without a sample in it.
    pub address: Option<u64>,
}

impl PageAllocation {
    fn end(&self) -> u64 {
        self.physical.saturating_add(self.bytes)
    }
}

/// Allocations whose memory has not been allocated again, by physical address.
#[derive(Default)]
struct Live(BTreeMap<u64, usize>);

impl Live {
    /// Memory that is allocated again was freed before.
    fn begin(&mut self, all: &[PageAllocation], at: usize) {
        let new = &all[at];
        while let Some((&start, &old)) = self.0.range(..new.end()).next_back() {
            if all[old].end() <= new.physical {
                break;
            }
            self.0.remove(&start);
        }
        if new.bytes > 0 {
            self.0.insert(new.physical, at);
        }
    }
}

/// Sets the addresses of allocations from accesses: times, virtual and physical addresses. Both are in chronological order;
/// an allocation at the time of an access was before it.
pub(crate) fn find_addresses(all: &mut [PageAllocation], accesses: impl Iterator<Item = (u64, u64, u64)>) {
    let (mut live, mut next) = (Live::default(), 0);
    if all.is_empty() {
        return;
    }
    for (time_ns, address, physical) in accesses.filter(|(_, address, _)| !is_kernel_address(*address)) {
        while all.get(next).is_some_and(|allocation| allocation.time_ns <= time_ns) {
            live.begin(all, next);
            next += 1;
        }
        let found = live.0.range(..=physical).next_back().map(|(_, at)| *at);
        let Some(allocation) = found.map(|at| &mut all[at]).filter(|allocation| physical < allocation.end()) else {
            continue;
        };
        if allocation.address.is_none() {
            allocation.address = address.checked_sub(physical - allocation.physical);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn allocation(time_ns: u64, physical: u64, bytes: u64) -> PageAllocation {
        PageAllocation { time_ns, process: ProcessId(0), cpu: None, physical, bytes, address: None }
    }

    fn found(all: &[PageAllocation], accesses: &[(u64, u64, u64)]) -> Vec<Option<u64>> {
        let mut all = all.to_vec();
        find_addresses(&mut all, accesses.iter().copied());
        all.iter().map(|allocation| allocation.address).collect()
    }

    /// T18: the first matching sample says where an allocation is.
    #[test]
    fn t18_the_first_sample_in_an_allocation_has_its_address() {
        let all = [allocation(1, 0x20_0000, 0x20_0000), allocation(1, 0x60_0000, 0x1000)];
        let accesses = [(2, 0x7f00_0012_3456, 0x32_3456), (3, 0x5555_0000_0456, 0x32_3456), (4, 0x9999, 0x60_0999)];
        assert_eq!(found(&all, &accesses), [Some(0x7f00_0000_0000), Some(0x9000)]);
    }

    /// T19: without a sample an allocation is unmapped.
    #[test]
    fn t19_an_allocation_without_a_sample_is_unmapped() {
        let all = [allocation(1, 0x1000, 0x1000), allocation(5, 0x2000, 0x1000)];
        // Beside it, before it, and of the kernel.
        let accesses = [(2, 0x7000, 0x3000), (3, 0x7000, 0x2000), (6, 1 << 63, 0x1000)];
        assert_eq!(found(&all, &accesses), [None, None]);
    }

    #[test]
    fn memory_that_is_allocated_again_is_of_the_later_one() {
        let all = [allocation(1, 0x4000, 0x4000), allocation(3, 0x5000, 0x1000), allocation(4, 0x4000, 0x2000)];
        assert_eq!(
            found(&all, &[(2, 0xa000, 0x5000), (3, 0xb000, 0x5000), (4, 0xc000, 0x5000)]),
            [Some(0x9000), Some(0xb000), Some(0xb000)]
        );
        assert_eq!(found(&all, &[(4, 0xb000, 0x6000)]), [None; 3], "the first was freed before the second");
    }

    proptest! {
        #[test]
        fn an_address_is_of_a_sample_within(
            mut all in prop::collection::vec((0..20_u64, 0..40_u64, 0..5_u64), 0..20),
            mut accesses in prop::collection::vec((0..20_u64, 0..1_u64 << 20, 0..50_u64), 0..40),
        ) {
            all.sort_unstable();
            accesses.sort_unstable();
            let all: Vec<_> = all.into_iter().map(|(time, at, pages)| allocation(time, at << 12, pages << 12)).collect();
            let accesses: Vec<_> = accesses.into_iter().map(|(time, page, at)| (time, page << 12, at << 12)).collect();
            for (allocation, address) in all.iter().zip(found(&all, &accesses)) {
                let is_of = |(time, of, physical): &(u64, u64, u64)| {
                    *time >= allocation.time_ns
                        && (allocation.physical..allocation.end()).contains(physical)
                        && address == of.checked_sub(physical - allocation.physical)
                };
                prop_assert!(address.is_none() || accesses.iter().any(is_of));
            }
        }
    }
}
