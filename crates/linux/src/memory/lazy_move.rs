//! Moves each page of a memory when it is touched next, to the node of the thread that touches it.
//!
//! The pages are set aside at another address, which leaves the memory without pages. Each fault that follows is
//! resolved by a thread of its own: with the page's contents, on the node of the thread that waits.

use crate::memory::advice::{Advice, advise};
use crate::memory::memory_policy::{
    Misplaced, bind_range, memory_policy, memory_policy_at, node_at, set_memory_policy,
};
use crate::memory::node_memory::NodeMemory;
use crate::memory::user_faults::{Fault, Faults, UserFaults};
use crate::nodes::node_state::NodeState;
use crate::processes::process::{Pid, Process};
use crate::processes::signals::with_signals_blocked;
use crate::residence::pagemap::Pagemap;
use machine::{CpuId, MemoryMode, MemoryPolicy, NodeId, SMALL_PAGE};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::mm::munmap;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::ptr::{NonNull, with_exposed_provenance_mut};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

const PAGE: usize = SMALL_PAGE as usize;
/// Pages whose state is looked up at once when the rest is put back.
const LOOKED_UP: usize = 512;

/// What became of a memory's pages, in base pages of 4 KiB. A page that was never written is in none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LazyTally {
    /// Touched, and moved to the node of the thread that touched them.
    pub moved: u64,
    /// Touched, and on that node already.
    pub there: u64,
    /// Touched, and now on another node: that one had no room.
    pub no_room: u64,
    /// Not touched: on the node that they were on.
    pub untouched: u64,
}

/// A step of the kernel that was refused.
#[derive(Debug)]
pub struct LazyMoveError {
    /// The kernel's call.
    pub call: &'static str,
    /// Its answer.
    pub answer: io::Error,
}

fn of(call: &'static str) -> impl Fn(io::Error) -> LazyMoveError {
    move |answer| LazyMoveError { call, answer }
}

/// A memory whose pages move when they are touched next. It can be used meanwhile as always, except that processes that
/// are forked meanwhile do not have it. Its own memory policy is gone.
#[derive(Debug)]
pub struct LazyMove {
    /// `None` after the end.
    memory: Option<NodeMemory>,
    mover: Option<JoinHandle<LazyTally>>,
    stop: Arc<OwnedFd>,
}

impl LazyMove {
    /// From now on, pages move when they are touched. Gives the memory back where the kernel refuses: `userfaultfd` as
    /// [`Faults`] says; `mremap` with EFAULT if parts of the memory were protected or locked differently, and with
    /// EINVAL before Linux 5.7.
    pub fn new(memory: NodeMemory, whose: Faults) -> Result<Self, (NodeMemory, LazyMoveError)> {
        match Mover::new(&memory, whose).and_then(|mover| start(mover, &memory)) {
            Ok((mover, stop)) => Ok(Self { memory: Some(memory), mover: Some(mover), stop }),
            Err(error) => Err((memory, error)),
        }
    }

    /// The memory.
    pub fn memory(&self) -> Option<&NodeMemory> {
        self.memory.as_ref()
    }

    /// The memory, to write.
    pub fn memory_mut(&mut self) -> Option<&mut NodeMemory> {
        self.memory.as_mut()
    }

    /// Ends it: pages that were not touched are back, on their nodes. Takes as long as copying those.
    pub fn end(mut self) -> Option<(NodeMemory, LazyTally)> {
        let tally = self.stop()?;
        Some((self.memory.take()?, tally))
    }

    fn stop(&mut self) -> Option<LazyTally> {
        let mover = self.mover.take()?;
        // An event descriptor that was never written takes a 1 at once.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        let tally = mover.join().ok();
        if let Some(memory) = &self.memory {
            let _ = advise(&memory.range(), Advice::InForkedProcesses);
        }
        tally
    }
}

impl Drop for LazyMove {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Sets the pages aside and starts the thread that brings them back.
fn start(mut mover: Mover, memory: &NodeMemory) -> Result<(JoinHandle<LazyTally>, Arc<OwnedFd>), LazyMoveError> {
    let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| of("eventfd")(error.into()))?);
    let range = memory.range();
    let bind = |policy: &MemoryPolicy| bind_range(range.start, range.len(), policy, Misplaced::default());
    let policy = memory_policy_at(range.start).map_err(of("get_mempolicy"))?;
    bind(&MemoryPolicy::default()).map_err(of("mbind"))?;
    let put_back = || {
        let _ = bind(&policy);
        let _ = advise(&range, Advice::InForkedProcesses);
    };
    // A forked process would have the memory without its pages: as zeros.
    if let Err(refused) = advise(&range, Advice::NotInForkedProcesses) {
        put_back();
        return Err(of("madvise")(refused));
    }
    // All faults wait until the thread runs, from the moment on at which the pages are gone.
    let (go, wait) = std::sync::mpsc::channel::<Mover>();
    let ends = stop.clone();
    let body = move || wait.recv().map(|mover| mover.run(&ends)).unwrap_or_default();
    // A handler of the program's that ran on this thread and touched the memory would wait for itself.
    let thread = with_signals_blocked(|| Builder::new().name("nearside-lazy".to_owned()).spawn(body));
    let set_aside = thread.map_err(of("clone")).and_then(|thread| Ok((thread, mover.set_aside(&range)?)));
    match set_aside {
        Ok((thread, ())) => {
            let _ = go.send(mover);
            Ok((thread, stop))
        }
        Err(error) => {
            put_back();
            Err(error)
        }
    }
}

