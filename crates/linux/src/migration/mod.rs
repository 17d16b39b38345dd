//! Moving pages and threads of running processes.

pub(crate) mod follow;
pub(crate) mod migrate;
pub(crate) mod moved_whole;
pub(crate) mod page_batch;
pub(crate) mod route;
pub(crate) mod tally;
