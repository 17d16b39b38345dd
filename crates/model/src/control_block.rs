//! The control words: memory that the guest's root writes and the lab's plugin obeys, beside the virtual PMU, which
//! belongs to the command's user.
//!
//! All of it is atomic words, since each side may write at any time. The plugin trusts none of them: it checks a copy, and
//! goes on with the former controls if the hardware would not accept it.

use crate::controls::{ControlHardware, Controls, Share, Unacceptable};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

/// Size in bytes: a power of two, as PCI requires. By its size the guest tells it from the virtual PMU.
pub const BYTES: usize = 128 << 10;
/// Most CPUs and L3 caches, as of QEMU's PC.
pub const MOST_CPUS: usize = 256;
const MOST_CACHES: usize = 256;
const MOST_CLASSES: usize = 16;

const MAGIC: u64 = u64::from_le_bytes(*b"nearctrl");
const VERSION: u64 = 1;

mod word {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    /// Twice the number of changes: odd while words are being changed.
    pub const CHANGES: usize = 2;
    /// The value of `CHANGES` that the plugin has answered last.
    pub const ANSWERED: usize = 3;
    /// The first word that was not accepted; 0 if all were.
    pub const REFUSED: usize = 4;
    pub const CLASSES: usize = 64;
    pub const SHARES: usize = CLASSES + super::MOST_CPUS;
    pub const END: usize = SHARES + super::MOST_CLASSES * super::MOST_CACHES * 2;
}
const _: () = assert!(word::END * 8 <= BYTES);

/// A view of the control words.
#[derive(Clone, Copy, Debug)]
pub struct ControlBlock<'a> {
    words: &'a [AtomicU64],
}

/// Why controls cannot be used or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The memory has no control words of this version.
    #[error("no control words found: {0}")]
    Foreign(String),
    /// The machine is too large for them.
    #[error("control words are for at most {MOST_CPUS} CPUs, {MOST_CACHES} L3 caches and {MOST_CLASSES} classes")]
    TooLarge,
    /// The hardware does not accept a value.
    #[error("the control hardware does not accept {0}")]
    Refused(String),
    /// The plugin has not answered: it answers while the lab measures.
    #[error("the lab has not answered a change of control words: it is not measuring")]
    NoAnswer,
}

impl<'a> ControlBlock<'a> {
    /// Creates control words in zeroed memory, as the hardware is at the start.
    pub fn create(words: &'a [AtomicU64], hardware: &ControlHardware) -> Result<Self, ControlError> {
        let block = Self::sized(words, hardware)?;
        block.write(&hardware.at_start());
        words[word::VERSION].store(VERSION, Relaxed);
        words[word::MAGIC].store(MAGIC, Release);
        Ok(block)
    }

    /// Opens control words that another side has created.
    pub fn open(words: &'a [AtomicU64], hardware: &ControlHardware) -> Result<Self, ControlError> {
        let block = Self::sized(words, hardware)?;
        if words[word::MAGIC].load(Acquire) != MAGIC {
            return Err(ControlError::Foreign("the first word is not the magic number".to_owned()));
        }
        match words[word::VERSION].load(Relaxed) {
            VERSION => Ok(block),
            other => Err(ControlError::Foreign(format!("they have version {other}, this program supports {VERSION}"))),
        }
    }

    fn sized(words: &'a [AtomicU64], hardware: &ControlHardware) -> Result<Self, ControlError> {
        if words.len() * 8 < BYTES {
            return Err(ControlError::Foreign(format!("{} bytes are too few, they have {BYTES}", words.len() * 8)));
        }
        let fits = hardware.cpus() <= MOST_CPUS
            && hardware.caches.len() <= MOST_CACHES
            && usize::from(hardware.classes) <= MOST_CLASSES;
        if fits { Ok(Self { words }) } else { Err(ControlError::TooLarge) }
    }

    fn share(class: usize, cache: usize) -> usize {
        word::SHARES + (class * MOST_CACHES + cache) * 2
    }

