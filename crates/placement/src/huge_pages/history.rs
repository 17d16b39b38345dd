//! What was learned about huge pages in earlier rounds, so that they are not split and joined in turns: a page is split
//! once it was found falsely shared in two rounds, is joined again where that is right for long enough, and is then left
//! alone for a while.

use machine::{NodeId, Pid};
use std::collections::BTreeMap;

/// Rounds in a row in which a page is found falsely shared before it is split.
const ROUNDS_APART: u32 = 2;
/// Rounds in a row in which one node uses all of a split page before it is joined.
const ROUNDS_TOGETHER: u32 = 8;
/// Rounds in a row in which accesses take longer than before the split before it is taken back.
const ROUNDS_SLOWER: u32 = 2;
/// How much longer, over the process's mean: by half. Queues change it by more than 15 % in the lab, and remote memory is at
/// most 1.6 times as far there.
const SLOWER: f64 = 1.5;
/// Rounds without samples after which a block is forgotten: its memory may have been freed, and be used for other data.
const ROUNDS_KEPT: u64 = 64;
/// Rounds for which a page that was joined is not split again; twice as many each time, up to 2^10 times.
const ROUNDS_BARRED: u64 = 16;

/// How nodes use a block of 2 MiB in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockUse {
    /// Different nodes surely use different parts.
    Apart,
    /// One node surely uses all of it.
    OneNode(NodeId),
    /// Neither.
    Other,
}

/// A block in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeenBlock {
    /// Its process.
    pub pid: Pid,
    /// Its first address.
    pub address: u64,
    /// Whether it is a huge page.
    pub is_huge: bool,
    /// Its users.
    pub used: BlockUse,
    /// Mean latency of its accesses to memory over that of all its process's, where the source reports latencies: load
    /// changes both.
    pub relative_latency: Option<f64>,
    /// The node that uses it most.
    pub most: NodeId,
}

/// What to do with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockStep {
    /// It has been falsely shared for long enough: to be split, if that pays.
    Split,
    /// The kernel has joined it again: to be split again.
    SplitAgain,
    /// It is used by this node for long enough: to be joined there.
    Join(NodeId),
    /// Its split made accesses slower: to be joined again, on this node.
    TakeBack(NodeId),
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Known {
    state: State,
    /// Times that it was joined or taken back.
    joins: u32,
    /// The round from which on it may be split.
    free_from: u64,
    /// The last round with samples of it.
    seen: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Found falsely shared in this number of successive rounds.
    Whole { apart: u32 },
    /// Split, with the relative latency before, and successive rounds in which one node used it, and in which it was slower.
    /// `again` is the number of times that the kernel has joined it.
    Split { before: Option<f64>, together: u32, slower: u32, again: u32 },
}

impl Default for State {
    fn default() -> Self {
        Self::Whole { apart: 0 }
    }
}

/// What was learned about blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockHistory {
    blocks: BTreeMap<(Pid, u64), Known>,
    round: u64,
}

impl BlockHistory {
    /// Begins the next round. Returns a step for each block that needs one, with its position among these.
    pub fn decide(&mut self, seen: &[SeenBlock]) -> Vec<(usize, BlockStep)> {
        self.round += 1;
        let round = self.round;
        let mut steps = Vec::new();
        for (at, block) in seen.iter().enumerate() {
            let known = self.blocks.entry((block.pid, block.address)).or_default();
            known.seen = round;
            steps.extend(known.step(block, round).map(|step| (at, step)));
        }
        for known in self.blocks.values_mut().filter(|known| known.seen != round) {
            known.was_not_seen();
        }
        // What says nothing is not kept, nor are blocks that may be other memory by now.
        self.blocks.retain(|_, known| {
            let is_new = known.state == State::default() && known.joins == 0 && known.free_from == 0;
            !is_new && (round - known.seen <= ROUNDS_KEPT || known.free_from > round)
        });
        steps
    }

    /// A block was split, whose accesses had this relative latency before.
    pub fn was_split(&mut self, pid: Pid, address: u64, before: Option<f64>) {
        let known = self.blocks.entry((pid, address)).or_default();
        known.seen = self.round;
        let (before, again) = match known.state {
            State::Split { before, again, .. } => (before, again + 1),
            State::Whole { .. } => (before, 0),
        };
        known.state = State::Split { before, together: 0, slower: 0, again };
    }

    /// A block was joined: it is left alone for a while.
    pub fn was_joined(&mut self, pid: Pid, address: u64) {
        let round = self.round;
        let known = self.blocks.entry((pid, address)).or_default();
        known.seen = round;
        known.bar(round);
    }

