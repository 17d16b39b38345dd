//! `PERF_RECORD_AUX`: the processor has written data in its own format. Constants from the kernel's
//! `include/uapi/linux/perf_event.h`.

use crate::bytes::Bytes;

const TRUNCATED: u64 = 1 << 0;
const PARTIAL: u64 = 1 << 2;
const COLLISION: u64 = 1 << 3;

/// Data that were handed over at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxRecord {
    /// Their offset in everything written so far.
    pub offset: u64,
    flags: u64,
}

impl AuxRecord {
    /// Parses the body of a record. `None` if it is too short.
    pub fn parse(body: Bytes<'_>) -> Option<Self> {
        let mut from = body;
        let (offset, _bytes, flags) = (from.u64()?, from.u64()?, from.u64()?);
        Some(Self { offset, flags })
    }

    /// Whether the buffer was full: sampling has stopped until it is enabled again.
    pub fn is_truncated(self) -> bool {
        self.flags & TRUNCATED != 0
    }

    /// Whether the last record is incomplete.
    pub fn is_partial(self) -> bool {
        self.flags & PARTIAL != 0
    }

    /// Whether samples were skipped because earlier ones were not finished.
    pub fn has_collisions(self) -> bool {
        self.flags & COLLISION != 0
    }
}
