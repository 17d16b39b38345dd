//! What a recorder shares with the kernel and the processor: rings, clocks, words of memory.

pub(crate) mod aux_area;
pub(crate) mod clock;
pub(crate) mod file_words;
pub(crate) mod perf_ring;
pub(crate) mod shared_words;
