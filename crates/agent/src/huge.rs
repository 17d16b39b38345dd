//! Which pages of a process are huge.

use linux::{PresentPages, Process};
use machine::{HUGE_PAGE, SMALL_PAGE};
use rustc_hash::FxHashMap;

/// Rounds after which page sizes are read again: the kernel assembles and splits huge pages.
const ROUNDS: u64 = 16;

/// Page sizes, by 2 MiB region.
#[derive(Debug, Default)]
pub(crate) struct PageSizes {
    blocks: FxHashMap<u64, bool>,
    /// None before the first query, or where reading is not permitted.
    present: Option<PresentPages>,
    asked: bool,
    since: u64,
}

impl PageSizes {
    /// Size of the page at an address, bytes; the small page size where the kernel does not report it.
    pub fn at(&mut self, process: &Process, address: u64) -> u64 {
        let block = address / HUGE_PAGE;
        let is_huge = self.blocks.get(&block).copied().unwrap_or_else(|| {
            let is_huge = self.look(process, block);
            self.blocks.insert(block, is_huge);
            is_huge
        });
        if is_huge { HUGE_PAGE } else { SMALL_PAGE }
    }

    fn look(&mut self, process: &Process, block: u64) -> bool {
        if !std::mem::replace(&mut self.asked, true) {
            self.present = PresentPages::new(process).ok();
        }
        let Some(present) = &mut self.present else { return false };
        let mut found = Vec::new();
        let range = block * HUGE_PAGE..(block + 1) * HUGE_PAGE;
        present.find(&range, &mut found).is_ok() && found.iter().any(|extent| extent.page_bytes == HUGE_PAGE)
    }

    pub fn end_round(&mut self, round: u64) {
        if round >= self.since + ROUNDS {
            self.forget();
            self.since = round;
        }
    }

    /// Discards all known sizes: the process executed another program, or its pages were split.
    pub fn forget(&mut self) {
        self.blocks.clear();
        self.asked = false;
    }
}
