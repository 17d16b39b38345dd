//! Transparent huge pages: their size, and the nodes of those in a mapping.

use crate::memory::pages::HUGE_PAGE;
use crate::migration::page_batch::PageBatch;
use crate::processes::process::{Process, ProcessError};
use crate::residence::present::PresentPages;
use machine::{NodeId, bounded};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Huge pages queried per call.
const MOST_PAGES: usize = 4096;

/// Why the huge pages of a mapping are unknown.
#[derive(Debug, thiserror::Error)]
pub enum HugePagesError {
    /// The process cannot be inspected.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The kernel refused a call.
    #[error("{call}")]
    Call {
        /// The call.
        call: &'static str,
        /// The error.
        source: io::Error,
    },
}

/// Size of a transparent huge page in bytes, as the kernel reports it (Linux 4.14), or the size on `x86_64`.
pub fn huge_page_bytes(sys: &Path) -> u64 {
    let text = bounded::text(sys.join("kernel/mm/transparent_hugepage/hpage_pmd_size")).ok();
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(HUGE_PAGE as u64)
}

/// The number of transparent huge pages of a mapping on each node, in ascending order of nodes. `None` before Linux
/// 6.7, which cannot distinguish them from other pages. Touches no page. Needs the process's user, or `CAP_SYS_PTRACE`.
pub fn huge_pages_by_node(
    process: &Process,
    mapping: &Range<u64>,
) -> Result<Option<Vec<(NodeId, u64)>>, HugePagesError> {
    let mut present = PresentPages::new(process)?;
    let mut nodes: BTreeMap<NodeId, u64> = BTreeMap::new();
    let mut batch = PageBatch::with_capacity(MOST_PAGES);
    let (mut found, mut from) = (Vec::new(), mapping.start);
    while from < mapping.end {
        let rest = from..mapping.end;
        from =
            present.find(&rest, &mut found).map_err(|source| HugePagesError::Call { call: "PAGEMAP_SCAN", source })?;
        for extent in found.drain(..).filter(|extent| extent.page_bytes == HUGE_PAGE as u64) {
            for address in extent.range.step_by(HUGE_PAGE) {
                batch.push(address, None);
            }
        }
        if batch.len() >= MOST_PAGES || from >= mapping.end {
            batch.locate(process.pid()).map_err(|source| HugePagesError::Call { call: "move_pages", source })?;
            for node in batch.statuses().filter_map(|(_, status)| status.node().ok()) {
                *nodes.entry(node).or_default() += 1;
            }
            batch.clear();
        }
    }
    Ok(present.shows_huge_pages().then(|| nodes.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pages, Pid};

    #[test]
    fn huge_pages_of_this_process_are_counted_as_smaps_counts_them() {
        let mut pages = Pages::reserve(3 * HUGE_PAGE).unwrap();
        if pages.advise_huge(true).is_err() {
            return test_tools::skipped("this kernel has no transparent huge pages");
        }
        let range = pages.range();
        pages.touch(0);
        pages.touch(2 * HUGE_PAGE);
        let process = Process::open(Pid(std::process::id())).unwrap();
        let uses = crate::parse_smaps(&process.text("smaps").unwrap()).unwrap();
        let inside = |used: &&crate::MappingUse| range.contains(&used.mapping.range.start);
        let bytes: u64 = uses.iter().filter(inside).map(|used| used.transparent_huge_bytes).sum();
        if let Some(nodes) = huge_pages_by_node(&process, &range).unwrap() {
            assert_eq!(nodes.iter().map(|(_, pages)| pages * HUGE_PAGE as u64).sum::<u64>(), bytes);
        }
    }

    #[test]
    fn a_saved_system_has_its_own_size() {
        assert_eq!(huge_page_bytes(Path::new("/nowhere")), 2 << 20);
    }
}
