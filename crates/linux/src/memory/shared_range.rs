//! Memory that processes share through a file or a System V segment, with a policy that applies to all of them.

use crate::memory::advice::{Advice, advise};
use crate::memory::memory_policy::{Misplaced, bind_range, memory_policy_at, node_at};
use machine::{MemoryPolicy, NodeId, SMALL_PAGE};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::ffi::{CString, c_int, c_void};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null, null_mut};

/// A System V segment, as named by `ftok` and `shmget`.
#[derive(Clone, Debug)]
pub struct SegmentKey<'a> {
    /// The file whose device and inode are part of the key. Created if missing, where a segment may be created too.
    pub file: &'a Path,
    /// The number that is part of the key.
    pub id: i32,
    /// Whether a new segment gets huge pages. Needs `CAP_IPC_LOCK` or the group of `vm.hugetlb_shm_group`.
    pub huge: bool,
}

/// Part of shared memory, mapped until the process exits.
#[derive(Debug)]
pub struct SharedRange {
    start: NonNull<u8>,
    bytes: usize,
    page_bytes: usize,
    /// Its offset in the file or segment, in bytes.
    pub offset: u64,
    created: Vec<Created>,
}

/// What was not there before memory was mapped.
#[derive(Debug)]
enum Created {
    /// A file, or the key file of a segment.
    File(PathBuf),
    /// More bytes of a file.
    Extension { file: File, before: u64, now: u64 },
    /// A segment.
    Segment(c_int),
}

impl Created {
    /// Removes it again as far as possible: the error that led here is the one to report.
    fn remove(&self) {
        match self {
            Self::File(path) => drop(fs::remove_file(path)),
            // Another process may have extended it further.
            Self::Extension { file, before, now } => {
                if file.metadata().is_ok_and(|file| file.len() == *now) {
                    let _ = file.set_len(*before);
                }
            }
            Self::Segment(segment) => {
                // SAFETY: shmctl takes integers here. The segment stays until no process has it attached.
                let _ = unsafe { libc::shmctl(*segment, libc::IPC_RMID, null_mut()) };
            }
        }
    }
}

/// A run of pages with one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<T> {
    /// Its range in the file or segment, in bytes.
    pub range: Range<u64>,
    /// The value that its pages share.
    pub value: T,
}