/// The pages that were set aside, and what brings them back.
struct Mover {
    faults: UserFaults,
    pagemap: Pagemap,
    nodes: BTreeMap<CpuId, NodeId>,
    /// The memory's start.
    start: usize,
    /// Where its pages are now.
    aside: Option<(NonNull<u8>, usize)>,
    /// The node on which the calling thread's new pages are.
    policy: Option<NodeId>,
    tally: LazyTally,
}

// SAFETY: what was set aside belongs to the process, and this is its only owner.
unsafe impl Send for Mover {}

impl Mover {
    fn new(memory: &NodeMemory, whose: Faults) -> Result<Self, LazyMoveError> {
        memory_policy().map_err(of("get_mempolicy"))?;
        let own = Process::open(Pid(std::process::id()));
        let pagemap = own.and_then(|own| Pagemap::new(&own));
        let pagemap = pagemap.map_err(|error| of("open /proc/self/pagemap")(io::Error::other(error)))?;
        let nodes = NodeState::read(Path::new("/sys")).unwrap_or_default().of_cpus();
        let faults = UserFaults::new(&memory.range(), whose).map_err(of("userfaultfd"))?;
        let (start, tally) = (memory.range().start, LazyTally::default());
        Ok(Self { faults, pagemap, nodes, start, aside: None, policy: None, tally })
    }

