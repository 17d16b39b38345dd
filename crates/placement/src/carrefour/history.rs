//! What happened to pages in earlier rounds: pages that return to where they were stay, pages whose copies are written
//! get no copies any more, and pages that cannot be moved are left alone for a while.

use crate::outcome::PageOf;
use crate::thresholds::Thresholds;
use machine::{NodeId, Pid};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// What happened to pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<(PageOf, PageHistory)>", into = "Vec<(PageOf, PageHistory)>")]
pub(crate) struct History {
    pages: FxHashMap<PageOf, PageHistory>,
}

/// What happened to a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PageHistory {
    /// The round of its last move, and the node that it left.
    last: Option<(u64, NodeId)>,
    moves: u64,
    /// It went back and forth: it moves no more.
    stays: bool,
    /// How often its copies were written.
    collapses: u64,
    /// The kernel refused to move it: until this round it is not asked for.
    refused_until: u64,
}

impl From<Vec<(PageOf, PageHistory)>> for History {
    fn from(pages: Vec<(PageOf, PageHistory)>) -> Self {
        Self { pages: pages.into_iter().collect() }
    }
}

impl From<History> for Vec<(PageOf, PageHistory)> {
    fn from(history: History) -> Self {
        let mut pages: Self = history.pages.into_iter().collect();
        pages.sort_unstable_by_key(|(page, _)| *page);
        pages
    }
}

impl History {
    /// Whether a page is to be left where it is.
    pub fn keeps(&self, page: PageOf, round: u64, thresholds: &Thresholds) -> bool {
        let too_often = |moves| thresholds.page_moves_max > 0 && moves >= thresholds.page_moves_max;
        self.pages.get(&page).is_some_and(|page| page.stays || page.refused_until > round || too_often(page.moves))
    }

    /// Whether a page may get copies.
    pub fn may_have_copies(&self, page: PageOf, thresholds: &Thresholds) -> bool {
        self.pages.get(&page).is_none_or(|page| page.collapses <= thresholds.collapses_max)
    }

    /// A page leaves a node for another.
    pub fn note_move(&mut self, page: PageOf, from: NodeId, to: NodeId, round: u64, thresholds: &Thresholds) {
        let entry = self.pages.entry(page).or_default();
        let returns =
            |(last, left): (u64, NodeId)| left == to && round <= last.saturating_add(thresholds.ping_pong_rounds);
        entry.stays |= entry.last.is_some_and(returns);
        entry.last = Some((round, from));
        entry.moves += 1;
    }

    /// A page stayed although it was asked for.
    pub fn note_refusal(&mut self, page: PageOf, round: u64, thresholds: &Thresholds) {
        let entry = self.pages.entry(page).or_default();
        entry.refused_until = round.saturating_add(thresholds.refused_rounds);
        entry.last = None;
        entry.moves = entry.moves.saturating_sub(1);
    }

    /// The copies of a page were written; whether that was once too often.
    pub fn note_write(&mut self, page: PageOf, thresholds: &Thresholds) -> bool {
        let entry = self.pages.entry(page).or_default();
        entry.collapses = entry.collapses.saturating_add(1);
        entry.collapses == thresholds.collapses_max.saturating_add(1)
    }

    /// Forgets what decides nothing any more.
    pub fn forget(&mut self, round: u64, thresholds: &Thresholds, is_alive: impl Fn(Pid) -> bool) {
        self.pages.retain(|page, entry| {
            let is_recent =
                entry.last.is_some_and(|(last, _)| last.saturating_add(thresholds.ping_pong_rounds) >= round);
            let counts = thresholds.page_moves_max > 0 && entry.moves > 0;
            let decides = is_recent || counts || entry.stays || entry.collapses > 0 || entry.refused_until > round;
            decides && is_alive(page.pid)
        });
    }
}
