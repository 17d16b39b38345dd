//! What happened to pages in earlier rounds: pages that return to where they were stay, pages whose copies are written
//! get no copies any more, and pages that cannot be moved are left alone for a while.

use crate::batches::Candidate;
use crate::outcome::PageOf;
use crate::thresholds::Thresholds;
use machine::{NodeId, Pid};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

/// What happened to pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct History {
    /// The moves of the last rounds, the oldest first. A round may move a million pages, and most of them never again:
    /// they are in lists, not in the table.
    rounds: Vec<MovedPages>,
    kept: Kept,
}

/// The moves of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MovedPages {
    round: u64,
    /// Pages and the nodes that they left, in the order of pages.
    left: Vec<(PageOf, NodeId)>,
}

/// What is kept of single pages for longer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<(PageOf, PageHistory)>", into = "Vec<(PageOf, PageHistory)>")]
struct Kept(FxHashMap<PageOf, PageHistory>);

/// What is kept of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PageHistory {
    /// How often it moved, where that is limited.
    moves: u64,
    /// It went back and forth: it moves no more.
    stays: bool,
    /// How often its copies were written.
    collapses: u64,
    /// The kernel refused to move it: until this round it is not asked for.
    refused_until: u64,
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
        self.left.binary_search_by_key(&page, |(moved, _)| *moved).ok().map(|place| self.left[place].1)
    }
}

impl History {
    /// Whether a page is to be left where it is.
    pub fn keeps(&self, page: PageOf, round: u64, thresholds: &Thresholds) -> bool {
        let too_often = |moves| thresholds.page_moves_max > 0 && moves >= thresholds.page_moves_max;
        self.kept.0.get(&page).is_some_and(|page| page.stays || page.refused_until > round || too_often(page.moves))
    }

    /// Whether a page may get copies.
    pub fn may_have_copies(&self, page: PageOf, thresholds: &Thresholds) -> bool {
        self.kept.0.get(&page).is_none_or(|page| page.collapses <= thresholds.collapses_max)
    }

    /// These pages move in this round.
    pub fn note_moves<'a>(&mut self, moved: impl Iterator<Item = &'a Candidate>, round: u64, thresholds: &Thresholds) {
        let mut left = Vec::with_capacity(moved.size_hint().1.unwrap_or(0));
        for (page, from, to) in moved.filter_map(|page| Some((page.id(), page.from, page.to?))) {
            if self.rounds.iter().rev().find_map(|moved| moved.node_left_by(page)) == Some(to) {
                self.kept.0.entry(page).or_default().stays = true;
            }
            if thresholds.page_moves_max > 0 {
                self.kept.0.entry(page).or_default().moves += 1;
            }
            left.push((page, from));
        }
        left.sort_unstable();
        if !left.is_empty() {
            self.rounds.push(MovedPages { round, left });
        }
    }

    /// Pages stayed although a round asked for them.
    pub fn note_refusals(&mut self, refused: &[PageOf], round: u64, thresholds: &Thresholds) {
        for page in refused {
            let kept = self.kept.0.entry(*page).or_default();
            kept.refused_until = round.saturating_add(thresholds.refused_rounds);
            kept.moves = kept.moves.saturating_sub(1);
        }
        let refused: FxHashSet<PageOf> = refused.iter().copied().collect();
        for moved in self.rounds.iter_mut().filter(|moved| moved.round == round && !refused.is_empty()) {
            moved.left.retain(|(page, _)| !refused.contains(page));
        }
    }

    /// The copies of a page were written; whether that was once too often.
    pub fn note_write(&mut self, page: PageOf, thresholds: &Thresholds) -> bool {
        let kept = self.kept.0.entry(page).or_default();
        kept.collapses = kept.collapses.saturating_add(1);
        kept.collapses == thresholds.collapses_max.saturating_add(1)
    }

    /// Forgets what decides nothing any more.
    pub fn forget(&mut self, round: u64, thresholds: &Thresholds, is_alive: impl Fn(Pid) -> bool) {
        self.rounds.retain(|moved| moved.round.saturating_add(thresholds.ping_pong_rounds) >= round);
        self.kept.0.retain(|page, kept| {
            let decides = kept.stays || kept.moves > 0 || kept.collapses > 0 || kept.refused_until > round;
            decides && is_alive(page.pid)
        });
    }
}
