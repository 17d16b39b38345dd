//! Characters in names of others that a terminal or a page would obey.

/// Whether a terminal or a page obeys this character instead of showing it: control characters (U+009B alone begins an
/// escape sequence), line separators, and those that turn the direction of the text after them.
pub fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_any_script_are_shown() {
        assert!("aé數שלום\u{1f600} ~".chars().all(|c| !is_obeyed(c)));
        assert!("\n\u{1b}\u{7f}\u{9b}\u{202e}\u{2069}".chars().all(is_obeyed));
    }
}
