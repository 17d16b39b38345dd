//! Which huge pages to cure: those whose expected saving exceeds what the cure takes, the most profitable first, within a
//! budget. A page that nodes share falsely is split, marked so that the kernel does not join it again, and each small page
//! moves to the node that uses it. A page that one node uses, and that lies elsewhere, moves there as a whole.

mod history;

pub use history::{BlockHistory, BlockStep, BlockUse, SeenBlock};

use machine::{HUGE_PAGE, NodeId, Pid, SMALL_PAGE};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What a cure takes, as measured in the lab with Linux 6.12, ns: to split a huge page and to mark its memory, to move a
/// small page, and to move a huge one as a whole.
const SPLIT_NS: f64 = 390_000.0;
const MOVE_NS: f64 = 5_000.0;
const MOVE_WHOLE_NS: f64 = 400_000.0;

/// A huge page that does not lie with its users.
#[derive(Clone, Debug, PartialEq)]
pub struct MisplacedHugePage {
    /// Its process.
    pub pid: Pid,
    /// Its first address.
    pub address: u64,
    /// Its parts, as addresses, and the node that uses each.
    pub owners: Vec<(Range<u64>, NodeId)>,
    /// Small pages that lie elsewhere.
    pub misplaced_pages: u64,
    /// Waiting time that the cure surely saves, ns in each second; none if latencies are not known.
    pub saved_ns_per_s: Option<f64>,
}

/// Limits of a cure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CureLimits {
    /// How long the program is expected to go on as it did, s.
    pub horizon_s: f64,
    /// Most memory that is moved, bytes.
    pub budget_bytes: Option<u64>,
    /// Most runs of adjacent huge pages of a process that are kept small, with those of earlier rounds: the mark of each run
    /// adds up to two mappings, of which Linux allows 65,530 a process.
    pub runs: u64,
}

impl CureLimits {
    /// Runs of a process by default: 1,000 mappings.
    pub const RUNS: u64 = 500;
}

/// What to do with a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cure {
    /// It is split and its parts are moved.
    Split,
    /// It is moved as a whole.
    MoveWhole,
    /// What the cure takes exceeds what it saves.
    NotWorthIt,
    /// The budget is used up.
    OverBudget,
    /// The process would get too many mappings.
    TooManyRuns,
}

impl MisplacedHugePage {
    /// The node that it belongs on as a whole; none if it is to be split.
    pub fn whole(&self) -> Option<NodeId> {
        match &self.owners[..] {
            [(_, node)] => Some(*node),
            _ => None,
        }
    }

    /// The small pages with their nodes.
    pub fn pages(&self) -> impl Iterator<Item = (u64, NodeId)> + '_ {
        let pages = |range: &Range<u64>| (range.start..range.end).step_by(SMALL_PAGE as usize);
        self.owners.iter().flat_map(move |(range, node)| pages(range).map(|page| (page, *node)))
    }

    /// Bytes that its cure moves at most.
    pub fn moved_bytes(&self) -> u64 {
        if self.whole().is_some() { HUGE_PAGE } else { self.misplaced_pages * SMALL_PAGE }
    }

    /// The expected profit within a time, ns; none if latencies are not known.
    fn profit_ns(&self, horizon_s: f64) -> Option<f64> {
        let split_ns = SPLIT_NS + self.misplaced_pages as f64 * MOVE_NS;
        let cost_ns = if self.whole().is_some() { MOVE_WHOLE_NS } else { split_ns };
        Some(self.saved_ns_per_s? * horizon_s - cost_ns)
    }
}

/// What to do with each page, in their order, after what earlier rounds did. Where latencies are not known, pages with more
/// misplaced small pages come first.
pub fn cures(pages: &[MisplacedHugePage], limits: &CureLimits, earlier: &BlockHistory) -> Vec<Cure> {
    let profit = |at: &usize| pages[*at].profit_ns(limits.horizon_s).unwrap_or(pages[*at].misplaced_pages as f64);
    let mut order: Vec<usize> = (0..pages.len()).collect();
    order.sort_by(|a, b| profit(b).total_cmp(&profit(a)).then(a.cmp(b)));
    let mut cures = vec![Cure::NotWorthIt; pages.len()];
    let mut left = limits.budget_bytes.unwrap_or(u64::MAX);
    let mut runs: BTreeMap<Pid, Runs> = BTreeMap::new();
    order.retain(|at| profit(at) > 0.0);
    // What extends a run costs no mapping, so what had no room may have some once a neighbour has been chosen.
    let mut before = usize::MAX;
    while before > order.len() {
        before = order.len();
        order.retain(|&at| {
            let bytes = pages[at].moved_bytes();
            let runs = runs.entry(pages[at].pid).or_insert_with(|| Runs::of(earlier.split_of(pages[at].pid)));
            cures[at] = match () {
                () if bytes > left => Cure::OverBudget,
                // It stays one mapping.
                () if pages[at].whole().is_some() => Cure::MoveWhole,
                () if !runs.add(pages[at].address, limits.runs) => Cure::TooManyRuns,
                () => Cure::Split,
            };
            left -= if matches!(cures[at], Cure::Split | Cure::MoveWhole) { bytes } else { 0 };
            cures[at] == Cure::TooManyRuns
        });
    }
    cures
}

