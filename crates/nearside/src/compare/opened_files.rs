//! The files that a program opens, as the kernel reports them (fanotify, Linux 4.20; needs `CAP_SYS_ADMIN`).

use linux::{Mount, mounts};
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// Kinds of file system without a page cache that is worth filling: what is in them is made by the kernel, or is in
/// memory already.
const WITHOUT_CACHE: [&str; 21] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "ramfs",
    "securityfs",
    "sysfs",
    "tmpfs",
    "tracefs",
];

/// Follows which files are opened on the whole machine.
pub struct OpenedFiles(Fanotify);

impl OpenedFiles {
    /// Begins to follow.
    pub fn follow() -> io::Result<Self> {
        // Without O_NONBLOCK, the kernel would wait for the other end when it opens a pipe for a report.
        let how = EventFFlags::O_RDONLY | EventFFlags::O_NONBLOCK | EventFFlags::O_CLOEXEC | EventFFlags::O_LARGEFILE;
        let reports = Fanotify::init(InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK, how)?;
        let mut followed = Err(io::ErrorKind::NotFound.into());
        for Mount { path, kind } in mounts()? {
            if !WITHOUT_CACHE.contains(&kind.as_str()) {
                let flags = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
                let marked = reports.mark(flags, MaskFlags::FAN_OPEN, nix::fcntl::AT_FDCWD, Some(&path));
                // Some file systems of the network have no reports; one that has is enough.
                followed = followed.or(marked.map_err(io::Error::from));
            }
        }
        followed.map(|()| Self(reports))
    }

    /// The files that were opened until now and still have a name, in the order of their names. The kernel keeps up to
    /// 16,384 reports; files that are opened after that are missing.
    pub fn end(self) -> BTreeSet<PathBuf> {
        let mut files = BTreeSet::new();
        // It ends when there is no report left (EAGAIN).
        while let Ok(reports) = self.0.read_events() {
            let opened = reports.iter().filter_map(nix::sys::fanotify::FanotifyEvent::fd);
            files.extend(opened.filter_map(|file| {
                let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
                fs::metadata(&path).is_ok_and(|file| file.is_file()).then_some(path)
            }));
        }
        files
    }
}
