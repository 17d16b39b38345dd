//! The results of moving pages.

use crate::migration::page_batch::PageRefusal;
use machine::NodeId;
use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::AddAssign;

/// Pages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The number of pages; a huge page is one.
    pub pages: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Amount {
    pub(crate) fn add(&mut self, page_bytes: u64) {
        self.pages += 1;
        self.bytes += page_bytes;
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.pages += other.pages;
        self.bytes += other.bytes;
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), |mut sum, part| {
            sum += part;
            sum
        })
    }
}

/// Pages that were moved, by the node they were on and the one they are on.
pub type Moves = BTreeMap<(NodeId, NodeId), Amount>;

/// Pages that were not moved, for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stayed {
    /// The amount.
    pub amount: Amount,
    /// Address of the first one found.
    pub first: u64,
}

/// The results for the pages that were examined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Moved, by the node before and the target node.
    pub moved: Moves,
    /// Already on the right node.
    pub there: Amount,
    /// On a node that is not a source.
    pub elsewhere: Amount,
    /// Gone before they could be moved: freed, or swapped out. Not a failure, as the process continues.
    pub gone: Amount,
    /// Not moved, by reason and target node.
    pub stayed: BTreeMap<(PageRefusal, NodeId), Stayed>,
    /// Address space processed, in bytes, present or not.
    pub passed_bytes: u64,
    /// The process exited before all ranges were processed.
    pub ended: bool,
    /// The migration was interrupted before all ranges were processed.
    pub interrupted: bool,
    /// Its time ended before all ranges were processed.
    pub out_of_time: bool,
}

impl Tally {
    /// Adds the results of other pages.
    pub fn join(&mut self, other: &Self) {
        self.there += other.there;
        self.elsewhere += other.elsewhere;
        self.gone += other.gone;
        for (nodes, amount) in &other.moved {
            *self.moved.entry(*nodes).or_default() += *amount;
        }
        for (why, stayed) in &other.stayed {
            let first = Stayed { amount: Amount::default(), first: stayed.first };
            self.stayed.entry(*why).or_insert(first).amount += stayed.amount;
        }
        self.passed_bytes += other.passed_bytes;
        self.ended |= other.ended;
        self.interrupted |= other.interrupted;
        self.out_of_time |= other.out_of_time;
    }

    /// Total moved.
    pub fn moved(&self) -> Amount {
        self.moved.values().copied().sum()
    }

    /// Total not moved.
    pub fn all_stayed(&self) -> Amount {
        self.stayed.values().map(|stayed| stayed.amount).sum()
    }
}
