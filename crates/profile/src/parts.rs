//! Whether one node uses each part of an object, as of an array that a loop divides among threads.

use crate::ids::{ObjectId, ThreadId};
use crate::object::{Object, ObjectKind};
use crate::pattern::PartOf;
use crate::profile::Access;
use machine::{NodeId, SMALL_PAGE};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Most parts of an object: several times as many as a machine has nodes.
const MOST_PARTS: u64 = 64;
/// Fewest samples of the mean part. By chance alone, the first of four nodes has 38 % of so few.
const ENOUGH: u64 = 16;

/// Accesses to memory, by part of each object and node of the CPU.
type ByPart = FxHashMap<(ObjectId, u64), BTreeMap<NodeId, u64>>;

/// Accesses to memory by part, from when a second thread uses the object on: until then one thread fills it, mostly, and that
/// says nothing of who uses it.
#[derive(Default)]
pub(crate) struct Parts {
    used: ByPart,
    /// Those before.
    initial: ByPart,
    /// Each object's first thread, and whether it is the only one.
    first: FxHashMap<ObjectId, (ThreadId, bool)>,
}

/// Successive accesses to pages of stacks. All stacks of a process are one object, and threads that live one after another
/// may have the same stack.
#[derive(Default)]
pub(crate) struct StackPages {
    last: FxHashMap<(ObjectId, u64), ThreadId>,
    held: PartOf,
}

impl StackPages {
    /// Counts an access to an object, if that is stacks.
    pub fn add(&mut self, id: ObjectId, object: &Object, access: &Access) {
        if object.kind == ObjectKind::Stacks
            && let Some(last) = self.last.insert((id, access.address / SMALL_PAGE), access.thread)
        {
            self.held.0 += u64::from(last == access.thread);
            self.held.1 += 1;
        }
    }

    /// Accesses by the thread that used the page before, of all to pages that were used before.
    pub fn held(&self) -> PartOf {
        self.held
    }
}

impl Parts {
    /// Counts an access to an object; memory with an unknown address has no parts.
    pub fn add(&mut self, id: ObjectId, object: &Object, access: &Access) {
        let (first, is_alone) = self.first.entry(id).or_insert((access.thread, true));
        *is_alone &= *first == access.thread;
        let (Some(from), Some(offset)) = (access.from, access.address.checked_sub(object.start)) else { return };
        if !access.reaches_memory() || object.start == 0 {
            return;
        }
        let part_bytes = (object.bytes / MOST_PARTS).next_multiple_of(SMALL_PAGE).max(SMALL_PAGE);
        let parts = if *is_alone { &mut self.initial } else { &mut self.used };
        *parts.entry((id, offset / part_bytes)).or_default().entry(from).or_default() += 1;
    }

    /// Accesses by the node that uses a part most, of all; none of objects that are not divided. Parts with few samples are
    /// joined with their neighbours.
    pub fn held(self) -> PartOf {
        let Self { used: mut parts, initial, first } = self;
        let is_alone = |id: &ObjectId| first.get(id).is_some_and(|(_, is_alone)| *is_alone);
        parts.extend(initial.into_iter().filter(|((id, _), _)| is_alone(id)));
        let all: u64 = parts.values().flat_map(BTreeMap::values).sum();
        while parts.keys().any(|(_, part)| *part > 0) && all < ENOUGH * parts.len() as u64 {
            let mut joined = ByPart::default();
            for ((object, part), by_node) in parts {
                let nodes = joined.entry((object, part / 2)).or_default();
                for (node, samples) in by_node {
                    *nodes.entry(node).or_default() += samples;
                }
            }
            parts = joined;
        }
        if parts.keys().all(|(_, part)| *part == 0) {
            return (0, all);
        }
        (parts.values().filter_map(|by_node| by_node.values().max()).sum(), all)
    }
}