impl SharedRange {
    /// Maps part of a file on tmpfs or hugetlbfs, from `offset` to its end or of this length. With a length, a missing
    /// file is created and a short one is extended; a new file gets this mode. Needs write access. `for_policy`: refuses
    /// other file systems, where the kernel keeps no policy of a file.
    pub fn of_file(path: &Path, offset: u64, length: Option<u64>, mode: u32, for_policy: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(mode);
        Self::or_undone(|created| match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && length.is_some() => {
                let file = options.create_new(true).open(path)?;
                created.push(Created::File(path.to_owned()));
                Self::of_open_file(&file, offset, length, for_policy, created)
            }
            file => Self::of_open_file(&file?, offset, length, for_policy, created),
        })
    }

    /// Maps memory, and removes what was created for that if it fails.
    fn or_undone(map: impl FnOnce(&mut Vec<Created>) -> io::Result<Self>) -> io::Result<Self> {
        let mut created = Vec::new();
        match map(&mut created) {
            Ok(range) => Ok(Self { created, ..range }),
            Err(error) => {
                created.iter().for_each(Created::remove);
                Err(error)
            }
        }
    }

    /// Removes the file or segment if it was created for this range, and what the file was extended by. A file or segment
    /// that was there before stays.
    pub fn undo(self) {
        self.created.iter().for_each(Created::remove);
    }

    fn of_open_file(
        file: &File,
        offset: u64,
        length: Option<u64>,
        for_policy: bool,
        created: &mut Vec<Created>,
    ) -> io::Result<Self> {
        let all = file.metadata()?.len();
        let page_bytes = page_bytes(file, for_policy)?;
        let bytes = checked(offset, length, all, page_bytes)?;
        let end = offset.checked_add(bytes).ok_or_else(|| misplaced("it is too long"))?;
        if all < end {
            let extended = file.try_clone()?;
            file.set_len(end)?;
            created.push(Created::Extension { file: extended, before: all, now: end });
        }
        let bytes = bytes as usize;
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let start =
            unsafe { mmap(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, offset) }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| misplaced("it was mapped at address 0"))?;
        Ok(Self { start, bytes, page_bytes, offset, created: Vec::new() })
    }

    /// Maps part of a segment, from `offset` to its end or of this length. With a length, a missing one is created with
    /// `offset` plus this length, and this mode.
    pub fn of_segment(key: &SegmentKey<'_>, offset: u64, length: Option<u64>, mode: u32) -> io::Result<Self> {
        Self::or_undone(|created| {
            let (segment, all) = segment(key, offset, length, mode, created)?;
            let page_bytes = if key.huge { crate::HUGE_PAGE } else { SMALL_PAGE as usize };
            let bytes = checked(offset, length, all, page_bytes)?;
            if end(offset, bytes)? as u64 > all {
                return Err(misplaced(&format!("the segment has {all} bytes, and cannot be extended")));
            }
            // SAFETY: the kernel chooses the address; no existing memory is touched.
            let start = unsafe { libc::shmat(segment, null::<c_void>(), 0) };
            if start as isize == -1 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: offset and length were checked to be inside the segment.
            let start = unsafe { start.byte_add(offset as usize) };
            let start = NonNull::new(start.cast()).ok_or_else(|| misplaced("it was mapped at address 0"))?;
            Ok(Self { start, bytes: bytes as usize, page_bytes, offset, created: Vec::new() })
        })
    }

    /// Sets the policy of the memory, for all processes that map it now or later.
    pub fn set_policy(&self, policy: &MemoryPolicy, misplaced: Misplaced) -> io::Result<()> {
        bind_range(self.start.as_ptr() as usize, self.bytes, policy, misplaced)
    }

    /// Populates all pages by the policy, without changing contents. EFAULT: its file system has no page left, hugetlb
    /// pages included. ENOMEM: its nodes have none. Before Linux 5.14 both end the process, by SIGBUS or by the
    /// kernel's OOM killer. The OOM killer always ends processes of a control group that reaches its limit.
    pub fn populate(&self) -> io::Result<()> {
        let start = self.start.as_ptr() as usize;
        match advise(&(start..start + self.bytes), Advice::PopulateWrite) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.touch();
                Ok(())
            }
            populated => populated,
        }
    }

    fn touch(&self) {
        for offset in (0..self.bytes).step_by(self.page_bytes) {
            // SAFETY: the byte is inside the mapping, which is never unmapped. Concurrent writers only change its
            // value, on which nothing depends. A read is enough: shared memory has no zero page.
            let _ = unsafe { self.start.as_ptr().add(offset).read_volatile() };
        }
    }

    /// Bytes that are not in memory.
    pub fn absent_bytes(&self) -> io::Result<u64> {
        let mut present = vec![0_u8; self.bytes.div_ceil(SMALL_PAGE as usize)];
        // SAFETY: the kernel writes one byte per page of the range, which is mapped, and the vector has one byte per
        // page.
        let result = unsafe { libc::mincore(self.start.as_ptr().cast(), self.bytes, present.as_mut_ptr()) };
        if result == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(present.iter().filter(|page| **page & 1 == 0).count() as u64 * SMALL_PAGE)
    }

    /// Page size in bytes: more than [`SMALL_PAGE`](machine::SMALL_PAGE) for hugetlb pages.
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes as u64
    }

    /// The policies of its pages.
    pub fn policies(&self) -> io::Result<Vec<Row<MemoryPolicy>>> {
        self.rows(memory_policy_at)
    }

    /// The nodes of its pages. Populates them.
    pub fn nodes(&self) -> io::Result<Vec<Row<NodeId>>> {
        self.rows(node_at)
    }

    fn rows<T: PartialEq>(&self, value: impl Fn(usize) -> io::Result<T>) -> io::Result<Vec<Row<T>>> {
        let mut rows: Vec<Row<T>> = Vec::new();
        for offset in (0..self.bytes).step_by(self.page_bytes) {
            let value = value(self.start.as_ptr() as usize + offset)?;
            let end = self.offset + (offset + self.page_bytes) as u64;
            match rows.last_mut() {
                Some(row) if row.value == value => row.range.end = end,
                _ => rows.push(Row { range: self.offset + offset as u64..end, value }),
            }
        }
        Ok(rows)
    }
}

