//! Sorts accesses by 2 MiB block.

use super::FEWEST_OF_BLOCK;
use crate::flow::Flow;
use crate::ids::{ObjectId, ProcessId};
use crate::pages::APART;
use crate::profile::Access;
use machine::{HUGE_PAGE, LINE_BYTES, NodeId, SMALL_PAGE};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use std::hash::BuildHasher;
use trace::{AccessKind, Served};

/// Number of accesses that show whether an object has huge pages at all.
const LOOKED_AT: usize = 1 << 14;
/// Most accesses that are judged: about 200 for each of 10,000 blocks. Of more, a random part is.
const MOST_USES: usize = 1 << 21;
/// Most blocks of one placement that are remembered as huge.
const MOST_PLACED: u64 = 1 << 10;
/// A line that several nodes use, with this share of a block's samples and at least this number of them, is one that
/// nodes contend for, as a lock or a barrier's counter is: wherever its page lies, it moves between caches.
const CONTENDED: f64 = 0.125;
const FEWEST_OF_LINE: usize = 8;
/// Marks memory whose node is not known.
const NOWHERE: u16 = u16::MAX;

/// One access to a block. Nodes are positions in the machine's list.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    pub time_ns: u64,
    pub thread: u32,
    pub object: ObjectId,
    /// Accesses that it stands for.
    pub weight: f32,
    /// The line within the block.
    pub line: u16,
    pub from: u16,
    lies: u16,
    is_load: bool,
}

/// A block and the accesses to it that are judged, in chronological order.
#[derive(Clone, Debug)]
pub struct Block {
    pub process: ProcessId,
    pub address: u64,
    pub is_huge: bool,
    pub objects: Vec<ObjectId>,
    pub uses: Vec<Use>,
    pub remote_samples: u64,
    pub contended_line_samples: u64,
    /// Recorded samples that each of these stands for.
    pub stands_for: u64,
}

impl Use {
    /// The small page within the block.
    pub fn page(&self) -> usize {
        usize::from(self.line) / (SMALL_PAGE / LINE_BYTES) as usize
    }

    /// The node that its memory lies on.
    pub fn lies(&self) -> Option<usize> {
        (self.lies != NOWHERE).then_some(usize::from(self.lies))
    }
}

/// Where a block is in physical memory. Small pages are consistent with a huge page by chance in at most one of 512
/// cases.
#[derive(Clone, Copy, Default)]
struct Frames {
    /// The small page of the first access.
    first: Option<u64>,
    is_several: bool,
    is_torn: bool,
}

impl Frames {
    fn add(&mut self, access: &Access) {
        let Some(physical) = access.physical else { return };
        let (offset, small) = (physical.wrapping_sub(access.address), access.address / SMALL_PAGE);
        let first = *self.first.get_or_insert(small);
        // The kernel may have moved it meanwhile, as a whole.
        self.is_torn |= !offset.is_multiple_of(HUGE_PAGE);
        self.is_several |= small != first;
    }

    fn are_of_a_huge_page(self) -> bool {
        self.is_several && !self.is_torn
    }
}

/// Whether some pages may be huge, from the first accesses only: most objects have none, and examining all accesses
/// takes time.
pub(crate) fn may_have_huge_pages(flow: &Flow) -> bool {
    if flow.profile().placements().iter().any(|placement| placement.bytes >= HUGE_PAGE) {
        return true;
    }
    let mut all: FxHashMap<(ProcessId, u64), Frames> = FxHashMap::default();
    for access in flow.accesses().filter(Access::leaves_core).take(LOOKED_AT) {
        let process = flow.profile().threads()[access.thread.index()].process;
        all.entry((process, access.address / HUGE_PAGE)).or_default().add(&access);
    }
    all.into_values().any(Frames::are_of_a_huge_page)
}

