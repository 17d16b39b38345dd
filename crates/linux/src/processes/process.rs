//! A process as seen in /proc: its mappings, threads and status.

use machine::{CpuSet, IdSet, NodeSet, bounded};
pub use machine::{Pid, Tid};
use rustix::fs::{Dir, Mode, OFlags};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::str::FromStr;

/// Why a process cannot be inspected.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It has exited, or never existed.
    #[error("there is no process {0}: it has ended, or the number is wrong")]
    Gone(Pid),
    /// A file of it cannot be read.
    #[error("cannot read {file} of process {pid}")]
    Read {
        /// The process.
        pid: Pid,
        /// The file below /proc/PID.
        file: &'static str,
        /// The error.
        source: io::Error,
    },
    /// A file of it is not in the kernel's format.
    #[error("{file} of process {pid} has a line that is not understood: `{line}`")]
    Malformed {
        /// The process.
        pid: Pid,
        /// The file below /proc/PID.
        file: &'static str,
        /// The line.
        line: String,
    },
}

/// A line that is not in the kernel's format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not understood: `{0}`")]
pub struct MalformedLine(pub String);

/// A handle to a process: after it exits, reads fail, and never show another process with the same PID.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    folder: OwnedFd,
}

/// An address range with uniform permissions and backing: a line of /proc/PID/maps.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "four independent letters, as the kernel writes them")]
pub struct Mapping {
    /// Its addresses, in bytes; both ends are page-aligned.
    pub range: Range<u64>,
    /// Whether the process may read it.
    pub read: bool,
    /// Whether the process may write it.
    pub write: bool,
    /// Whether the process may execute it.
    pub execute: bool,
    /// Whether writes are visible to other processes that map the same memory (`MAP_SHARED`).
    pub shared: bool,
    /// File offset of the mapping's start, in bytes.
    pub offset: u64,
    /// The device number of the file's file system; 0 for memory without a file.
    pub device: u64,
    /// The file's inode; 0 for memory without a file.
    pub inode: u64,
    /// The file's path, a name in brackets such as `[heap]`, or empty. Bytes that are not text and terminal control
    /// characters are replaced, here and in other names, as the user of the process controls them.
    pub name: String,
}

/// The fields of /proc/PID/status that matter for placement, of a process or of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The name of the program.
    pub name: String,
    /// The process: differs from the ID for threads other than the first.
    pub process: Option<Pid>,
    /// The state letter: `R`, `S`, `D`, `Z` for a zombie, and others.
    pub state: Option<char>,
    /// The real, effective and saved user, which the kernel compares before it allows access from other processes.
    pub uids: [u32; 3],
    /// Effective capabilities, one bit each.
    pub capabilities: u64,
    /// The CPUs that it may run on.
    pub cpus: CpuSet,
    /// The memory nodes that its cpuset allows.
    pub nodes: NodeSet,
    /// Whether it has its own memory: kernel threads, zombies and exiting processes have none.
    pub has_memory: bool,
    /// Whether it is a kernel thread: reported since Linux 6.8, and before that a process without memory that is process 2
    /// or its child.
    pub is_kernel_thread: bool,
    /// The number of threads. A zombie with more than one has not exited: only its first thread has.
    pub threads: u32,
}

impl Process {
    /// Opens a process. Needs no privileges.
    pub fn open(pid: Pid) -> Result<Self, ProcessError> {
        Self::open_in(Path::new("/proc"), pid)
    }

