//! Locating pages of a process and moving them to other nodes, many per call (`move_pages`).

use crate::memory::memory_policy::Whose;
use crate::processes::process::Pid;
use machine::{HUGE_PAGE, NodeId};
use std::ffi::c_int;
use std::io;
use std::ptr::null;
use std::sync::{Mutex, PoisonError};

/// Maximum number of threads that move pages at once: more would wait for each other's locks, and take CPUs from
/// programs.
const MOST_MOVERS: usize = 4;
/// Least work worth a thread, in small pages.
const LEAST_WORK: usize = 256;
/// Time to move a huge page, in small pages: some milliseconds, nearly all of it copying.
const HUGE_WORK: usize = 128;
/// A status that the kernel has not written yet. It cannot collide: the kernel writes nodes, or errors above -4,096.
const UNTOLD: PageStatus = PageStatus(c_int::MIN);
/// A page that the kernel tried to move, without success.
const STAYED: PageStatus = PageStatus(c_int::MIN + 1);

/// The kernel's status of one page: a node, or an error. As small as the kernel's own, so that a million of them take 4
/// MB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct PageStatus(c_int);

/// Why a page has no node, or was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageRefusal {
    /// Not present: never touched, swapped out, or freed meanwhile.
    NotPresent,
    /// The shared zero page, of memory that was read but never written, or the range is no longer mapped.
    ZeroOrUnmapped,
    /// Other processes map it too, and only private pages were to be moved.
    Shared,
    /// Not on the lists that moving needs: pinned, being moved or written elsewhere, or not movable.
    Busy,
    /// The kernel tried, without success: the page is in use (direct I/O, a device, RDMA, a process that pinned it), or
    /// the node has no room.
    Stayed,
    /// The kernel has no memory for it on that node.
    NoMemory,
    /// Its write-back failed.
    WriteBack,
    /// Another error, as errno.
    Other(i32),
}

impl PageRefusal {
    /// The reason in one word, as in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::NotPresent | Self::ZeroOrUnmapped => "gone",
            Self::Shared => "shared",
            Self::Busy => "busy",
            Self::Stayed => "held",
            Self::NoMemory => "no_memory",
            Self::WriteBack => "write_back",
            Self::Other(_) => "other",
        }
    }
}

impl PageStatus {
    /// The node of the page, or why it is unknown.
    pub fn node(self) -> Result<NodeId, PageRefusal> {
        match self.0 {
            node @ 0.. => Ok(NodeId(node.cast_unsigned())),
            _ if self == STAYED => Err(PageRefusal::Stayed),
            error => Err(PageRefusal::from_errno(error.wrapping_neg())),
        }
    }
}

impl PageRefusal {
    fn from_errno(errno: c_int) -> Self {
        match errno {
            libc::ENOENT => Self::NotPresent,
            libc::EFAULT => Self::ZeroOrUnmapped,
            libc::EACCES => Self::Shared,
            libc::EBUSY => Self::Busy,
            libc::ENOMEM => Self::NoMemory,
            libc::EIO => Self::WriteBack,
            other => Self::Other(other),
        }
    }
}

/// Pages of one process with their targets. Reusing a batch avoids allocation.
#[derive(Clone, Debug, Default)]
pub struct PageBatch {
    addresses: Vec<u64>,
    targets: Vec<c_int>,
    statuses: Vec<PageStatus>,
}

impl PageBatch {
    /// A batch with room for this many pages.
    pub fn with_capacity(pages: usize) -> Self {
        let (addresses, targets) = (Vec::with_capacity(pages), Vec::with_capacity(pages));
        Self { addresses, targets, statuses: Vec::with_capacity(pages) }
    }

    /// Removes all pages, and keeps the allocation.
    pub fn clear(&mut self) {
        self.addresses.clear();
        self.targets.clear();
        self.statuses.clear();
    }

    /// Keeps only the first `pages` pages.
    pub fn truncate(&mut self, pages: usize) {
        self.addresses.truncate(pages);
        self.targets.truncate(pages);
        self.statuses.truncate(pages);
    }

