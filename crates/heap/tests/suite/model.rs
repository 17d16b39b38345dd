//! Random sequences of calls by several threads against the model, and calls that must be refused.

use heap::model::{Call, THREADS, run};
use heap::{Place, allocate, allocate_zeroed, free, reallocate, usable_size};
use proptest::prelude::*;

fn bytes() -> impl Strategy<Value = usize> {
    if cfg!(miri) {
        // It has no memory to waste.
        return (0..5000_usize).boxed();
    }
    prop_oneof![8 => 0..600_usize, 3 => 0..40_000_usize, 2 => 0..3_000_000_usize, 1 => (0..23_u32).prop_map(|bit| 1 << bit)]
        .boxed()
}

fn call() -> impl Strategy<Value = Call> {
    let alignment = prop_oneof![4 => Just(16_usize), 1 => (0..24_u32).prop_map(|bit| 1 << bit)];
    let place =
        prop_oneof![4 => Just(Place::Local), 1 => Just(Place::Interleaved), 1 => (0..3_usize).prop_map(Place::On)];
    prop_oneof![
        4 => (bytes(), alignment, place, any::<bool>())
            .prop_map(|(bytes, alignment, place, zeroed)| Call::Allocate { bytes, alignment, place, zeroed }),
        3 => any::<usize>().prop_map(Call::Free),
        2 => (any::<usize>(), bytes()).prop_map(|(rank, bytes)| Call::Resize(rank, bytes)),
        1 => Just(Call::End),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 200 }))]
    #[test]
    fn random_calls_keep_to_the_model(calls in prop::collection::vec((0..THREADS, call()), 1..(if cfg!(miri) { 60 } else { 300 }))) {
        run(calls);
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
        assert!(core::slice::from_raw_parts(larger, bytes).iter().all(|&byte| byte == 7));
        free(larger);
    }
}
