//! Where memory should be, and on which node the calling thread runs.

use crate::segment::SEGMENT_BYTES;
use crate::system::{self, DEFAULT, INTERLEAVE, Nodes, PREFERRED};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicUsize, Ordering::Relaxed};

/// Nodes that the kernel can have on x86-64: `1 << CONFIG_NODES_SHIFT`, at most.
pub const MAX_NODES: usize = 1024;
/// Places: each node, and all nodes interleaved.
pub const PLACES: usize = MAX_NODES + 1;
/// The index of interleaved memory.
const INTERLEAVED: usize = MAX_NODES;

/// Where an object's memory should be. The kernel takes the nearest node with room if that one is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the node where the calling thread runs, or where it is touched first if it is larger than 1 MiB, unless
    /// [`place_all`] said otherwise.
    Local,
    /// On this node; on [`Place::Local`] if kernels have no such number. Memory for a node that is missing is on the node of
    /// the thread that touches it first.
    On(usize),
    /// Page by page on each node that the thread may use.
    Interleaved,
}

impl Place {
    /// The index of this place among [`PLACES`].
    pub(crate) fn index(self) -> usize {
        match self {
            Self::On(node) if node < MAX_NODES => node,
            Self::Local | Self::On(_) => local(),
            Self::Interleaved => INTERLEAVED,
        }
    }

    /// Whether large objects are left to first touch.
    pub(crate) fn is_first_touch(self) -> bool {
        self == Self::Local && EVERYWHERE.load(Relaxed) == 0
    }
}

/// The index of the place that [`Place::Local`] stands for, plus one; 0 for the node of the calling thread.
static EVERYWHERE: AtomicUsize = AtomicUsize::new(0);

/// From now on, [`Place::Local`] means this place, in all threads. Objects that exist stay where they are, and each thread
/// takes at most 32 more from a heap elsewhere.
pub fn place_all(place: Place) {
    let index = if place == Place::Local { 0 } else { place.index() + 1 };
    EVERYWHERE.store(index, Relaxed);
}

/// The index of the place of local memory.
pub fn local() -> usize {
    EVERYWHERE.load(Relaxed).checked_sub(1).unwrap_or_else(current_node)
}

const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// The policy of `libnearside_start.so` until the program makes threads, which is not the program's own: interleaved, with
/// `MPOL_F_STATIC_NODES`.
const SPREAD_START: usize = system::INTERLEAVE | 1 << 15;

/// Whether memory may be placed: whether there are two nodes to choose from. Asked once.
pub fn is_placing() -> bool {
    match STATE.load(Relaxed) {
        UNKNOWN => {
            let several = system::allowed_nodes().is_some_and(|nodes| count(&nodes) > 1);
            STATE.store(if several { ON } else { OFF }, Relaxed);
            several
        }
        state => state == ON,
    }
}

/// Whether the calling thread has a policy of its own, as `numactl` sets it, which goes first. Asked at each mapping: threads
/// change it, and each has its own.
pub fn has_own_policy() -> bool {
    !matches!(system::thread_policy(), Some(DEFAULT | SPREAD_START))
}

fn count(nodes: &Nodes) -> u32 {
    nodes.iter().map(|word| word.count_ones()).sum()
}

/// CPUs whose node is kept. The others ask the kernel each time.
const CPUS: usize = 8192;
/// The node of each CPU plus one; 0 if it is not known yet.
static NODE_OF_CPU: [AtomicU16; CPUS] = [const { AtomicU16::new(0) }; CPUS];

/// The node on which the calling thread runs; 0 if memory is not placed.
pub fn current_node() -> usize {
    if !is_placing() {
        return 0;
    }
    // SAFETY: it has no precondition. The C library reads it from the thread's rseq area where the kernel has that.
    let cpu = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(CPUS);
    match NODE_OF_CPU.get(cpu).map_or(0, |node| node.load(Relaxed)) {
        0 => {
            let Some((cpu, node)) = system::cpu_and_node().filter(|(_, node)| *node < MAX_NODES) else { return 0 };
            if let Some(known) = NODE_OF_CPU.get(cpu) {
                known.store(node as u16 + 1, Relaxed);
            }
            node
        }
        known => usize::from(known) - 1,
    }
}

/// Asks the kernel to place the pages of a new mapping. Returns whether it will: not for threads with a policy of their own,
/// and on nodes without memory, which leaves them to first touch.
pub fn place(start: *mut u8, bytes: usize, place: usize) -> bool {
    if !is_placing() || has_own_policy() {
        return false;
    }
    if place == INTERLEAVED {
        let nodes = system::allowed_nodes();
        let is_placed = nodes.is_some_and(|nodes| system::set_policy(start, bytes, INTERLEAVE, &nodes));
        // Two huge pages would put the small objects of a segment on two nodes. Large objects have them.
        if is_placed && bytes <= SEGMENT_BYTES {
            system::keep_small(start, bytes);
        }
        return is_placed;
    }
    let mut nodes = Nodes::default();
    nodes[place / 64] = 1 << (place % 64);
    system::set_policy(start, bytes, PREFERRED, &nodes)
}

/// Leaves the pages of a mapping that was placed to the policy of the threads that touch them.
pub fn leave(start: *mut u8, bytes: usize) {
    system::set_policy(start, bytes, DEFAULT, &Nodes::default());
}

/// Whether a present page is on another node than its place says: borrowed, as the node was full.
pub fn is_elsewhere(page: *mut u8, place: usize) -> bool {
    is_placing() && place != INTERLEAVED && system::node_of_page(page).is_some_and(|node| node != place)
}
