//! Named ranges of processes: those that programs name themselves, and those that a file names for them.

mod rules;
mod watcher;

pub use rules::{RegionRule, RegionRules, RegionsError};
pub use watcher::RegionWatcher;
pub(crate) use watcher::announced;

use glob::Pattern;
use linux::{Mapping, NamedRange, named_ranges};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use trace::{FileVariable, MappedFile};

/// Number of variables of files that are remembered: processes map ever new files.
const MOST_KNOWN: usize = 4096;

/// Finds the named ranges of processes.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    rules: Vec<RegionRule>,
    /// Which of the rules have named a range.
    matched: Vec<bool>,
    /// Variables by file, inode and name. Files have many symbols, and processes share files.
    variables: FxHashMap<(String, u64, String), Option<FileVariable>>,
}

impl Regions {
    /// Those that programs name, and those of a file's rules.
    pub fn new(rules: RegionRules) -> Self {
        Self { matched: vec![false; rules.region.len()], rules: rules.region, ..Self::default() }
    }

    /// Whether a file names any.
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// The named ranges of a process with these mappings, ascending: those that it named itself, then those of the rules.
    pub fn named(&mut self, mappings: &[Mapping]) -> Vec<NamedRange> {
        let mut named = named_ranges(mappings);
        named.extend(self.by_rules(mappings));
        named
    }

    /// The rules that have named nothing so far.
    pub fn unmatched(&self) -> impl Iterator<Item = &RegionRule> {
        self.rules.iter().zip(&self.matched).filter(|(_, matched)| !**matched).map(|(rule, _)| rule)
    }

    /// The ranges that the rules name in a process with these mappings.
    pub fn by_rules(&mut self, mappings: &[Mapping]) -> Vec<NamedRange> {
        let mut named = Vec::new();
        for (rule, matched) in self.rules.iter().zip(&mut self.matched) {
            let found = match &rule.variable {
                Some(variable) => variables(&mut self.variables, mappings, rule, variable),
                None => rule.in_mappings(mappings),
            };
            *matched |= !found.is_empty();
            named.extend(found.into_iter().map(|range| NamedRange { range, name: rule.name.clone() }));
        }
        named
    }
}

impl RegionRule {
    /// The matching mappings, joined where one follows another, if they are large enough; of each the part.
    fn in_mappings(&self, mappings: &[Mapping]) -> Vec<Range<u64>> {
        let pattern = self.pattern();
        let mut joined: Vec<Range<u64>> = Vec::new();
        for mapping in mappings.iter().filter(|mapping| matches(pattern.as_ref(), &mapping.name)) {
            match joined.last_mut() {
                Some(last) if last.end == mapping.range.start => last.end = mapping.range.end,
                _ => joined.push(mapping.range.clone()),
            }
        }
        joined
            .into_iter()
            .filter(|range| range.end - range.start >= self.at_least)
            .filter_map(|all| self.part(&all))
            .collect()
    }

    fn part(&self, all: &Range<u64>) -> Option<Range<u64>> {
        let start = all.start.checked_add(self.offset)?;
        let end = self.bytes.map_or(all.end, |bytes| start.saturating_add(bytes)).min(all.end);
        (start < end).then_some(start..end)
    }

    fn pattern(&self) -> Option<Pattern> {
        self.mapping.as_deref().and_then(|text| Pattern::new(text).ok())
    }
}

/// Whether a mapping's name, or the last part of its path, is meant. Without a pattern every file is.
fn matches(pattern: Option<&Pattern>, name: &str) -> bool {
    let name = name.trim_end_matches(" (deleted)");
    let last = name.rsplit('/').next().unwrap_or(name);
    // `[heap]` is a name, although as a pattern it is one letter.
    let is_meant = |pattern: &Pattern| pattern.as_str() == name || pattern.matches(name) || pattern.matches(last);
    pattern.is_none_or(is_meant)
}

