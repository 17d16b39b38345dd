//! Observation without a trace, interval by interval.

mod live_set;
pub(crate) mod observer;
