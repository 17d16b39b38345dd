//! The rules that a description breaks, in words.

use std::fmt;

/// Maximum number of violations in a message; a wrong matrix has a million of them.
const SPELLED_OUT: usize = 20;

/// A rule that a description breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field, as in the machine file: `node[2].memory_bytes` is the third `[[node]]`.
    pub field: String,
    /// The rule, and the actual value.
    pub rule: String,
}

impl Violation {
    pub(crate) fn new(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { field: field.into(), rule: rule.into() }
    }

    /// No node has memory.
    pub(crate) fn unknown_memory() -> Self {
        Self::new("node", "some node has memory, but every memory_bytes is 0")
    }

    /// Whether it is that no node has memory: a mistake in a machine file, but what cut or old systems say.
    pub(crate) fn is_unknown_memory(&self) -> bool {
        *self == Self::unknown_memory()
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.rule)
    }
}

/// Every rule that a description breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct Violations(pub Vec<Violation>);

/// One line each, up to a limit.
pub(crate) fn lines<T: fmt::Display>(items: &[T]) -> String {
    let mut lines: Vec<String> = items.iter().take(SPELLED_OUT).map(T::to_string).collect();
    if items.len() > SPELLED_OUT {
        lines.push(format!("and {} more", items.len() - SPELLED_OUT));
    }
    lines.join("\n")
}
