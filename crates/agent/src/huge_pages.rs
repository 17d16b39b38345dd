//! Cures huge pages. Falsely shared ones are split and kept small, and each small page moves to the node that uses it. One
//! that a single node uses moves there as a whole.
//!
//! Splitting is a side effect of `MADV_COLD` on one small page of a huge one. A program does that to itself without any
//! right, if the library in it is asked to ([`Advisers`]); for other processes it needs `CAP_SYS_NICE`, or debugfs and
//! root. Marking memory so that the kernel does not join it again (`MADV_NOHUGEPAGE`) is only possible from inside.
//! Nothing is left in the system: marks end with the program, and split pages hold what they held.

use crate::curable::Curable;
use linux::{
    Advice, AdvisedProcess, PageBatch, PresentPages, PrivateFolder, Process, ProcessError, Trust, Whose, peer,
    split_huge_pages,
};
use machine::{HUGE_PAGE, NodeId, Pid, SMALL_PAGE};
use placement::MisplacedHugePage;
use rings::{ADVICE_BYTES, AdviceRequest, AdvisedTo};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::process::{getegid, geteuid};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::ops::Range;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The socket's name in its folder.
const SOCKET: &str = "advice";
/// How long a program may take to follow an advice.
const ADVICE_TIMEOUT: Duration = Duration::from_secs(5);

/// Which steps are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CureSteps {
    /// Split the huge pages.
    pub split: bool,
    /// Mark them, so that the kernel does not join them again.
    pub keep_small: bool,
    /// Move their small pages.
    pub move_pages: bool,
}

/// The result of a cure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cured {
    /// Huge pages that were split.
    pub split: u64,
    /// Huge pages that the kernel does not join again.
    pub kept_small: u64,
    /// Huge pages that were moved as a whole.
    pub moved_whole: u64,
    /// Where those that were split are.
    pub split_at: Vec<u64>,
    /// Blocks whose small pages were joined again.
    pub joined: u64,
    /// Small pages that are where they belong now and were not before; those of blocks that were joined do not count.
    pub moved: u64,
    /// Those that stayed.
    pub stayed: u64,
    /// Failures by cause, with their numbers.
    pub failed: BTreeMap<String, u64>,
}

/// Programs that advise their own memory on request, through the library in them.
#[derive(Debug)]
pub struct Advisers {
    listener: UnixListener,
    path: PathBuf,
    programs: BTreeMap<Pid, UnixStream>,
}