    /// Moves the page table of the memory to another address.
    fn set_aside(&mut self, range: &Range<usize>) -> Result<(), LazyMoveError> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
        // With this flag the kernel reads the fifth argument, a wish for the new address, which rustix does not pass.
        // SAFETY: the memory stays mapped, and each access to it waits for the page's contents from now on.
        let aside = unsafe { libc::syscall(libc::SYS_mremap, range.start, range.len(), range.len(), flags, 0_usize) };
        if aside < 0 {
            return Err(of("mremap")(io::Error::last_os_error()));
        }
        let aside: *mut u8 = with_exposed_provenance_mut(aside.cast_unsigned() as usize);
        self.aside = NonNull::new(aside).map(|start| (start, range.len()));
        Ok(())
    }

    /// Brings pages until the end is asked for, and then the rest.
    fn run(mut self, stop: &OwnedFd) -> LazyTally {
        loop {
            let mut ready = [PollFd::new(stop, PollFlags::IN), PollFd::new(&self.faults, PollFlags::IN)];
            let _ = poll(&mut ready, None);
            if ready[0].revents().contains(PollFlags::IN) {
                break;
            }
            while let Some(fault) = self.faults.next() {
                self.bring(fault);
            }
        }
        self.bring_rest();
        self.tally
    }

    fn aside(&self) -> Range<usize> {
        self.aside.map_or(0..0, |(start, bytes)| start.as_ptr() as usize..start.as_ptr() as usize + bytes)
    }

    fn bring(&mut self, fault: Fault) {
        let from = self.aside().start + (fault.page - self.start);
        if self.exist(from..from + PAGE) == [false] {
            // Never written, or brought for another thread since: then it stays as it is.
            let _ = self.faults.zero(fault.page);
            return;
        }
        let was = node_at(from).ok();
        let wanted = fault.cpu().and_then(|cpu| self.nodes.get(&cpu).copied()).or(was);
        if self.bring_run(from..from + PAGE, wanted).is_err() {
            return;
        }
        let is = node_at(fault.page).ok();
        let count = match () {
            () if is != wanted => &mut self.tally.no_room,
            () if is == was => &mut self.tally.there,
            () => &mut self.tally.moved,
        };
        *count += 1;
    }

    /// Brings the pages that no thread has touched, to the nodes that they are on.
    fn bring_rest(&mut self) {
        let aside = self.aside();
        for part in aside.clone().step_by(LOOKED_UP * PAGE) {
            let end = aside.end.min(part + LOOKED_UP * PAGE);
            let exist = self.exist(part..end);
            let pages = (part..end).step_by(PAGE).zip(exist).filter(|(_, exists)| *exists);
            let with_nodes: Vec<(usize, Option<NodeId>)> = pages.map(|(page, _)| (page, node_at(page).ok())).collect();
            for run in with_nodes.chunk_by(|one, next| one.1 == next.1 && one.0 + PAGE == next.0) {
                let bytes = run.len() * PAGE;
                let _ = self.bring_run(run[0].0..run[0].0 + bytes, run[0].1);
                self.tally.untouched += run.len() as u64;
            }
        }
    }

    /// Brings pages that are next to each other, on a node if it has room, and releases what was set aside.
    fn bring_run(&mut self, from: Range<usize>, node: Option<NodeId>) -> io::Result<()> {
        if node != self.policy {
            let nodes = node.into_iter().collect();
            let policy = node.map_or_else(MemoryPolicy::default, |_| MemoryPolicy::new(MemoryMode::Preferred, nodes));
            // A page on another node is better than a thread that waits for ever.
            let is_set = set_memory_policy(&policy).is_ok();
            self.policy = node.filter(|_| is_set);
        }
        let to = self.start + (from.start - self.aside().start);
        self.faults.copy(from.start, to, from.len())?;
        // SAFETY: nothing but this refers to what was set aside, and the pages have been copied.
        unsafe {
            rustix::mm::madvise(with_exposed_provenance_mut(from.start), from.len(), rustix::mm::Advice::LinuxDontNeed)
        }?;
        Ok(())
    }

    /// Whether pages that were set aside have contents. Pages of which this is not known have.
    fn exist(&mut self, aside: Range<usize>) -> Vec<bool> {
        let pages = aside.len() / PAGE;
        let entries = self.pagemap.read(&(aside.start as u64..aside.end as u64)).into_iter().flatten();
        let mut exist: Vec<bool> = entries.map(|entry| entry.is_present() || entry.is_swapped()).collect();
        exist.resize(pages, true);
        exist
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        if let Some((start, bytes)) = self.aside {
            // SAFETY: `mremap` made this mapping, and this is its only owner.
            let _ = unsafe { munmap(start.as_ptr().cast(), bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    const PAGES: usize = 600;

    /// Page `n` begins with `n + 1`; the last 50 pages are never written.
    fn written() -> NodeMemory {
        let mut memory = NodeMemory::reserve(PAGES * PAGE).unwrap();
        for (index, page) in memory.contents_mut().chunks_mut(PAGE).take(PAGES - 50).enumerate() {
            page[..8].copy_from_slice(&(index as u64 + 1).to_ne_bytes());
        }
        memory
    }

    fn number(memory: &NodeMemory, page: usize) -> u64 {
        u64::from_ne_bytes(memory.contents()[page * PAGE..][..8].try_into().unwrap())
    }

    fn expected(page: usize) -> u64 {
        if page < PAGES - 50 { page as u64 + 1 } else { 0 }
    }

    fn begun(whose: Faults) -> Option<LazyMove> {
        match LazyMove::new(written(), whose) {
            Ok(lazy) => Some(lazy),
            Err((memory, error)) => {
                assert!((0..PAGES).all(|page| number(&memory, page) == expected(page)), "a refusal changes nothing");
                test_tools::skipped(format!("{}: {}", error.call, error.answer));
                None
            }
        }
    }

    /// Claims 11 and 12 of the manager's specification (11 of the system's): each page that is touched is brought once,
    /// and others are copied nowhere but back.
    #[test]
    fn each_page_that_is_touched_by_any_thread_is_brought_once() {
        let Some(lazy) = begun(Faults::Program) else { return };
        let (memory, next) = (lazy.memory().unwrap(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                // Two threads wait for each page at the same time.
                scope.spawn(|| {
                    while let page @ 0..PAGES = next.fetch_add(1, Relaxed) / 2 {
                        if page % 2 == 0 {
                            assert_eq!(number(memory, page), expected(page));
                        }
                    }
                });
            }
        });
        let (memory, tally) = lazy.end().unwrap();
        assert_eq!(tally.moved + tally.there + tally.no_room, 275);
        assert_eq!(tally.untouched, 275);
        assert!((0..PAGES).all(|page| number(&memory, page) == expected(page)));
    }

    #[test]
    fn what_is_written_meanwhile_stays() {
        let Some(mut lazy) = begun(Faults::Program) else { return };
        for page in [0, 7, PAGES - 1] {
            lazy.memory_mut().unwrap().contents_mut()[page * PAGE] = 99;
        }
        let (memory, _) = lazy.end().unwrap();
        for page in [0, 7, PAGES - 1] {
            assert_eq!(memory.contents()[page * PAGE], 99);
        }
        assert_eq!(number(&memory, 8), 9);
        drop(begun(Faults::Program));
    }

    #[test]
    fn system_calls_get_the_pages_too_where_that_is_permitted() {
        let Some(lazy) = begun(Faults::All) else { return };
        let (reader, writer) = std::io::pipe().unwrap();
        let page = &lazy.memory().unwrap().contents()[5 * PAGE..6 * PAGE];
        assert_eq!(rustix::io::write(writer.as_fd(), page), Ok(PAGE));
        let mut read = [0; PAGE];
        assert_eq!(rustix::io::read(reader.as_fd(), &mut read), Ok(PAGE));
        assert_eq!(read[0], 6);
    }
}
