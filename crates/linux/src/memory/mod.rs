//! Memory of this process: policies, allocation, page sizes, and memory shared with others.

pub(crate) mod advice;
pub(crate) mod heap;
pub(crate) mod hint;
pub(crate) mod huge_page_use;
pub(crate) mod huge_pages;
pub(crate) mod lazy_move;
pub(crate) mod mask;
pub(crate) mod memory_policy;
pub(crate) mod named_page;
pub(crate) mod named_region;
pub(crate) mod node_memory;
pub(crate) mod pages;
pub(crate) mod private_copy;
pub(crate) mod shared_range;
pub(crate) mod user_faults;
