//! Hints of a program to the agents that place it: names of mappings, which every such agent reads.

use crate::memory::named_page::{NamedPage, page_names};
use crate::processes::process::Mapping;
use machine::NodeId;
use std::fmt;
use std::io;
use std::str::FromStr;

/// The start of the names.
const NAME: &str = "nearside-hint ";

/// What a program knows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hint {
    /// Its threads and its memory are where they belong.
    LeaveAlone,
    /// It ends soon: moving anything would not pay.
    ShortLived,
    /// Its threads and its memory belong on this node.
    Home(NodeId),
    /// It begins to use its memory in another way. The number tells phases apart.
    Phase(u64),
}

impl fmt::Display for Hint {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeaveAlone => to.write_str("leave-alone"),
            Self::ShortLived => to.write_str("short-lived"),
            Self::Home(node) => write!(to, "home {node}"),
            Self::Phase(number) => write!(to, "phase {number}"),
        }
    }
}

/// No hint has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHint;

impl FromStr for Hint {
    type Err = NoHint;

    fn from_str(text: &str) -> Result<Self, NoHint> {
        match text.split_once(' ') {
            None if text == "leave-alone" => Ok(Self::LeaveAlone),
            None if text == "short-lived" => Ok(Self::ShortLived),
            Some(("home", node)) => node.parse().map(|node| Self::Home(NodeId(node))).map_err(|_| NoHint),
            Some(("phase", number)) => number.parse().map(Self::Phase).map_err(|_| NoHint),
            _ => Err(NoHint),
        }
    }
}

/// A hint that holds until it is dropped, the process ends, or it executes another program. Forked processes have it too.
#[derive(Debug)]
pub struct GivenHint(#[allow(dead_code, reason = "it holds until it is dropped")] NamedPage);

impl GivenHint {
    /// Gives a hint. Needs no privileges.
    pub fn new(hint: Hint) -> io::Result<Self> {
        NamedPage::new(&format!("{NAME}{hint}")).map(Self)
    }
}

/// The hints that a process gives, from its mappings, in order, each once. Names that are none are ignored.
pub fn given_hints(mappings: &[Mapping]) -> Vec<Hint> {
    let mut hints: Vec<Hint> = page_names(mappings, NAME).filter_map(|name| name.parse().ok()).collect();
    hints.sort_unstable();
    hints.dedup();
    hints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::process::{Pid, Process};
    use proptest::prelude::*;

    fn own() -> Vec<Hint> {
        given_hints(&Process::open(Pid(std::process::id())).unwrap().mappings().unwrap())
    }

    #[test]
    fn hints_are_seen_until_they_are_dropped() {
        let hints = [Hint::LeaveAlone, Hint::ShortLived, Hint::Home(NodeId(3)), Hint::Phase(17)];
        let given = hints.map(|hint| GivenHint::new(hint).unwrap());
        let again = GivenHint::new(Hint::LeaveAlone).unwrap();
        assert_eq!(own(), hints);
        drop(given);
        assert_eq!(own(), [Hint::LeaveAlone]);
        drop(again);
        assert_eq!(own(), []);
    }

    proptest! {
        #[test]
        fn names_are_hints_or_none(text in "\\PC{0,30}", node in 0_u32.., number in 0_u64..) {
            for hint in [Hint::Home(NodeId(node)), Hint::Phase(number)] {
                prop_assert_eq!(hint.to_string().parse(), Ok(hint));
            }
            if let Ok(hint) = text.parse::<Hint>() {
                prop_assert_eq!(hint.to_string().parse(), Ok(hint));
            }
        }
    }
}
