//! Types with a time.

use crate::{Event, Sample};

/// A type with a time.
pub(crate) trait Timed {
    fn time_ns(&self) -> u64;
}

impl Timed for Sample {
    fn time_ns(&self) -> u64 {
        self.time_ns
    }
}

impl Timed for Event {
    fn time_ns(&self) -> u64 {
        self.time_ns
    }
}