    /// The number of pages.
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Adds a page by address. A page without a target can only be [located](Self::locate); a batch with such a page
    /// cannot be moved. One address per huge page is enough.
    pub fn push(&mut self, address: u64, target: Option<NodeId>) {
        self.addresses.push(address);
        self.targets.push(target.map_or(-1, |node| node.0.cast_signed()));
        self.statuses.push(UNTOLD);
    }

    /// Page addresses and their statuses, in insertion order.
    pub fn statuses(&self) -> impl Iterator<Item = (u64, PageStatus)> + '_ {
        self.addresses.iter().copied().zip(self.statuses.iter().copied())
    }

    /// Pages with a target, their targets and statuses, in insertion order.
    pub fn outcomes(&self) -> impl Iterator<Item = (u64, NodeId, PageStatus)> + '_ {
        let targets = self.targets.iter().map(|target| u32::try_from(*target).ok().map(NodeId));
        self.statuses().zip(targets).filter_map(|((address, status), target)| Some((address, target?, status)))
    }

    /// Looks up the node of each page, without touching any. Since Linux 2.6.18, as is moving them. Needs the process's
    /// user, or `CAP_SYS_PTRACE` (EPERM). ESRCH: the process has exited.
    pub fn locate(&mut self, pid: Pid) -> io::Result<()> {
        let all = self.len();
        self.whole().locate(pid, 0, all)
    }

    /// Moves each page to its target, and records where it is afterwards or why it stayed. One page that cannot be
    /// moved does not affect others. Contents do not change, even with concurrent writers. Needs the process's user, or
    /// `CAP_SYS_PTRACE`; `CAP_SYS_NICE` for [`Whose::All`] (both EPERM). Errors of the whole call: EACCES if a target
    /// is outside the process's cpuset, ENODEV if it has no memory, ESRCH if the process has exited.
    ///
    /// Large batches are moved by several threads, as most of the time is spent waiting: for memory, and for TLB
    /// shootdowns on other CPUs. Returns the number of threads.
    pub fn move_pages(&mut self, pid: Pid, whose: Whose) -> io::Result<usize> {
        // Small batches skip reading the number of CPUs.
        let cpus = || std::thread::available_parallelism().map_or(1, usize::from).min(MOST_MOVERS);
        let most = if self.whole().work() > LEAST_WORK { cpus() } else { 1 };
        self.move_pages_by(most, pid, whose)
    }

    /// Like [`move_pages`](Self::move_pages), by at most `most` threads.
    pub fn move_pages_by(&mut self, most: usize, pid: Pid, whose: Whose) -> io::Result<usize> {
        self.statuses.fill(UNTOLD);
        let parts = self.whole().cut(most.max(1));
        let movers = parts.len();
        let parts = Mutex::new(parts);
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mover = || std::iter::from_fn(next).try_for_each(|mut part| part.move_pages(pid, whose));
        std::thread::scope(|scope| {
            // If no more threads can be started, the existing ones move all parts.
            let helper = |_| std::thread::Builder::new().spawn_scoped(scope, mover).ok();
            let helpers: Vec<_> = (1..movers).map_while(helper).collect();
            let mut told = std::iter::once(mover()).chain(helpers.into_iter().filter_map(|helper| helper.join().ok()));
            told.try_for_each(|told| told)
        })?;
        if movers > 1 {
            self.move_alone_what_stayed(pid, whose)?;
        }
        Ok(movers)
    }

    /// The kernel moves huge pages of one hugetlbfs file one at a time, and fails concurrent moves.
    fn move_alone_what_stayed(&mut self, pid: Pid, whose: Whose) -> io::Result<()> {
        let indexes: Vec<usize> = (0..self.len()).filter(|&index| self.statuses[index] == STAYED).collect();
        let mut again = Self {
            addresses: indexes.iter().map(|&index| self.addresses[index]).collect(),
            targets: indexes.iter().map(|&index| self.targets[index]).collect(),
            statuses: vec![UNTOLD; indexes.len()],
        };
        again.whole().move_pages(pid, whose)?;
        indexes.into_iter().zip(again.statuses).for_each(|(index, status)| self.statuses[index] = status);
        Ok(())
    }

    fn whole(&mut self) -> Part<'_> {
        Part { addresses: &self.addresses, targets: &self.targets, statuses: &mut self.statuses }
    }
}

