//! Private copies of a file's pages for one process. No Linux kernel replicates pages, but each process may have its
//! own copy of pages that it maps privately (`MAP_PRIVATE`): the kernel makes one at the first write, even in a
//! read-only mapping, if another process writes through /proc/PID/mem. Writing back the existing bytes does not change
//! the contents.
//!
//! A copy belongs to the process for good, and is a snapshot of the file: later writes to the file are not visible in
//! it, which POSIX leaves open for all private mappings. Truncation removes it like any page. It counts as anonymous
//! memory of the process and of its control group.

use crate::memory::memory_policy::{memory_policy, set_memory_policy};
use crate::processes::process::{Mapping, Process, ProcessError, read_error};
use machine::{MemoryMode, MemoryPolicy, NodeId, SMALL_PAGE};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

/// The memory of a process in which pages are copied.
#[derive(Debug)]
pub struct PrivateCopies {
    memory: File,
}

/// Why a page was not copied.
#[derive(Debug)]
pub enum NotCopied {
    /// Nothing is readable there any more.
    Gone,
    /// The kernel refuses the write: EIO if it was built or booted with `proc_mem.force_override=never` or `=ptrace`
    /// (since Linux 6.12), or if it has no memory for the copy.
    Write(io::Error),
}

impl PrivateCopies {
    /// Opens the memory of this process. Needs the process's user, or `CAP_SYS_PTRACE`, as a debugger does; EACCES
    /// otherwise, or if Yama's `kernel.yama.ptrace_scope` forbids it.
    pub fn new(process: &Process) -> Result<Self, ProcessError> {
        let opened = process.open_below_as("mem", OFlags::RDWR);
        Ok(Self { memory: opened.map_err(|error| read_error(process.pid(), "mem", error))? })
    }

    /// Gives the process its own copy of each page, on this node if possible, and returns a result per page. All pages
    /// must belong to mappings that [`Mapping::may_have_copies`].
    ///
    /// The last byte of each page is read and written back, by two calls. If within that microsecond the process makes
    /// the mapping writable, or replaces it, and changes that byte, the change is lost.
    pub fn make(&self, pages: &[u64], node: NodeId) -> Vec<Result<(), NotCopied>> {
        // New pages follow the policy of the mapping, which has none, or that of the writing thread.
        let preferred = MemoryPolicy::new(MemoryMode::Preferred, [node].into_iter().collect());
        let before = memory_policy().and_then(|before| set_memory_policy(&preferred).map(|()| before));
        let copied = pages.iter().map(|page| self.copy(*page)).collect();
        if let Ok(before) = before {
            // The kernel accepted this policy before.
            let _ = set_memory_policy(&before);
        }
        copied
    }

    fn copy(&self, page: u64) -> Result<(), NotCopied> {
        let last = page + SMALL_PAGE - 1;
        let mut byte = [0];
        self.memory.read_exact_at(&mut byte, last).map_err(|_| NotCopied::Gone)?;
        self.memory.write_all_at(&byte, last).map_err(NotCopied::Write)
    }
}

impl Mapping {
    /// Whether the process may have copies of its pages: they belong to a file, and the process may read but not write
    /// them, through a private mapping.
    pub fn may_have_copies(&self) -> bool {
        self.read && !self.write && !self.shared && self.inode != 0 && self.name.starts_with('/')
    }
}

