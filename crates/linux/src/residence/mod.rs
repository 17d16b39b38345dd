//! Where the memory of a process is, page by page.

pub(crate) mod numa_maps;
pub(crate) mod page_flags;
pub(crate) mod page_walk;
pub(crate) mod pagemap;
pub(crate) mod present;
pub(crate) mod range_nodes;
pub(crate) mod residences;
pub(crate) mod smaps;