/// The blocks that a flow accesses, by process and address.
pub(crate) fn blocks(flow: &Flow) -> Vec<Block> {
    let (mut uses, frames, stands_for) = collect(flow);
    uses.sort_unstable_by_key(|(process, block, used)| (*process, *block, used.time_ns, used.thread, used.line));
    let placed = placed_huge(flow);
    let same_block = |a: &Found, b: &Found| (a.0, a.1) == (b.0, b.1);
    uses.chunk_by(same_block)
        .filter_map(|found| {
            let &(process, block, _) = found.first()?;
            let key = (process, block);
            let is_huge = placed.contains(&key) || frames.get(&key).is_some_and(|frames| frames.are_of_a_huge_page());
            let uses = found.iter().map(|(_, _, used)| *used).collect();
            Some(Block { stands_for, ..Block::new(process, block * HUGE_PAGE, is_huge, uses) })
        })
        .collect()
}

type Found = (ProcessId, u64, Use);
type FramesOfBlocks = FxHashMap<(ProcessId, u64), Frames>;

/// The accesses that are judged, and the number of samples that each stands for.
fn collect(flow: &Flow) -> (Vec<Found>, FramesOfBlocks, u64) {
    let profile = flow.profile();
    let indices: FxHashMap<NodeId, u16> = profile.machine().nodes.iter().map(|node| node.id).zip(0..NOWHERE).collect();
    let mut frames = FramesOfBlocks::default();
    let mut uses: Vec<Found> = Vec::new();
    // If there are too many, a random half is dropped, and the others stand for twice as many.
    let (mut left_out, mut stands_for) = (0, 1);
    let is_left = |number: u64, left_out: u64| (FxBuildHasher.hash_one(number) >> 32) & left_out == 0;
    for (number, access) in flow.numbered().filter(|(_, access)| access.leaves_core() && !access.kernel) {
        let process = profile.threads()[access.thread.index()].process;
        let block = access.address / HUGE_PAGE;
        frames.entry((process, block)).or_default().add(&access);
        let index = |node: Option<NodeId>| node.and_then(|node| indices.get(&node)).copied();
        let Some(from) = index(access.from).filter(|_| is_left(number.into(), left_out)) else { continue };
        // A line from another cache says where that cache is, not where the page lies.
        let lies = index(access.to).filter(|_| access.served != Some(Served::Peer)).unwrap_or(NOWHERE);
        let one = Use {
            time_ns: access.time_ns,
            thread: access.thread.0,
            object: access.object,
            weight: access.weight * stands_for as f32,
            line: (access.address % HUGE_PAGE / LINE_BYTES) as u16,
            from,
            lies,
            is_load: access.kind == AccessKind::Load,
        };
        uses.push((process, block, one));
        if uses.len() > MOST_USES {
            left_out = left_out << 1 | 1;
            stands_for *= 2;
            let mut position = 0;
            uses.retain_mut(|(_, _, used)| {
                position += 1;
                used.weight *= 2.0;
                is_left(position, 1)
            });
        }
    }
    (uses, frames, stands_for)
}

/// The blocks that the kernel placed as huge pages.
fn placed_huge(flow: &Flow) -> FxHashSet<(ProcessId, u64)> {
    let huge = flow.profile().placements().iter().filter(|placement| placement.bytes >= HUGE_PAGE);
    huge.flat_map(|placement| {
        let blocks = (placement.bytes / HUGE_PAGE).min(MOST_PLACED);
        (0..blocks).map(|block| (placement.process, (placement.address / HUGE_PAGE).wrapping_add(block)))
    })
    .collect()
}

impl Block {
    /// A block with all its samples, of which those that show how it is used are kept.
    pub fn new(process: ProcessId, address: u64, is_huge: bool, mut uses: Vec<Use>) -> Self {
        let mut objects: FxHashMap<ObjectId, u64> = FxHashMap::default();
        for used in &uses {
            *objects.entry(used.object).or_default() += 1;
        }
        let mut objects: Vec<(ObjectId, u64)> = objects.into_iter().collect();
        objects.sort_unstable_by_key(|(object, count)| (std::cmp::Reverse(*count), *object));
        let all = uses.len();
        leave_contended_lines(&mut uses);
        let contended_line_samples = (all - uses.len()) as u64;
        leave_initialisation(&mut uses);
        let is_remote = |used: &&Use| used.lies().is_some_and(|lies| lies != usize::from(used.from));
        let remote_samples = uses.iter().filter(is_remote).count() as u64;
        let objects = objects.into_iter().map(|(object, _)| object).collect();
        Self { process, address, is_huge, objects, uses, remote_samples, contended_line_samples, stands_for: 1 }
    }
}

