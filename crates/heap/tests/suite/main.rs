//! The heap by its public calls. The tests themselves allocate from the C library.

mod forks;
mod model;
mod threads;
