//! Escapes texts of traces and names of others: for pictures and pages, control and direction characters become U+FFFD;
//! for terminals, `?`; in JSON, their escapes.

use machine::is_obeyed;

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

/// Longest message; longer ones lose their middle: a file's name may have 4 KiB, an argument more.
const LONGEST_MESSAGE: usize = 3000;

/// A text of another process, of any number of lines, for a terminal.
pub fn escape_text(text: &str) -> String {
    text.replace(|c| c != '\n' && is_odd(c), "?")
}

/// A message, of several lines if it has them, that may contain names of files, programs and arguments.
pub fn escape_message(text: &str) -> String {
    let plain = escape_text(text);
    let count = plain.chars().count();
    if count <= LONGEST_MESSAGE {
        return plain;
    }
    let (start, end) = (LONGEST_MESSAGE / 2, count - LONGEST_MESSAGE / 2);
    let middle = |(index, _): &(usize, char)| *index < start || *index >= end;
    let mut short = String::new();
    for (index, c) in plain.chars().enumerate().filter(middle) {
        if index == end {
            short.push('…');
        }
        short.push(c);
    }
    short
}

/// JSON with escapes instead of characters that a terminal would obey. It means the same: they are in strings only, as
/// those of ASCII have escapes already.
pub fn escape_json(json: String) -> String {
    let is_raw = |c: char| c >= '\u{7f}' && is_odd(c);
    if !json.contains(is_raw) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if is_raw(c) {
            let unit = |unit: &u16| format!("\\u{unit:04x}");
            escaped.extend(c.encode_utf16(&mut [0; 2]).iter().map(unit));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

pub(crate) fn is_odd(c: char) -> bool {
    let is_none = matches!(c, '\u{fdd0}'..='\u{fdef}') || c as u32 & 0xfffe == 0xfffe;
    is_obeyed(c) || is_none
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

    #[test]
    fn texts_of_others_keep_their_lines_and_length() {
        let text = format!("a \u{1b}[31m\n{}", "é".repeat(10_000));
        assert_eq!(escape_text(&text), text.replace('\u{1b}', "?"));
    }

    #[test]
    fn messages_keep_lines_and_lose_their_middle() {
        assert_eq!(escape_message("no \u{1b}[31m\u{9b}\u{202e}\n  \u{6570}"), "no ?[31m??\n  \u{6570}");
        let long = escape_message(&format!("start{}end", "é".repeat(10_000)));
        assert_eq!(long.chars().count(), LONGEST_MESSAGE + 1);
        assert!(long.starts_with("start") && long.ends_with("end") && long.contains("é…é"));
    }

    #[test]
    fn escaped_json_means_the_same() {
        let text = "a\u{1b}\u{7f}\u{9b}\u{202e}\u{1ffff}é\n";
        let json = serde_json::to_string_pretty(&[text]).unwrap();
        let escaped = escape_json(json.clone());
        assert!(!escaped.contains(|c| c != '\n' && is_odd(c)), "{escaped}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&escaped).unwrap(), [text]);
        assert_eq!(escape_json("{\n  \"é\": 1\n}".to_owned()), "{\n  \"é\": 1\n}");
    }
}
