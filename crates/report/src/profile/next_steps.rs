//! What to type after an advice.

use profile::Action;
use serde::Serialize;

/// What to do about an advice. `COMMAND` stands for the program's command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NextSteps {
    /// A command that measures whether it helps.
    pub try_with: &'static str,
    /// A command that does it, or what is nearest to it, for the unchanged program.
    pub apply: &'static str,
    /// What to change in the program.
    pub in_code: &'static str,
}

impl NextSteps {
    /// For an action; none for [`Action::LeaveAlone`].
    pub fn new(action: Action) -> Option<Self> {
        let (try_with, apply, in_code) = match action {
            Action::AllocateLocally => (
                "nearside compare --policies first-touch,carrefour -- COMMAND",
                "nearside place -- COMMAND",
                "allocate it on the allocating thread's node: numa_alloc_local(), or pages of its own that this thread writes first",
            ),
            Action::Interleave => (
                "nearside compare --policies first-touch,interleave,carrefour -- COMMAND",
                "nearside run --interleave all -- COMMAND",
                "mbind(MPOL_INTERLEAVE) for this memory only, before it is first written",
            ),
            Action::Replicate => (
                "nearside compare --policies first-touch,interleave,carrefour -- COMMAND",
                "nearside place -- COMMAND",
                "a copy on each node, made by one of its threads after the initialisation; each thread reads the nearest",
            ),
            Action::Migrate => (
                "nearside compare --policies first-touch,carrefour -- COMMAND",
                "nearside place -- COMMAND",
                "let the thread that uses it write it first, or move_pages() to that thread's node",
            ),
            Action::PinThreads => (
                "nearside compare --policies first-touch,bind,oracle -- COMMAND",
                "nearside run --cpunodebind NODE --localalloc -- COMMAND, for each process",
                "sched_setaffinity() of each thread to the CPUs of one node",
            ),
            Action::SplitHugePages => (
                "nearside record -- nearside run --huge never -- COMMAND",
                "nearside run --huge never -- COMMAND",
                "madvise(MADV_NOHUGEPAGE) for this memory, before it is first written",
            ),
            Action::LeaveAlone => return None,
        };
        Some(Self { try_with, apply, in_code })
    }
}