    /// Whether a block was joined lately, and is to be left alone.
    pub fn is_barred(&self, pid: Pid, address: u64) -> bool {
        self.blocks.get(&(pid, address)).is_some_and(|known| known.free_from > self.round)
    }

    /// Whether a block was split and not joined since.
    pub fn is_split(&self, pid: Pid, address: u64) -> bool {
        let known = self.blocks.get(&(pid, address));
        known.is_some_and(|known| matches!(known.state, State::Split { .. }))
    }

    /// Blocks of a process that were split and not joined since.
    pub fn split_of(&self, pid: Pid) -> impl Iterator<Item = u64> + '_ {
        let of = self.blocks.range((pid, 0)..=(pid, u64::MAX));
        of.filter(|(_, known)| matches!(known.state, State::Split { .. })).map(|((_, address), _)| *address)
    }

    /// Forgets a process that has ended, or executes another program.
    pub fn forget(&mut self, pid: Pid) {
        self.blocks.retain(|(of, _), _| *of != pid);
    }
}

impl Known {
    fn step(&mut self, block: &SeenBlock, round: u64) -> Option<BlockStep> {
        match &mut self.state {
            State::Whole { apart } => {
                let is_found = block.used == BlockUse::Apart && block.is_huge && round >= self.free_from;
                *apart = if is_found { *apart + 1 } else { 0 };
                (*apart >= ROUNDS_APART).then_some(BlockStep::Split)
            }
            // What the kernel has joined twice, it joins again.
            State::Split { again: 1.., .. } if block.is_huge => {
                self.bar(round);
                None
            }
            State::Split { .. } if block.is_huge => match block.used {
                BlockUse::Apart => Some(BlockStep::SplitAgain),
                BlockUse::OneNode(_) | BlockUse::Other => {
                    self.bar(round);
                    None
                }
            },
            State::Split { before, together, slower, .. } => {
                *together = if matches!(block.used, BlockUse::OneNode(_)) { *together + 1 } else { 0 };
                let is_slower = before.zip(block.relative_latency).is_some_and(|(before, now)| now > before * SLOWER);
                *slower = if is_slower { *slower + 1 } else { 0 };
                match block.used {
                    BlockUse::OneNode(node) if *together >= ROUNDS_TOGETHER => Some(BlockStep::Join(node)),
                    _ if *slower >= ROUNDS_SLOWER => Some(BlockStep::TakeBack(block.most)),
                    _ => None,
                }
            }
        }
    }

    /// A round without samples ends what counts rounds in a row.
    fn was_not_seen(&mut self) {
        match &mut self.state {
            State::Whole { apart } => *apart = 0,
            State::Split { together, slower, .. } => (*together, *slower) = (0, 0),
        }
    }

