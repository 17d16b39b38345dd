//! What came of moving pages.

use crate::page_batch::PageRefusal;
use machine::NodeId;
use std::collections::BTreeMap;
use std::iter::Sum;

/// Pages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many; a huge page is one.
    pub pages: u64,
    /// How much.
    pub bytes: u64,
}

impl Amount {
    pub(crate) fn add(&mut self, page_bytes: u64) {
        self.pages += 1;
        self.bytes += page_bytes;
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), |sum, part| Self { pages: sum.pages + part.pages, bytes: sum.bytes + part.bytes })
    }
}

/// Pages that stayed for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stayed {
    /// How many.
    pub amount: Amount,
    /// The address of the first that was found.
    pub first: u64,
}

/// What came of the pages that were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Moved, by the node that they went to.
    pub moved: BTreeMap<NodeId, Amount>,
    /// On the right node before.
    pub there: Amount,
    /// On a node that nothing was to be moved from.
    pub elsewhere: Amount,
    /// Gone before they could be moved: given back, or swapped out. Their process goes on, so that is no failure.
    pub gone: Amount,
    /// Not moved, by reason and by the node that they were to go to.
    pub stayed: BTreeMap<(PageRefusal, NodeId), Stayed>,
    /// Bytes of addresses that were gone through, present or not.
    pub passed_bytes: u64,
    /// The process ended before all was gone through.
    pub ended: bool,
    /// Something asked to stop before all was gone through.
    pub interrupted: bool,
}

impl Tally {
    /// Adds what came of other pages.
    pub fn join(&mut self, other: &Self) {
        let add = |sum: &mut Amount, part: Amount| *sum = [*sum, part].into_iter().sum();
        add(&mut self.there, other.there);
        add(&mut self.elsewhere, other.elsewhere);
        add(&mut self.gone, other.gone);
        for (node, amount) in &other.moved {
            add(self.moved.entry(*node).or_default(), *amount);
        }
        for (why, stayed) in &other.stayed {
            let first = Stayed { amount: Amount::default(), first: stayed.first };
            add(&mut self.stayed.entry(*why).or_insert(first).amount, stayed.amount);
        }
        self.passed_bytes += other.passed_bytes;
        self.ended |= other.ended;
        self.interrupted |= other.interrupted;
    }

    /// All that was moved.
    pub fn moved(&self) -> Amount {
        self.moved.values().copied().sum()
    }

    /// All that was not moved.
    pub fn all_stayed(&self) -> Amount {
        self.stayed.values().map(|stayed| stayed.amount).sum()
    }
}
