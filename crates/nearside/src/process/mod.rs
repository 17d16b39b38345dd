//! The running process that a verb is about: its ranges, threads, pages and trace.

pub mod ranges;
pub mod residences;
pub mod target;
pub mod threads;
pub mod trace_of_process;
pub mod verify;
