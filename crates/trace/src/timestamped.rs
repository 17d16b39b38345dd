//! Types with a timestamp.

use crate::{Event, Sample};

/// A type with a timestamp.
pub(crate) trait Timestamped {
    fn time_ns(&self) -> u64;
}

impl Timestamped for Sample {
    fn time_ns(&self) -> u64 {
        self.time_ns
    }
}

impl Timestamped for Event {
    fn time_ns(&self) -> u64 {
        self.time_ns
    }
}
