//! Records of a ring: four words each. Some are followed by more words, in the place of further records.

/// Words per record.
pub const RECORD_WORDS: usize = 4;
/// Bytes per record.
pub const RECORD_BYTES: usize = 8 * RECORD_WORDS;
/// The CPU of an event whose CPU is unknown.
pub const NO_CPU: u32 = u32::MAX;
/// Maximum number of bits of a program's address. The bits above hold the kind.
const ADDRESS_BITS: u32 = 56;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// An object of `bytes` was allocated at `address`, by the chain in `slot`.
    Allocated = 1,
    /// The object at `address` was resized to `bytes`.
    Resized = 2,
    /// The object at `address` was freed.
    Freed = 3,
    /// The slot has a new chain: `bytes` return addresses, innermost first, in the records that follow.
    Chain = 4,
    /// The slot's chain allocated this many small objects (in the place of the address), of `bytes` in total, and
    /// restarts at 0.
    Small = 5,
    /// The records that follow are from thread `bytes`. `address` is 1 once the thread has ended except for its last
    /// frees.
    Thread = 6,
    /// The thread `bytes` ended.
    ThreadEnded = 7,
    /// `bytes` were mapped at `address`. Followed by a record with the file offset, [`mapped_flags`] and the length
    /// of the path in words, and by records with the path, padded with zeros.
    Mapped = 8,
    /// `bytes` at `address` were unmapped.
    Unmapped = 9,
    /// A mapping moved to `address`, with `bytes`, by the chain in `slot`. Followed by a record with the old address,
    /// the number of its bytes that are no longer mapped, and the earliest time of the move.
    Remapped = 10,
    /// The program announced an object of `bytes` at `address`, which may be inside of another, by the chain in `slot`.
    Announced = 11,
    /// The program announced the end of the object that it had announced at `address`.
    Withdrawn = 12,
    /// The program named `bytes` at `address`, by the chain in `slot`. Followed by a record with the length of the name
    /// in words, and by records with the name, padded with zeros. [`Kind::Withdrawn`] ends it.
    Region = 13,
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

/// The first four words of a record, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Time, in ticks of the clock in the settings.
    pub time: u64,
    /// Kind of the record.
    pub kind: Kind,
    /// Address; less than 2^56.
    pub address: u64,
    /// Size or number, depending on the kind.
    pub bytes: u64,
    /// Slot of the call chain.
    pub slot: u16,
    /// The CPU, or [`NO_CPU`].
    pub cpu: u32,
}

impl Head {
    /// Encodes the record.
    #[inline]
    pub const fn to_words(self) -> [u64; RECORD_WORDS] {
        let place = (self.kind as u64) << ADDRESS_BITS | self.address & ADDRESS;
        [self.time, place, self.bytes, (self.cpu as u64) << 32 | self.slot as u64]
    }

    /// Decodes a record. `None` if its kind is unknown.
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
            11 => Kind::Announced,
            12 => Kind::Withdrawn,
            13 => Kind::Region,
            _ => return None,
        };
        let (slot, cpu) = (cpu_and_slot as u16, (cpu_and_slot >> 32) as u32);
        Some(Self { time, kind, address: place & ADDRESS, bytes, slot, cpu })
    }
}

/// Number of records that hold this many words.
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
        fn what_is_written_is_read_back(kind in 1_u64..=13, time: u64, address in 0..=ADDRESS, bytes: u64, slot: u16, cpu: u32) {
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
