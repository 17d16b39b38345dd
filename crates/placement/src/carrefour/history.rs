//! History of pages: those that return to an earlier node stay there, those whose copies are written are no longer
//! replicated, and those that cannot be moved are left alone for some rounds.
//!
//! A page is known by its process and address, which the process may use for other memory later. No source reports
//! that, so history ends with signs of it: the process executes another program or ends, the page is gone when it is
//! to be moved, it is on another node than it was moved to, or it has not been sampled for long.

use crate::batches::Candidate;
use crate::outcome::PageOf;
use crate::thresholds::Thresholds;
use machine::{NodeId, Pid};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

/// Rounds without a sample after which a page's history ends.
const UNSEEN_ROUNDS: u64 = 64;

/// The history of pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct History {
    /// The moves of the last rounds, oldest first. A round may move a million pages, most of which never move again, so
    /// these are in lists, not in the table.
    rounds: Vec<MovedPages>,
    kept: Kept,
}

/// The moves of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MovedPages {
    round: u64,
    /// Pages and the nodes that they left, ordered by page.
    left: Vec<(PageOf, NodeId)>,
}

/// Long-term history of single pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<(PageOf, PageHistory)>", into = "Vec<(PageOf, PageHistory)>")]
struct Kept(FxHashMap<PageOf, PageHistory>);

/// Long-term history of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PageHistory {
    /// Number of its moves, if that is limited.
    moves: u64,
    /// It went back and forth, and is not moved again.
    stays: bool,
    /// Number of times its copies were written.
    collapses: u64,
    /// The kernel refused to move it, and it is not requested again before this round.
    refused_until: u64,
    /// The node that it was moved to; none if it was not, or the kernel refused.
    node: Option<NodeId>,
    /// The last round in which it was sampled.
    seen: u64,
}

impl From<Vec<(PageOf, PageHistory)>> for Kept {
    fn from(pages: Vec<(PageOf, PageHistory)>) -> Self {
        Self(pages.into_iter().collect())
    }
}

impl From<Kept> for Vec<(PageOf, PageHistory)> {
    fn from(Kept(pages): Kept) -> Self {
        let mut pages: Self = pages.into_iter().collect();
        pages.sort_unstable_by_key(|(page, _)| *page);
        pages
    }
}

impl MovedPages {
    fn node_left_by(&self, page: PageOf) -> Option<NodeId> {
        self.left.binary_search_by_key(&page, |(moved, _)| *moved).ok().map(|index| self.left[index].1)
    }
}

impl History {
    /// Whether a page must stay where it is.
    pub fn keeps(&self, page: PageOf, round: u64, thresholds: &Thresholds) -> bool {
        let too_often = |moves| thresholds.page_moves_max > 0 && moves >= thresholds.page_moves_max;
        self.kept.0.get(&page).is_some_and(|page| page.stays || page.refused_until > round || too_often(page.moves))
    }

    /// Whether a page may be replicated.
    pub fn may_have_copies(&self, page: PageOf, thresholds: &Thresholds) -> bool {
        self.kept.0.get(&page).is_none_or(|page| page.collapses <= thresholds.collapses_max)
    }

    /// Records the moves of this round.
    pub fn note_moves<'a>(&mut self, moved: impl Iterator<Item = &'a Candidate>, round: u64, thresholds: &Thresholds) {
        let mut left = Vec::with_capacity(moved.size_hint().1.unwrap_or(0));
        for (page, from, to) in moved.filter_map(|page| Some((page.id(), page.from, page.to?))) {
            let returns = self.rounds.iter().rev().find_map(|moved| moved.node_left_by(page)) == Some(to);
            if returns || thresholds.page_moves_max > 0 {
                let kept = self.kept.0.entry(page).or_default();
                kept.stays |= returns;
                kept.moves += u64::from(thresholds.page_moves_max > 0);
                (kept.node, kept.seen) = (Some(to), round);
            }
            left.push((page, from));
        }
        left.sort_unstable();
        if !left.is_empty() {
            self.rounds.push(MovedPages { round, left });
        }
    }

    /// Records pages that could not be moved.
    pub fn note_refusals(&mut self, refused: &[PageOf], round: u64, thresholds: &Thresholds) {
        for page in refused {
            let kept = self.kept.0.entry(*page).or_default();
            kept.refused_until = round.saturating_add(thresholds.refused_rounds);
            kept.moves = kept.moves.saturating_sub(1);
            (kept.stays, kept.node, kept.seen) = (false, None, round);
        }
        let refused: FxHashSet<PageOf> = refused.iter().copied().collect();
        for moved in self.rounds.iter_mut().filter(|moved| moved.round == round && !refused.is_empty()) {
            moved.left.retain(|(page, _)| !refused.contains(page));
        }
    }

    /// Drops pages that no longer exist.
    pub fn note_gone(&mut self, gone: &[PageOf]) {
        if gone.is_empty() {
            return;
        }
        let gone: FxHashSet<PageOf> = gone.iter().copied().collect();
        self.retain(|page| !gone.contains(page));
    }

    /// Drops all pages of a process.
    pub fn forget_process(&mut self, pid: Pid) {
        self.retain(|page| page.pid != pid);
    }

    fn retain(&mut self, is_same: impl Fn(&PageOf) -> bool) {
        self.kept.0.retain(|page, _| is_same(page));
        for moved in &mut self.rounds {
            moved.left.retain(|(page, _)| is_same(page));
        }
    }

    /// Records that a page was sampled on this node. On another node than it was moved to, it is another page, or
    /// another program has moved it: its history ends.
    pub fn note_seen(&mut self, page: PageOf, node: NodeId, round: u64) {
        let Some(kept) = self.kept.0.get_mut(&page) else { return };
        kept.seen = round;
        if kept.node.is_some_and(|left_on| left_on != node) {
            self.kept.0.remove(&page);
        }
    }

    /// Records a write to a page's copies; returns whether it exceeds the limit.
    pub fn note_write(&mut self, page: PageOf, round: u64, thresholds: &Thresholds) -> bool {
        let kept = self.kept.0.entry(page).or_default();
        kept.collapses = kept.collapses.saturating_add(1);
        kept.seen = round;
        kept.collapses == thresholds.collapses_max.saturating_add(1)
    }

    /// Drops entries that no longer affect decisions.
    pub fn forget(&mut self, round: u64, thresholds: &Thresholds, is_alive: impl Fn(Pid) -> bool) {
        self.rounds.retain(|moved| moved.round.saturating_add(thresholds.ping_pong_rounds) >= round);
        self.kept.0.retain(|page, kept| {
            let decides = kept.stays || kept.moves > 0 || kept.collapses > 0;
            let is_seen = kept.seen.saturating_add(UNSEEN_ROUNDS) >= round;
            (kept.refused_until > round || decides && is_seen) && is_alive(page.pid)
        });
    }
}
