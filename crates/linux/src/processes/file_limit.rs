//! How many files this process may have open: `perf` events need one for each CPU and thread.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::OnceLock;

/// The limit that this process was started with, once it was raised.
static STARTED_WITH: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of open files to the hard one, as perf does. Programs that are started
/// [`with_own_inheritance`](crate::ChildSetup::with_own_inheritance) get the limit of before: what uses `select` or closes
/// every possible file depends on it. Needs no privileges.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Where it stays, the kernel says at the first file too many what is wrong.
    if limit.current != limit.maximum && setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).is_ok()
    {
        let _ = STARTED_WITH.set(limit);
    }
}

/// The limit that a program should start with, if this process has raised its own.
pub(crate) fn to_restore() -> Option<Rlimit> {
    STARTED_WITH.get().copied()
}
