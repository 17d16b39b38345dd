//! Gives a process private copies of pages of a file.

use crate::managed_process::ManagedProcess;
use linux::{FreeMemory, NotCopied, PageRefusal, PrivateCopies, ProcessError};
use machine::{NodeId, SMALL_PAGE};

/// The result of copying.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// Pages that the process now has private copies of.
    pub made: Vec<u64>,
    /// The other pages, and why each was not copied.
    pub refused: Vec<(u64, PageRefusal)>,
    /// Why less was done than requested, where the pages' refusals do not say.
    pub note: Option<String>,
}

impl Copies {
    /// Makes the copies on a node, if it has room.
    pub fn make(process: &mut ManagedProcess, pages: &[u64], node: NodeId) -> Self {
        // A mapping that has just changed may change again.
        process.replicable.look(&process.process);
        let may_be = |page: &u64| process.replicable.contain(&process.process, *page);
        let (pages, changed): (Vec<u64>, Vec<u64>) = pages.iter().copied().partition(may_be);
        let mut copies = match Self::memory_for(process, pages.len(), node) {
            Ok(memory) => Self::made_in(process, &memory, &pages, node),
            Err((refusal, why)) => {
                let refused = pages.into_iter().map(|page| (page, refusal)).collect();
                Self { refused, note: why, ..Self::default() }
            }
        };
        copies.refused.extend(changed.into_iter().map(|page| (page, PageRefusal::NotPresent)));
        copies
    }

    /// The memory to make copies in, or why none can be made.
    fn memory_for(
        process: &ManagedProcess,
        pages: usize,
        node: NodeId,
    ) -> Result<PrivateCopies, (PageRefusal, Option<String>)> {
        let pid = process.record.pid;
        let told = |why: &dyn ToString| Some(format!("cannot copy pages of process {pid}: {}", why.to_string()));
        // Copies are charged to the process and its control group, which must not be killed because of them.
        let free = FreeMemory::for_process(&process.process);
        if let Some(full) = free.in_the_way(pages as u64 * SMALL_PAGE, Some(&[node].into_iter().collect())) {
            return Err((PageRefusal::NoMemory, told(&full)));
        }
        PrivateCopies::new(&process.process).map_err(|error| match error {
            // A process that has ended needs no copies.
            ProcessError::Gone(_) => (PageRefusal::NotPresent, None),
            error => (PageRefusal::Other(0), told(&error)),
        })
    }

    fn made_in(process: &ManagedProcess, memory: &PrivateCopies, pages: &[u64], node: NodeId) -> Self {
        let pid = process.record.pid;
        let mut copies = Self::default();
        for (&page, made) in pages.iter().zip(memory.make(pages, node)) {
            match made {
                Ok(()) => copies.made.push(page),
                Err(NotCopied::Gone) => copies.refused.push((page, PageRefusal::NotPresent)),
                Err(NotCopied::Write(error)) => {
                    copies.refused.push((page, PageRefusal::Other(error.raw_os_error().unwrap_or_default())));
                    copies.note.get_or_insert_with(|| {
                        format!(
                            "cannot copy pages of process {pid} (write to /proc/{pid}/mem: {error}): the kernel may \
                             want proc_mem.force_override=always on its command line"
                        )
                    });
                }
            }
        }
        copies
    }
}
