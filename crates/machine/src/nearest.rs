//! "Did you mean" suggestions.

/// Minimum similarity (Jaro-Winkler, 0 to 1) for a suggestion.
const ALIKE: f64 = 0.7;

/// The name that is most similar to an unknown name, if any is similar.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |other: &str| strsim::jaro_winkler(name, other);
    let alike = names.into_iter().filter(|other| likeness(other) >= ALIKE);
    alike.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}

/// The suggestion as a part of a message; empty without one.
pub fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!(" (did you mean `{nearest}`?)"))
}