/// Consecutive pages of a batch, for one thread to move.
struct Part<'a> {
    addresses: &'a [u64],
    targets: &'a [c_int],
    statuses: &'a mut [PageStatus],
}

impl Part<'_> {
    /// Cuts it into at most `most` parts of about equal work, each worth a thread, without splitting a huge page.
    fn cut(self, most: usize) -> Vec<Self> {
        let share = self.work().div_ceil(most).max(LEAST_WORK);
        let mut parts = Vec::with_capacity(most);
        let mut rest = self;
        while let Some(end) = rest.end_of(share) {
            let (part, behind) = rest.split_at(end);
            parts.push(part);
            rest = behind;
        }
        parts.push(rest);
        parts.retain(|part| !part.statuses.is_empty());
        parts
    }

    /// Its total work, in small pages.
    fn work(&self) -> usize {
        (0..self.addresses.len()).map(|index| self.work_at(index)).sum()
    }

    /// A single address at the start of a huge page almost always stands for a huge page, rarely for a small one.
    fn work_at(&self, index: usize) -> usize {
        let is_huge = self.addresses[index].is_multiple_of(HUGE_PAGE) && !self.goes_on(index);
        if is_huge { HUGE_WORK } else { 1 }
    }

    /// Whether the next address may belong to the same huge page.
    fn goes_on(&self, index: usize) -> bool {
        let huge = HUGE_PAGE;
        self.addresses.get(index + 1).is_some_and(|next| next / huge == self.addresses[index] / huge)
    }

    /// Where a share of the work ends, if anything remains after it.
    fn end_of(&self, share: usize) -> Option<usize> {
        let mut work = 0;
        let is_end = |index: &usize| {
            work += self.work_at(*index);
            work >= share && !self.goes_on(*index)
        };
        let last = (0..self.addresses.len()).find(is_end)?;
        Some(last + 1).filter(|&end| end < self.addresses.len())
    }

    fn split_at(self, index: usize) -> (Self, Self) {
        let (addresses, more_addresses) = self.addresses.split_at(index);
        let (targets, more_targets) = self.targets.split_at(index);
        let (statuses, more_statuses) = self.statuses.split_at_mut(index);
        let rest = Part { addresses: more_addresses, targets: more_targets, statuses: more_statuses };
        (Part { addresses, targets, statuses }, rest)
    }

    fn locate(&mut self, pid: Pid, from: usize, to: usize) -> io::Result<()> {
        let (Some(addresses), Some(statuses)) = (self.addresses.get(from..to), self.statuses.get_mut(from..to)) else {
            return Ok(());
        };
        let (count, nowhere, flags) = (addresses.len(), null::<c_int>(), 0);
        // SAFETY: the kernel reads `count` addresses and, without targets, writes `count` numbers: both are valid. The
        // addresses belong to the other process, and are only looked up.
        let result = unsafe {
            let (pages, told) = (addresses.as_ptr(), statuses.as_mut_ptr());
            libc::syscall(libc::SYS_move_pages, pid.0, count, pages, nowhere, told, flags)
        };
        if result == -1 { Err(refused()) } else { Ok(()) }
    }

    fn move_pages(&mut self, pid: Pid, whose: Whose) -> io::Result<()> {
        let mut done = 0;
        while done < self.statuses.len() {
            let told = self.call(pid, whose, done);
            match told {
                Ok(0) => break,
                Err(error) if error.raw_os_error() != Some(libc::ENOMEM) => return Err(error),
                Ok(_) | Err(_) => {}
            }
            // The kernel stops at the first run of pages in which some stayed, without saying which. It has tried the
            // whole run, and nothing after it.
            let Some(row) = self.untold_row(done) else { break };
            self.locate(pid, row.start, row.end)?;
            let stayed = if told.is_err() { PageStatus(-libc::ENOMEM) } else { STAYED };
            for (status, target) in self.statuses[row.clone()].iter_mut().zip(&self.targets[row.clone()]) {
                if status.0 >= 0 && status.0 != *target {
                    *status = stayed;
                }
            }
            done = row.end;
        }
        self.look_again_at_busy_ones(pid)
    }

    fn call(&mut self, pid: Pid, whose: Whose, from: usize) -> io::Result<usize> {
        let (addresses, targets, statuses) =
            (&self.addresses[from..], &self.targets[from..], &mut self.statuses[from..]);
        let count = addresses.len();
        // SAFETY: the kernel reads `count` addresses and targets and writes `count` numbers: the three have equal
        // length. Moving a page does not change the contents of any process's memory.
        let result = unsafe {
            let (pages, nodes, told) = (addresses.as_ptr(), targets.as_ptr(), statuses.as_mut_ptr());
            libc::syscall(libc::SYS_move_pages, pid.0, count, pages, nodes, told, whose.flag())
        };
        usize::try_from(result).map_err(|_| refused())
    }

    /// The first run of pages with one target and no status yet.
    fn untold_row(&self, from: usize) -> Option<std::ops::Range<usize>> {
        let start = from + self.statuses.get(from..)?.iter().position(|status| *status == UNTOLD)?;
        let target = self.targets.get(start)?;
        let same = |(status, node): &(&PageStatus, &c_int)| **status == UNTOLD && *node == target;
        let rest = self.statuses[start..].iter().zip(&self.targets[start..]);
        Some(start..start + rest.take_while(same).count())
    }

    /// A small page of a huge page is busy while the huge page is moved on behalf of its first address: most such pages
    /// have arrived by now.
    fn look_again_at_busy_ones(&mut self, pid: Pid) -> io::Result<()> {
        let busy = PageStatus(-libc::EBUSY);
        let mut index = 0;
        while let Some(ahead) = self.statuses[index..].iter().position(|status| *status == busy) {
            let start = index + ahead;
            let count = self.statuses[start..].iter().take_while(|status| **status == busy).count();
            index = start + count;
            self.locate(pid, start, index)?;
            for (status, target) in self.statuses[start..index].iter_mut().zip(&self.targets[start..index]) {
                if status.0 >= 0 && status.0 != *target {
                    *status = busy;
                }
            }
        }
        Ok(())
    }
}

