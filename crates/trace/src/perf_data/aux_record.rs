//! `PERF_RECORD_AUX`: the processor has written data of its own format. Numbers are those of the kernel's
//! `include/uapi/linux/perf_event.h`.

use super::bytes::Bytes;

/// The type of such records, since Linux 4.1.
pub(crate) const AUX: u32 = 11;

const TRUNCATED: u64 = 1 << 0;
const PARTIAL: u64 = 1 << 2;
const COLLISION: u64 = 1 << 3;

/// Data that were handed over at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuxRecord {
    /// Where they begin, of all that was ever written.
    pub offset: u64,
    flags: u64,
}

impl AuxRecord {
    pub fn parse(body: Bytes<'_>) -> Option<Self> {
        let mut from = body;
        let (offset, _bytes, flags) = (from.u64()?, from.u64()?, from.u64()?);
        Some(Self { offset, flags })
    }

    /// There was no room for more: sampling has stopped, until it is switched on again.
    pub fn is_truncated(self) -> bool {
        self.flags & TRUNCATED != 0
    }

    /// The last record is not whole.
    pub fn is_partial(self) -> bool {
        self.flags & PARTIAL != 0
    }

    /// Some samples were not taken, as the ones before them were not done.
    pub fn has_collisions(self) -> bool {
        self.flags & COLLISION != 0
    }
}
