//! Escapes texts of traces: for pictures and pages, control and direction characters become U+FFFD; for terminals, `?`.

/// Longest name; longer ones are truncated: template arguments of C++ may fill pages.
const LONGEST_NAME: usize = 200;
/// Longest sentence; longer ones are truncated.
const LONGEST_SENTENCE: usize = 2000;

/// An untrusted name as one line of limited length, without characters that would break a page or change its text
/// direction.
pub fn escape_name(name: &str) -> String {
    cut(name, LONGEST_NAME)
}

/// The same for a sentence.
pub fn escape_sentence(text: &str) -> String {
    cut(text, LONGEST_SENTENCE)
}

fn cut(text: &str, longest: usize) -> String {
    let mut short: String = text.chars().take(longest).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short.replace(is_odd, "\u{fffd}")
}

/// A text for a terminal, which control characters would change.
pub(crate) fn plain(text: &str) -> String {
    text.replace(is_odd, "?")
}

fn is_odd(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_none = matches!(c, '\u{fdd0}'..='\u{fdef}') || c as u32 & 0xfffe == 0xfffe;
    c.is_control() || turns || is_none
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_stay_one_line_and_short() {
        assert_eq!(escape_name("a\nb\u{202e}c\0<\u{1ffff}"), "a\u{fffd}b\u{fffd}c\u{fffd}<\u{fffd}");
        assert_eq!(escape_name(&"é".repeat(1000)).chars().count(), LONGEST_NAME + 1);
        assert_eq!(escape_sentence(&"é".repeat(1000)).chars().count(), 1000);
    }
}
