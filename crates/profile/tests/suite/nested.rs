//! Objects inside of others: what the program announces within a block ends by its own call, or with the block.

use crate::support::{allocated, event, freed, mapped, objects, profile, sample};
use machine::Pid;
use profile::ObjectKind;
use proptest::prelude::*;
use trace::{Stacks, What};

fn announced(address: u64, bytes: u64) -> What {
    What::Announced { address, bytes, stack: Stacks::UNKNOWN, name: None }
}

/// When the object at an address began, at each of these times.
fn begun(events: Vec<What>, at: &[(u64, u64)]) -> Vec<Option<u64>> {
    let events = events.into_iter().zip(1..).map(|(what, time)| event(10 * time, 7, 7, what)).collect();
    let found = profile(events, at.iter().map(|&(time, address)| sample(time, 7, 7, address)).collect());
    let born = |object: &&profile::Object| (object.kind != ObjectKind::Unknown).then_some(object.from_ns);
    objects(&found).iter().map(born).collect()
}

#[test]
fn the_end_of_an_announced_object_is_not_the_end_of_its_block() {
    let block = allocated(0x1000, 3_300_000, Stacks::UNKNOWN);
    let withdrawn = What::Withdrawn { address: 0x1000 };
    // A reused block's end takes with it what the program never withdrew.
    let events = vec![block.clone(), announced(0x1000, 64), freed(0x1000), block.clone()];
    assert_eq!(
        begun(events, &[(25, 0x1020), (25, 0x1040), (35, 0x1020), (35, 0x1040), (45, 0x1020)]),
        [Some(20), Some(10), None, None, Some(40)]
    );
    let events = vec![block, announced(0x1000, 64), withdrawn.clone(), freed(0x1000)];
    assert_eq!(
        begun(events, &[(25, 0x1020), (35, 0x1020), (35, 0x2000), (45, 0x1020)]),
        [Some(20), Some(10), Some(10), None]
    );
    // What was not announced cannot be withdrawn.
    let events = vec![allocated(0x1000, 64, Stacks::UNKNOWN), withdrawn];
    assert_eq!(begun(events, &[(25, 0x1000)]), [Some(10)]);
}

#[test]
fn pools_in_pools_end_from_within() {
    let events = vec![
        mapped(0x10_0000, 0x10_0000, "", false),
        allocated(0x10_0000, 0x10_0000, Stacks::UNKNOWN),
        allocated(0x10_1000, 0x8000, Stacks::UNKNOWN),
        announced(0x10_1000, 0x1000),
        announced(0x10_1000, 0x40),
        What::Withdrawn { address: 0x10_1000 },
        What::Withdrawn { address: 0x10_1000 },
        freed(0x10_1000),
        What::Unmapped { start: 0x10_0000, bytes: 0x10_0000 },
    ];
    let at: Vec<(u64, u64)> = (2..10).map(|time| (10 * time + 5, 0x10_1010)).collect();
    assert_eq!(begun(events, &at), [20, 30, 40, 50, 40, 30, 20, 0].map(|time| (time > 0).then_some(time)));
}

#[test]
fn a_fork_ends_its_own_copies() {
    let events = vec![
        event(10, 7, 7, allocated(0x1000, 0x100, Stacks::UNKNOWN)),
        event(20, 7, 7, announced(0x1000, 0x40)),
        event(30, 8, 8, What::ProcessStarted { parent: Some(Pid(7)) }),
        event(40, 8, 8, freed(0x1000)),
        event(50, 7, 7, What::Withdrawn { address: 0x1000 }),
    ];
    let at = [(35, 8), (36, 7), (45, 8), (46, 7), (55, 7)];
    let found = profile(events, at.map(|(time, pid)| sample(time, pid, pid, 0x1010)).to_vec());
    let of = objects(&found).into_iter().map(|object| (object.process.0, object.announced, object.kind));
    let (heap, unknown) = (ObjectKind::Heap, ObjectKind::Unknown);
    let wanted = [(1, true, heap), (0, true, heap), (1, false, unknown), (0, true, heap), (0, false, heap)];
    assert_eq!(of.collect::<Vec<_>>(), wanted);
    let copy = found.objects().iter().find(|object| object.process.0 == 1 && object.announced).unwrap();
    assert_eq!(copy.until_ns, Some(40));
}