/// Drops the accesses to lines that several nodes contend for.
fn leave_contended_lines(uses: &mut Vec<Use>) {
    let least = FEWEST_OF_LINE.max((uses.len() as f64 * CONTENDED) as usize);
    let mut lines: Vec<(u16, u16)> = uses.iter().map(|used| (used.line, used.from)).collect();
    lines.sort_unstable();
    // A stray access of another node, as of a thread that has just moved, is none of a contender.
    let most = |line: &[(u16, u16)]| line.chunk_by(|a, b| a.1 == b.1).map(<[_]>::len).max().unwrap_or(0);
    let contended: Vec<u16> = lines
        .chunk_by(|a, b| a.0 == b.0)
        .filter(|line| line.len() >= least && (most(line) as f64) < APART * line.len() as f64)
        .filter_map(|line| line.first().map(|first| first.0))
        .collect();
    uses.retain(|used| !contended.contains(&used.line));
}

/// Drops the first thread's accesses before any other's if they write: it fills the memory that others then use. Memory that
/// was filled from caches has none, and its first user reads.
fn leave_initialisation(uses: &mut Vec<Use>) {
    let first = uses.first().map(|used| used.thread);
    let filled = uses.iter().take_while(|used| Some(used.thread) == first).count();
    let loads = uses.iter().take(filled).filter(|used| used.is_load).count();
    if loads * 2 <= filled && (uses.len() - filled) as u64 >= FEWEST_OF_BLOCK {
        uses.drain(..filled);
    }
}

#[cfg(test)]
pub(super) mod made {
    use super::*;

    /// An access of the thread of this number, on the node of this number, to a small page of a block.
    pub fn used(time_ns: u64, page: u64, from: u16, lies: u16) -> Use {
        let line = page * 64 + time_ns * 7 % 64;
        Use {
            time_ns,
            thread: from.into(),
            object: ObjectId(0),
            weight: 1.0,
            line: line as u16,
            from,
            lies,
            is_load: false,
        }
    }

    /// The block of these accesses.
    pub fn block(uses: Vec<Use>) -> Block {
        Block::new(ProcessId(0), 0x6000_0000, true, uses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_nodes_contend_for_is_no_use_and_neither_is_filling() {
        let mut uses: Vec<Use> = (0..50).map(|time| made::used(time, time * 10, 0, 0)).collect();
        uses.extend((50..100).map(|time| made::used(time, time * 5, 1, 0)));
        let filled = made::block(uses.clone());
        assert_eq!((filled.uses.len(), filled.contended_line_samples, filled.remote_samples), (50, 0, 50));
        let read = uses.iter().map(|used| Use { is_load: true, ..*used }).collect();
        assert_eq!(made::block(read).uses.len(), 100, "who reads has not filled it");
        let lock = |time: u64| Use { line: 77, ..made::used(time, 1, (time % 2) as u16, 0) };
        let private = |time: u64| Use { line: 78, ..made::used(time, 1, 1, 0) };
        uses.extend((100..150).map(lock).chain((150..200).map(private)));
        let contended = made::block(uses);
        assert_eq!((contended.uses.len(), contended.contended_line_samples), (100, 50));
        // One access of another node to a line of which a node has fifty.
        let stray = |time: u64| Use { line: 77, ..made::used(time, 1, u16::from(time == 70), 0) };
        let block = made::block((50..100).map(stray).collect());
        assert_eq!(block.contended_line_samples, 0);
    }
}
