//! The library that tells nearside of a program's objects, mappings and threads, from inside of the program: by
//! `LD_PRELOAD` it comes before the C library, and its `malloc` is the one that the program calls.
//!
//! It may be called at any moment: before the C library is ready, in a signal handler, in the child of a fork, in a
//! thread that ends. So it allocates nothing by way of what it replaces, keeps `errno`, holds no file open, and asks
//! nothing of the program's stack but a few hundred bytes, and some 4 KiB for the first event after a fork and for a file
//! that is mapped. What it has to tell goes to memory that it shares with the
//! recorder (crate `rings`). What it cannot tell, it counts.

mod clock;
mod hooks;
mod loss;
mod module;
mod process;
mod real;
mod ring;
mod rule;
mod stack;
mod thread;
mod walk;
