//! Samples as columns: ten million of them are to fit into memory, and most questions need few of their fields.

use linux::{Pid, Tid};
use rustc_hash::FxHashMap;
use std::cmp::Ordering;
use trace::{AccessKind, Sample, Served, Source};

/// No value in a column of numbers.
pub(crate) const NONE: u32 = u32::MAX;
/// No physical address: none that exists is so large.
pub(crate) const NO_PHYSICAL: u64 = u64::MAX;

/// Samples, each at the same position of all columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    pub time_ns: Vec<u64>,
    pub address: Vec<u64>,
    pub physical: Vec<u64>,
    /// Empty once `code` is filled.
    pub instruction: Vec<u64>,
    pub code: Vec<u32>,
    /// A position in `callers`; once objects are known, a thread.
    pub thread: Vec<u32>,
    pub object: Vec<u32>,
    pub cpu: Vec<u32>,
    /// The node that the line came from or went to.
    pub node: Vec<u32>,
    /// NaN where it is not known.
    pub latency_ns: Vec<f32>,
    /// Of the trace; once objects are known, a chain of code.
    pub stack: Vec<u32>,
    pub weight: Vec<f32>,
    pub traits: Vec<u16>,
    /// Processes and threads as the kernel numbers them.
    pub callers: Vec<(Pid, Tid)>,
    caller_ids: FxHashMap<(Pid, Tid), u32>,
}

impl Samples {
    pub fn len(&self) -> usize {
        self.time_ns.len()
    }

    pub fn push(&mut self, sample: &Sample) {
        let caller = (sample.pid, sample.tid);
        let same = self.thread.last().copied().filter(|&last| self.callers.get(last as usize) == Some(&caller));
        let caller = same.unwrap_or_else(|| {
            *self.caller_ids.entry(caller).or_insert_with(|| {
                self.callers.push(caller);
                self.callers.len() as u32 - 1
            })
        });
        let usable = |number: &f32| number.is_finite() && *number > 0.0;
        self.time_ns.push(sample.time_ns);
        self.address.push(sample.address);
        self.physical.push(sample.physical.unwrap_or(NO_PHYSICAL));
        self.instruction.push(sample.instruction);
        self.thread.push(caller);
        self.cpu.push(sample.cpu.0);
        self.node.push(sample.node.map_or(NONE, |node| node.0));
        self.latency_ns.push(sample.latency_ns.filter(|ns| usable(ns)).unwrap_or(f32::NAN));
        self.stack.push(sample.stack.map_or(NONE, |stack| stack.0));
        self.weight.push(Some(sample.weight).filter(usable).unwrap_or(1.0));
        self.traits.push(
            Traits { kind: sample.kind, served: sample.served, kernel: sample.kernel, source: sample.source }.packed(),
        );
    }

    /// Brings samples of several streams into the order of time, and those of one time into one that depends on what
    /// they say only: not on the order in which they came.
    pub fn sort(&mut self) {
        let in_order = |at: usize| match self.time_ns[at - 1].cmp(&self.time_ns[at]) {
            Ordering::Equal => self.compare(at - 1, at) != Ordering::Greater,
            order => order == Ordering::Less,
        };
        if (1..self.len()).all(in_order) {
            return;
        }
        let order = |&a: &u32, &b: &u32| self.compare(a as usize, b as usize);
        let mut positions: Vec<(u64, u32)> = self.time_ns.iter().copied().zip(0..).collect();
        let compare = |a: &(u64, u32), b: &(u64, u32)| a.0.cmp(&b.0).then_with(|| order(&a.1, &b.1));
        // Stable because it is fast where what it gets is several streams, each in order.
        positions.sort_by(compare);
        let positions: Vec<u32> = positions.into_iter().map(|(_, position)| position).collect();
        // One column after another through the same memory: a new one for each would double what is needed.
        let mut whole = Vec::with_capacity(self.len());
        for column in [&mut self.time_ns, &mut self.address, &mut self.physical, &mut self.instruction] {
            gather(column, &positions, &mut whole);
        }
        drop(whole);
        let mut half = Vec::with_capacity(self.len());
        for column in [&mut self.thread, &mut self.cpu, &mut self.node, &mut self.stack] {
            gather(column, &positions, &mut half);
        }
        drop(half);
        let mut numbers = Vec::with_capacity(self.len());
        gather(&mut self.latency_ns, &positions, &mut numbers);
        gather(&mut self.weight, &positions, &mut numbers);
        gather(&mut self.traits, &positions, &mut Vec::new());
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        let whole = |at: usize| {
            let caller = self.callers[self.thread[at] as usize];
            let numbers = (self.latency_ns[at].to_bits(), self.weight[at].to_bits());
            let place = (self.cpu[at], self.physical[at], self.node[at]);
            (
                self.time_ns[at],
                caller,
                self.address[at],
                self.instruction[at],
                place,
                numbers,
                self.stack[at],
                self.traits[at],
            )
        };
        whole(a).cmp(&whole(b))
    }
}

/// Brings a column into the order of these positions. What it was before is in `other` then.
fn gather<T: Copy>(column: &mut Vec<T>, positions: &[u32], other: &mut Vec<T>) {
    other.clear();
    other.extend(positions.iter().map(|&position| column[position as usize]));
    std::mem::swap(column, other);
}

/// What takes few values, in one column.
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

    pub fn of(packed: u16) -> Self {
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
    fn traits_survive_packing() {
        for kind in KINDS {
            for served in SERVED {
                for source in SOURCES {
                    for kernel in [false, true] {
                        let traits = Traits { kind, served, kernel, source };
                        assert_eq!(Traits::of(traits.packed()), traits);
                    }
                }
            }
        }
    }
}
