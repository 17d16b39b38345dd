//! Words that a reader may paste into a shell.

/// Whether a shell takes the word as it is.
pub(crate) fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|char| char.is_ascii_alphanumeric() || "_-./=,:+%@".contains(char))
}

/// The word, in quotes where a shell would not take it as it is.
pub(crate) fn quoted(word: &str) -> String {
    if is_plain(word) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}
