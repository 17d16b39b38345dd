//! Memory that moves when it is touched.

use crate::error::{EBUSY, EFAULT, EIO, EPERM, Error};
use linux::{Cause, Faults, LazyMove, NodeMemory};

const NOT_PERMITTED: &str = "to bring pages for system calls too, this process needs CAP_SYS_PTRACE, read access to \
                             /dev/userfaultfd, or vm.unprivileged_userfaultfd = 1; for the program's own accesses alone it \
                             needs none of these";
const DIFFERS: &str = "parts of it are protected, locked or advised differently than others";
const MOVES_ALREADY: &str = "another lazy move of it has not ended, or the program resolves its faults itself";

/// From now on, each page of a memory moves when it is touched next, to the node of the thread that touches it, whichever
/// that is; [`LazyMove::end`] ends this, and pages that were not touched stay where they are. Each page moves at most
/// once. A first access takes some tens of microseconds more: another thread of this process brings the page. Meanwhile, the
/// memory must not be the one of the program's own `malloc`, and must not be discarded (`madvise`) or mapped anew; its
/// own memory policy is gone. Processes that are forked meanwhile do not have it.
///
/// [`Faults::All`] needs `CAP_SYS_PTRACE`, read access to `/dev/userfaultfd`, or `vm.unprivileged_userfaultfd` = 1.
/// [`Faults::Program`] needs nothing, but a system call that gets a page before the program has touched it fails with
/// EFAULT. Gives the memory back where it is refused. Since Linux 5.7, or 5.11 with [`Faults::Program`].
pub fn move_lazily(memory: NodeMemory, whose: Faults) -> Result<LazyMove, (NodeMemory, Error)> {
    LazyMove::new(memory, whose).map_err(|(memory, refused)| {
        let attempt = format!("move {} bytes when they are touched", memory.range().len());
        let why = match (refused.call, refused.answer.raw_os_error(), whose) {
            ("userfaultfd", Some(EPERM), Faults::All) => Some(NOT_PERMITTED),
            ("userfaultfd", Some(EBUSY), _) => Some(MOVES_ALREADY),
            ("mremap", Some(EFAULT), _) => Some(DIFFERS),
            _ => None,
        };
        let errno = refused.answer.raw_os_error().unwrap_or(EIO);
        let error = match why {
            Some(why) => Error::refused(attempt, refused.call, errno, Cause::Other(why.to_owned())),
            None => Error::plain(attempt, refused.call, &refused.answer),
        };
        (memory, error)
    })
}