/// The variable of this name in each mapped file that has one.
fn variables(
    known: &mut FxHashMap<(String, u64, String), Option<FileVariable>>,
    mappings: &[Mapping],
    rule: &RegionRule,
    name: &str,
) -> Vec<Range<u64>> {
    let pattern = rule.pattern();
    let is_file = |mapping: &&Mapping| mapping.inode > 0 && mapping.name.starts_with('/');
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut before: Option<&Mapping> = None;
    for mapping in mappings.iter().filter(is_file).filter(|mapping| matches(pattern.as_ref(), &mapping.name)) {
        // A file's first mapping says where the others are.
        if before.replace(mapping).is_some_and(|before| (before.inode, &before.name) == (mapping.inode, &mapping.name))
        {
            continue;
        }
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        let key = (mapping.name.clone(), mapping.inode, name.to_owned());
        let variable =
            known.entry(key).or_insert_with(|| FileVariable::find(Path::new(&mapping.name), mapping.inode, name));
        let range = variable.as_ref().and_then(|variable| variable.range(&mapped(mapping)));
        found.extend(range.filter(|range| range.end - range.start >= rule.at_least).and_then(|all| rule.part(&all)));
    }
    found
}

fn mapped(mapping: &Mapping) -> MappedFile {
    MappedFile {
        start: mapping.range.start,
        bytes: mapping.range.end - mapping.range.start,
        offset: mapping.offset,
        name: Arc::from(mapping.name.as_str()),
        file: None,
        executable: mapping.execute,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::{GivenRegion, Pid, Process, parse_maps};

    static TABLE: [u64; 1000] = [7; 1000];

    fn regions(text: &str) -> Regions {
        Regions::new(RegionRules::parse(text, Path::new("names.toml")).unwrap())
    }

    #[test]
    fn mappings_are_named_by_pattern_size_and_part() {
        let maps = "1000-2000 rw-s 0 0:0 5 /dev/shm/pool.7\n2000-5000 rw-s 1000 0:0 5 /dev/shm/pool.7 (deleted)\n\
                    6000-7000 rw-p 0 0:0 0 [heap]\n8000-a000 rw-p 0 0:0 0\n20000-90000 rw-p 0 0:0 0\n";
        let mappings = parse_maps(maps).unwrap();
        let named = |rule: &str| {
            let named = regions(&format!("[[region]]\nname = \"a\"\n{rule}")).named(&mappings);
            named.into_iter().map(|one| one.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(named("mapping = '/dev/shm/pool.*'"), ["1000-5000 a"]);
        assert_eq!(named("mapping = 'pool.7'\noffset = '4K'\nbytes = 4096"), ["2000-3000 a"]);
        assert_eq!(named("mapping = '[[]heap]'"), ["6000-7000 a"]);
        assert_eq!(named("mapping = ''\nat_least = '64 KiB'"), ["20000-90000 a"]);
        assert_eq!(named("mapping = 'pool.?'\noffset = '1G'"), [""; 0]);
        assert_eq!(named("mapping = 'none'"), [""; 0]);
    }

    #[test]
    fn rules_that_match_nothing_are_noted() {
        let mappings = parse_maps("1000-2000 rw-p 0 0:0 0 [heap]\n").unwrap();
        let rule = |name: &str, mapping: &str| format!("[[region]]\nname = '{name}'\nmapping = '{mapping}'\n");
        let mut regions = regions(&(rule("a", "[[]heap]") + &rule("b", "nosuch")));
        let unmatched = |regions: &Regions| regions.unmatched().map(|rule| rule.name.clone()).collect::<Vec<_>>();
        assert_eq!(unmatched(&regions), ["a", "b"]);
        regions.by_rules(&mappings);
        regions.by_rules(&[]);
        assert_eq!(unmatched(&regions), ["b"]);
        let notes = RegionWatcher::new(regions, true).notes();
        assert!(notes.len() == 1 && notes[0].starts_with("the rule b of --regions named nothing: "), "{notes:?}");
    }

    #[test]
    fn variables_and_given_names_of_a_live_process_are_found() {
        let start = TABLE.as_ptr().addr() as u64;
        let given = GivenRegion::new(&(0x1000..0x1001), "given").unwrap();
        let mappings = Process::open(Pid(std::process::id())).unwrap().mappings().unwrap();
        let named = regions("[[region]]\nname = 'table'\nvariable = 'observe::regions::tests::TABLE'").named(&mappings);
        assert!(named.contains(&NamedRange { range: start..start + 8000, name: "table".to_owned() }), "{named:x?}");
        assert!(named.contains(&NamedRange { range: 0x1000..0x1001, name: "given".to_owned() }), "{named:x?}");
        drop(given);
    }
}
