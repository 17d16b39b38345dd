//! The lab's control words, as root's programs in its guest see them.

use linux::{SharedWords, pci_memory};
use machine::Machine;
use model::control_block::{self, ControlBlock};
use model::{ControlHardware, Controls, pmu};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::OnceLock;

/// Beginning of the names of control words. They are named as files are, so that the journal has them as it has files:
/// `cpu-7/class`, `class-1/ways-0` and `class-1/limit-0`.
pub(crate) const WORDS: &str = "/lab-control/";
/// The value of a limit that is none.
const NO_LIMIT: &str = "max";

/// The device with the control words.
#[derive(Debug)]
pub(crate) struct LabControl {
    words: SharedWords,
    /// Locked by the one that changes words.
    file: File,
    pub hardware: ControlHardware,
}

/// A control word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LabWord {
    /// The class of a CPU.
    Class { cpu: usize },
    /// The ways of a cache that a class fills.
    Ways { class: usize, cache: usize },
    /// The limit of each CPU of a class that has this cache.
    Limit { class: usize, cache: usize },
}

impl LabControl {
    /// The device of this machine, where it is a virtual machine of the lab with control hardware. Needs root.
    pub(crate) fn find() -> io::Result<Option<&'static Self>> {
        static FOUND: OnceLock<Option<LabControl>> = OnceLock::new();
        if FOUND.get().is_none() {
            let found = Self::open()?;
            return Ok(FOUND.get_or_init(|| found).as_ref());
        }
        Ok(FOUND.get().and_then(Option::as_ref))
    }

    fn open() -> io::Result<Option<Self>> {
        let path = Path::new(pmu::MACHINE_FILE);
        if !path.exists() {
            return Ok(None);
        }
        let machine = Machine::load(path).map_err(io::Error::other)?;
        let Some(hardware) = ControlHardware::of(&machine) else { return Ok(None) };
        let bytes = control_block::BYTES;
        let memory = pci_memory(Path::new("/sys"), pmu::PCI_IDS, pmu::PCI_RESOURCE, bytes as u64);
        let Some(memory) = memory else { return Ok(None) };
        let file = File::options().read(true).write(true).open(&memory)?;
        Ok(Some(Self { words: SharedWords::map(&file, bytes)?, file, hardware }))
    }

    fn block(&self) -> io::Result<ControlBlock<'_>> {
        ControlBlock::open(&self.words, &self.hardware).map_err(io::Error::other)
    }

    /// All words.
    pub(crate) fn controls(&self) -> io::Result<Controls> {
        Ok(self.block()?.controls(&self.hardware))
    }

    /// The text of a word.
    pub(crate) fn value(&self, word: LabWord) -> io::Result<String> {
        word.text(&self.controls()?).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The text that a word has before any grant. What it has now may be another process's.
    pub(crate) fn original(&self, word: LabWord) -> io::Result<String> {
        word.text(&self.hardware.at_start()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Changes a word. The hardware obeys before this returns.
    pub(crate) fn set(&self, word: LabWord, text: &str) -> io::Result<()> {
        if !word.can_be(text) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let block = self.block()?;
        flock(&self.file, FlockOperation::LockExclusive)?;
        let changed = block.change(&self.hardware, |controls| {
            let _ = word.write(controls, text);
        });
        flock(&self.file, FlockOperation::Unlock)?;
        changed.map_err(io::Error::other)
    }
}

impl LabWord {
    /// The word with this name, which begins with [`WORDS`].
    pub(crate) fn named(path: &Path) -> Option<Self> {
        let (first, second) = path.to_str()?.strip_prefix(WORDS)?.split_once('/')?;
        if let Some(cpu) = first.strip_prefix("cpu-") {
            return (second == "class").then_some(Self::Class { cpu: number(cpu)? });
        }
        let class = number(first.strip_prefix("class-")?)?;
        match second.split_once('-')? {
            ("ways", cache) => Some(Self::Ways { class, cache: number(cache)? }),
            ("limit", cache) => Some(Self::Limit { class, cache: number(cache)? }),
            _ => None,
        }
    }

    /// Its name.
    pub(crate) fn path(self) -> std::path::PathBuf {
        match self {
            Self::Class { cpu } => format!("{WORDS}cpu-{cpu}/class"),
            Self::Ways { class, cache } => format!("{WORDS}class-{class}/ways-{cache}"),
            Self::Limit { class, cache } => format!("{WORDS}class-{class}/limit-{cache}"),
        }
        .into()
    }

    /// Its text among all words, if the hardware has it.
    pub(crate) fn text(self, controls: &Controls) -> Option<String> {
        let share = |class: usize, cache: usize| controls.shares.get(class)?.get(cache);
        match self {
            Self::Class { cpu } => controls.classes.get(cpu).map(u64::to_string),
            Self::Ways { class, cache } => share(class, cache).map(|share| ways_text(share.ways)),
            Self::Limit { class, cache } => share(class, cache).map(|share| limit_text(share.bytes_per_s)),
        }
    }

    /// Changes it among all words. None if it cannot have this text, or the hardware has no such word.
    pub(crate) fn write(self, controls: &mut Controls, text: &str) -> Option<()> {
        let value = parse(self, text)?;
        *match self {
            Self::Class { cpu } => controls.classes.get_mut(cpu)?,
            Self::Ways { class, cache } => &mut controls.share_mut(class, cache)?.ways,
            Self::Limit { class, cache } => &mut controls.share_mut(class, cache)?.bytes_per_s,
        } = value;
        Some(())
    }

    /// Whether this text can be its value.
    pub(crate) fn can_be(self, text: &str) -> bool {
        parse(self, text).is_some()
    }
}

pub(crate) fn ways_text(mask: u64) -> String {
    format!("{mask:#x}")
}

pub(crate) fn limit_text(bytes_per_s: u64) -> String {
    if bytes_per_s == 0 { NO_LIMIT.to_owned() } else { bytes_per_s.to_string() }
}

fn parse(word: LabWord, text: &str) -> Option<u64> {
    match word {
        LabWord::Ways { .. } => u64::from_str_radix(text.strip_prefix("0x")?, 16).ok(),
        LabWord::Limit { .. } if text == NO_LIMIT => Some(0),
        LabWord::Class { .. } | LabWord::Limit { .. } => number(text),
    }
}

/// A number in digits alone.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;
    use proptest::prelude::*;

    #[test]
    fn words_have_names_and_texts() {
        for (word, name, value, text) in [
            (LabWord::Class { cpu: 7 }, "/lab-control/cpu-7/class", 3, "3"),
            (LabWord::Ways { class: 1, cache: 2 }, "/lab-control/class-1/ways-2", 0xff, "0xff"),
            (LabWord::Limit { class: 0, cache: 7 }, "/lab-control/class-0/limit-7", 125_000_000, "125000000"),
            (LabWord::Limit { class: 0, cache: 0 }, "/lab-control/class-0/limit-0", 0, "max"),
        ] {
            assert_eq!((word.path(), LabWord::named(Path::new(name))), (name.into(), Some(word)));
            assert_eq!(parse(word, text), Some(value));
        }
        assert_eq!((ways_text(0xff), limit_text(0), limit_text(64)), ("0xff".into(), "max".into(), "64".into()));
        for name in ["cpu-7/clas", "cpu-+7/class", "cpu-/class", "class-1/ways", "class-1/ways-1/..", "class-1/x-1", ""]
        {
            assert_eq!(LabWord::named(&Path::new(WORDS).join(name)), None, "{name}");
        }
        assert!(!LabWord::Ways { class: 0, cache: 0 }.can_be("ff") && !LabWord::Class { cpu: 0 }.can_be("-1"));
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        let hardware = ControlHardware::of(&presets::find("magny-cours-4p-control").unwrap()).unwrap();
        let mut controls = hardware.at_start();
        for (word, at_start, text) in [
            (LabWord::Class { cpu: 7 }, "0", "3"),
            (LabWord::Ways { class: 0, cache: 2 }, "0xffffffffff", "0xff"),
            (LabWord::Limit { class: 0, cache: 7 }, "max", "125000000"),
        ] {
            assert_eq!(word.text(&controls).unwrap(), at_start);
            assert_eq!(word.write(&mut controls, text), Some(()));
            assert_eq!(word.text(&controls).unwrap(), text);
        }
        let none = LabWord::Class { cpu: 48 };
        assert!(none.text(&controls).is_none() && none.write(&mut controls, "1").is_none());
    }

    proptest! {
        #[test]
        fn any_name_and_text_is_a_word_or_none(name in "(cpu|class)-[0-9]{0,25}/(class|ways|limit)?-?[0-9]{0,25}|.*", text in ".*") {
            if let Some(word) = LabWord::named(Path::new(&format!("{WORDS}{name}"))) {
                prop_assert_eq!(LabWord::named(&word.path()), Some(word));
                word.can_be(&text);
            }
        }
    }
}
