//! Texts of traces, as pictures and pages have them.

/// Longer texts are cut: template arguments of C++ may fill pages.
const LONGEST: usize = 200;

/// A text that others chose, without characters that would break a page or turn its direction, and not too long.
pub(crate) fn label(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_odd = |c: char| c.is_control() || turns(c) || matches!(c, '\u{fffe}' | '\u{ffff}');
    let mut short: String = text.chars().take(LONGEST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short.replace(is_odd, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_stay_one_line_and_short() {
        assert_eq!(label("a\nb\u{202e}c\0<"), "a\u{fffd}b\u{fffd}c\u{fffd}<");
        assert_eq!(label(&"é".repeat(1000)).chars().count(), LONGEST + 1);
    }
}