/// An exiting process loses its memory before it disappears: then the kernel returns EINVAL (`find_mm_struct` in its
/// mm/migrate.c). No other cause of EINVAL applies to the calls here.
fn refused() -> io::Error {
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::EINVAL) { io::Error::from_raw_os_error(libc::ESRCH) } else { error }
}

#[cfg(test)]
mod tests {
    use super::PageRefusal::{Busy, NoMemory, NotPresent, Other, Shared, Stayed, WriteBack, ZeroOrUnmapped};
    use super::*;

    fn own() -> Pid {
        Pid(std::process::id())
    }

    #[test]
    fn own_pages_are_located_and_stay_on_their_node() {
        let values = vec![7_u8; 64 << 10];
        let start = values.as_ptr() as u64 & !4095;
        let mut batch = PageBatch::with_capacity(18);
        for page in 1..16 {
            batch.push(start + page * 4096, None);
        }
        batch.push(8, None);
        match batch.locate(own()) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => return,
            located => located.unwrap(),
        }
        let told: Vec<_> = batch.statuses().map(|(_, status)| status.node()).collect();
        let node = told[0].unwrap();
        assert!(told[..15].iter().all(|status| *status == Ok(node)), "{told:?}");
        assert!(matches!(told[15], Err(ZeroOrUnmapped | NotPresent)), "{told:?}");
        batch.clear();
        for page in 1..16 {
            batch.push(start + page * 4096, Some(node));
        }
        batch.push(8, Some(node));
        batch.move_pages(own(), Whose::Private).unwrap();
        assert_eq!(batch.statuses().filter(|(_, status)| status.node() == Ok(node)).count(), 15);
        assert_eq!((values[0], values[65535]), (7, 7));
    }

    #[test]
    fn a_node_that_is_not_there_is_an_error_of_the_call() {
        let value = Box::new(7_u8);
        let mut batch = PageBatch::default();
        batch.push(std::ptr::from_ref(&*value) as u64, Some(NodeId(1000)));
        let error = batch.move_pages(own(), Whose::Private).unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EPERM | libc::ENOSYS)), "{error}");
    }

    #[test]
    fn a_process_that_has_ended_and_is_not_yet_gone_is_no_more() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid(child.id());
        let has_memory = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap().contains("VmSize");
        while has_memory() {
            std::thread::yield_now();
        }
        let mut batch = PageBatch::default();
        batch.push(4096, Some(NodeId(0)));
        for told in [batch.locate(pid), batch.move_pages(pid, Whose::Private).map(drop)] {
            let error = told.unwrap_err();
            assert!(matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EPERM | libc::ENOSYS)), "{error}");
        }
        child.wait().unwrap();
    }

    #[test]
    fn parts_are_all_of_it_and_cut_no_huge_page() {
        let lengths = |pages: &[u64]| {
            let mut batch = PageBatch::default();
            for page in pages {
                batch.push(page * 4096, Some(NodeId(0)));
            }
            let parts = batch.whole().cut(4);
            let all: Vec<u64> =
                parts.iter().flat_map(|part| part.addresses.iter().map(|address| address / 4096)).collect();
            assert_eq!(all, pages);
            let whole = |part: &Part| [part.addresses.len(), part.targets.len()] == [part.statuses.len(); 2];
            assert!(parts.iter().all(whole));
            parts.iter().map(|part| part.statuses.len()).collect::<Vec<_>>()
        };
        let (few, apart): (Vec<u64>, Vec<u64>) =
            ((0..LEAST_WORK as u64).collect(), (0..2000).map(|page| page * 512).collect());
        assert_eq!(lengths(&[]), [] as [usize; 0]);
        assert_eq!(lengths(&few), [LEAST_WORK]);
        assert_eq!(lengths(&apart), [500; 4]);
        assert_eq!(lengths(&apart[..8]), [2; 4]);
        assert_eq!(lengths(&apart[..2]), [2]);
        let together: Vec<u64> = (0..2000).collect();
        assert_eq!(lengths(&together), [512, 512, 512, 464]);
        let one: Vec<u64> = (0..512).collect();
        assert_eq!(lengths(&one), [512]);
    }

    #[test]
    fn many_pages_are_moved_by_several_threads() {
        let values = vec![7_u8; 8 << 20];
        let start = (values.as_ptr() as u64).next_multiple_of(4096);
        let mut batch = PageBatch::default();
        for page in 0..2000 {
            batch.push(start + page * 4096, Some(NodeId(0)));
        }
        match batch.move_pages(own(), Whose::Private) {
            Err(error) => assert!(matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)), "{error}"),
            Ok(movers) => {
                let cpus = std::thread::available_parallelism().map_or(1, usize::from);
                assert_eq!(movers > 1, cpus > 1, "{movers} movers on {cpus} CPUs");
                assert!(movers <= MOST_MOVERS);
                assert_eq!(batch.statuses().filter(|(_, status)| status.node() == Ok(NodeId(0))).count(), 2000);
            }
        }
        assert!(values.iter().all(|value| *value == 7));
    }

    #[test]
    fn rows_end_at_a_known_status_or_another_target() {
        let mut batch = PageBatch::default();
        for target in [0, 0, 0, 1, 1] {
            batch.push(0, Some(NodeId(target)));
        }
        assert_eq!(batch.whole().untold_row(0), Some(0..3));
        batch.statuses[0] = PageStatus(0);
        assert_eq!(batch.whole().untold_row(0), Some(1..3));
        assert_eq!(batch.whole().untold_row(3), Some(3..5));
        batch.statuses.fill(PageStatus(0));
        assert_eq!(batch.whole().untold_row(0), None);
        assert_eq!(batch.whole().untold_row(9), None);
    }

    #[test]
    fn every_answer_has_a_meaning() {
        let refusals = [-libc::ENOENT, -libc::EFAULT, -libc::EACCES, -libc::EBUSY, -libc::ENOMEM, -libc::EIO, -1];
        let refusals = refusals.map(|errno| PageStatus(errno).node().unwrap_err());
        assert_eq!(refusals, [NotPresent, ZeroOrUnmapped, Shared, Busy, NoMemory, WriteBack, Other(1)]);
        assert_eq!((PageStatus(3).node(), STAYED.node()), (Ok(NodeId(3)), Err(Stayed)));
        assert!(UNTOLD.node().is_err());
    }
}
