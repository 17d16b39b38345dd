//! Memory that several processes map: one object in each of them, but the same pages.

use crate::flow::Flow;
use crate::ids::{ObjectId, ProcessId};
use crate::object::Object;
use machine::SMALL_PAGE;
use rustc_hash::{FxHashMap, FxHashSet};

/// Pages in common from which on two objects are the same memory. One may be chance: an address that is stale.
const FEWEST_PAGES: usize = 2;

/// Objects of different processes that are the same memory, each with the first of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedMemory {
    /// All of them.
    members: FxHashSet<ObjectId>,
    /// An earlier one, of each but the first.
    earlier: FxHashMap<ObjectId, ObjectId>,
}

/// A page as a process has it.
#[derive(Clone, Copy)]
struct Mapped {
    object: ObjectId,
    process: ProcessId,
    /// The page within the object.
    page: u64,
}

impl SharedMemory {
    /// Finds them by the physical addresses of accesses: the same page of two objects that live at the same time. Private
    /// memory after a fork is shared, too, until it is written.
    pub fn new(flow: &Flow) -> Self {
        let objects = flow.profile().objects();
        let of = |object: ObjectId| &objects[object.index()];
        let mut processes = flow.accesses().map(|access| of(access.object).process);
        let first = processes.next();
        if processes.all(|process| Some(process) == first) {
            return Self::default();
        }
        let mut frames: FxHashMap<u64, Mapped> = FxHashMap::default();
        let mut common: FxHashMap<[ObjectId; 2], FxHashSet<u64>> = FxHashMap::default();
        for access in flow.accesses() {
            let (Some(physical), object) = (access.physical, of(access.object)) else { continue };
            let page = access.address.saturating_sub(object.start) / SMALL_PAGE;
            let mapped = Mapped { object: access.object, process: object.process, page };
            let frame = physical / SMALL_PAGE;
            if let Some(before) = frames.insert(frame, mapped)
                && before.process != mapped.process
                && before.page == mapped.page
                && live_together(of(before.object), object)
            {
                let pair = [before.object.min(mapped.object), before.object.max(mapped.object)];
                common.entry(pair).or_default().insert(frame);
            }
        }
        let mut pairs: Vec<_> =
            common.into_iter().filter(|(_, pages)| pages.len() >= FEWEST_PAGES).map(|(pair, _)| pair).collect();
        pairs.sort_unstable();
        let mut shared = Self::default();
        for [first, second] in pairs {
            shared.members.extend([first, second]);
            let [first, second] = [shared.first_of(first), shared.first_of(second)];
            if first != second {
                shared.earlier.insert(first.max(second), first.min(second));
            }
        }
        shared
    }

    /// Whether this object is the same memory as others.
    pub fn has(&self, object: ObjectId) -> bool {
        self.members.contains(&object)
    }

    /// The first of the objects that are the same memory as this one: itself, if it is not shared.
    pub fn first_of(&self, object: ObjectId) -> ObjectId {
        let mut first = object;
        while let Some(earlier) = self.earlier.get(&first) {
            first = *earlier;
        }
        first
    }
}

/// Whether objects may be the same memory, although no page was seen in use by several processes: they are at one address in
/// several, as memory is that a fork shares, and no pages of theirs were seen at two places. Each process may use its part.
pub(crate) fn may_be_shared(flow: &Flow) -> bool {
    let profile = flow.profile();
    let mut users: FxHashMap<u64, ProcessId> = FxHashMap::default();
    let mut places: FxHashMap<u64, (ProcessId, u64)> = FxHashMap::default();
    let (mut has_several, mut apart) = (false, FxHashSet::default());
    for access in flow.accesses() {
        let object = &profile.objects()[access.object.index()];
        if object.bytes == 0 {
            continue;
        }
        has_several |= *users.entry(object.start).or_insert(object.process) != object.process;
        if let Some(physical) = access.physical {
            let (page, frame) = (access.address / SMALL_PAGE, physical / SMALL_PAGE);
            let (process, known) = *places.entry(page).or_insert((object.process, frame));
            if process != object.process && known != frame {
                apart.insert(page);
            }
        }
    }
    // A page may have been moved meanwhile.
    has_several && apart.len() < FEWEST_PAGES
}

fn live_together(one: &Object, other: &Object) -> bool {
    let is_before = |one: &Object, other: &Object| one.until_ns.is_some_and(|until| until <= other.from_ns);
    !is_before(one, other) && !is_before(other, one)
}
