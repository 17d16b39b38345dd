//! Hints that a managed process gives.

use linux::{Hint, Process, given_hints};
use machine::NodeId;
use std::time::Instant;

/// Mappings are read again after this multiple of the time that reading them took.
const PAUSE_FACTOR: u32 = 50;

/// The hints of a process, and when they may be read again.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    next: Option<Instant>,
    given: Vec<Hint>,
}

/// What changed since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HintChange {
    /// Another wish for its place.
    pub place: Option<WantedPlace>,
    /// Whether a phase began.
    pub has_new_phase: bool,
}

/// Where a process wants to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WantedPlace {
    /// Where policies put it.
    Any,
    /// Where it is.
    Here,
    /// On a node.
    On(NodeId),
}

impl Hints {
    /// What changed, if looking is due and anything did.
    pub fn look(&mut self, process: &Process) -> Option<HintChange> {
        let began = Instant::now();
        if self.next.is_some_and(|next| began < next) {
            return None;
        }
        let given = given_hints(&process.mappings().ok()?);
        self.next = Some(Instant::now() + began.elapsed() * PAUSE_FACTOR);
        let change = change(&self.given, &given);
        self.given = given;
        Some(change).filter(|change| *change != HintChange::default())
    }
}

/// A home is more definite than staying, and of two homes the first node is the one.
fn wanted(given: &[Hint]) -> WantedPlace {
    let home = given.iter().find_map(|hint| if let Hint::Home(node) = hint { Some(*node) } else { None });
    let stays = given.iter().any(|hint| matches!(hint, Hint::LeaveAlone | Hint::ShortLived));
    home.map_or(if stays { WantedPlace::Here } else { WantedPlace::Any }, WantedPlace::On)
}

fn change(before: &[Hint], now: &[Hint]) -> HintChange {
    let place = (wanted(before) != wanted(now)).then(|| wanted(now));
    let is_new = |hint: &&Hint| matches!(hint, Hint::Phase(_)) && !before.contains(hint);
    HintChange { place, has_new_phase: now.iter().any(|hint| is_new(&hint)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_another_wish_or_another_phase() {
        let (alone, home, brief) = (Hint::LeaveAlone, Hint::Home(NodeId(2)), Hint::ShortLived);
        let place = |before: &[Hint], now: &[Hint]| change(before, now).place;
        assert_eq!(place(&[], &[]), None);
        assert_eq!(place(&[], &[alone]), Some(WantedPlace::Here));
        assert_eq!(place(&[alone], &[brief]), None);
        assert_eq!(place(&[alone], &[alone, home]), Some(WantedPlace::On(NodeId(2))));
        assert_eq!(place(&[home], &[]), Some(WantedPlace::Any));
        let phase = |before: &[Hint], now: &[Hint]| change(before, now).has_new_phase;
        assert!(phase(&[], &[Hint::Phase(1)]) && phase(&[Hint::Phase(1)], &[Hint::Phase(2)]));
        assert!(!phase(&[Hint::Phase(1)], &[Hint::Phase(1)]) && !phase(&[Hint::Phase(1)], &[]));
    }
}