impl Process {
    /// Opens the file of a mapping for reading. ESTALE: the name now belongs to another file, or is gone. Needs the
    /// process's user, or `CAP_SYS_PTRACE`, and read access to the file.
    pub fn mapped_file(&self, mapping: &Mapping) -> io::Result<File> {
        // Opening a device may have side effects, and the name may lead to another file at any time.
        let held = self.open_below_as(&format!("root{}", mapping.name), OFlags::PATH)?;
        let found = held.metadata()?;
        if !found.is_file() || found.ino() != mapping.inode {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::open(format!("/proc/self/fd/{}", held.as_raw_fd()), flags, Mode::empty())?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::file_words::FileWords;
    use crate::processes::process::Pid;
    use crate::residence::pagemap::{PageEntry, Pagemap};
    use crate::{PageBatch, allowed_memory_nodes};
    use rustix::fs::{CWD, FileType, RenameFlags, inotify, mknodat, renameat_with};
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    const WORD: u64 = 0x0707_0707_0707_0707;

    #[test]
    fn a_page_becomes_the_processs_own_with_the_same_content() {
        let Some(node) = allowed_memory_nodes().ok().and_then(|nodes| nodes.first()) else {
            return test_tools::skipped("memory policies may not be read here");
        };
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 3 * 4096]).unwrap();
        let words = FileWords::map(file.as_file(), 3 * 4096).unwrap();
        assert_eq!(words.sum(), WORD.wrapping_mul(3 * 512));
        let process = Process::open(Pid(std::process::id())).unwrap();
        let start = words.address();
        let mapping = || {
            let mappings = process.mappings().unwrap();
            mappings.into_iter().find(|mapping| mapping.range.contains(&start)).unwrap()
        };
        assert!(mapping().may_have_copies(), "{:?}", mapping());
        let entries = || -> Vec<bool> {
            let range = start..start + 3 * 4096;
            let mut pagemap = Pagemap::new(&process).unwrap();
            pagemap.read(&range).unwrap().map(PageEntry::is_file_or_shared).collect()
        };
        assert_eq!(entries(), [true; 3]);
        let before = (mapping(), memory_policy().unwrap());
        let copies = PrivateCopies::new(&process).unwrap();
        let made = copies.make(&[start, start + 8192, 4096], node);
        assert!(matches!(made[..], [Ok(()), Ok(()), Err(NotCopied::Gone)]), "{made:?}");
        assert_eq!((entries(), mapping(), memory_policy().unwrap()), (vec![false, true, false], before.0, before.1));
        // A write to the file is visible in the page that still belongs to the file.
        file.as_file().write_all_at(&[0; 3 * 4096], 0).unwrap();
        assert_eq!(words.sum(), WORD.wrapping_mul(2 * 512));
        let mut batch = PageBatch::default();
        batch.push(start, None);
        batch.locate(process.pid()).unwrap();
        assert_eq!(batch.statuses().next().unwrap().1.node(), Ok(node));
    }

    #[test]
    fn a_mappings_file_is_found_and_never_another_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let words = FileWords::map(file.as_file(), 4096).unwrap();
        let process = Process::open(Pid(std::process::id())).unwrap();
        let mapping = process.mappings().unwrap().into_iter().find(|one| one.range.contains(&words.address())).unwrap();
        let found = process.mapped_file(&mapping).unwrap();
        assert_eq!(found.metadata().unwrap().ino(), file.as_file().metadata().unwrap().ino());
        let others = [("/dev/null", 1), ("/etc", 1), (&mapping.name, mapping.inode + 1), ("/nowhere/x", 1)];
        for (name, inode) in others {
            let other = Mapping { name: name.to_owned(), inode, ..mapping.clone() };
            assert!(process.mapped_file(&other).is_err(), "{name}");
        }
    }

    #[test]
    fn nothing_else_is_opened_while_names_are_exchanged() {
        let folder = tempfile::tempdir().unwrap();
        let [file, pipe] = ["file", "pipe"].map(|name| folder.path().join(name));
        std::fs::write(&file, [7; 4096]).unwrap();
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let words = FileWords::map(File::open(&file).unwrap(), 4096).unwrap();
        let process = Process::open(Pid(std::process::id())).unwrap();
        let mapping = process.mappings().unwrap().into_iter().find(|one| one.range.contains(&words.address())).unwrap();
        let opened = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&opened, &pipe, inotify::WatchFlags::OPEN).unwrap();
        let over = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    renameat_with(CWD, &file, CWD, &pipe, RenameFlags::EXCHANGE).unwrap();
                }
            });
            let found = (0..20_000).filter(|_| process.mapped_file(&mapping).is_ok()).count();
            over.store(true, Relaxed);
            found
        });
        assert!(found > 0);
        let error = rustix::io::read(&opened, &mut [0; 4096]).unwrap_err();
        assert_eq!(error, rustix::io::Errno::AGAIN, "the pipe was opened");
    }

    #[test]
    fn only_what_is_read_of_a_file_alone_may_be_copied() {
        let may = |line: &str| line.parse::<Mapping>().unwrap().may_have_copies();
        assert!(may("1000-2000 r--p 0 8:1 5 /a") && may("1000-2000 r-xp 0 8:1 5 /a b"));
        for line in ["rw-p 0 8:1 5 /a", "r--s 0 8:1 5 /a", "---p 0 8:1 5 /a", "r--p 0 0:0 0", "r--p 0 0:0 0 [vvar]"] {
            assert!(!may(&format!("1000-2000 {line}")), "{line}");
        }
    }
}
