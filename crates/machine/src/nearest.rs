//! "Did you mean".

/// Names less alike than this (Jaro-Winkler, 0 to 1) are not worth a "did you mean".
const ALIKE: f64 = 0.7;

/// Of these names the one that is most like a name that is none of them, if any is like it.
pub(crate) fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |other: &str| strsim::jaro_winkler(name, other);
    let alike = names.into_iter().filter(|other| likeness(other) >= ALIKE);
    alike.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}
