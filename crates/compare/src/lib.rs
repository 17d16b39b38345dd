//! Compares policies: runs one program several times under each, in turn, and collects the results as a
//! [`report::Comparison`].
//!
//! 1. A [`Candidate`] is a policy: one of the kernel's, numad, a static binding or its best one, or one of nearside's
//!    own.
//! 2. A [`Request`] names the program, the candidates and the number of runs. [`Request::run`] prepares the machine for
//!    each run (page cache, NUMA balancing, numad), runs the program to its end, and restores what it has changed.
//! 3. [`Seconds`] says where the program prints its own run time.
//!
//! A [`Runner`] runs a program once and keeps what it printed, also for campaigns.
//!
//! Nothing is printed here: the caller gets a sentence as each run ends, and the results so far.

mod candidate;
mod comparison;
mod guard;
mod numad;
mod opened_files;
mod oracle;
mod page_cache;
mod placed;
mod program_times;
mod progress;
mod request;
mod run_once;
mod runs;

pub use candidate::{Candidate, all};
pub use comparison::CompareError;
pub use explore::Seconds;
pub use program_times::{ProgramTimes, TimesFile};
pub use progress::Progress;
pub use request::{Host, Request, check};
pub use run_once::{Invocation, NoRun, RunOutput, Runner};
pub use runs::{balance, unbalanced};
