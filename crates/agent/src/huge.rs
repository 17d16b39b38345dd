//! Which pages of a process are huge.

use linux::{HUGE_PAGE, PresentPages, Process};
use placement::SMALL_PAGE;
use rustc_hash::FxHashMap;

/// Looks after which what is known is asked for anew: the kernel makes huge pages of small ones, and splits them.
const ROUNDS: u64 = 16;
const HUGE: u64 = HUGE_PAGE as u64;

/// Sizes of pages, by what 2 MiB they lie in.
#[derive(Debug, Default)]
pub(crate) struct PageSizes {
    blocks: FxHashMap<u64, bool>,
    /// Nothing before the first question; or where pages may not be looked at.
    present: Option<PresentPages>,
    asked: bool,
    since: u64,
}

impl PageSizes {
    /// The size of the page at an address, bytes. Small where the kernel does not tell.
    pub fn at(&mut self, process: &Process, address: u64) -> u64 {
        let block = address / HUGE;
        let is_huge = self.blocks.get(&block).copied().unwrap_or_else(|| {
            let is_huge = self.look(process, block);
            self.blocks.insert(block, is_huge);
            is_huge
        });
        if is_huge { HUGE } else { SMALL_PAGE }
    }

    fn look(&mut self, process: &Process, block: u64) -> bool {
        if !std::mem::replace(&mut self.asked, true) {
            self.present = PresentPages::of(process).ok();
        }
        let Some(present) = &mut self.present else { return false };
        let mut found = Vec::new();
        let range = block * HUGE..(block + 1) * HUGE;
        present.find(&range, &mut found).is_ok() && found.iter().any(|extent| extent.page_bytes == HUGE)
    }

    /// A round has ended.
    pub fn end_round(&mut self, round: u64) {
        if round >= self.since + ROUNDS {
            self.forget();
            self.since = round;
        }
    }

    /// Nothing is known any more: the process runs another program, or its pages were split.
    pub fn forget(&mut self) {
        self.blocks.clear();
        self.asked = false;
    }
}
