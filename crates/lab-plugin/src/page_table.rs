//! Finds entries of the guest's page tables in its own memory: the lab's kernels use four levels, and map all physical
//! memory at a fixed address (see the lab's `-cpu` and its kernel's command line).

use crate::qemu::read_memory;
use model::PageEntry;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Address of Linux's direct map, with four levels and `nokaslr` (its own `Documentation/arch/x86/x86_64/mm.rst`).
const DIRECT_MAP: u64 = 0xffff_8880_0000_0000;
/// The physical address in an entry.
const FRAME: u64 = 0x000f_ffff_ffff_f000;
const PRESENT: u64 = 1;
/// The entry maps a large page instead of a table.
const LEAF: u64 = 1 << 7;
/// Address bits covered by a table of the first level: 2 MiB.
const REGION_BITS: u32 = 21;
/// Number of regions whose entries are cached.
const REGIONS: usize = 1024;
const NOTHING: u64 = u64::MAX;
/// Marks the address of a table, as opposed to a large page's entry.
const TABLE: u64 = 1;

/// Cached entries of one CPU's current address space. Only its own thread may use it.
pub(crate) struct PageTable {
    /// Kernel virtual address of the top-level table; 0 if unknown.
    root: AtomicU64,
    /// Region, and the physical address of its large page's entry or, with [`TABLE`], of its table.
    regions: Box<[[AtomicU64; 2]]>,
}

impl Default for PageTable {
    fn default() -> Self {
        let regions = (0..REGIONS).map(|_| [AtomicU64::new(NOTHING), AtomicU64::new(0)]).collect();
        Self { root: AtomicU64::new(0), regions }
    }
}

impl PageTable {
    /// Sets the root; returns whether it has changed.
    pub(crate) fn set_root(&self, root: u64) -> bool {
        let changed = self.root.load(Relaxed) != root;
        if changed {
            self.root.store(root, Relaxed);
            self.forget();
        }
        changed
    }

    /// Drops the cache, because tables may have changed.
    pub(crate) fn forget(&self) {
        for [region, _] in &self.regions {
            region.store(NOTHING, Relaxed);
        }
    }

    /// The entry that maps an address; `None` if there is none. Only within a callback of that CPU.
    pub(crate) fn entry(&self, address: u64) -> Option<PageEntry> {
        let wanted = address >> REGION_BITS;
        let [region, place] = self.regions.get(wanted as usize % REGIONS)?;
        if region.load(Relaxed) != wanted {
            let read = |table: u64, index: u64| read_memory(table.wrapping_add(8 * index)).map(u64::from_le_bytes);
            place.store(find(self.root.load(Relaxed), address, read)?, Relaxed);
            region.store(wanted, Relaxed);
        }
        let place = place.load(Relaxed);
        let index = address >> 12 & 511;
        let huge = place & TABLE == 0;
        Some(PageEntry { address: if huge { place } else { (place & !TABLE) + 8 * index }, huge })
    }
}

/// The physical address of a region's last-level table, with [`TABLE`], or of its large page's entry. `read` gets the
/// kernel virtual address of a table, and an index.
fn find(root: u64, address: u64, read: impl Fn(u64, u64) -> Option<u64>) -> Option<u64> {
    let (mut table, mut physical) = (root, None);
    for bits in [39, 30, REGION_BITS] {
        let index = address >> bits & 511;
        let entry = read(table, index).filter(|_| table != 0)?;
        if entry & PRESENT == 0 {
            return None;
        }
        if entry & LEAF != 0 {
            return physical.map(|table: u64| table + 8 * index);
        }
        physical = Some(entry & FRAME);
        table = DIRECT_MAP.wrapping_add(entry & FRAME);
    }
    physical.map(|table| table | TABLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Tables at 1000, 2000 and 3000 hex, the root at `DIRECT_MAP`: a small page's table at 4000 for the first 2 MiB, a
    /// large page after it, and a very large one in the second GiB.
    fn found(address: u64) -> Option<u64> {
        let entries = HashMap::from([
            ((DIRECT_MAP, 0), 0x1003),
            ((DIRECT_MAP + 0x1000, 0), 0x2003),
            ((DIRECT_MAP + 0x1000, 1), 0x4000_0083),
            ((DIRECT_MAP + 0x2000, 0), 0x4003 | 1 << 63),
            ((DIRECT_MAP + 0x2000, 1), 0x0020_0083),
            ((DIRECT_MAP + 0x2000, 2), 0x0060_0002),
        ]);
        find(DIRECT_MAP, address, |table, index| Some(entries.get(&(table, index)).copied().unwrap_or(0)))
    }

    #[test]
    fn tables_are_followed_to_the_entry() {
        assert_eq!(found(0x3456), Some(0x4000 | TABLE));
        assert_eq!(found(0x0020_1234), Some(0x2008));
        assert_eq!(found((1 << 30) + 77), Some(0x1008));
        assert_eq!(found(0x0040_0000), None, "not present");
        assert_eq!(found(1 << 45), None);
        assert_eq!(find(0, 0, |_, _| Some(3)), None, "no root is known");
    }

    #[test]
    fn a_root_is_another_one_only_once() {
        let table = PageTable::default();
        assert!(table.set_root(DIRECT_MAP));
        assert!(!table.set_root(DIRECT_MAP));
        table.regions[5][0].store(5, Relaxed);
        assert!(table.set_root(DIRECT_MAP + 4096));
        assert_eq!(table.regions[5][0].load(Relaxed), NOTHING);
    }
}