fn misplaced(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// The length of a range of memory that has `all` bytes, from an offset to its end or as given.
fn checked(offset: u64, length: Option<u64>, all: u64, page_bytes: usize) -> io::Result<u64> {
    let page_bytes = page_bytes as u64;
    let is_whole = |bytes: u64| page_bytes > 0 && bytes.is_multiple_of(page_bytes);
    let bytes = length.unwrap_or_else(|| all.saturating_sub(offset));
    match (length, bytes) {
        (Some(_), 0) => Err(misplaced("a length of 0 has no page")),
        (None, 0) if all == 0 => Err(misplaced("it is empty, and no length is given")),
        (None, 0) => Err(misplaced(&format!("it has {all} bytes: the offset is at its end or beyond"))),
        (None, _) if is_whole(offset) && !is_whole(bytes) => {
            Err(misplaced(&format!("it has {all} bytes, no multiple of its pages of {page_bytes}: give a length")))
        }
        _ if is_whole(offset) && is_whole(bytes) => Ok(bytes),
        _ => Err(misplaced(&format!("offset and length must be multiples of its pages of {page_bytes} bytes"))),
    }
}

/// Page size of a file in bytes: on hugetlbfs that of the mount.
fn page_bytes(file: &File, for_policy: bool) -> io::Result<usize> {
    let system = rustix::fs::fstatfs(file)?;
    match system.f_type {
        libc::HUGETLBFS_MAGIC => usize::try_from(system.f_bsize).map_err(|_| misplaced("its pages have no size")),
        libc::TMPFS_MAGIC => Ok(SMALL_PAGE as usize),
        _ if !for_policy => Ok(SMALL_PAGE as usize),
        _ => Err(misplaced("it is on neither tmpfs nor hugetlbfs, and elsewhere the kernel keeps no policy of a file")),
    }
}

/// The end of a range, if a segment may have as many bytes.
fn end(offset: u64, bytes: u64) -> io::Result<usize> {
    let end = offset.checked_add(bytes).and_then(|end| usize::try_from(end).ok());
    end.ok_or_else(|| misplaced("it is too long"))
}

/// The segment with this key, and its length in bytes. A missing one is created if a length is given.
fn segment(
    key: &SegmentKey<'_>,
    offset: u64,
    length: Option<u64>,
    mode: u32,
    created: &mut Vec<Created>,
) -> io::Result<(c_int, u64)> {
    let missing = || misplaced("there is no such segment, and no length to create one");
    let huge = if key.huge { libc::SHM_HUGETLB } else { 0 };
    if !fs::exists(key.file)? {
        length.ok_or_else(missing)?;
        match OpenOptions::new().write(true).create_new(true).mode(mode).open(key.file) {
            Ok(_) => created.push(Created::File(key.file.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    let number = ftok(key)?;
    // SAFETY: shmget takes integers.
    let get = |bytes: usize, flags: c_int| unsafe { libc::shmget(number, bytes, flags | huge) };
    let failed_by = |errno: i32| io::Error::last_os_error().raw_os_error() == Some(errno);
    let mut segment = get(0, 0);
    if segment == -1 && failed_by(libc::ENOENT) {
        let bytes = end(offset, length.ok_or_else(missing)?)?;
        // Exclusively, so that of several processes only the one that created it removes it.
        segment = get(bytes, libc::IPC_CREAT | libc::IPC_EXCL | mode.cast_signed());
        if segment != -1 {
            created.push(Created::Segment(segment));
        } else if failed_by(libc::EEXIST) {
            segment = get(0, 0);
        }
    }
    if segment == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok((segment, segment_bytes(segment)?))
}

fn ftok(key: &SegmentKey<'_>) -> io::Result<libc::key_t> {
    let path = CString::new(key.file.as_os_str().as_bytes())?;
    // SAFETY: ftok reads a C string.
    let number = unsafe { libc::ftok(path.as_ptr(), key.id) };
    if number == -1 { Err(io::Error::last_os_error()) } else { Ok(number) }
}

fn segment_bytes(segment: c_int) -> io::Result<u64> {
    // SAFETY: shmid_ds is plain data for which all zeroes is a value.
    let mut status: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: IPC_STAT writes one shmid_ds.
    let result = unsafe { libc::shmctl(segment, libc::IPC_STAT, &raw mut status) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(status.shm_segsz as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryMode, allowed_memory_nodes};

    #[test]
    fn a_file_in_memory_has_a_policy_that_others_see() {
        let Some(node) = allowed_memory_nodes().ok().and_then(|nodes| nodes.first()) else {
            return test_tools::skipped("memory policies may not be read here");
        };
        let file = tempfile::Builder::new().prefix("linux-crate").tempfile_in("/dev/shm").unwrap();
        let range = SharedRange::of_file(file.path(), 0, Some(64 << 10), 0o600, true).unwrap();
        range.set_policy(&MemoryPolicy::bind(node), Misplaced::default()).unwrap();
        assert_eq!(range.absent_bytes().unwrap(), 64 << 10);
        range.populate().unwrap();
        assert_eq!((range.absent_bytes().unwrap(), range.page_bytes()), (0, 4096));
        let again = SharedRange::of_file(file.path(), 4096, None, 0o600, true).unwrap();
        let policies = again.policies().unwrap();
        assert_eq!(policies, [Row { range: 4096..64 << 10, value: MemoryPolicy::bind(node) }]);
        assert_eq!(again.nodes().unwrap(), [Row { range: 4096..64 << 10, value: node }]);
        assert_eq!(policies[0].value.mode, MemoryMode::Bind);
        assert!(SharedRange::of_file(file.path(), 1, None, 0o600, true).is_err());
        let refused =
            |offset, length| SharedRange::of_file(file.path(), offset, length, 0o600, true).unwrap_err().to_string();
        assert!(refused(64 << 10, None).contains("it has 65536 bytes"), "{}", refused(64 << 10, None));
        assert!(refused(0, Some(0)).contains("a length of 0"));
        // No process has as many addresses.
        let new = file.path().with_extension("new");
        for path in [file.path(), &new] {
            assert!(SharedRange::of_file(path, 0, Some(1 << 60), 0o600, true).is_err());
        }
        assert_eq!((file.as_file().metadata().unwrap().len(), new.exists()), (64 << 10, false));
        let other = SharedRange::of_file(Path::new("/proc/self/comm"), 0, Some(4096), 0o600, true);
        assert!(other.is_err_and(|why| why.to_string().contains("neither tmpfs nor hugetlbfs")));
        assert!(SharedRange::of_file(Path::new("/nowhere/file"), 0, None, 0o600, true).is_err());
    }

    #[test]
    fn a_segment_is_made_and_found_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let key = SegmentKey { file: file.path(), id: 7, huge: false };
        let missing = SharedRange::of_segment(&key, 0, None, 0o600).unwrap_err();
        assert!(missing.to_string().contains("no length"), "{missing}");
        let range = SharedRange::of_segment(&key, 0, Some(16 << 10), 0o600).unwrap();
        range.populate().unwrap();
        let again = SharedRange::of_segment(&key, 8192, None, 0o600).unwrap();
        assert_eq!((again.bytes, again.offset), (8192, 8192));
        assert!(
            SharedRange::of_segment(&key, 0, Some(32 << 10), 0o600)
                .unwrap_err()
                .to_string()
                .contains("cannot be extended")
        );
        again.undo();
        assert!(SharedRange::of_segment(&key, 0, None, 0o600).is_ok(), "only the range that created it removes it");
        range.undo();
        assert!(SharedRange::of_segment(&key, 0, None, 0o600).is_err());
        assert!(SharedRange::of_segment(&key, 1, Some(4096), 0o600).is_err(), "no page begins there");
        let missing = SharedRange::of_segment(&key, 0, None, 0o600).unwrap_err();
        assert!(missing.to_string().contains("no length"), "a refused request leaves no segment: {missing}");
    }

    #[test]
    fn what_was_created_is_removed_again() {
        let folder = tempfile::Builder::new().prefix("linux-crate").tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("file");
        let map = |bytes| SharedRange::of_file(&path, 0, Some(bytes), 0o600, true).unwrap();
        map(8192).undo();
        assert!(!path.exists());
        let (first, length) = (map(8192), || fs::metadata(&path).unwrap().len());
        let (extended, within) = (map(16384), map(4096));
        within.undo();
        assert_eq!(length(), 16384);
        extended.undo();
        assert_eq!(length(), 8192);
        map(16384);
        first.undo();
        assert!(!path.exists());

        let key_file = folder.path().join("key");
        let key = SegmentKey { file: &key_file, id: 7, huge: false };
        assert!(SharedRange::of_segment(&key, 0, None, 0o600).unwrap_err().to_string().contains("no length"));
        assert!(!key_file.exists(), "nothing is to be created");
        SharedRange::of_segment(&key, 0, Some(4096), 0o600).unwrap().undo();
        assert!(!key_file.exists());
    }
}
