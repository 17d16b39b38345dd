//! Samples in compact form: 50 million of them must fit into 4 GiB.

use machine::{Pid, Tid};
use rustc_hash::FxHashMap;
use std::cmp::Ordering;
use std::hash::Hash;
use trace::{AccessKind, Sample, Served, Source};

/// Marks the absence of a number.
pub(crate) const NONE: u32 = u32::MAX;
/// Marks the absence of a physical address: real ones are smaller.
pub(crate) const NO_PHYSICAL: u64 = u64::MAX;

/// A sample. Stored by row, as all fields of one are used together, in any order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub time_ns: u64,
    pub address: u64,
    pub physical: u64,
    /// Index into `instructions`; once objects are resolved, the number of a code location.
    pub code: u32,
    /// Index into `paths`; once objects are resolved, into those of the profile.
    pub path: u32,
    /// Set once objects are resolved.
    pub object: u32,
    /// A stack of the trace; once objects are resolved, a code chain.
    pub stack: u32,
    /// NaN if not known.
    pub latency_ns: f32,
    pub weight: f32,
}

/// The access path: who accesses how from where, and whose memory. There are few, each with many samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AccessPath {
    /// Index into `callers`; once objects are resolved, a thread.
    pub caller: u32,
    pub cpu: u32,
    /// The node that the line came from or went to.
    pub node: u32,
    /// Whether it was not served by one of the core's own caches.
    pub leaves_caches: bool,
    /// [`Traits`], packed.
    pub traits: u16,
}

/// Memory that a sample takes until it is attributed, in bytes: its row, and its position and time, with the half of
/// those that a stable sort copies.
const SAMPLE_BYTES: u64 = (size_of::<Row>() + size_of::<(u64, u32)>() * 3 / 2) as u64;

/// Samples, with their common properties stored once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    pub rows: Vec<Row>,
    pub paths: Vec<AccessPath>,
    /// PIDs and TIDs.
    pub callers: Vec<(Pid, Tid)>,
    /// Addresses of instructions.
    pub instructions: Vec<u64>,
    path_ids: FxHashMap<AccessPath, u32>,
    caller_ids: FxHashMap<(Pid, Tid), u32>,
    instruction_ids: FxHashMap<u64, u32>,
    /// The caller of the last sample: the next one is likely to have the same.
    last: Option<((Pid, Tid), u32)>,
}

impl Samples {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Memory that they take until they are attributed, in bytes.
    pub fn bytes(&self) -> u64 {
        let paths = self.paths.len() * size_of::<(AccessPath, u32)>();
        let callers = self.callers.len() * size_of::<((Pid, Tid), u32)>();
        let instructions = self.instructions.len() * size_of::<(u64, u32)>();
        // These are in a list, and in a hash table that may be half empty.
        self.rows.len() as u64 * SAMPLE_BYTES + (paths + callers + instructions) as u64 * 3
    }

    pub fn push(&mut self, sample: &Sample) {
        let caller = self.caller((sample.pid, sample.tid));
        let traits = Traits { kind: sample.kind, served: sample.served, kernel: sample.kernel, source: sample.source };
        let path = AccessPath {
            caller,
            cpu: sample.cpu.0,
            node: sample.node.map_or(NONE, |node| node.0),
            leaves_caches: leaves_caches(sample.served),
            traits: traits.packed(),
        };
        let path = number(&mut self.paths, &mut self.path_ids, path);
        let code = number(&mut self.instructions, &mut self.instruction_ids, sample.instruction);
        let usable = |number: &f32| number.is_finite() && *number > 0.0;
        self.rows.push(Row {
            time_ns: sample.time_ns,
            address: sample.address,
            physical: sample.physical.unwrap_or(NO_PHYSICAL),
            code,
            path,
            object: NONE,
            stack: sample.stack.map_or(NONE, |stack| stack.0),
            latency_ns: sample.latency_ns.filter(usable).unwrap_or(f32::NAN),
            weight: Some(sample.weight).filter(usable).unwrap_or(1.0),
        });
    }

    fn caller(&mut self, caller: (Pid, Tid)) -> u32 {
        if let Some((_, number)) = self.last.filter(|(last, _)| *last == caller) {
            return number;
        }
        let number = number(&mut self.callers, &mut self.caller_ids, caller);
        self.last = Some((caller, number));
        number
    }

