//! Random sequences of calls against a model: objects do not overlap, keep their contents, and are as large and aligned as
//! asked for.

use heap::{Place, allocate, allocate_zeroed, free, reallocate, usable_size};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Call {
    Allocate { bytes: usize, alignment: usize, place: Place, zeroed: bool },
    Free(prop::sample::Index),
    Resize(prop::sample::Index, usize),
}

fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..600_usize, 3 => 0..40_000_usize, 2 => 0..3_000_000_usize, 1 => (0..23_u32).prop_map(|bit| 1 << bit)]
}

fn call() -> impl Strategy<Value = Call> {
    let alignment = prop_oneof![4 => Just(16_usize), 1 => (0..24_u32).prop_map(|bit| 1 << bit)];
    let place =
        prop_oneof![4 => Just(Place::Local), 1 => Just(Place::Interleaved), 1 => (0..3_usize).prop_map(Place::On)];
    prop_oneof![
        4 => (bytes(), alignment, place, any::<bool>())
            .prop_map(|(bytes, alignment, place, zeroed)| Call::Allocate { bytes, alignment, place, zeroed }),
        3 => any::<prop::sample::Index>().prop_map(Call::Free),
        2 => (any::<prop::sample::Index>(), bytes()).prop_map(|(index, bytes)| Call::Resize(index, bytes)),
    ]
}

/// Live objects: address, and size with the byte that fills it.
#[derive(Default)]
struct Model(BTreeMap<usize, (usize, u8)>);

impl Model {
    fn add(&mut self, object: *mut u8, bytes: usize, fill: u8) {
        let start = object as usize;
        // SAFETY: a live object.
        let usable = unsafe { usable_size(object) };
        assert!(usable >= bytes);
        let before = self.0.range(..start).next_back();
        assert!(before.is_none_or(|(other, (bytes, _))| other + bytes <= start), "overlaps the object before");
        let after = self.0.range(start..).next();
        assert!(after.is_none_or(|(other, _)| start + usable <= *other), "overlaps the object behind");
        // SAFETY: a live object of at least this size.
        unsafe { object.write_bytes(fill, bytes) };
        self.0.insert(start, (bytes, fill));
    }

    fn check(start: usize, bytes: usize, fill: u8) {
        // SAFETY: a live object of at least this size.
        let contents = unsafe { std::slice::from_raw_parts(start as *const u8, bytes) };
        assert!(contents.iter().all(|byte| *byte == fill), "contents changed");
    }

    fn take(&mut self, index: prop::sample::Index) -> Option<(usize, usize, u8)> {
        let start = *self.0.keys().nth(index.index(self.0.len().max(1)))?;
        let (bytes, fill) = self.0.remove(&start)?;
        Self::check(start, bytes, fill);
        Some((start, bytes, fill))
    }
}

fn run(calls: &[Call]) {
    let mut model = Model::default();
    for (number, call) in calls.iter().enumerate() {
        let fill = number as u8 | 1;
        match call {
            Call::Allocate { bytes, alignment, place, zeroed } => {
                let object = if *zeroed { allocate_zeroed } else { allocate }(*bytes, *alignment, *place);
                assert!(!object.is_null() && (object as usize).is_multiple_of(*alignment), "{call:?}: {object:?}");
                if *zeroed {
                    Model::check(object as usize, *bytes, 0);
                }
                model.add(object, *bytes, fill);
            }
            Call::Free(index) => {
                if let Some((start, ..)) = model.take(*index) {
                    // SAFETY: a live object, which the model has forgotten.
                    unsafe { free(start as *mut u8) };
                }
            }
            Call::Resize(index, bytes) => {
                if let Some((start, old, old_fill)) = model.take(*index) {
                    // SAFETY: as above.
                    let object = unsafe { reallocate(start as *mut u8, *bytes, 16, Place::Local) };
                    assert!(!object.is_null());
                    Model::check(object as usize, old.min(*bytes), old_fill);
                    model.add(object, *bytes, fill);
                }
            }
        }
    }
    for (start, (bytes, fill)) in model.0 {
        Model::check(start, bytes, fill);
        // SAFETY: a live object.
        unsafe { free(start as *mut u8) };
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn random_calls_keep_to_the_model(calls in prop::collection::vec(call(), 1..300)) {
        run(&calls);
    }
}

#[test]
fn impossible_sizes_and_alignments_are_refused() {
    for (bytes, alignment) in [
        (usize::MAX, 16),
        (usize::MAX - 4096, 16),
        (isize::MAX as usize + 1, 16),
        (1, 48),
        (16, 1 << 63),
        (1 << 50, 16),
    ] {
        assert!(allocate(bytes, alignment, Place::Local).is_null(), "{bytes} {alignment}");
        assert!(allocate_zeroed(bytes, alignment, Place::Interleaved).is_null(), "{bytes} {alignment}");
    }
    let object = allocate(0, 16, Place::Local);
    assert!(!object.is_null());
    // SAFETY: a live object; it stays as it is when resizing fails.
    unsafe {
        assert!(reallocate(object, usize::MAX, 16, Place::Local).is_null());
        free(object);
        free(std::ptr::null_mut());
        assert_eq!(usable_size(std::ptr::null_mut()), 0);
    }
    let huge = allocate(3 << 20, 16, Place::Local);
    // SAFETY: as above.
    unsafe {
        assert!(reallocate(huge, usize::MAX, 16, Place::Local).is_null());
        assert!(usable_size(huge) >= 3 << 20);
        free(huge);
    }
}

/// A program may give a part of an object an advice, which splits its mapping: then the kernel neither extends nor moves
/// it.
#[test]
fn an_object_with_advice_for_a_part_is_resized_by_copying() {
    let bytes = 8 << 20;
    let object = allocate(bytes, 16, Place::Local);
    // SAFETY: a live object; the advice changes no contents.
    unsafe {
        object.write_bytes(7, bytes);
        assert_eq!(libc::madvise(object.add(4096).cast(), 1 << 20, libc::MADV_NOHUGEPAGE), 0);
        let larger = reallocate(object, 3 * bytes, 16, Place::Local);
        assert!(!larger.is_null());
        Model::check(larger as usize, bytes, 7);
        free(larger);
    }
}
