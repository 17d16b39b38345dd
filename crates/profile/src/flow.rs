//! Accesses to an object, or by a thread, in chronological order.

use crate::profile::{Access, Profile};
use crate::tally::Tally;

/// Accesses in chronological order: to an object (with their threads), by a thread (with their objects), or any others.
#[derive(Clone, Debug)]
pub struct Flow<'a> {
    profile: &'a Profile,
    /// None for all accesses.
    positions: Option<Vec<u32>>,
}

impl<'a> Flow<'a> {
    pub(crate) fn new(profile: &'a Profile, positions: Option<Vec<u32>>) -> Self {
        Self { profile, positions }
    }

    /// The profile of the accesses.
    pub fn profile(&self) -> &'a Profile {
        self.profile
    }

    /// Number of accesses.
    pub fn len(&self) -> usize {
        self.positions.as_ref().map_or(self.profile.len(), Vec::len)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The accesses.
    pub fn accesses(&self) -> impl DoubleEndedIterator<Item = Access> + ExactSizeIterator + '_ {
        self.numbered().map(|(_, access)| access)
    }

    /// Each access with its number in the profile, which is the same in an object's flow and in a thread's.
    pub fn numbered(&self) -> impl DoubleEndedIterator<Item = (u32, Access)> + ExactSizeIterator + '_ {
        let positions = self.positions.as_deref();
        let number = move |at: usize| positions.map_or(at as u32, |positions| positions[at]);
        (0..self.len()).map(number).map(|at| (at, self.profile.at(at as usize)))
    }

    /// How often an access came from another node than the one before. For a thread's flow: how often the thread was
    /// moved, as far as sampled.
    pub fn node_changes(&self) -> u64 {
        let mut last = None;
        let mut changes = 0;
        for node in self.accesses().filter_map(|access| access.from) {
            changes += u64::from(last.replace(node).is_some_and(|last| last != node));
        }
        changes
    }

    /// All of them, tallied.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        self.accesses().for_each(|access| tally.add(&access));
        tally
    }
}
