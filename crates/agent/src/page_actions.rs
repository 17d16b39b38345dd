//! The pages of actions, and what became of them.

use linux::PageRefusal;
use machine::{NodeId, Pid};
use placement::{Action, Outcome, PageOf, PageTarget};

/// Whether an action is about memory, and not about threads or sampling.
pub(super) fn is_of_memory(action: &Action) -> bool {
    !matches!(action, Action::MoveThread { .. } | Action::MoveProcess { .. } | Action::SetSampling(_) | Action::Nothing)
}

/// The process whose pages an action moves. For copies that only a kernel could make, the process of the fallback.
pub(super) fn whose_pages(action: &Action) -> Option<Pid> {
    match action {
        Action::MovePages { pid, .. } | Action::InterleavePages { pid, .. } => Some(*pid),
        Action::Replicate { is_possible: false, instead: Some(instead), .. } => whose_pages(instead),
        _ => None,
    }
}

/// The pages that an action moves, each with its target node.
pub(super) fn moved_pages(action: &Action) -> Vec<(u64, NodeId)> {
    match action {
        Action::MovePages { node, pages, .. } => pages.iter().map(|page| (*page, *node)).collect(),
        Action::InterleavePages { pages, .. } => {
            pages.iter().map(|PageTarget { address, node }| (*address, *node)).collect()
        }
        Action::Replicate { is_possible: false, instead: Some(instead), .. } => moved_pages(instead),
        _ => Vec::new(),
    }
}

/// Adds a page that was not moved to the outcome.
pub(super) fn not_moved(refusal: PageRefusal, page: PageOf, outcome: &mut Outcome) {
    // The zero page is sampled for as long as it is read, so it is not requested each time.
    let pages = if refusal == PageRefusal::NotPresent { &mut outcome.gone } else { &mut outcome.refused };
    pages.push(page);
}

/// Counts all pages of an action as refused.
pub(super) fn refuse_all(action: &Action, pid: Pid, outcome: &mut Outcome) {
    let page = |address: u64| PageOf { pid, address };
    match action {
        Action::MovePages { pages, .. }
        | Action::SplitHugePages { pages, .. }
        | Action::Replicate { pages, is_possible: true, .. } => {
            outcome.refused.extend(pages.iter().copied().map(page));
        }
        Action::InterleavePages { pages, .. } => outcome.refused.extend(pages.iter().map(|to| page(to.address))),
        Action::Replicate { instead: Some(instead), .. } => refuse_all(instead, pid, outcome),
        _ => {}
    }
}