    /// Sorts samples of several streams by time. The order of samples at the same time depends on their content only,
    /// not on the order of streams.
    pub fn sort(&mut self) {
        let in_order = |pair: &[Row]| match pair[0].time_ns.cmp(&pair[1].time_ns) {
            Ordering::Equal => self.compare(&pair[0], &pair[1]) != Ordering::Greater,
            order => order == Ordering::Less,
        };
        if self.rows.windows(2).all(in_order) {
            return;
        }
        // Rows are large, so each is moved only once.
        let mut positions: Vec<(u64, u32)> = self.rows.iter().map(|row| row.time_ns).zip(0..).collect();
        let row = |position: u32| &self.rows[position as usize];
        let compare = |a: &(u64, u32), b: &(u64, u32)| a.0.cmp(&b.0).then_with(|| self.compare(row(a.1), row(b.1)));
        // A stable sort, because it is fast on several concatenated sorted streams.
        positions.sort_by(compare);
        let positions: Vec<u32> = positions.into_iter().map(|(_, position)| position).collect();
        permute(&mut self.rows, positions);
    }

    fn compare(&self, a: &Row, b: &Row) -> Ordering {
        let whole = |row: &Row| {
            let AccessPath { caller, cpu, node, traits, .. } = self.paths[row.path as usize];
            (
                row.time_ns,
                self.callers[caller as usize],
                row.address,
                self.instructions[row.code as usize],
                (cpu, row.physical, node),
                (row.latency_ns.to_bits(), row.weight.to_bits()),
                row.stack,
                traits,
            )
        };
        whole(a).cmp(&whole(b))
    }
}

/// The index of a value in a list of different ones.
fn number<T: Copy + Eq + Hash>(all: &mut Vec<T>, ids: &mut FxHashMap<T, u32>, value: T) -> u32 {
    *ids.entry(value).or_insert_with(|| {
        all.push(value);
        all.len() as u32 - 1
    })
}

/// Whether an access was not served by one of the core's own caches, or that is not known.
pub fn leaves_caches(served: Option<Served>) -> bool {
    !matches!(served, Some(Served::L1 | Served::L2 | Served::L3))
}

/// Reorders rows in place by their new positions, without a second list.
fn permute<T: Copy>(rows: &mut [T], mut positions: Vec<u32>) {
    for start in 0..rows.len() {
        let first = rows[start];
        let mut at = start;
        // Follows each cycle: each row moves to where the previous one came from, and the last place gets the first
        // row.
        loop {
            let from = std::mem::replace(&mut positions[at], at as u32) as usize;
            if from == start {
                break;
            }
            rows[at] = rows[from];
            at = from;
        }
        rows[at] = first;
    }
}

/// Properties with few values, packed into one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    pub kind: AccessKind,
    pub served: Option<Served>,
    pub kernel: bool,
    pub source: Source,
}

const KINDS: [AccessKind; 3] = [AccessKind::Load, AccessKind::Store, AccessKind::Unknown];
const SERVED: [Option<Served>; 6] =
    [None, Some(Served::L1), Some(Served::L2), Some(Served::L3), Some(Served::Peer), Some(Served::Dram)];
const SOURCES: [Source; 6] = [Source::Ibs, Source::Pebs, Source::Spe, Source::Perf, Source::Lab, Source::HintFault];

impl Traits {
    /// Three bits each for kind, server and source, and one for the kernel.
    fn packed(self) -> u16 {
        let served = self.served.map_or(0, |served| served as u16 + 1);
        self.kind as u16 | served << 3 | (self.source as u16) << 6 | u16::from(self.kernel) << 9
    }

    pub fn from_packed(packed: u16) -> Self {
        let at = |shift: u16| usize::from(packed >> shift & 7);
        Self {
            kind: KINDS[at(0) % KINDS.len()],
            served: SERVED[at(3) % SERVED.len()],
            source: SOURCES[at(6) % SOURCES.len()],
            kernel: packed >> 9 & 1 == 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_where_their_positions_are() {
        for positions in [vec![], vec![0], vec![2, 0, 1], vec![1, 0, 2, 4, 3], vec![3, 2, 1, 0]] {
            let mut rows: Vec<u32> = (10..10 + positions.len() as u32).collect();
            let sorted: Vec<u32> = positions.iter().map(|position| 10 + position).collect();
            permute(&mut rows, positions);
            assert_eq!(rows, sorted);
        }
    }

    #[test]
    fn traits_survive_packing() {
        for kind in KINDS {
            for served in SERVED {
                for source in SOURCES {
                    for kernel in [false, true] {
                        let traits = Traits { kind, served, kernel, source };
                        assert_eq!(Traits::from_packed(traits.packed()), traits);
                    }
                }
            }
        }
    }
}
