//! The library that reports a program's objects, mappings and threads to nearside from inside the program: through
//! `LD_PRELOAD` it precedes the C library, so that the program calls its `malloc`.
//!
//! It may be called at any moment: before the C library is ready, in a signal handler, in a forked child, in an exiting
//! thread. So it allocates nothing through the functions that it replaces, preserves `errno`, keeps no file open (but the
//! socket of `advice`, where the program's starter asks for it), and
//! uses only a few hundred bytes of the program's stack, or some 4 KiB for the first event after a fork and for a file
//! mapping. Events go to memory shared with the recorder (crate `rings`). Events that cannot be recorded are counted.
//! It also advises the kernel about the program's memory, on request (`advice`) and at allocations (`small_parts`).

mod advice;
mod clock;
mod hooks;
mod libc_symbols;
mod loss;
mod module;
mod path_buffer;
mod process;
mod ring;
mod rule;
mod small_parts;
mod stack;
mod thread;
mod walk;
