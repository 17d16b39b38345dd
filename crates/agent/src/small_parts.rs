//! Keeps parts of a program's objects on small pages from their allocation on, through the library in it: the program gets
//! the rules in a file, and counts there what it does.

use machine::HUGE_PAGE;
use rings::{
    CountedFrom, HEADER_WORDS, ObjectKey, RULE_WORDS, SMALL_PARTS_VARIABLE, SmallPart, TOO_MANY_MARKS, small_part,
    small_parts_file,
};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Most borders of all objects together: each is at most three mappings more, of which Linux allows 65,530 a process.
const MOST_BORDERS: usize = 10_000;

/// An object of a recorded program, as another run of it knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KnownBy {
    /// By the code that allocates it.
    Site {
        /// Build ID of the file with that code.
        build_id: Vec<u8>,
        /// Offsets of return addresses in the file, innermost first.
        offsets: Vec<u64>,
        /// Frames of the chain, of all files.
        frames: u64,
    },
    /// By the path of the mapped file, or the name that the program gave its range.
    Name(String),
}

/// Objects with the same rules.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    known_by: KnownBy,
    bytes: u64,
    /// Their recorded address within a huge page.
    alignment: u64,
    from: u64,
}

impl Kind {
    fn rule<'a>(&self, borders: &'a [u64]) -> SmallPart<'a> {
        let (key, file, frames) = match &self.known_by {
            KnownBy::Site { build_id, offsets, frames } => {
                let key = offsets.iter().fold(ObjectKey::SITE, |key, offset| key.with_frame(*offset));
                (key, ObjectKey::of_build(build_id), *frames)
            }
            KnownBy::Name(name) => (ObjectKey::of_name(name.as_bytes()), 0, 0),
        };
        let from = CountedFrom::of_word(self.from);
        SmallPart { key, file, frames, bytes: self.bytes, start: self.alignment, from, borders }
    }
}

/// Objects and the offsets where they need small pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmallParts {
    objects: BTreeMap<Kind, Vec<u64>>,
}

/// What programs did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmallPartCounts {
    /// Objects of the recording that were not allocated.
    pub unmet: u64,
    /// Objects that were: each time the code allocated one.
    pub met: u64,
    /// Huge pages' worth of memory that is kept on small pages.
    pub kept: u64,
    /// Ranges that the kernel refused to keep so, by its answer.
    pub refused: BTreeMap<String, u64>,
}

impl SmallParts {
    /// Adds an object with the offsets where its users change. Objects of the same code and size
    /// are not distinguished: each gets the borders of all. Returns whether there is room for it.
    pub fn add(&mut self, known_by: KnownBy, object: &Range<u64>, from: CountedFrom, borders: &[u64]) -> bool {
        let all: usize = self.objects.values().map(Vec::len).sum();
        if all + borders.len() > MOST_BORDERS {
            return false;
        }
        let (bytes, alignment) = (object.end - object.start, object.start % HUGE_PAGE);
        let of = self.objects.entry(Kind { known_by, bytes, alignment, from: from as u64 }).or_default();
        of.extend(borders);
        of.sort_unstable();
        of.dedup();
        true
    }

    /// Number of objects, where those of the same code, size and alignment are one.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Writes the rules into a folder that only its user can enter.
    pub fn write(&self, folder: &Path) -> io::Result<SmallPartsFile> {
        let rules: Vec<SmallPart<'_>> = self.objects.iter().map(|(kind, borders)| kind.rule(borders)).collect();
        let path = folder.join("small-parts");
        let bytes: Vec<u8> = small_parts_file(&rules).flat_map(u64::to_ne_bytes).collect();
        fs::write(&path, bytes)?;
        Ok(SmallPartsFile { path, rules: rules.len() })
    }
}

/// The rules of running programs.
#[derive(Debug)]
pub struct SmallPartsFile {
    path: PathBuf,
    rules: usize,
}

impl SmallPartsFile {
    /// The environment variable that names it to programs.
    pub fn variable(&self) -> (&'static str, &Path) {
        (SMALL_PARTS_VARIABLE, &self.path)
    }

    /// What programs did so far.
    pub fn counts(&self) -> io::Result<SmallPartCounts> {
        // The programs may write to it: only what it began with is read.
        let most = (HEADER_WORDS + self.rules * RULE_WORDS) * size_of::<u64>();
        let mut bytes = Vec::new();
        fs::File::open(&self.path)?.take(most as u64).read_to_end(&mut bytes)?;
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let mut counts = SmallPartCounts::default();
        let rules = words.get(HEADER_WORDS..).unwrap_or_default().chunks_exact(RULE_WORDS).take(self.rules);
        for rule in rules {
            counts.unmet += u64::from(rule[small_part::MET] == 0);
            counts.met = counts.met.saturating_add(rule[small_part::MET]);
            counts.kept = counts.kept.saturating_add(rule[small_part::KEPT]);
            if rule[small_part::REFUSED] > 0 {
                let why = match rule[small_part::ERRNO] {
                    TOO_MANY_MARKS => {
                        "a process has more than 40,000 mappings, and more such ranges would use up those that Linux allows"
                            .to_owned()
                    }
                    errno => io::Error::from_raw_os_error(errno as i32).to_string(),
                };
                let refused: &mut u64 = counts.refused.entry(why).or_default();
                *refused = refused.saturating_add(rule[small_part::REFUSED]);
            }
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_one_site_and_size_are_one_and_programs_count_in_the_file() {
        let site = |offset| KnownBy::Site { build_id: vec![7], offsets: vec![offset], frames: 3 };
        let mut parts = SmallParts::default();
        assert!(parts.is_empty());
        let at = |start: u64| start..start + (8 << 20);
        let from = CountedFrom::Start;
        assert!(parts.add(site(1), &at(0x20_0000), from, &[0x1000, 0x9000]));
        assert!(parts.add(site(1), &at(0x80_0000), from, &[0x3000, 0x9000]));
        assert!(parts.add(KnownBy::Name("table".into()), &at(0x20_0000), from, &[0x1000]));
        assert!(!parts.add(site(2), &at(0), from, &vec![0; MOST_BORDERS]));
        let borders: Vec<&Vec<u64>> = parts.objects.values().collect();
        assert_eq!((parts.len(), borders), (2, vec![&vec![0x1000, 0x3000, 0x9000], &vec![0x1000]]));
        let folder = tempfile::tempdir().unwrap();
        let file = parts.write(folder.path()).unwrap();
        assert_eq!(file.counts().unwrap(), SmallPartCounts { unmet: 2, ..SmallPartCounts::default() });
        // As a program does.
        let mut words = fs::read(file.variable().1).unwrap();
        for (place, count) in
            [(small_part::MET, 2), (small_part::KEPT, 5), (small_part::REFUSED, 1), (small_part::ERRNO, 22)]
        {
            words[8 * (HEADER_WORDS + place)] = count;
        }
        fs::write(file.variable().1, words).unwrap();
        let counts = file.counts().unwrap();
        assert_eq!((counts.unmet, counts.met, counts.kept), (1, 2, 5));
        assert_eq!(counts.refused.into_iter().next().unwrap(), ("Invalid argument (os error 22)".to_owned(), 1));
    }
}