    fn bar(&mut self, round: u64) {
        self.free_from = round + (ROUNDS_BARRED << self.joins.min(10));
        self.joins += 1;
        self.state = State::Whole { apart: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::HUGE_PAGE;
    use proptest::prelude::*;

    fn seen(is_huge: bool, used: BlockUse) -> SeenBlock {
        SeenBlock { pid: Pid(7), address: HUGE_PAGE, is_huge, used, relative_latency: Some(1.0), most: NodeId(0) }
    }

    /// The step of one block.
    fn step(history: &mut BlockHistory, block: SeenBlock) -> Option<BlockStep> {
        let steps = history.decide(&[block]);
        assert!(steps.len() <= 1);
        steps.first().map(|(_, step)| *step)
    }

    const WHOLE: bool = true;
    const SMALL: bool = false;

    #[test]
    fn a_page_is_split_once_two_rounds_in_a_row_find_it_falsely_shared() {
        let mut history = BlockHistory::default();
        let mut next = |used| step(&mut history, seen(WHOLE, used));
        assert_eq!([BlockUse::Apart, BlockUse::Other, BlockUse::Apart].map(&mut next), [None; 3]);
        assert_eq!([BlockUse::Apart, BlockUse::Apart].map(&mut next), [Some(BlockStep::Split); 2]);
        assert_eq!(step(&mut history, seen(SMALL, BlockUse::Apart)), None);
        assert_eq!(history, BlockHistory { round: 6, ..BlockHistory::default() });
    }

    #[test]
    fn a_split_page_is_joined_after_eight_rounds_of_one_node_and_then_left_alone_for_longer_each_time() {
        let mut history = BlockHistory::default();
        let mut rested = Vec::new();
        for _ in 0..3 {
            history.was_split(Pid(7), HUGE_PAGE, None);
            let one = seen(SMALL, BlockUse::OneNode(NodeId(2)));
            for _ in 0..7 {
                assert_eq!(step(&mut history, one), None);
            }
            assert_eq!(step(&mut history, one), Some(BlockStep::Join(NodeId(2))));
            assert!(history.is_split(Pid(7), HUGE_PAGE));
            history.was_joined(Pid(7), HUGE_PAGE);
            assert!(history.is_barred(Pid(7), HUGE_PAGE) && !history.is_split(Pid(7), HUGE_PAGE));
            let rounds = (1..1000).find(|_| step(&mut history, seen(WHOLE, BlockUse::Apart)).is_some());
            rested.push(rounds.unwrap());
        }
        assert_eq!(rested, [17, 33, 65]);
    }

    #[test]
    fn rounds_without_samples_are_not_in_a_row_and_many_of_them_forget_a_split() {
        let mut history = BlockHistory::default();
        assert_eq!(step(&mut history, seen(WHOLE, BlockUse::Apart)), None);
        assert_eq!(history.decide(&[]), []);
        assert_eq!(step(&mut history, seen(WHOLE, BlockUse::Apart)), None);
        history.was_split(Pid(7), HUGE_PAGE, None);
        (0..ROUNDS_KEPT).for_each(|_| assert_eq!(history.decide(&[]), []));
        assert!(history.is_split(Pid(7), HUGE_PAGE));
        assert_eq!(history.decide(&[]), []);
        assert!(!history.is_split(Pid(7), HUGE_PAGE));
    }

    #[test]
    fn users_that_come_back_keep_it_split() {
        let mut history = BlockHistory::default();
        history.was_split(Pid(7), HUGE_PAGE, None);
        let one = BlockUse::OneNode(NodeId(2));
        for used in [one, one, one, one, one, one, one, BlockUse::Apart, one, one, one, one, one, one, one] {
            assert_eq!(step(&mut history, seen(SMALL, used)), None);
        }
    }

    #[test]
    fn what_made_accesses_slower_twice_is_taken_back() {
        let mut history = BlockHistory::default();
        history.was_split(Pid(7), HUGE_PAGE, Some(1.0));
        let mut next = |latency| {
            let block = SeenBlock { relative_latency: Some(latency), most: NodeId(3), ..seen(SMALL, BlockUse::Apart) };
            step(&mut history, block)
        };
        assert_eq!([1.6, 1.4, 1.6].map(&mut next), [None; 3]);
        assert_eq!(next(1.6), Some(BlockStep::TakeBack(NodeId(3))));
    }

    #[test]
    fn what_the_kernel_joined_is_split_again_once() {
        let mut history = BlockHistory::default();
        history.was_split(Pid(7), HUGE_PAGE, None);
        assert_eq!(step(&mut history, seen(WHOLE, BlockUse::Apart)), Some(BlockStep::SplitAgain));
        history.was_split(Pid(7), HUGE_PAGE, None);
        assert_eq!(step(&mut history, seen(WHOLE, BlockUse::Apart)), None);
        assert!(!history.is_split(Pid(7), HUGE_PAGE));
        history.was_split(Pid(7), 3 * HUGE_PAGE, None);
        assert_eq!(history.split_of(Pid(7)).collect::<Vec<_>>(), [3 * HUGE_PAGE]);
        history.forget(Pid(7));
        assert_eq!(history.split_of(Pid(7)).count(), 0);
    }

    proptest! {
        #[test]
        fn however_users_change_a_page_is_split_at_most_once_in_ten_rounds(uses in prop::collection::vec((0..3_u8, 0.5..2.0), 0..400)) {
            let mut history = BlockHistory::default();
            let (mut is_huge, mut splits) = (true, Vec::new());
            for (round, (used, ns)) in uses.into_iter().enumerate() {
                let used = [BlockUse::Apart, BlockUse::OneNode(NodeId(1)), BlockUse::Other][usize::from(used)];
                match step(&mut history, SeenBlock { relative_latency: Some(ns), ..seen(is_huge, used) }) {
                    Some(BlockStep::Split | BlockStep::SplitAgain) => {
                        splits.push(round);
                        is_huge = false;
                        history.was_split(Pid(7), HUGE_PAGE, Some(ns));
                    }
                    Some(BlockStep::Join(_) | BlockStep::TakeBack(_)) => {
                        is_huge = true;
                        history.was_joined(Pid(7), HUGE_PAGE);
                    }
                    None => {}
                }
            }
            prop_assert!(splits.windows(2).all(|pair| pair[1] - pair[0] > 10), "{:?}", splits);
        }
    }
}