    fn write(&self, controls: &Controls) {
        for (cpu, &class) in controls.classes.iter().enumerate() {
            self.words[word::CLASSES + cpu].store(class, Relaxed);
        }
        for (class, shares) in controls.shares.iter().enumerate() {
            for (cache, share) in shares.iter().enumerate() {
                let at = Self::share(class, cache);
                self.words[at].store(share.ways, Relaxed);
                self.words[at + 1].store(share.bytes_per_s, Relaxed);
            }
        }
    }

    /// The words as they are, accepted or not.
    pub fn controls(&self, hardware: &ControlHardware) -> Controls {
        let get = |at: usize| self.words[at].load(Relaxed);
        let classes = (0..hardware.cpus()).map(|cpu| get(word::CLASSES + cpu)).collect();
        let share = |class, cache| {
            let at = Self::share(class, cache);
            Share { ways: get(at), bytes_per_s: get(at + 1) }
        };
        let shares = |class| (0..hardware.caches.len()).map(|cache| share(class, cache)).collect();
        Controls { classes, shares: (0..hardware.classes.into()).map(shares).collect() }
    }

    /// For the guest: changes the controls, which the plugin obeys before this returns. What it does not accept is taken
    /// back. One writer at a time: it holds a lock on the device's file.
    pub fn change(&self, hardware: &ControlHardware, change: impl FnOnce(&mut Controls)) -> Result<(), ControlError> {
        let before = self.controls(hardware);
        let mut after = before.clone();
        change(&mut after);
        let answer = self.commit(&after);
        if answer.is_err() {
            // The former controls were accepted.
            let _ = self.commit(&before);
        }
        answer
    }

    fn commit(&self, controls: &Controls) -> Result<(), ControlError> {
        // A killed writer may have left an odd number.
        let changes = self.words[word::CHANGES].load(Relaxed) & !1;
        self.words[word::CHANGES].store(changes.wrapping_add(1), Relaxed);
        fence(Release);
        self.write(controls);
        let done = changes.wrapping_add(2);
        self.words[word::CHANGES].store(done, Release);
        if self.words[word::ANSWERED].load(Acquire) != done {
            return Err(ControlError::NoAnswer);
        }
        match self.words[word::REFUSED].load(Relaxed) {
            0 => Ok(()),
            at => Err(ControlError::Refused(name_of(at as usize))),
        }
    }

    /// For the plugin: the number of the last change, if it is complete and not answered yet.
    pub fn unanswered(&self) -> Option<u64> {
        let changes = self.words[word::CHANGES].load(Acquire);
        (changes.is_multiple_of(2) && changes != self.words[word::ANSWERED].load(Relaxed)).then_some(changes)
    }

    /// For the plugin: answers a change, with what the model is to obey from now on. `None` if the words are not accepted,
    /// or are being changed again.
    pub fn answer(&self, change: u64, hardware: &ControlHardware) -> Option<Controls> {
        let controls = self.controls(hardware);
        fence(Acquire);
        if self.words[word::CHANGES].load(Relaxed) != change {
            return None;
        }
        let refused = hardware.unacceptable(&controls);
        self.words[word::REFUSED].store(refused.map_or(0, |refused| word_of(refused) as u64), Relaxed);
        self.words[word::ANSWERED].store(change, Release);
        refused.is_none().then_some(controls)
    }
}

fn word_of(refused: Unacceptable) -> usize {
    match refused {
        Unacceptable::Class(cpu) => word::CLASSES + cpu,
        Unacceptable::Ways(class, cache) => ControlBlock::share(class, cache),
        Unacceptable::Limit(class, cache) => ControlBlock::share(class, cache) + 1,
    }
}

