//! Finds the pages of a process that are present, as runs of neighbours, without touching them.

use crate::processes::process::{Process, ProcessError};
use machine::{HUGE_PAGE, SMALL_PAGE, is_kernel_address};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Neighbouring present pages of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Their address range.
    pub range: Range<u64>,
    /// Page size in bytes: 4 KiB, or 2 MiB for huge page table entries. A 1 GiB page is reported as pages of 2 MiB.
    pub page_bytes: u64,
}

/// Finds pages of one process. Zero pages, which are shared until they are written, are left out if the kernel can
/// distinguish them.
#[derive(Debug)]
pub struct PresentPages {
    file: File,
    /// `None` once `PAGEMAP_SCAN` turned out to be missing; it needs Linux 6.7.
    regions: Option<Vec<Region>>,
}

const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610; // _IOWR('f', 16, struct pm_scan_arg), from linux/fs.h
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
const PAGE_IS_HUGE: u64 = 1 << 6;
/// Regions per call.
const MOST_REGIONS: usize = 512;
/// Entries of /proc/PID/pagemap per read: 128 MiB of address space.
const MOST_ENTRIES: u64 = 32 << 10;
/// The bit of a pagemap entry for a present page.
const PRESENT_BIT: u64 = 1 << 63;

/// `struct pm_scan_arg` of `linux/fs.h`.
#[repr(C)]
#[derive(Debug, Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    region_count: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of `linux/fs.h`.
#[repr(C)]
#[derive(Clone, Debug, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

impl PresentPages {
    /// A finder for this process. Needs the process's user, or `CAP_SYS_PTRACE`.
    pub fn new(process: &Process) -> Result<Self, ProcessError> {
        Ok(Self { file: process.file("pagemap")?, regions: Some(vec![Region::default(); MOST_REGIONS]) })
    }

    /// Whether huge pages have been reported as such so far: with Linux 6.7 or newer.
    pub fn shows_huge_pages(&self) -> bool {
        self.regions.is_some()
    }

    /// Appends what is present in a range, from its start, and returns the address up to which it searched: the end of
    /// the range, or earlier if one call cannot report everything. An exited process has nothing.
    pub fn find(&mut self, range: &Range<u64>, found: &mut Vec<Extent>) -> io::Result<u64> {
        // /proc/PID/maps lists `[vsyscall]`, which belongs to the kernel; the kernel returns EFAULT for it.
        if is_kernel_address(range.start) {
            return Ok(range.end);
        }
        if let Some(regions) = &mut self.regions {
            match scan(&self.file, range, regions, found) {
                Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => self.regions = None,
                told => return told,
            }
        }
        entries(&self.file, range, found)
    }
}

fn scan(file: &File, range: &Range<u64>, regions: &mut [Region], found: &mut Vec<Extent>) -> io::Result<u64> {
    let mut arguments = ScanArguments {
        size: size_of::<ScanArguments>() as u64,
        start: range.start,
        end: range.end,
        regions: regions.as_mut_ptr() as u64,
        region_count: regions.len() as u64,
        category_inverted: PAGE_IS_PFNZERO,
        category_mask: PAGE_IS_PRESENT | PAGE_IS_PFNZERO,
        return_mask: PAGE_IS_PRESENT | PAGE_IS_HUGE,
        ..ScanArguments::default()
    };
    // SAFETY: the kernel reads and writes one pm_scan_arg of the size in it, and writes at most `region_count` regions,
    // which is how many there are.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), PAGEMAP_SCAN, &raw mut arguments) };
    let count = usize::try_from(result).map_err(|_| io::Error::last_os_error())?;
    for region in regions.iter().take(count) {
        let huge = region.categories & PAGE_IS_HUGE != 0;
        let page_bytes = if huge { HUGE_PAGE } else { SMALL_PAGE };
        found.push(Extent { range: region.start..region.end, page_bytes });
    }
    // Without progress the caller would loop forever.
    if arguments.walk_end > range.start { Ok(arguments.walk_end) } else { Ok(range.end) }
}

fn entries(file: &File, range: &Range<u64>, found: &mut Vec<Extent>) -> io::Result<u64> {
    let first = range.start / SMALL_PAGE;
    let count = (range.end.div_ceil(SMALL_PAGE) - first).min(MOST_ENTRIES);
    let mut bytes = vec![0; count as usize * 8];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, first * 8 + filled as u64)? {
            0 => break,
            more => filled += more,
        }
    }
    bytes.truncate(filled);
    for (page, entry) in (first..).zip(bytes.as_chunks().0) {
        if u64::from_ne_bytes(*entry) & PRESENT_BIT == 0 {
            continue;
        }
        let address = page * SMALL_PAGE;
        match found.last_mut() {
            Some(last) if last.range.end == address => last.range.end += SMALL_PAGE,
            _ => found.push(Extent { range: address..address + SMALL_PAGE, page_bytes: SMALL_PAGE }),
        }
    }
    Ok(if filled == 0 { range.end } else { ((first + count) * SMALL_PAGE).min(range.end) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::process::Pid;

    fn all(pages: &mut PresentPages, range: &Range<u64>) -> Vec<Extent> {
        let (mut found, mut from) = (Vec::new(), range.start);
        while from < range.end {
            from = pages.find(&(from..range.end), &mut found).unwrap();
        }
        found
    }

    #[test]
    fn what_is_the_kernels_is_not_looked_at() {
        let mut pages = PresentPages::new(&Process::open(Pid(std::process::id())).unwrap()).unwrap();
        let vsyscall = 0xffff_ffff_ff60_0000..0xffff_ffff_ff60_1000;
        assert_eq!(all(&mut pages, &vsyscall), []);
        pages.regions = None;
        assert_eq!(all(&mut pages, &vsyscall), []);
    }

    #[test]
    fn only_what_was_written_is_there_however_it_is_asked() {
        let mut memory = crate::Pages::reserve(4 << 20).unwrap();
        memory.advise_huge(false).unwrap();
        let range = memory.range();
        let process = Process::open(Pid(std::process::id())).unwrap();
        let mut pages = PresentPages::new(&process).unwrap();
        assert_eq!(all(&mut pages, &range), []);
        memory.touch(5 * 4096);
        memory.touch(6 * 4096);
        memory.touch(1000 * 4096);
        let at = |page: u64, count: u64| {
            let start = range.start + page * SMALL_PAGE;
            Extent { range: start..start + count * SMALL_PAGE, page_bytes: SMALL_PAGE }
        };
        assert_eq!(all(&mut pages, &range), [at(5, 2), at(1000, 1)]);
        pages.regions = None;
        assert_eq!(all(&mut pages, &range), [at(5, 2), at(1000, 1)]);
    }
}
