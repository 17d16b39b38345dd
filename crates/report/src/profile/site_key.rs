//! Matches sites of two traces: by names of functions rather than addresses.

use profile::{ChainId, ObjectKind, Profile, SiteId};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Identifies a site across processes and builds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SiteKey {
    pub kind: ObjectKind,
    /// The allocating function, the variable, or the file; for code without a symbol, its file and offset.
    pub name: String,
    /// The line of source.
    pub source: Option<String>,
    /// Offset in the function, bytes.
    pub offset: u64,
    /// The functions that called it, innermost first.
    pub callers: Vec<String>,
}

impl SiteKey {
    /// For a site, from the call chain of one of its objects.
    pub fn new(profile: &Profile, site: SiteId, example: ChainId) -> Option<Self> {
        let found = profile.site(site)?;
        let code = found.code.filter(|_| found.kind == ObjectKind::Heap);
        let function = code.and_then(|code| profile.code(code)).and_then(|code| {
            let function = code.function.as_ref()?;
            Some((function.name.to_string(), code.offset.saturating_sub(function.start)))
        });
        let (name, offset) = function.unwrap_or_else(|| (profile.site_label(site), 0));
        Some(Self {
            kind: found.kind,
            name,
            source: source_of(profile, site),
            offset,
            callers: callers(profile, site, example),
        })
    }
}

/// The line of source that allocates the objects of a site.
pub(crate) fn source_of(profile: &Profile, site: SiteId) -> Option<String> {
    profile.frame(profile.site(site)?.code?)?.source
}

/// Functions of a site's call chain, innermost first, from the call chain of one of its objects.
pub(crate) fn callers(profile: &Profile, site: SiteId, example: ChainId) -> Vec<String> {
    let code = profile.site(site).and_then(|site| site.code);
    let outside = profile.chain(example).iter().skip_while(|frame| Some(**frame) != code).skip(1);
    outside.map(|&frame| profile.function_label(frame)).collect()
}

/// Matches `a` with `b`; sites without a counterpart stand alone. Matches from most to least certain: everything equal;
/// the same line; the same callers; the same function, in order of offset.
pub(crate) fn pairs(a: &[SiteKey], b: &[SiteKey]) -> Vec<(Option<usize>, Option<usize>)> {
    let mut matching = Matching { a, b, of_a: vec![None; a.len()], of_b: vec![None; b.len()] };
    matching.pass(|key| Some(key.clone()));
    matching.pass(|key| Some((key.kind, key.name.clone(), key.source.clone()?)));
    matching.pass(|key| Some((key.kind, key.name.clone(), key.callers.clone())));
    matching.pass(|key| Some((key.kind, key.name.clone())));
    let Matching { of_a, of_b, .. } = matching;
    let alone = of_b.iter().zip(0..).filter(|(of, _)| of.is_none()).map(|(_, at)| (None, Some(at)));
    of_a.iter().zip(0..).map(|(of, at)| (Some(at), *of)).chain(alone).collect()
}

struct Matching<'a> {
    a: &'a [SiteKey],
    b: &'a [SiteKey],
    of_a: Vec<Option<usize>>,
    of_b: Vec<Option<usize>>,
}

impl Matching<'_> {
    /// Matches sites with equal keys.
    fn pass<K: Hash + Eq>(&mut self, alike: impl Fn(&SiteKey) -> Option<K>) {
        let in_order = |keys: &[SiteKey], matched: &[Option<usize>]| {
            let mut open: Vec<usize> = (0..keys.len()).filter(|&at| matched[at].is_none()).collect();
            open.sort_by_key(|&at| keys[at].offset);
            open
        };
        let mut waiting: HashMap<K, VecDeque<usize>> = HashMap::new();
        for at in in_order(self.b, &self.of_b) {
            if let Some(key) = alike(&self.b[at]) {
                waiting.entry(key).or_default().push_back(at);
            }
        }
        for at in in_order(self.a, &self.of_a) {
            let other = alike(&self.a[at]).and_then(|key| waiting.get_mut(&key)?.pop_front());
            if let Some(other) = other {
                (self.of_a[at], self.of_b[other]) = (Some(other), Some(at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, source: Option<&str>, offset: u64, caller: &str) -> SiteKey {
        let source = source.map(str::to_owned);
        SiteKey { kind: ObjectKind::Heap, name: name.into(), source, offset, callers: vec![caller.into()] }
    }

    #[test]
    fn sites_are_matched_by_names_and_lines_not_by_places() {
        let a = [key("f", Some("x.c:7"), 9, "main"), key("f", Some("x.c:9"), 20, "main"), key("gone", None, 0, "main")];
        // After a rebuild: the two sites of `f` have moved, and there is a new one in front.
        let b = [key("new", None, 0, "main"), key("f", Some("x.c:9"), 9, "main"), key("f", Some("x.c:8"), 2, "main")];
        let mut found = pairs(&a, &b);
        found.sort();
        assert_eq!(found, [(None, Some(0)), (Some(0), Some(2)), (Some(1), Some(1)), (Some(2), None)]);
    }

    #[test]
    fn places_of_one_function_are_matched_in_their_order() {
        let a = [key("f", None, 30, "x"), key("f", None, 10, "x")];
        let b = [key("f", None, 12, "x"), key("f", None, 33, "x")];
        assert_eq!(pairs(&a, &b), [(Some(0), Some(1)), (Some(1), Some(0))]);
        assert_eq!(pairs(&a, &a), [(Some(0), Some(0)), (Some(1), Some(1))]);
        assert!(pairs(&[], &[]).is_empty());
    }
}
