//! All integration tests of this crate: one binary, as each takes its time to link.

mod other_writers;
mod perf_data;
#[path = "../perf_file/mod.rs"]
mod perf_file;
mod spe;
mod storage;
mod symbols;