/// What a word is, for messages. Any number may stand there.
fn name_of(at: usize) -> String {
    let Some(share) = at.checked_sub(word::SHARES) else {
        return format!("the class of CPU {}", at.saturating_sub(word::CLASSES));
    };
    let (class, cache) = (share / 2 / MOST_CACHES, share / 2 % MOST_CACHES);
    let what = if share.is_multiple_of(2) { "ways" } else { "limit" };
    format!("the {what} of class {class} and L3 cache {cache}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;
    use proptest::prelude::*;

    fn hardware() -> ControlHardware {
        ControlHardware::of(&presets::find("magny-cours-4p-control").unwrap()).unwrap()
    }

    fn memory() -> Vec<AtomicU64> {
        (0..BYTES / 8).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn what_the_guest_writes_is_what_the_plugin_reads() {
        let (words, hardware) = (memory(), hardware());
        assert!(matches!(ControlBlock::open(&words, &hardware), Err(ControlError::Foreign(_))));
        let plugin = ControlBlock::create(&words, &hardware).unwrap();
        let guest = ControlBlock::open(&words, &hardware).unwrap();
        assert_eq!((plugin.unanswered(), guest.controls(&hardware)), (None, hardware.at_start()));
        // Without an answer the words are as before.
        assert_eq!(guest.change(&hardware, |controls| controls.classes[3] = 1), Err(ControlError::NoAnswer));
        let change = plugin.unanswered().unwrap();
        assert_eq!(plugin.answer(change, &hardware), Some(hardware.at_start()));
        let mut wanted = hardware.at_start();
        wanted.classes[47] = 15;
        wanted.shares[15][7] = Share { ways: 0xff << 32, bytes_per_s: 125_000_000 };
        guest.write(&wanted);
        words[word::CHANGES].fetch_add(2, Relaxed);
        assert_eq!(plugin.answer(plugin.unanswered().unwrap(), &hardware), Some(wanted));
        assert_eq!(plugin.unanswered(), None);
    }

    #[test]
    fn what_the_hardware_lacks_is_refused_by_name() {
        let (words, hardware) = (memory(), hardware());
        let block = ControlBlock::create(&words, &hardware).unwrap();
        for (at, value, name) in [
            (word::CLASSES + 5, 16, "the class of CPU 5"),
            (ControlBlock::share(2, 7), 0, "the ways of class 2 and L3 cache 7"),
            (ControlBlock::share(0, 0), 1 << 40, "the ways of class 0 and L3 cache 0"),
            (ControlBlock::share(3, 1) + 1, 125_000_001, "the limit of class 3 and L3 cache 1"),
        ] {
            let before = words[at].swap(value, Relaxed);
            let change = words[word::CHANGES].fetch_add(2, Relaxed) + 2;
            assert_eq!(block.answer(change, &hardware), None, "{name}");
            assert_eq!(name_of(words[word::REFUSED].load(Relaxed) as usize), name);
            words[at].store(before, Relaxed);
        }
        // A machine without masks has none, and without limits no limit.
        let mut plain = hardware;
        (plain.ways, plain.step_bytes_per_s) = (None, None);
        assert_eq!(plain.unacceptable(&plain.at_start()), None);
        let mut limited = plain.at_start();
        limited.shares[0][0].bytes_per_s = 125_000_000;
        assert_eq!(plain.unacceptable(&limited), Some(Unacceptable::Limit(0, 0)));
    }

    proptest! {
        /// Whatever stands in the words: nothing panics, and only what the hardware accepts is obeyed.
        #[test]
        fn any_words_are_answered(
            changes in prop::collection::vec((0..word::END, any::<u64>(), 0..64_u32), 0..60),
        ) {
            let (words, hardware) = (memory(), hardware());
            let block = ControlBlock::create(&words, &hardware).unwrap();
            for (at, value, shift) in changes {
                words[at].store(value >> shift, Relaxed);
                if let Some(controls) = block.unanswered().and_then(|change| block.answer(change, &hardware)) {
                    prop_assert_eq!(hardware.unacceptable(&controls), None);
                }
                let _ = block.change(&hardware, |controls| controls.classes[0] = 1);
                name_of(value as usize);
            }
        }
    }
}
