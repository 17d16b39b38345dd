//! Step 3: what to do with each page that was seen.

use super::dealer::{Dealer, Shares};
use super::gates::Techniques;
use crate::costs::Costs;
use crate::observation::{Page, SMALL_PAGE};
use crate::outcome::PageOf;
use crate::thresholds::Thresholds;
use machine::Pid;
use rustc_hash::FxHashMap;
use std::cell::OnceCell;

/// What is known of a process while its pages are looked at.
pub(crate) struct ProcessView {
    pub techniques: Techniques,
    /// Whether its pages may lie there, by the node's place.
    pub allowed: Vec<bool>,
    pub dealer: Dealer,
}

/// What to do with a page. Nodes are places in [`Costs::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Stay,
    Move(usize),
    Deal(usize),
    /// Copies, or else this node.
    Replicate(Option<usize>),
    SplitShared,
    SplitHot,
}

/// What the rules look at, beside the page.
pub(crate) struct Rules<'a> {
    pub costs: &'a Costs,
    pub thresholds: &'a Thresholds,
    pub shares: &'a Shares,
    /// All pages; their samples are counted when a huge page asks for them.
    pub pages: &'a [Page],
    pub samples: OnceCell<u64>,
    /// Of the draws of this round.
    pub seed: u64,
}

impl Rules<'_> {
    /// The rules, in the order in which they are tried: split, replicate, interleave, migrate.
    pub fn choose(&self, page: &Page, process: &ProcessView, may_have_copies: bool) -> Choice {
        let Some(home) = self.costs.place(page.node) else { return Choice::Stay };
        let Techniques { migrate, replicate, interleave } = process.techniques;
        let mut users = page.accesses.iter().filter(|by| by.accesses > 0);
        let (Some(first), more) = (users.next(), users.next().is_some()) else { return Choice::Stay };
        if more {
            if page.page_bytes > SMALL_PAGE && !page.parts.is_empty() && (migrate || interleave) {
                if self.is_falsely_shared(page) {
                    return Choice::SplitShared;
                }
                if interleave && self.is_too_hot(page) {
                    return Choice::SplitHot;
                }
            }
            let id = PageOf { pid: page.pid, address: page.address };
            let dealt = interleave.then(|| process.dealer.draw(self.shares, home, id, self.seed)).flatten();
            return match dealt {
                dealt if replicate && may_have_copies && page.writes == 0 => Choice::Replicate(dealt),
                Some(node) => Choice::Deal(node),
                None => Choice::Stay,
            };
        }
        if !(interleave || migrate && first.accesses >= self.thresholds.samples_min) {
            return Choice::Stay;
        }
        let target = match self.costs.place(first.node) {
            Some(node) if process.allowed[node] => Some(node),
            Some(_) => self.next_best(page, process),
            None => None,
        };
        target.filter(|&target| target != home).map_or(Choice::Stay, Choice::Move)
    }

    /// For a node that has no memory, or none for this process: the nearest that has, if that is nearer than where the
    /// page is.
    fn next_best(&self, page: &Page, process: &ProcessView) -> Option<usize> {
        let user = page.accesses.iter().find(|by| by.accesses > 0)?.node;
        let far = |place: &usize| self.costs.remoteness(user, self.costs.nodes()[*place].id);
        let allowed = (0..process.allowed.len()).filter(|&place| process.allowed[place]);
        let nearest = allowed.min_by(|a, b| far(a).total_cmp(&far(b)))?;
        (far(&nearest) < self.costs.remoteness(user, page.node)).then_some(nearest)
    }

    /// Whether the huge page has no node of its own but its small pages have: as small ones they could be where they
    /// are used.
    fn is_falsely_shared(&self, page: &Page) -> bool {
        let least = self.thresholds.same_node_in_small_pages_min;
        let leading = page.accesses.iter().map(|by| by.accesses).max().unwrap_or(0);
        let mut parts: FxHashMap<u32, (u64, u64)> = FxHashMap::default();
        for part in &page.parts {
            let (leading, all) = parts.entry(part.part).or_default();
            *leading = (*leading).max(part.accesses);
            *all += part.accesses;
        }
        // A single sample is always of one node.
        let told = parts.values().filter(|(_, all)| *all >= self.thresholds.samples_min);
        let (apart, all) = told.fold((0, 0), |(apart, sum), (leading, all)| (apart + leading, sum + all));
        all > 0 && apart as f64 >= least * all as f64 && (leading as f64) < least * page.samples() as f64
    }

    fn is_too_hot(&self, page: &Page) -> bool {
        let all = *self.samples.get_or_init(|| self.pages.iter().map(Page::samples).sum());
        page.samples() as f64 >= self.thresholds.hot_page_share_min * all as f64
    }
}

/// Processes whose pages may be moved.
pub(crate) type Views = FxHashMap<Pid, ProcessView>;
