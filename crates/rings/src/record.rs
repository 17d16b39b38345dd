//! Records of a ring: four words each. Some have more behind them, in the place of further records.

/// Words of a record.
pub const RECORD_WORDS: usize = 4;
/// Bytes of a record.
pub const RECORD_BYTES: usize = 8 * RECORD_WORDS;
/// The CPU of an event whose CPU is not known.
pub const NO_CPU: u32 = u32::MAX;
/// Addresses of programs have no more bits: what is above is the kind.
const ADDRESS_BITS: u32 = 56;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// An object of `bytes` begins at `address`, by the chain in `slot`.
    Allocated = 1,
    /// The object at `address` has `bytes` now.
    Resized = 2,
    /// The object at `address` ends.
    Freed = 3,
    /// The slot has a new chain: `bytes` return addresses, innermost first, in the records behind this one.
    Chain = 4,
    /// The slot had so many small objects (in the place of the address) of `bytes` together, and begins at 0 again.
    Small = 5,
    /// What follows is of the thread `bytes`. `address` is 1 once it has ended but for its last frees.
    Thread = 6,
    /// The thread `bytes` ends.
    ThreadEnded = 7,
    /// `bytes` are mapped at `address`. Behind it a record with the offset in the file, [`mapped_flags`] and the words
    /// of the path, and the path, with zeroes at its end, in the records behind that.
    Mapped = 8,
    /// `bytes` at `address` are mapped no more.
    Unmapped = 9,
    /// What was mapped elsewhere is at `address` now, in `bytes`, by the chain in `slot`. Behind it a record with where it
    /// was, how much of that has no meaning any more, and when it was moved at the earliest.
    Remapped = 10,
}

/// Flags of [`Kind::Mapped`].
pub mod mapped_flags {
    /// Executable.
    pub const EXECUTABLE: u64 = 1;
    /// Part of a program or library, which has symbols.
    pub const BINARY: u64 = 2;
    /// An object of the program, with a call chain.
    pub const OBJECT: u64 = 4;
}

/// The first four words of what a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// When, in ticks of the clock of the settings.
    pub time: u64,
    /// What it says.
    pub kind: Kind,
    /// Where; less than 2^56.
    pub address: u64,
    /// How much, or how many, by kind.
    pub bytes: u64,
    /// The slot of the call chain.
    pub slot: u16,
    /// The CPU, or [`NO_CPU`].
    pub cpu: u32,
}

impl Head {
    /// As it is in the ring.
    #[inline]
    pub const fn to_words(self) -> [u64; RECORD_WORDS] {
        let place = (self.kind as u64) << ADDRESS_BITS | self.address & ADDRESS;
        [self.time, place, self.bytes, (self.cpu as u64) << 32 | self.slot as u64]
    }

    /// What the ring says; none if it is no kind of record.
    #[inline]
    pub const fn from_words(words: [u64; RECORD_WORDS]) -> Option<Self> {
        let [time, place, bytes, cpu_and_slot] = words;
        let kind = match place >> ADDRESS_BITS {
            1 => Kind::Allocated,
            2 => Kind::Resized,
            3 => Kind::Freed,
            4 => Kind::Chain,
            5 => Kind::Small,
            6 => Kind::Thread,
            7 => Kind::ThreadEnded,
            8 => Kind::Mapped,
            9 => Kind::Unmapped,
            10 => Kind::Remapped,
            _ => return None,
        };
        let (slot, cpu) = (cpu_and_slot as u16, (cpu_and_slot >> 32) as u32);
        Some(Self { time, kind, address: place & ADDRESS, bytes, slot, cpu })
    }
}

/// Records that so many words take.
#[inline]
pub const fn payload_records(words: usize) -> usize {
    words.div_ceil(RECORD_WORDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_words_are_a_record_or_none(words: [u64; RECORD_WORDS]) {
            if let Some(head) = Head::from_words(words) {
                let again = head.to_words();
                prop_assert_eq!(&again[..3], &words[..3]);
                prop_assert_eq!(Head::from_words(again), Some(head));
            }
        }

        #[test]
        fn what_is_written_is_read_back(kind in 1_u64..=10, time: u64, address in 0..=ADDRESS, bytes: u64, slot: u16, cpu: u32) {
            let kind = Head::from_words([0, kind << ADDRESS_BITS, 0, 0]).map(|head| head.kind);
            let head = Head { time, kind: kind.unwrap(), address, bytes, slot, cpu };
            prop_assert_eq!(Head::from_words(head.to_words()), Some(head));
        }
    }

    #[test]
    fn words_fill_records() {
        assert_eq!([0, 1, 4, 5].map(payload_records), [0, 1, 1, 2]);
    }
}