/// Units of addresses in the model.
const UNITS: usize = 40;

#[derive(Clone, Copy, Debug)]
enum Change {
    Allocated(usize, usize),
    Announced(usize, usize),
    Freed(usize),
    Withdrawn(usize),
    Resized(usize, usize),
    Unmapped(usize, usize),
    Invalidated(usize, usize),
}

/// For each address the objects there, the innermost last.
#[derive(Default)]
struct Model {
    objects: Vec<ModelObject>,
    at: Vec<Vec<usize>>,
}

struct ModelObject {
    start: usize,
    announced: bool,
    begun: u64,
}

impl Model {
    fn has(&self, object: usize, at: usize) -> bool {
        self.at.get(at).is_some_and(|stack| stack.contains(&object))
    }

    /// Whether an object has all of these addresses and the one before or after.
    fn contains(&self, object: usize, start: usize, end: usize) -> bool {
        let beside = start > 0 && self.has(object, start - 1) || self.has(object, end);
        beside && (start..end).all(|at| self.has(object, at))
    }

    fn begin(&mut self, start: usize, end: usize, announced: bool, begun: u64) {
        let gives_way: Vec<usize> = (0..self.objects.len())
            .filter(|&other| !self.contains(other, start, end) && (!announced || self.objects[other].announced))
            .collect();
        self.objects.push(ModelObject { start, announced, begun });
        let new = self.objects.len() - 1;
        for stack in &mut self.at[start..end] {
            stack.retain(|other| !gives_way.contains(other));
            stack.push(new);
        }
    }

    /// The innermost object that begins at an address.
    fn innermost(&self, at: usize, announced: bool) -> Option<usize> {
        let is_it = |&&object: &&usize| self.objects[object].start == at && self.objects[object].announced == announced;
        self.at[at].iter().rev().find(is_it).copied()
    }

    fn end(&mut self, object: usize) {
        let of_block = !self.objects[object].announced;
        for stack in &mut self.at {
            if let Some(place) = stack.iter().position(|&other| other == object) {
                let inside = stack.split_off(place);
                let objects = &self.objects;
                stack.extend(inside.into_iter().skip(1).filter(|&other| !of_block && !objects[other].announced));
            }
        }
    }

    fn resize(&mut self, object: usize, bytes: usize) {
        let start = self.objects[object].start;
        let end = start + bytes;
        let had = (start..UNITS).find(|&at| !self.has(object, at)).unwrap_or(UNITS);
        let place = self.at[start].iter().position(|&other| other == object).unwrap();
        let above = self.at[start][place..].to_vec();
        let stays: Vec<usize> =
            (0..self.objects.len()).filter(|&other| other != object && self.contains(other, start, end)).collect();
        for at in 0..UNITS {
            let stack = &mut self.at[at];
            if (had..end).contains(&at) {
                stack.retain(|other| stays.contains(other));
                let place = stack.iter().position(|other| above.contains(other)).unwrap_or(stack.len());
                stack.insert(place, object);
            } else if (end..had).contains(&at) {
                let place = stack.iter().position(|&other| other == object).unwrap();
                stack.truncate(place);
            } else if !(start..end).contains(&at) {
                stack.retain(|&other| other != object);
            }
        }
    }

