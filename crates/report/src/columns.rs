//! Texts in columns of a terminal, in which a CJK character or an emoji takes two.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Number of columns that a text takes.
pub(crate) fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// The longest beginning that takes at most this many columns.
pub(crate) fn beginning(text: &str, most: usize) -> &str {
    &text[..fitting(text.char_indices().map(|(at, one)| (at + one.len_utf8(), one)), most).unwrap_or(0)]
}

/// The longest end that takes at most this many columns.
pub(crate) fn end(text: &str, most: usize) -> &str {
    &text[fitting(text.char_indices().rev(), most).unwrap_or(text.len())..]
}

/// The boundary behind the last character that fits.
fn fitting(characters: impl Iterator<Item = (usize, char)>, most: usize) -> Option<usize> {
    let mut taken = 0;
    let fits = |(_, one): &(usize, char)| {
        taken += one.width().unwrap_or(1);
        taken <= most
    };
    characters.take_while(fits).last().map(|(boundary, _)| boundary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(["ab", "é", "節点", "…"].map(width), [2, 1, 4, 1]);
        assert_eq!((beginning("節点a", 3), end("a節点", 3)), ("節", "点"));
        assert_eq!((beginning("ab", 9), end("ab", 9), beginning("節", 1), end("節", 1)), ("ab", "ab", "", ""));
    }
}
