//! Accesses as marks: a dot for a load, a stroke for a store, coloured by distance.

use super::axis::Px;
use profile::Access;
use std::collections::BTreeMap;
use std::fmt::Write;
use trace::AccessKind;

/// Marks of one style, in one path: thousands of elements would be slow and large.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Marks {
    /// Its class of the style sheet.
    pub class: &'static str,
    /// The path of all of them.
    pub path: String,
}

/// The style of a mark, by the access's target and kind; those that may be covered by others come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    Elsewhere,
    ElsewhereStore,
    Local,
    LocalStore,
    Remote,
    RemoteStore,
}

impl Look {
    pub fn new(access: &Access) -> Self {
        match (access.is_remote(), access.is_local(), access.kind) {
            (true, _, AccessKind::Store) => Self::RemoteStore,
            (true, _, _) => Self::Remote,
            (_, true, AccessKind::Store) => Self::LocalStore,
            (_, true, _) => Self::Local,
            (_, _, AccessKind::Store) => Self::ElsewhereStore,
            _ => Self::Elsewhere,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Elsewhere => "elsewhere",
            Self::ElsewhereStore => "elsewhere store",
            Self::Local => "local",
            Self::LocalStore => "local store",
            Self::Remote => "remote",
            Self::RemoteStore => "remote store",
        }
    }
}

/// Collects marks by style.
#[derive(Debug, Default)]
pub(super) struct Gathered(BTreeMap<Look, String>);

impl Gathered {
    /// Adds a dot, or a stroke of this length.
    pub fn add(&mut self, look: Look, x: Px, y: Px, stroke: f64) {
        let path = self.0.entry(look).or_default();
        let is_store = matches!(look, Look::ElsewhereStore | Look::LocalStore | Look::RemoteStore);
        // Writing to a string cannot fail.
        let _ = if is_store {
            write!(path, "M{x} {}v{}", Px(y.0 - stroke / 2.0), Px(stroke))
        } else {
            write!(path, "M{x} {y}h0")
        };
    }

    pub fn marks(self) -> Vec<Marks> {
        self.0.into_iter().map(|(look, path)| Marks { class: look.class(), path }).collect()
    }
}