    /// Opens a process in a saved /proc.
    pub fn open_in(proc: &Path, pid: Pid) -> Result<Self, ProcessError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(proc.join(pid.to_string()), flags, Mode::empty())
            .map_err(|error| read_error(pid, ".", error.into()))?;
        Ok(Self { pid, folder })
    }

    /// Its PID.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Opens one of its files, by the path below /proc/PID. The privileges are the file's own: smaps, `numa_maps` and
    /// pagemap need the process's user, or `CAP_SYS_PTRACE` (EACCES); status and cgroup need none.
    pub fn file(&self, file: &'static str) -> Result<File, ProcessError> {
        self.open_below(file).map_err(|error| read_error(self.pid, file, error))
    }

    /// The contents of one of its files, opened as by [`file`](Self::file). Bytes that are not text are replaced.
    pub fn text(&self, file: &'static str) -> Result<String, ProcessError> {
        self.text_below(file).map_err(|error| read_error(self.pid, file, error))
    }

    /// Its mappings, by address. Empty for kernel threads and zombies. Needs the process's user, or `CAP_SYS_PTRACE`; a
    /// process that is not dumpable needs the latter.
    pub fn mappings(&self) -> Result<Vec<Mapping>, ProcessError> {
        let malformed = |error: MalformedLine| ProcessError::Malformed { pid: self.pid, file: "maps", line: error.0 };
        parse_maps(&self.text("maps")?).map_err(malformed)
    }

    /// Its current threads. Needs no privileges.
    pub fn threads(&self) -> Result<IdSet<Tid>, ProcessError> {
        let failed = |error: io::Error| read_error(self.pid, "task", error);
        let mut threads = IdSet::new();
        let folder = self.file("task")?;
        for entry in Dir::read_from(folder).map_err(|error| failed(error.into()))? {
            let entry = entry.map_err(|error| failed(error.into()))?;
            threads.extend(entry.file_name().to_str().ok().and_then(|name| name.parse().ok()).map(Tid));
        }
        // The directory of a process that has exited meanwhile is readable and empty.
        if threads.is_empty() { Err(ProcessError::Gone(self.pid)) } else { Ok(threads) }
    }

    /// The live child processes that its threads started. Since Linux 3.5 with `CONFIG_PROC_CHILDREN`; empty otherwise.
    /// Needs no privileges.
    pub fn children(&self) -> Result<IdSet<Pid>, ProcessError> {
        let mut children = IdSet::new();
        for thread in self.threads()?.iter() {
            // The children of a thread that has just exited belong to another one.
            let text = self.text_below(&format!("task/{thread}/children")).unwrap_or_default();
            children.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid));
        }
        Ok(children)
    }

    /// Its status. Needs no privileges.
    pub fn status(&self) -> Result<Status, ProcessError> {
        Ok(parse_status(&self.text("status")?))
    }

    /// The status of one of its threads; `None` if the thread has exited. Needs no privileges.
    pub fn thread_status(&self, thread: Tid) -> Result<Option<Status>, ProcessError> {
        match self.text_below(&format!("task/{thread}/status")) {
            Ok(text) => Ok(Some(parse_status(&text))),
            Err(error) if is_gone(&error) => Ok(None),
            Err(source) => Err(read_error(self.pid, "task/TID/status", source)),
        }
    }

    pub(crate) fn open_below(&self, file: &str) -> io::Result<File> {
        // A saved system may have a pipe in the place of a file.
        bounded::ready(self.open_below_as(file, OFlags::RDONLY | OFlags::NONBLOCK)?)
    }

    /// Whether it is of this system's /proc.
    fn is_live(&self) -> bool {
        rustix::fs::fstatfs(&self.folder).is_ok_and(|system| system.f_type == PROC_SUPER_MAGIC)
    }

    pub(crate) fn open_below_as(&self, file: &str, how: OFlags) -> io::Result<File> {
        Ok(rustix::fs::openat(&self.folder, file, how | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    pub(crate) fn text_below(&self, file: &str) -> io::Result<String> {
        let bytes = match bounded::bytes_of(self.open_below(file)?, bounded::MOST_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge && self.is_live() => {
                bounded::bytes_of(self.open_below(file)?, MOST_LIVE_BYTES)?
            }
            read => read?,
        };
        Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }
}

/// Most bytes of a file of a running process: its smaps with a million mappings, the most that distributions allow. A
/// saved system may have anything in its place.
const MOST_LIVE_BYTES: u64 = 2 << 30;
/// The type of file system of `/proc`, from the kernel's `magic.h`.
const PROC_SUPER_MAGIC: i64 = 0x9fa0;

/// Whether this error from /proc means that a process or thread has exited.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

pub(crate) fn read_error(pid: Pid, file: &'static str, source: io::Error) -> ProcessError {
    if is_gone(&source) { ProcessError::Gone(pid) } else { ProcessError::Read { pid, file, source } }
}

/// Parses the text of /proc/PID/maps.
pub fn parse_maps(text: &str) -> Result<Vec<Mapping>, MalformedLine> {
    text.lines().map(str::parse).collect()
}

impl FromStr for Mapping {
    type Err = MalformedLine;

    fn from_str(line: &str) -> Result<Self, MalformedLine> {
        parse_mapping(line).ok_or_else(|| MalformedLine(line.to_owned()))
    }
}

/// The parts of a range that are mapped, one for each mapping, ascending. Mappings are ascending, as the kernel lists them.
pub fn mapped_parts<'a>(mappings: &'a [Mapping], range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<'a> {
    let range = range.clone();
    let after = mappings.partition_point(|mapping| mapping.range.end <= range.start);
    mappings[after..].iter().map_while(move |mapping| {
        let (start, end) = (range.start.max(mapping.range.start), range.end.min(mapping.range.end));
        (start < end).then_some(start..end)
    })
}

/// `7f1c0000-7f1c2000 rw-p 00000000 08:01 1234    /path with spaces`.
fn parse_mapping(line: &str) -> Option<Mapping> {
    let mut parts = line.splitn(6, ' ');
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = parts.next()?.split_once('-')?;
    let range = hex(start)?..hex(end)?;
    let &[read, write, execute, shared] = parts.next()?.as_bytes() else { return None };
    let offset = hex(parts.next()?)?;
    let (major, minor) = parts.next()?.split_once(':')?;
    let device = rustix::fs::makedev(u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = parts.next()?.parse().ok()?;
    let name = parts.next().unwrap_or_default().trim_start();
    let right = |byte, letter| byte == letter;
    (range.start <= range.end).then(|| Mapping {
        range,
        read: right(read, b'r'),
        write: right(write, b'w'),
        execute: right(execute, b'x'),
        shared: right(shared, b's'),
        offset,
        device,
        inode,
        name: printable(name),
    })
}

/// Untrusted text, without characters that would change a terminal or break a picture.
pub fn printable(text: &str) -> String {
    text.replace(machine::is_obeyed, "\u{fffd}")
}

/// A name as it is: in /proc/PID/status the kernel writes `\n` for a line's end in it, and `\\` for a backslash.
fn unescaped(name: &str) -> String {
    let mut characters = name.chars();
    std::iter::from_fn(|| match characters.next()? {
        '\\' => Some(characters.next().map_or('\\', |escaped| if escaped == 'n' { '\n' } else { escaped })),
        other => Some(other),
    })
    .collect()
}

/// Parses the text of /proc/PID/status. Missing fields stay empty, as kernels differ.
pub fn parse_status(text: &str) -> Status {
    let mut status = Status::default();
    // Before Linux 6.8, which has `Kthread`: in a PID namespace an ordinary process may have number 2, but it has memory.
    let (mut says_so, mut is_kthreadd_or_its_child) = (None, false);
    for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        match name {
            "Name" => status.name = printable(&unescaped(value)),
            "Tgid" => status.process = value.parse().ok().map(Pid),
            "State" => status.state = value.chars().next(),
            "Uid" => {
                for (uid, text) in status.uids.iter_mut().zip(value.split_whitespace()) {
                    *uid = text.parse().unwrap_or(u32::MAX);
                }
            }
            "CapEff" => status.capabilities = u64::from_str_radix(value, 16).unwrap_or(0),
            "Cpus_allowed_list" => status.cpus = value.parse().unwrap_or_default(),
            "Mems_allowed_list" => status.nodes = value.parse().unwrap_or_default(),
            "VmSize" => status.has_memory = true,
            "Pid" | "PPid" => is_kthreadd_or_its_child |= value == "2",
            "Kthread" => says_so = Some(value == "1"),
            "Threads" => status.threads = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    status.is_kernel_thread = says_so.unwrap_or(is_kthreadd_or_its_child && !status.has_memory);
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAPS: &str = "\
55d6c0a00000-55d6c0a02000 r--p 00000000 fe:00 1311                       /usr/bin/a program
55d6c1c4d000-55d6c1c6e000 rw-p 00000000 00:00 0                          [heap]
7f2a40000000-7f2a80000000 rw-s 00001000 00:01 2050                       /memfd:pool (deleted)
7f2a90000000-7f2a90001000 ---p 00000000 00:00 0
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn mappings_are_read_with_their_rights_and_names() {
        let maps = parse_maps(MAPS).unwrap();
        let names: Vec<_> = maps.iter().map(|mapping| mapping.name.as_str()).collect();
        assert_eq!(names, ["/usr/bin/a program", "[heap]", "/memfd:pool (deleted)", "", "[vsyscall]"]);
        let pool = &maps[2];
        assert_eq!((pool.range.clone(), pool.offset, pool.inode), (0x7f2a_4000_0000..0x7f2a_8000_0000, 4096, 2050));
        assert!(pool.read && pool.write && !pool.execute && pool.shared && !maps[1].shared && maps[4].execute);
        for line in ["", "1-2", "2-1 rw-p 0 0:0 0", "1-2 rw-p 0 0:0 x", "1-2 rw 0 0:0 0", "1-g rw-p 0 0:0 0"] {
            assert!(line.parse::<Mapping>().is_err(), "{line}");
        }
    }

    #[test]
    fn a_status_tells_who_where_and_whether_there_is_memory() {
        let text = "Name:\tsh\nState:\tZ (zombie)\nUid:\t1000\t1001\t0\t0\nCapEff:\t000001ffffffffff\n\
                    Cpus_allowed_list:\t0-3\nMems_allowed_list:\t0,2\n";
        let status = parse_status(text);
        assert_eq!((status.name.as_str(), status.state, status.uids), ("sh", Some('Z'), [1000, 1001, 0]));
        assert_eq!((status.cpus.to_string(), status.nodes.to_string()), ("0-3".to_owned(), "0,2".to_owned()));
        assert!(!status.has_memory && parse_status("VmSize:\t 1 kB").has_memory);
        assert_eq!(parse_status("Threads:\t7\n").threads, 7);
        assert_eq!(parse_status("Tgid:\t7\nPid:\t8\n").process, Some(Pid(7)));
        let names = ["back\\\\slash", "a\\nb", "end\\"].map(|name| parse_status(&format!("Name:\t{name}\n")).name);
        assert_eq!(names, ["back\\slash", "a\u{fffd}b", "end\\"]);
        let kernel =
            ["Pid:\t2\nPPid:\t0\n", "PPid:\t2\n", "PPid:\t2\nVmSize:\t1\n", "PPid:\t2\nKthread:\t0\n", "Kthread:\t1\n"];
        assert_eq!(kernel.map(|text| parse_status(text).is_kernel_thread), [true, true, false, false, true]);
    }

    #[test]
    fn names_cannot_change_a_terminal() {
        assert_eq!(parse_status("Name:\ta\x1b[2Jb\n").name, "a\u{fffd}[2Jb");
        let mapping: Mapping = "1-2 rw-p 0 0:0 7 /a\u{9b}2J\x07".parse().unwrap();
        assert_eq!(mapping.name, "/a\u{fffd}2J\u{fffd}");
    }

    #[test]
    fn this_process_is_there_and_another_is_not() {
        let own = Process::open(Pid(std::process::id())).unwrap();
        let here = std::ptr::from_ref(&own) as u64;
        assert!(own.mappings().unwrap().iter().any(|mapping| mapping.range.contains(&here)));
        assert!(own.threads().unwrap().contains(Tid(own.pid().0)));
        assert!(own.status().unwrap().has_memory);
        assert_eq!(own.thread_status(Tid(0)).unwrap(), None);
        assert!(matches!(Process::open(Pid(u32::MAX)), Err(ProcessError::Gone(_))));
    }

    #[test]
    fn a_process_that_has_ended_is_gone_and_never_another_one() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::open(Pid(child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(process.mappings(), Err(ProcessError::Gone(_))));
        assert!(matches!(process.threads(), Err(ProcessError::Gone(_))));
        assert!(matches!(process.status(), Err(ProcessError::Gone(_))));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = parse_maps(&text);
            let _ = parse_status(&text);
        }

        #[test]
        fn any_line_of_the_kernels_shape_is_read(start: u32, pages in 1..1000u64, name in "[a-z/ ]{0,20}") {
            let start = u64::from(start) << 12;
            let end = start + (pages << 12);
            let mapping: Mapping = format!("{start:x}-{end:x} rw-p 00000000 00:00 0   {name}").parse()?;
            prop_assert_eq!((mapping.range, mapping.name.as_str()), (start..end, name.trim_start()));
        }
    }
}
