//! A file that names ranges of programs.

use glob::Pattern;
use linux::MOST_REGION_NAME_BYTES;
use machine::{Mistake, Violation, bounded, read_checked, size};
use serde::{Deserialize, Deserializer};
use std::io;
use std::path::{Path, PathBuf};

/// Maximum length of such a file, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// A file that names ranges of programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegionRules {
    /// The ranges.
    pub region: Vec<RegionRule>,
}

/// How a range is found in a process. Several mappings may have one name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionRule {
    /// Its name.
    pub name: String,
    /// Which mappings: by their name in /proc/PID/maps or its last part, with `*`, `?` and `[…]` as in a shell; the empty
    /// text for memory without a name. With a variable: which files.
    #[serde(default)]
    pub mapping: Option<String>,
    /// A variable of the program or one of its libraries: its addresses.
    #[serde(default)]
    pub variable: Option<String>,
    /// The smallest size in bytes; adjacent mappings count as one.
    #[serde(default, deserialize_with = "size::deserialize")]
    pub at_least: u64,
    /// Where it begins in the mapping or variable, in bytes.
    #[serde(default, deserialize_with = "size::deserialize")]
    pub offset: u64,
    /// Its size in bytes; without it, to the end.
    #[serde(default, deserialize_with = "some_size")]
    pub bytes: Option<u64>,
}

fn some_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    size::deserialize(deserializer).map(Some)
}

/// Why names cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegionsError {
    /// The file cannot be read.
    #[error("cannot read the names of ranges in {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// It has mistakes, one per line.
    #[error("{0}")]
    Mistakes(String),
}

impl RegionRules {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, RegionsError> {
        let failed = |source| RegionsError::Read { path: path.to_owned(), source };
        let bytes = bounded::bytes(path, MOST_BYTES).map_err(failed)?;
        let invalid = |error| failed(io::Error::new(io::ErrorKind::InvalidData, error));
        Self::parse(&String::from_utf8(bytes).map_err(invalid)?, path)
    }

    /// Parses and checks a text. `file_name` is for errors only.
    pub fn parse(text: &str, file_name: &Path) -> Result<Self, RegionsError> {
        let in_lines = |mistakes: Vec<Mistake>| {
            let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            RegionsError::Mistakes(lines.join("\n"))
        };
        read_checked(text, file_name, Self::violations).map_err(in_lines)
    }

    fn violations(&self) -> Vec<Violation> {
        let of = |(index, rule): (usize, &RegionRule)| {
            let found = rule.violation()?;
            Some(Violation { field: format!("region[{index}].{}", found.0), rule: found.1 })
        };
        self.region.iter().enumerate().filter_map(of).collect()
    }
}

impl RegionRule {
    fn violation(&self) -> Option<(&'static str, String)> {
        if !(1..=MOST_REGION_NAME_BYTES).contains(&self.name.len()) || self.name.contains(['=', ',']) {
            return Some(("name", "a name has 1 to 190 bytes, and neither `=` nor `,`".to_owned()));
        }
        if self.mapping.is_none() && self.variable.is_none() {
            return Some(("name", "`mapping` or `variable` says where it is".to_owned()));
        }
        let wrong = self.mapping.as_deref().and_then(|text| Pattern::new(text).err());
        wrong.map(|error| ("mapping", format!("this is no pattern: {}", error.msg)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<RegionRules, String> {
        RegionRules::parse(text, Path::new("names.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn mistakes_are_named_with_their_lines() {
        let mistake = |text: &str| parse(text).unwrap_err();
        assert_eq!(parse("").unwrap(), RegionRules::default());
        for (text, line) in [
            ("[[region]]\nmapping = 'a'", "names.toml:1"),
            ("[[region]]\nname = ''\nmapping = 'a'", "names.toml:2: region[0].name: a name has 1 to 190 bytes"),
            ("[[region]]\nname = 'a'", "names.toml:2: region[0].name: `mapping` or `variable` says where it is"),
            ("[[region]]\nname = 'a'\nmapping = '[a'", "names.toml:3: region[0].mapping: this is no pattern"),
            ("[[region]]\nname = 'a'\nmapping = 'b'\nat_least = '4X'", "names.toml:4"),
            ("[[region]]\nname = 'a'\nmaping = 'b'", "names.toml:3"),
        ] {
            assert!(mistake(text).starts_with(line), "{text}: {}", mistake(text));
        }
    }

    #[test]
    fn files_that_do_not_end_are_refused() {
        let error = RegionRules::load(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.to_string(), "cannot read the names of ranges in /dev/zero");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
            let _ = parse(&text);
            let _ = parse(&format!("[[region]]\nname = 'a'\nmapping = '{text}'"));
        }
    }
}
