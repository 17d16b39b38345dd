//! What to type after an advice.

use crate::shell::is_plain;
use profile::{Action, ObjectKind};
use serde::Serialize;

/// The longest command line that is repeated.
const MOST_COMMAND: usize = 80;

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
    /// The commands with this command line in place of `COMMAND`, if a shell would take it word by word. `machine` is the
    /// lab's preset that it was recorded on.
    pub(crate) fn commands(self, command: &[String], machine: Option<&str>) -> [String; 2] {
        let line = command.join(" ");
        let is_short = !command.is_empty() && line.len() <= MOST_COMMAND;
        let line = if is_short && command.iter().all(|word| is_plain(word)) { line.as_str() } else { "COMMAND" };
        let machine = machine.map_or_else(String::new, |name| format!("compare --machine {name} "));
        let try_with = self.try_with.replacen("compare ", if machine.is_empty() { "compare " } else { &machine }, 1);
        [&try_with, self.apply].map(|text| text.replace("COMMAND", line))
    }

    /// For an action on objects of a kind; none for [`Action::LeaveAlone`]. `of_processes` is whether whole processes are to
    /// be pinned, and not the threads of one, which may need more CPUs than a node has; or, for copies and moves, whether
    /// several processes map the objects.
    pub fn new(action: Action, kind: ObjectKind, of_processes: bool) -> Option<Self> {
        let (try_with, apply, in_code) = match action {
            Action::AllocateLocally => (
                "nearside compare --policies first-touch,predict -- COMMAND",
                "nearside place -- COMMAND",
                "allocate it on the allocating thread's node: numa_alloc_local(), or pages of its own that this thread writes first",
            ),
            Action::Interleave if kind == ObjectKind::MappedFile => (
                "nearside compare --policies first-touch,interleave,predict -- COMMAND",
                "nearside run --interleave all -- COMMAND",
                "set_mempolicy(MPOL_INTERLEAVE) while the file is read; what is in the page cache stays (dd if=FILE iflag=nocache count=0)",
            ),
            Action::Interleave => (
                "nearside compare --policies first-touch,interleave,predict -- COMMAND",
                "nearside run --interleave all -- COMMAND",
                "mbind(MPOL_INTERLEAVE) for this memory only, before it is first written",
            ),
            // Copies are private, and made of what several processes map.
            Action::Replicate if kind == ObjectKind::MappedFile && of_processes => (
                "nearside compare --policies first-touch,interleave,carrefour -- COMMAND",
                "nearside place --policy carrefour -- COMMAND",
                "a copy on each node, made by one of its threads after the initialisation; each thread reads the nearest",
            ),
            Action::Replicate => (
                "nearside compare --policies first-touch,interleave,predict -- COMMAND",
                "nearside run --interleave all -- COMMAND: where one node's memory is full; no command copies it",
                "a copy on each node, made by one of its threads after the initialisation; each thread reads the nearest",
            ),
            Action::Migrate if of_processes => (
                "nearside compare --shared --policies first-touch,predict -- COMMAND",
                "nearside place --shared -- COMMAND",
                "let the process that uses a part write it first, or move_pages(MPOL_MF_MOVE_ALL) to that process's node",
            ),
            Action::Migrate => (
                "nearside compare --policies first-touch,predict -- COMMAND",
                "nearside place -- COMMAND",
                "let the thread that uses it write it first, or move_pages() to that thread's node",
            ),
            Action::PinThreads if !of_processes => (
                "nearside compare --policies first-touch,rr-threads -- COMMAND",
                "nearside place --policy rr-threads -- COMMAND",
                "sched_setaffinity() of each thread to the CPUs of one node, before it touches its memory; OMP_PROC_BIND=spread for OpenMP",
            ),
            Action::PinThreads => (
                "nearside compare --policies first-touch,bind,oracle -- COMMAND",
                "nearside run --cpunodebind NODE --localalloc -- COMMAND, for each process",
                "sched_setaffinity() of each thread to the CPUs of one node",
            ),
            Action::SplitHugePages => (
                "nearside compare --policies first-touch,no-huge-pages,hugepages,predict -- COMMAND",
                "nearside hugepages cure -- COMMAND",
                "madvise(MADV_NOHUGEPAGE) for this memory, before each thread writes its part first",
            ),
            Action::Pad => (
                "nearside compare --policies first-touch,bind -- COMMAND",
                "nearside run --cpunodebind NODE -- COMMAND: cores of one node take lines from each other faster",
                "alignas(64), or align(64) in Rust, for each thread's part, or parts of their own on each thread's stack",
            ),
            Action::LeaveAlone => return None,
        };
        Some(Self { try_with, apply, in_code })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_command_is_repeated_where_it_can_be() {
        let steps = NextSteps::new(Action::Migrate, ObjectKind::Heap, false).unwrap();
        let apply = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let [_, apply] = steps.commands(&words, None);
            apply
        };
        let [try_with, _] = steps.commands(&["./a".to_owned()], Some("small-4x2"));
        assert_eq!(try_with, "nearside compare --machine small-4x2 --policies first-touch,predict -- ./a");
        assert_eq!(apply(&["./solve", "--size=8M", "in.dat"]), "nearside place -- ./solve --size=8M in.dat");
        for unsuitable in [&[][..], &["sh", "-c", "a; b"], &["a", ""], &["a\u{1b}"], &[&"x".repeat(81)]] {
            assert_eq!(apply(unsuitable), "nearside place -- COMMAND");
        }
    }
}
