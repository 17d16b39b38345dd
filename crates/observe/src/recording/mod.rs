//! Recordings: all sources, drained into a trace.

pub(crate) mod open_sources;
pub(crate) mod processes;
pub(crate) mod recorder;
mod uninstrumented;
