//! Step 3: the operation for each observed page.

use super::gates::Techniques;
use super::weighted_draw::{Shares, WeightedDraw};
use crate::costs::Costs;
use crate::observation::Page;
use crate::outcome::PageOf;
use crate::thresholds::Thresholds;
use machine::{Pid, SMALL_PAGE};
use rustc_hash::FxHashMap;
use std::cell::OnceCell;

/// What the rules use of a process.
pub(crate) struct ProcessView {
    pub techniques: Techniques,
    /// Whether its pages are allowed on each node, by node index.
    pub allowed: Vec<bool>,
    pub weighted_draw: WeightedDraw,
}

/// The operation on a page. Nodes are indices into [`Costs::nodes`].
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

/// What the rules use besides the page.
pub(crate) struct Rules<'a> {
    pub costs: &'a Costs,
    pub thresholds: &'a Thresholds,
    pub shares: &'a Shares,
    /// All pages; their samples are counted when a huge page needs them.
    pub pages: &'a [Page],
    pub samples: OnceCell<u64>,
    /// Seed of this round's draws.
    pub seed: u64,
}

impl Rules<'_> {
    /// Applies the rules in order: split, replicate, interleave, migrate.
    pub fn choose(&self, page: &Page, process: &ProcessView, may_have_copies: bool) -> Choice {
        let Some(home) = self.costs.index_of(page.node) else { return Choice::Stay };
        let Techniques { migrate, replicate, interleave } = process.techniques;
        let mut users = page.accesses.iter().filter(|by| by.accesses > 0);
        let (Some(first), more) = (users.next(), users.next().is_some()) else { return Choice::Stay };
        if more {
            if page.page_bytes > SMALL_PAGE && (migrate || interleave) {
                if page.is_falsely_shared && self.thresholds.split_shared > 0 {
                    return Choice::SplitShared;
                }
                if interleave && self.is_too_hot(page) {
                    return Choice::SplitHot;
                }
            }
            let id = PageOf { pid: page.pid, address: page.address };
            let dealt = interleave.then(|| process.weighted_draw.draw(self.shares, home, id, self.seed)).flatten();
            return match dealt {
                dealt if replicate && may_have_copies && page.writes == 0 => Choice::Replicate(dealt),
                Some(node) => Choice::Deal(node),
                None => Choice::Stay,
            };
        }
        if !(interleave || migrate && first.accesses >= self.thresholds.samples_min) {
            return Choice::Stay;
        }
        let target = match self.costs.index_of(first.node) {
            Some(node) if process.allowed[node] => Some(node),
            Some(_) => self.next_best(page, process),
            None => None,
        };
        target.filter(|&target| target != home).map_or(Choice::Stay, Choice::Move)
    }

    /// For a node without memory, or without memory for this process: the nearest allowed node, if that is nearer than
    /// the page's current one.
    fn next_best(&self, page: &Page, process: &ProcessView) -> Option<usize> {
        let user = page.accesses.iter().find(|by| by.accesses > 0)?.node;
        let far = |index: &usize| self.costs.remoteness(user, self.costs.nodes()[*index].id);
        let allowed = (0..process.allowed.len()).filter(|&index| process.allowed[index]);
        let nearest = allowed.min_by(|a, b| far(a).total_cmp(&far(b)))?;
        (far(&nearest) < self.costs.remoteness(user, page.node)).then_some(nearest)
    }

    fn is_too_hot(&self, page: &Page) -> bool {
        let all = *self.samples.get_or_init(|| self.pages.iter().map(Page::samples).sum());
        page.samples() as f64 >= self.thresholds.hot_page_share_min * all as f64
    }
}

/// Processes whose pages may be moved.
pub(crate) type Views = FxHashMap<Pid, ProcessView>;
