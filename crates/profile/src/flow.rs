//! What happened to an object, or what a thread did, in the order of time.

use crate::profile::{Access, Profile};
use crate::tally::Tally;

/// Accesses in the order of time: of an object (its threads are in it), of a thread (its objects are), or of anything
/// else.
#[derive(Clone, Debug)]
pub struct Flow<'a> {
    profile: &'a Profile,
    /// None where it is all of them.
    positions: Option<Vec<u32>>,
}

impl<'a> Flow<'a> {
    pub(crate) fn new(profile: &'a Profile, positions: Option<Vec<u32>>) -> Self {
        Self { profile, positions }
    }

    /// What the accesses are of.
    pub fn profile(&self) -> &'a Profile {
        self.profile
    }

    /// How many accesses there are.
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

    /// Each access by its number among all of the profile: in an object's flow and in a thread's it is the same.
    pub fn numbered(&self) -> impl DoubleEndedIterator<Item = (u32, Access)> + ExactSizeIterator + '_ {
        let positions = self.positions.as_deref();
        let number = move |at: usize| positions.map_or(at as u32, |positions| positions[at]);
        (0..self.len()).map(number).map(|at| (at, self.profile.at(at as usize)))
    }

    /// How often an access came from another node than the one before it: of a thread's flow, how often it was moved,
    /// as far as samples tell.
    pub fn node_changes(&self) -> u64 {
        let mut last = None;
        let mut changes = 0;
        for node in self.accesses().filter_map(|access| access.from) {
            changes += u64::from(last.replace(node).is_some_and(|last| last != node));
        }
        changes
    }

    /// All of them, counted.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        self.accesses().for_each(|access| tally.add(&access));
        tally
    }
}