    fn apply(&mut self, change: Change, time: u64) {
        match change {
            Change::Allocated(start, bytes) => self.begin(start, start + bytes, false, time),
            Change::Announced(start, bytes) => self.begin(start, start + bytes, true, time),
            Change::Freed(at) => {
                let found = self.innermost(at, false).or_else(|| self.innermost(at, true));
                if let Some(object) = found {
                    self.end(object);
                }
            }
            Change::Withdrawn(at) => self.innermost(at, true).into_iter().for_each(|object| self.end(object)),
            Change::Resized(at, bytes) => {
                self.innermost(at, false).into_iter().for_each(|object| self.resize(object, bytes));
            }
            Change::Unmapped(start, bytes) => self.at[start..start + bytes].iter_mut().for_each(Vec::clear),
            Change::Invalidated(start, bytes) => {
                let gone: Vec<usize> = self.at[start..start + bytes].iter().flatten().copied().collect();
                self.at.iter_mut().for_each(|stack| stack.retain(|object| !gone.contains(object)));
            }
        }
    }
}

impl Change {
    fn what(self, unit: u64) -> What {
        let bytes = |units: usize| units as u64 * unit;
        let address = |at: usize| 0x10_0000 + bytes(at);
        match self {
            Self::Allocated(at, units) => allocated(address(at), bytes(units), Stacks::UNKNOWN),
            Self::Announced(at, units) => announced(address(at), bytes(units)),
            Self::Freed(at) => freed(address(at)),
            Self::Withdrawn(at) => What::Withdrawn { address: address(at) },
            Self::Resized(at, units) => What::Resized { address: address(at), bytes: bytes(units) },
            Self::Unmapped(at, units) => What::Unmapped { start: address(at), bytes: bytes(units) },
            Self::Invalidated(at, units) => What::Invalidated { start: address(at), bytes: bytes(units) },
        }
    }
}

fn any_change() -> impl Strategy<Value = Change> {
    // Few places where objects begin, so that they meet there.
    let start = (0_usize..8).prop_map(|place| 3 * place);
    let range = (start.clone(), prop_oneof![3 => 1_usize..6, 1 => 1_usize..16]);
    prop_oneof![
        4 => range.clone().prop_map(|(at, units)| Change::Allocated(at, units)),
        5 => range.clone().prop_map(|(at, units)| Change::Announced(at, units)),
        3 => start.clone().prop_map(Change::Freed),
        3 => start.prop_map(Change::Withdrawn),
        2 => range.clone().prop_map(|(at, units)| Change::Resized(at, units)),
        1 => range.clone().prop_map(|(at, units)| Change::Unmapped(at, units)),
        1 => range.prop_map(|(at, units)| Change::Invalidated(at, units)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Compares with stacks of objects by address, in small and large objects.
    #[test]
    fn agrees_with_a_stack_of_objects_per_address(
        changes in prop::collection::vec(any_change(), 1..40),
        unit in prop_oneof![Just(16_u64), Just(700), Just(9000)],
    ) {
        let mut model = Model { at: vec![Vec::new(); UNITS], ..Model::default() };
        let (mut events, mut samples, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        for (&change, number) in changes.iter().zip(1..) {
            let time = 1000 * number;
            events.push(event(time, 7, 7, change.what(unit)));
            model.apply(change, time);
            for (at, stack) in model.at.iter().enumerate() {
                // The first and the last byte, by two threads, so that each has remembered another object.
                for (tid, offset) in [(7, 0), (8, unit - 1)] {
                    samples.push(sample(time + 2 * at as u64 + 1, 7, tid, 0x10_0000 + at as u64 * unit + offset));
                    wanted.push(stack.last().map(|&object| model.objects[object].begun));
                }
            }
        }
        let found = profile(events, samples);
        let begun = |object: &&profile::Object| (object.kind != ObjectKind::Unknown).then_some(object.from_ns);
        prop_assert_eq!(objects(&found).iter().map(begun).collect::<Vec<_>>(), wanted);
        // An object lives for as long as it has an address.
        for (number, object) in model.objects.iter().enumerate() {
            let lives = model.at.iter().flatten().any(|&other| other == number);
            let known = found.objects().iter().find(|known| known.from_ns == object.begun && known.kind == ObjectKind::Heap);
            prop_assert_eq!(known.map(|known| known.until_ns.is_none()), Some(lives));
        }
    }
}
