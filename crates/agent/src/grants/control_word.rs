//! Control words: the settings of control hardware, by whatever interface it is reached. They are named as files are, so
//! that the journal has them as it has files: `cpu-7/class`, `class-1/ways-0` and `class-1/limit-0` below the name of the
//! interface.

use super::offer::Offer;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The value of a limit that is none.
pub(crate) const NO_LIMIT: &str = "max";

/// How control hardware is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interface {
    /// By words in memory that the lab's plugin obeys.
    Lab,
    /// By the kernel's file system.
    Resctrl,
}

/// A control word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ControlWord {
    /// The class of a CPU.
    Class { cpu: usize },
    /// The ways of a cache that a class fills.
    Ways { class: usize, cache: usize },
    /// The limit of a class for the CPUs that have this cache, in the hardware's unit.
    Limit { class: usize, cache: usize },
}

impl Interface {
    const ALL: [Self; 2] = [Self::Lab, Self::Resctrl];

    /// Beginning of the names of its words.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Lab => "/lab-control/",
            Self::Resctrl => "/resctrl/",
        }
    }
}

impl ControlWord {
    /// The word with this name, which begins with its interface's.
    pub(crate) fn named(path: &Path) -> Option<(Interface, Self)> {
        let path = path.to_str()?;
        let has_prefix = |interface: Interface| Some((interface, path.strip_prefix(interface.prefix())?));
        let (interface, name) = Interface::ALL.into_iter().find_map(has_prefix)?;
        let (first, second) = name.split_once('/')?;
        if let Some(cpu) = first.strip_prefix("cpu-") {
            let cpu = number(cpu).filter(|_| second == "class")?;
            return Some((interface, Self::Class { cpu }));
        }
        let class = number(first.strip_prefix("class-")?)?;
        match second.split_once('-')? {
            ("ways", cache) => Some((interface, Self::Ways { class, cache: number(cache)? })),
            ("limit", cache) => Some((interface, Self::Limit { class, cache: number(cache)? })),
            _ => None,
        }
    }

    /// Its name.
    pub(crate) fn path(self, interface: Interface) -> PathBuf {
        let prefix = interface.prefix();
        match self {
            Self::Class { cpu } => format!("{prefix}cpu-{cpu}/class"),
            Self::Ways { class, cache } => format!("{prefix}class-{class}/ways-{cache}"),
            Self::Limit { class, cache } => format!("{prefix}class-{class}/limit-{cache}"),
        }
        .into()
    }

    /// What it has before any grant; none if the hardware has no such word.
    pub(crate) fn at_start(self, offer: &Offer) -> Option<String> {
        let exists = |class: usize, cache: usize| class < offer.classes as usize && cache < offer.caches.len();
        match self {
            Self::Class { cpu } => offer.cache_of(cpu).map(|_| "0".to_owned()),
            Self::Ways { class, cache } => offer.ways.filter(|_| exists(class, cache)).map(|ways| ways_text(ways.all)),
            Self::Limit { class, cache } => offer.limits.filter(|_| exists(class, cache)).map(|_| NO_LIMIT.to_owned()),
        }
    }

    /// The number that a text of it means: the class, the mask, or the limit, which is 0 for none.
    pub(crate) fn parse(self, text: &str) -> Option<u64> {
        match self {
            Self::Ways { .. } => u64::from_str_radix(text.strip_prefix("0x")?, 16).ok(),
            Self::Limit { .. } if text == NO_LIMIT => Some(0),
            Self::Class { .. } | Self::Limit { .. } => number(text),
        }
    }
}

pub(crate) fn ways_text(mask: u64) -> String {
    format!("{mask:#x}")
}

pub(crate) fn limit_text(limit: u64) -> String {
    if limit == 0 { NO_LIMIT.to_owned() } else { limit.to_string() }
}

/// A number in digits alone.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_have_names_and_texts() {
        for (word, name, value, text) in [
            (ControlWord::Class { cpu: 7 }, "cpu-7/class", 3, "3"),
            (ControlWord::Ways { class: 1, cache: 2 }, "class-1/ways-2", 0xff, "0xff"),
            (ControlWord::Limit { class: 0, cache: 7 }, "class-0/limit-7", 125_000_000, "125000000"),
            (ControlWord::Limit { class: 0, cache: 0 }, "class-0/limit-0", 0, "max"),
        ] {
            for interface in Interface::ALL {
                let path = PathBuf::from(format!("{}{name}", interface.prefix()));
                assert_eq!((word.path(interface), ControlWord::named(&path)), (path.clone(), Some((interface, word))));
            }
            assert_eq!(word.parse(text), Some(value));
        }
        assert_eq!((ways_text(0xff), limit_text(0), limit_text(64)), ("0xff".into(), "max".into(), "64".into()));
        for name in ["cpu-7/clas", "cpu-+7/class", "cpu-/class", "class-1/ways", "class-1/ways-1/..", "class-1/x-1", ""]
        {
            assert_eq!(ControlWord::named(&Path::new(Interface::Lab.prefix()).join(name)), None, "{name}");
        }
        assert_eq!(ControlWord::Ways { class: 0, cache: 0 }.parse("ff"), None);
        assert_eq!(ControlWord::Class { cpu: 0 }.parse("-1"), None);
    }

    proptest! {
        #[test]
        fn any_name_and_text_is_a_word_or_none(name in "(cpu|class)-[0-9]{0,25}/(class|ways|limit)?-?[0-9]{0,25}|.*", text in ".*") {
            for interface in Interface::ALL {
                if let Some((found, word)) = ControlWord::named(Path::new(&format!("{}{name}", interface.prefix()))) {
                    prop_assert_eq!(ControlWord::named(&word.path(interface)), Some((found, word)));
                    word.parse(&text);
                }
            }
        }
    }
}