/// How many of these joins a budget allows, whose bytes it takes: the kernel copies all of a page that it joins.
pub fn joins_within(budget_bytes: &mut Option<u64>, wanted: usize) -> usize {
    let Some(left) = budget_bytes else { return wanted };
    let joins = (*left / HUGE_PAGE).min(wanted as u64);
    *left -= joins * HUGE_PAGE;
    // At most `wanted`.
    joins as usize
}

/// The huge pages of a process that are kept small, as runs of adjacent ones.
#[derive(Debug, Default)]
pub struct Runs {
    addresses: BTreeSet<u64>,
    number: u64,
}

impl Runs {
    /// Those of these huge pages.
    pub fn of(addresses: impl IntoIterator<Item = u64>) -> Self {
        let mut runs = Self::default();
        for address in addresses {
            runs.add(address, u64::MAX);
        }
        runs
    }

    /// Adds a huge page, unless there were more than this number of runs then. Returns whether it is among them.
    pub fn add(&mut self, address: u64, most: u64) -> bool {
        let neighbours = [address.checked_sub(HUGE_PAGE), address.checked_add(HUGE_PAGE)];
        let joined = neighbours.iter().flatten().filter(|neighbour| self.addresses.contains(neighbour)).count() as u64;
        let number = self.number + 1 - joined;
        if self.addresses.contains(&address) {
            return true;
        }
        let has_room = number <= most.max(self.number);
        if has_room {
            self.addresses.insert(address);
            self.number = number;
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(misplaced_pages: u64, saved_ns_per_s: Option<f64>) -> MisplacedHugePage {
        let owners = vec![(0x20_0000..0x20_2000, NodeId(0)), (0x20_2000..0x20_3000, NodeId(1))];
        MisplacedHugePage { pid: Pid(7), address: 0x20_0000, owners, misplaced_pages, saved_ns_per_s }
    }

    fn none() -> BlockHistory {
        BlockHistory::default()
    }

    #[test]
    fn what_saves_more_than_it_takes_is_split_as_far_as_the_budget_goes() {
        let pages = [page(100, Some(1e6)), page(100, Some(5e5)), page(200, Some(5e6)), page(10, None), page(0, None)];
        let limits = CureLimits { horizon_s: 1.0, budget_bytes: None, runs: u64::MAX };
        let all = [Cure::Split, Cure::NotWorthIt, Cure::Split, Cure::Split, Cure::NotWorthIt];
        assert_eq!(cures(&pages, &limits, &none()), all);
        assert_eq!(cures(&pages, &CureLimits { horizon_s: 10.0, ..limits }, &none())[1], Cure::Split);
        let budget_bytes = Some(250 << 12);
        let some = [Cure::OverBudget, Cure::NotWorthIt, Cure::Split, Cure::Split, Cure::NotWorthIt];
        assert_eq!(cures(&pages, &CureLimits { budget_bytes, ..limits }, &none()), some);
        let small: Vec<_> = pages[0].pages().collect();
        assert_eq!(small, [(0x20_0000, NodeId(0)), (0x20_1000, NodeId(0)), (0x20_2000, NodeId(1))]);
    }

    #[test]
    fn a_page_of_one_node_moves_as_a_whole_and_takes_no_mapping() {
        let whole = MisplacedHugePage { owners: vec![(0x20_0000..0x40_0000, NodeId(1))], ..page(512, Some(1e6)) };
        assert_eq!((whole.whole(), page(1, None).whole()), (Some(NodeId(1)), None));
        let pages = [whole.clone(), MisplacedHugePage { saved_ns_per_s: Some(3e5), ..whole }];
        let limits = CureLimits { horizon_s: 1.0, budget_bytes: None, runs: 0 };
        assert_eq!(cures(&pages, &limits, &none()), [Cure::MoveWhole, Cure::NotWorthIt]);
        let budget_bytes = Some(HUGE_PAGE - 1);
        assert_eq!(cures(&pages, &CureLimits { budget_bytes, ..limits }, &none())[0], Cure::OverBudget);
    }

    #[test]
    fn joins_take_whole_pages_from_the_budget() {
        let mut left = Some(3 * HUGE_PAGE - 1);
        assert_eq!((joins_within(&mut left, 1), joins_within(&mut left, 5), left), (1, 1, Some(HUGE_PAGE - 1)));
        assert_eq!((joins_within(&mut left, 1), joins_within(&mut None, 7)), (0, 7));
    }

    /// Blocks by number, the first one the most profitable; number and process of those that are split.
    fn split(blocks: &[(u32, u64)], runs: u64) -> Vec<(u32, u64)> {
        let pages: Vec<MisplacedHugePage> = (0_u32..)
            .zip(blocks)
            .map(|(rank, (pid, block))| MisplacedHugePage {
                pid: Pid(*pid),
                address: block * HUGE_PAGE,
                ..page(1, Some(1e9 - f64::from(rank) * 1e6))
            })
            .collect();
        let cures = cures(&pages, &CureLimits { horizon_s: 1.0, budget_bytes: None, runs }, &none());
        blocks.iter().zip(cures).filter(|(_, cure)| *cure == Cure::Split).map(|(block, _)| *block).collect()
    }

    #[test]
    fn mappings_are_limited_for_each_process_and_neighbours_are_one_run() {
        let blocks = [(1, 10), (1, 20), (1, 30), (1, 31), (1, 11), (1, 12), (2, 30), (1, 21)];
        assert_eq!(split(&blocks, 2), [(1, 10), (1, 20), (1, 11), (1, 12), (2, 30), (1, 21)]);
        assert_eq!(split(&blocks, 3).len(), 8);
        assert_eq!(split(&blocks, 0), []);
        // The second has room once the third has joined the first's run to it.
        assert_eq!(split(&[(1, 10), (1, 12), (1, 11)], 1), [(1, 10), (1, 12), (1, 11)]);
    }

    #[test]
    fn adjacent_huge_pages_that_are_kept_small_already_are_one_run_of_the_limit() {
        let mut earlier = BlockHistory::default();
        (10..15).for_each(|block| earlier.was_split(Pid(7), block * HUGE_PAGE, None));
        let at = |block: u64| MisplacedHugePage { address: block * HUGE_PAGE, ..page(1, None) };
        let chosen = |runs, blocks: &[u64]| {
            let pages: Vec<MisplacedHugePage> = blocks.iter().copied().map(at).collect();
            cures(&pages, &CureLimits { horizon_s: 1.0, budget_bytes: None, runs }, &earlier)
        };
        assert_eq!(chosen(2, &[20, 30]), [Cure::Split, Cure::TooManyRuns], "five pages are one run");
        assert_eq!(chosen(1, &[20, 15]), [Cure::TooManyRuns, Cure::Split], "the second extends it");
        // The kernel has joined it, and its mark is there already.
        assert_eq!(chosen(0, &[12]), [Cure::Split]);
    }

    proptest! {
        #[test]
        fn no_process_gets_more_runs_than_allowed(blocks in prop::collection::btree_set((0..2_u32, 0..60_u64), 0..60), runs in 0..8_u64) {
            let blocks: Vec<(u32, u64)> = blocks.into_iter().collect();
            let chosen = split(&blocks, runs);
            for pid in 0..2 {
                let of: BTreeSet<u64> = chosen.iter().filter(|(of, _)| *of == pid).map(|(_, block)| *block).collect();
                let starts = of.iter().filter(|block| **block == 0 || !of.contains(&(*block - 1))).count() as u64;
                prop_assert!(starts <= runs);
            }
        }

        #[test]
        fn the_budget_holds_and_more_of_it_never_cures_less(
            pages in prop::collection::vec((0..513_u64, prop::option::of(0.0..1e7)), 0..40),
            pages_of_budget in 0..20_000_u64,
        ) {
            let pages: Vec<_> = pages.into_iter().map(|(misplaced, saved)| page(misplaced, saved)).collect();
            let moved = |budget: Option<u64>| {
                let limits = CureLimits { horizon_s: 1.0, budget_bytes: budget, runs: u64::MAX };
                let split = cures(&pages, &limits, &none());
                let moved = pages.iter().zip(split).filter(|(_, cure)| *cure == Cure::Split);
                moved.map(|(page, _)| page.misplaced_pages * SMALL_PAGE).sum::<u64>()
            };
            let budget = pages_of_budget * SMALL_PAGE;
            prop_assert!(moved(Some(budget)) <= budget && moved(Some(budget)) <= moved(None));
        }
    }
}
