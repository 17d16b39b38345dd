//! Lines of text of a page: each a name and what is said about it.

use crate::escape::escape_sentence;
use crate::profile::text::Lines;

/// A name and a short text about it.
pub(super) type Line = (String, String);
/// Most lines of a list.
const MOST_LINES: usize = 100;

/// Lines with untrusted names, limited in number: there may be any number of losses.
pub(super) fn lines(lines: Lines) -> Vec<Line> {
    lines.0.into_iter().take(MOST_LINES).map(|(name, text)| (name, escape_sentence(&text))).collect()
}