impl Advisers {
    /// Listens on a socket in a folder that only its user can change. One that was left there is replaced.
    pub fn listen(folder: &Path) -> io::Result<Self> {
        Self::remove_left(folder)?;
        let path = folder.join(SOCKET);
        // For programs of this user, whatever the umask is.
        let own = (geteuid().as_raw(), getegid().as_raw());
        let private = PrivateFolder::open(folder, Trust::Owners).map_err(io::Error::other)?;
        let listener = private.listen(SOCKET, 0o600, own).map_err(io::Error::other)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path, programs: BTreeMap::new() })
    }

    /// Removes the socket of a process that was killed.
    pub(crate) fn remove_left(folder: &Path) -> io::Result<()> {
        match fs::remove_file(folder.join(SOCKET)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The environment variable that makes programs connect.
    pub fn variable(&self) -> (&'static str, &Path) {
        (rings::ADVICE_VARIABLE, &self.path)
    }

    /// Takes the programs that have connected, and forgets those that have ended or do not answer. Programs do not wait to
    /// be taken: call it often.
    pub fn look(&mut self) {
        self.programs.retain(|_, stream| is_open(stream));
        while let Ok((stream, _)) = self.listener.accept() {
            let prepared = stream
                .set_nonblocking(false)
                .and_then(|()| stream.set_read_timeout(Some(ADVICE_TIMEOUT)))
                .and_then(|()| stream.set_write_timeout(Some(ADVICE_TIMEOUT)));
            if let (Ok(()), Ok(peer), true) = (prepared, peer(&stream), is_open(&stream)) {
                self.programs.insert(peer.pid, stream);
            }
        }
    }

    /// Whether a process has the library.
    pub(crate) fn has(&mut self, pid: Pid) -> bool {
        self.connection(pid).is_some()
    }

    /// The connection of a process, if it has the library.
    fn connection(&mut self, pid: Pid) -> Option<&mut UnixStream> {
        self.look();
        self.programs.get_mut(&pid)
    }
}

impl Drop for Advisers {
    fn drop(&mut self) {
        // Without its listener it is of no use; one that stays is replaced by the next.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether the program has not closed its end: thousands of short programs may have connected and ended.
fn is_open(stream: &UnixStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(recv(stream, &mut [0; 1], flags), Err(Errno::AGAIN))
}

/// How a process's memory is advised.
enum Route<'a> {
    Inside(&'a mut UnixStream),
    Outside(AdvisedProcess),
}

impl Route<'_> {
    fn split(&mut self, block: &Range<u64>) -> io::Result<()> {
        let page = block.start..block.start + SMALL_PAGE;
        match self {
            Self::Inside(stream) => ask(stream, &page, AdvisedTo::Split),
            Self::Outside(process) => {
                let range = page.start as usize..page.end as usize;
                process.advise(&[range], Advice::Cold).map(drop)
            }
        }
    }

    /// Makes one huge page of a block's small ones, on the node that has most of them.
    fn join(&mut self, block: &Range<u64>) -> io::Result<()> {
        match self {
            Self::Inside(stream) => ask(stream, block, AdvisedTo::Join),
            Self::Outside(process) => {
                let range = block.start as usize..block.end as usize;
                process.advise(&[range], Advice::Collapse).map(drop)
            }
        }
    }

    fn keep_small(&mut self, block: &Range<u64>) -> io::Result<()> {
        match self {
            Self::Inside(stream) => ask(stream, block, AdvisedTo::StaySmall),
            Self::Outside(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Asks a program to advise its memory.
fn ask(stream: &mut UnixStream, range: &Range<u64>, to: AdvisedTo) -> io::Result<()> {
    let request = AdviceRequest { start: range.start, bytes: range.end - range.start, to };
    let mut answer = [0; ADVICE_BYTES];
    let exchanged = stream.write_all(&request.to_bytes()).and_then(|()| stream.read_exact(&mut answer));
    if exchanged.is_err() {
        // A late answer would be taken for that to the next request.
        let _ = stream.shutdown(Shutdown::Both);
    }
    exchanged?;
    match i32::from_ne_bytes([answer[0], answer[1], answer[2], answer[3]]) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Those of these huge pages that can be cured, and why the others stay as they are.
pub fn curable(pages: Vec<MisplacedHugePage>) -> (Vec<MisplacedHugePage>, Cured) {
    let (mut known, mut left): (BTreeMap<Pid, Curable>, Cured) = Default::default();
    let can_be = |page: &MisplacedHugePage| {
        // A process that has ended is no failure, and nothing is tried.
        let new = || Process::open(page.pid).map_or_else(|_| Curable::default(), |process| Curable::new(&process));
        let obstacle = known.entry(page.pid).or_insert_with(new).obstacle(page);
        obstacle.map(|why| left.note(why)).is_none()
    };
    let mut pages = pages;
    pages.retain(can_be);
    (pages, left)
}

/// Cures huge pages of a process. What fails is noted with its cause; after the process has ended or has stopped to
/// answer, nothing more is tried.
pub fn cure(
    pid: Pid,
    pages: &[&MisplacedHugePage],
    steps: CureSteps,
    advisers: Option<&mut Advisers>,
) -> io::Result<Cured> {
    let mut route = match advisers.and_then(|advisers| advisers.connection(pid)) {
        Some(stream) => Route::Inside(stream),
        None => Route::Outside(AdvisedProcess::open(pid)?),
    };
    let mut cured = Cured::default();
    let mut present = present_pages(pid)?;
    for page in pages {
        if let Err(error) = cured.cure_page(pid, page, steps, &mut route, &mut present) {
            if !has_ended(&error) {
                cured.note(error.to_string());
            }
            break;
        }
    }
    Ok(cured)
}

/// Joins the small pages of blocks of a process again, each on a node. What fails is noted. Returns the blocks that are
/// huge pages now.
pub fn join(pid: Pid, blocks: &[(u64, NodeId)], advisers: Option<&mut Advisers>) -> io::Result<(Cured, Vec<u64>)> {
    let mut route = match advisers.and_then(|advisers| advisers.connection(pid)) {
        Some(stream) => Route::Inside(stream),
        None => Route::Outside(AdvisedProcess::open(pid)?),
    };
    let (mut cured, mut joined) = (Cured::default(), Vec::new());
    let mut present = present_pages(pid)?;
    for (address, node) in blocks {
        match cured.join_block(pid, *address, *node, &mut route, &mut present) {
            Ok(true) => joined.push(*address),
            Ok(false) => {}
            Err(error) if has_ended(&error) => break,
            Err(error) if is_silent(&error) => {
                cured.note(silent(&error).to_string());
                break;
            }
            // Others may be joined: this one's node may be full, or have no memory.
            Err(error) => cured.note(format!("it cannot be joined again: {error}")),
        }
    }
    Ok((cured, joined))
}

/// Those of these blocks of a process that are huge pages.
pub fn huge_blocks(pid: Pid, blocks: impl IntoIterator<Item = u64>) -> io::Result<BTreeSet<u64>> {
    let mut present = present_pages(pid)?;
    let mut found = BTreeSet::new();
    for address in blocks {
        if is_huge(&mut present, &(address..address + HUGE_PAGE))? == Some(true) {
            found.insert(address);
        }
    }
    Ok(found)
}

/// The pages of a process. An error of [`Errno::SRCH`] if it has ended.
fn present_pages(pid: Pid) -> io::Result<PresentPages> {
    let present = Process::open(pid).and_then(|process| PresentPages::new(&process));
    present.map_err(|error| match error {
        ProcessError::Gone(_) => Errno::SRCH.into(),
        other => io::Error::other(other),
    })
}

/// Whether an error is that the process has ended, which is no failure.
pub fn has_ended(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// Whether a block is a huge page; none if none of it is in memory.
fn is_huge(present: &mut PresentPages, block: &Range<u64>) -> io::Result<Option<bool>> {
    let mut found = Vec::new();
    present.find(block, &mut found).map_err(io::Error::other)?;
    // The kernel moves a huge page as a whole, so small pages of unknown ones must not be moved.
    if !present.shows_huge_pages() {
        return Err(io::Error::other("a cure needs Linux 6.7, which tells huge pages from small ones"));
    }
    Ok((!found.is_empty()).then(|| found.iter().any(|extent| extent.page_bytes == HUGE_PAGE)))
}

/// Splits a huge page, or returns why the kernel does not. An error ends the cure of its process.
fn split(
    pid: Pid,
    block: &Range<u64>,
    route: &mut Route<'_>,
    present: &mut PresentPages,
) -> io::Result<Result<(), String>> {
    let asked = route.split(block);
    if let Some(error) = asked.as_ref().err().filter(|error| is_silent(error)) {
        return Err(silent(error));
    }
    // Advice does not split what is locked, or shared since a fork. Root has another way.
    if is_huge(present, block)? == Some(true) {
        let _ = split_huge_pages(pid, block);
    }
    Ok(match asked {
        _ if is_huge(present, block)? != Some(true) => Ok(()),
        Ok(()) => Err("the kernel did not split it".to_owned()),
        Err(error) => Err(why_not_split(&error)),
    })
}

/// Whether the library has not answered, as opposed to an answer with an error.
fn is_silent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock
            | io::ErrorKind::TimedOut
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
    )
}

fn silent(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the program does not follow advice any more: {error}"))
}

fn why_not_split(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "splitting huge pages of another process needs CAP_SYS_NICE (process_madvise), or root".to_owned()
        }
        _ => format!("it cannot be split: {error}"),
    }
}

impl Cured {
    /// Bytes that were moved, or copied to join small pages.
    pub fn moved_bytes(&self) -> u64 {
        self.moved * SMALL_PAGE + (self.moved_whole + self.joined) * HUGE_PAGE
    }

    /// Cures a page. An error ends the cure of its process.
    fn cure_page(
        &mut self,
        pid: Pid,
        page: &MisplacedHugePage,
        steps: CureSteps,
        route: &mut Route<'_>,
        present: &mut PresentPages,
    ) -> io::Result<()> {
        let block = page.address..page.address + HUGE_PAGE;
        let was_huge = is_huge(present, &block)?;
        if was_huge.is_none() {
            self.note("none of it is in memory any more: it was freed, or the process runs another program");
            return Ok(());
        }
        if let (Some(node), Some(true)) = (page.whole(), was_huge) {
            return if steps.move_pages { self.move_whole(pid, page.address, node) } else { Ok(()) };
        }
        let is_split = steps.split
            && was_huge == Some(true)
            && match split(pid, &block, route, present)? {
                Ok(()) => {
                    self.split += 1;
                    self.split_at.push(page.address);
                    true
                }
                Err(why) => {
                    self.note(why);
                    false
                }
            };
        // A page that belongs on one node as a whole, and was split meanwhile, may be joined again there.
        if steps.keep_small && (is_split || was_huge == Some(false)) && page.whole().is_none() {
            match route.keep_small(&block) {
                Ok(()) => {
                    self.kept_small += 1;
                    // The kernel may have joined it since the split, and cannot do so any more.
                    if is_huge(present, &block)? == Some(true) {
                        split(pid, &block, route, present)?.err().into_iter().for_each(|why| self.note(why));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Unsupported => self.note(
                    "the kernel may join it again: only a program that nearside hugepages cure started, and not a child \
                     that was forked without exec, keeps it small",
                ),
                Err(error) if is_silent(&error) => return Err(silent(&error)),
                Err(error) => self.note(format!("it is not kept small: {error}")),
            }
        }
        // Any page of a huge one moves all of it.
        if steps.move_pages && is_huge(present, &block)? == Some(false) {
            self.move_pages(pid, page)
                .map_err(|error| io::Error::new(error.kind(), format!("its pages cannot be moved: {error}")))?;
        }
        Ok(())
    }

    /// Joins a block's small pages on a node. Returns whether it is a huge page now; the kernel may have joined it meanwhile.
    fn join_block(
        &mut self,
        pid: Pid,
        address: u64,
        node: NodeId,
        route: &mut Route<'_>,
        present: &mut PresentPages,
    ) -> io::Result<bool> {
        let block = address..address + HUGE_PAGE;
        let was_huge = is_huge(present, &block)?;
        if was_huge != Some(false) {
            return Ok(was_huge == Some(true));
        }
        // The kernel joins them where most are.
        let owners = vec![(block.clone(), node)];
        let whole = MisplacedHugePage { pid, address, owners, misplaced_pages: 0, saved_ns_per_s: None };
        let mut moved = Self::default();
        let tried = moved.move_pages(pid, &whole).and_then(|()| route.join(&block));
        let is_joined = tried.is_ok() && is_huge(present, &block)? == Some(true);
        if is_joined {
            // A join counts as all of its block, whatever of it was moved before.
            self.joined += 1;
        } else {
            self.add(moved);
        }
        tried.map(|()| is_joined)
    }

    /// Adds another process's.
    pub fn add(&mut self, other: Self) {
        self.split += other.split;
        self.split_at.extend(other.split_at);
        self.joined += other.joined;
        self.kept_small += other.kept_small;
        self.moved_whole += other.moved_whole;
        self.moved += other.moved;
        self.stayed += other.stayed;
        for (why, number) in other.failed {
            *self.failed.entry(why).or_default() += number;
        }
    }

    /// Adds a failure.
    pub fn note(&mut self, why: impl Into<String>) {
        *self.failed.entry(why.into()).or_default() += 1;
    }

    /// Moves a huge page: the kernel moves all of it with any of its addresses.
    fn move_whole(&mut self, pid: Pid, address: u64, node: NodeId) -> io::Result<()> {
        let mut batch = PageBatch::default();
        batch.push(address, Some(node));
        let is_there =
            |batch: &PageBatch| batch.outcomes().next().is_some_and(|(_, _, status)| status.node() == Ok(node));
        batch.locate(pid)?;
        // The kernel may have moved it meanwhile.
        if is_there(&batch) {
            return Ok(());
        }
        batch.move_pages(pid, Whose::Private)?;
        if is_there(&batch) {
            self.moved_whole += 1;
        } else {
            self.note("the kernel did not move it as a whole");
        }
        Ok(())
    }

    fn move_pages(&mut self, pid: Pid, page: &MisplacedHugePage) -> io::Result<()> {
        let mut batch = PageBatch::default();
        page.pages().for_each(|(address, node)| batch.push(address, Some(node)));
        batch.locate(pid)?;
        let is_elsewhere = |(_, node, status): &(u64, _, linux::PageStatus)| status.node() != Ok(*node);
        let elsewhere: Vec<_> =
            batch.outcomes().filter(is_elsewhere).map(|(address, node, _)| (address, node)).collect();
        batch.clear();
        for (address, node) in &elsewhere {
            batch.push(*address, Some(*node));
        }
        if batch.is_empty() {
            return Ok(());
        }
        batch.move_pages(pid, Whose::Private)?;
        let stayed = batch.outcomes().filter(is_elsewhere).count() as u64;
        self.stayed += stayed;
        self.moved += elsewhere.len() as u64 - stayed;
        Ok(())
    }
}

#[cfg(test)]
#[path = "huge_pages_tests.rs"]
mod tests;
