//! The kernel's balancing with and without the study's patch. T21 to T32 are claims of the huge-pages study's
//! specification that need no machine.

use machine::{NodeId, Tid};
use placement::{BalancingCounts, HUGE_PAGE_PAGES, KernelBalancing, SplitOptions, SplitTrigger};
use proptest::prelude::*;

const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);
const OF_A: Tid = Tid(10);
const OF_B: Tid = Tid(11);
/// A part of the first huge page, and another one.
const PART: usize = 7;
const OTHER: usize = 300;

const STOCK: SplitOptions = SplitOptions { split: None, reapply: false, reset: false, migrate: false };
const SPLIT: SplitOptions = SplitOptions { split: Some(SplitTrigger::Page), ..STOCK };

/// One huge page on node A.
fn one(options: SplitOptions) -> KernelBalancing {
    KernelBalancing::new(&[A], options)
}

/// Two huge pages on node A, after that many passes of the scanner in which each thread used parts of the second one:
/// the kernel knows the threads, and they are a group.
fn after_passes(passes: u32, options: SplitOptions) -> KernelBalancing {
    let mut memory = KernelBalancing::new(&[A, A], options);
    memory.make_small(1);
    for _ in 0..passes {
        memory.scan_all();
        for (thread, node, part) in [(OF_A, A, 0), (OF_B, B, 1)] {
            memory.access(HUGE_PAGE_PAGES + part, thread, node);
        }
    }
    assert_eq!(memory.passes(), passes);
    memory
}

/// The scans and accesses of a thread of node B until the page is there.
fn steps_until_moved(memory: &mut KernelBalancing, page: usize) -> u32 {
    let mut steps = 0;
    while memory.node(page) != B {
        assert!(steps < 100, "the page never moves");
        steps += 1;
        if !memory.is_protected(page) {
            memory.scan_all();
            steps += 1;
        }
        memory.access(page, OF_B, B);
    }
    steps
}

#[test]
fn t21_a_split_after_two_faults_needs_a_fault_of_another_node() {
    let options = SplitOptions { split: Some(SplitTrigger::LastFault), ..STOCK };
    let mut memory = one(options);
    memory.scan_all();
    assert!(memory.access(PART, OF_A, A), "the first fault: none is known");
    assert!(memory.is_huge(PART));
    memory.scan_all();
    memory.access(PART, OF_A, A);
    assert!(memory.is_huge(PART), "the last fault was of the same node");
    memory.scan_all();
    memory.access(PART, OF_B, B);
    assert!(!memory.is_huge(PART));
}

#[test]
fn t22_a_split_by_the_page_needs_a_fault_of_a_node_that_the_page_is_not_on() {
    let mut memory = one(SPLIT);
    memory.scan_all();
    memory.access(PART, OF_A, A);
    assert!(memory.is_huge(PART));
    memory.scan_all();
    memory.access(PART, OF_B, B);
    assert!(!memory.is_huge(PART), "whatever is known of it");
}

#[test]
fn t23_a_page_that_is_split_stays_on_its_node() {
    let mut memory = one(SPLIT);
    memory.scan_all();
    memory.access(PART, OF_B, B);
    assert!((0..HUGE_PAGE_PAGES).all(|part| memory.node(part) == A));
    assert_eq!(memory.counts(), BalancingCounts { faults: 1, splits: 1, ..BalancingCounts::default() });
}

#[test]
fn t24_a_split_gives_access_to_all_parts_and_reapply_takes_it_from_511() {
    let protected = |options| {
        let mut memory = one(options);
        memory.scan_all();
        memory.access(PART, OF_B, B);
        assert!(!memory.is_protected(PART));
        (0..HUGE_PAGE_PAGES).filter(|part| memory.is_protected(*part)).count()
    };
    assert_eq!(protected(SPLIT), 0);
    assert_eq!(protected(SplitOptions { reapply: true, ..SPLIT }), 511);
}

#[test]
fn t25_after_the_fourth_pass_a_part_needs_two_faults_of_one_node_and_with_reset_one() {
    let faults = |reset| {
        let mut memory = after_passes(6, SplitOptions { reset, ..SPLIT });
        // The head of the huge page, which all parts take after, was last used by the other thread.
        memory.scan_all();
        memory.access(PART, OF_A, A);
        memory.scan_all();
        memory.access(PART, OF_B, B);
        assert!(!memory.is_huge(OTHER));
        let before = memory.counts().faults;
        steps_until_moved(&mut memory, OTHER);
        memory.counts().faults - before
    };
    assert_eq!((faults(false), faults(true)), (2, 1));
}

#[test]
fn t26_with_migrate_the_part_that_faulted_has_moved_when_the_fault_returns() {
    let mut memory = one(SplitOptions { migrate: true, ..SPLIT });
    memory.scan_all();
    memory.access(PART, OF_B, B);
    assert_eq!((memory.node(PART), memory.node(OTHER)), (B, A));
    assert!(!memory.is_protected(PART));
}

#[test]
fn t27_in_the_first_four_passes_a_page_moves_on_its_first_fault() {
    let moves = |passes, last: Option<(Tid, NodeId)>| {
        let mut memory = after_passes(passes, STOCK);
        memory.make_small(0);
        if let Some((thread, node)) = last {
            memory.scan_all();
            memory.access(PART, thread, node);
        }
        memory.scan_all();
        memory.access(PART, OF_B, B);
        memory.node(PART) == B
    };
    assert!(moves(4, None), "no fault is known");
    assert!(moves(3, Some((OF_B, A))), "the last fault was the thread's own, on another node");
    assert!(!moves(3, Some((OF_A, A))), "the last fault was another thread's");
    assert!(!moves(5, Some((OF_B, A))), "later, the last fault has to be of the same node");
}

#[test]
fn t28_a_fault_of_another_node_than_the_last_one_moves_nothing() {
    let mut memory = after_passes(6, STOCK);
    for (thread, node) in [(OF_A, A), (OF_B, B), (OF_A, A), (OF_B, B)] {
        memory.scan_all();
        assert!(memory.access(PART, thread, node));
        assert_eq!(memory.node(PART), A);
    }
    memory.scan_all();
    memory.access(PART, OF_B, B);
    assert_eq!(memory.node(PART), B, "the second in a row, of the same thread");
}

#[test]
fn t29_a_huge_page_that_cannot_be_split_can_be_accessed_and_is_counted() {
    let mut memory = one(SplitOptions { reapply: true, reset: true, migrate: true, ..SPLIT });
    memory.pin(0);
    memory.scan_all();
    memory.access(PART, OF_B, B);
    assert!(memory.is_huge(PART) && !memory.is_protected(PART));
    assert_eq!(memory.counts(), BalancingCounts { faults: 1, failed_splits: 1, ..BalancingCounts::default() });
}

#[test]
fn t32_steps_until_a_part_is_on_its_node() {
    let steps = |options, page| {
        let mut memory = after_passes(6, options);
        memory.scan_all();
        memory.access(PART, OF_A, A);
        memory.scan_all();
        memory.access(PART, OF_B, B);
        steps_until_moved(&mut memory, page)
    };
    assert_eq!(steps(SPLIT, OTHER), 4);
    assert_eq!(steps(SplitOptions { reapply: true, reset: true, ..SPLIT }, OTHER), 1);
    assert_eq!(steps(SplitOptions { migrate: true, ..SPLIT }, PART), 0);
}

#[test]
fn a_thread_prefers_the_node_of_most_of_its_faults() {
    let mut memory = KernelBalancing::new(&[A, B, B], STOCK);
    for _ in 0..3 {
        memory.scan_all();
        for block in 0..3 {
            memory.access(block * HUGE_PAGE_PAGES, OF_A, B);
        }
    }
    assert_eq!(memory.preferred_node(OF_A), Some(B));
    assert_eq!(memory.preferred_node(OF_B), None);
}

#[test]
fn the_scanner_protects_window_by_window() {
    let mut memory = KernelBalancing::new(&[A; 5], STOCK);
    let protected = |memory: &KernelBalancing| -> Vec<bool> {
        (0..5).map(|block| memory.is_protected(block * HUGE_PAGE_PAGES)).collect()
    };
    memory.scan(2);
    assert_eq!(protected(&memory), [true, true, false, false, false]);
    memory.scan(2);
    assert_eq!((protected(&memory)[4], memory.passes()), (false, 0));
    memory.scan(2);
    assert_eq!((protected(&memory)[4], memory.passes()), (true, 1));
}

proptest! {
    /// T30: without a trigger the other options change nothing, and the defaults are off.
    #[test]
    fn t30_options_without_a_trigger_leave_the_kernel_as_it_is(
        accesses in prop::collection::vec((0..4 * HUGE_PAGE_PAGES, 0..4_u32, 0..2_u32, any::<bool>()), 0..200),
        (reapply, reset, migrate) in any::<(bool, bool, bool)>(),
    ) {
        prop_assert_eq!(SplitOptions::default(), STOCK);
        let mut stock = KernelBalancing::new(&[A, A, B, B], STOCK);
        let mut other = KernelBalancing::new(&[A, A, B, B], SplitOptions { split: None, reapply, reset, migrate });
        for (page, thread, node, scans) in accesses {
            for memory in [&mut stock, &mut other] {
                if scans {
                    memory.scan(3);
                }
                memory.access(page, Tid(thread), NodeId(node));
            }
        }
        prop_assert_eq!(stock.counts(), other.counts());
        prop_assert_eq!(stock.counts().splits, 0);
        for page in (0..4 * HUGE_PAGE_PAGES).step_by(97) {
            prop_assert_eq!(stock.node(page), other.node(page));
        }
    }

    /// Whatever the options and accesses: an access leaves its page accessible, and counts add up.
    #[test]
    fn an_access_always_ends_with_access(
        accesses in prop::collection::vec((0..3 * HUGE_PAGE_PAGES, 0..4_u32, 0..3_u32, any::<bool>()), 0..300),
        trigger in prop::option::of(prop_oneof![Just(SplitTrigger::LastFault), Just(SplitTrigger::Page)]),
        (reapply, reset, migrate, pinned) in any::<(bool, bool, bool, bool)>(),
    ) {
        let mut memory = KernelBalancing::new(&[A, B, NodeId(2)], SplitOptions { split: trigger, reapply, reset, migrate });
        if pinned {
            memory.pin(1);
        }
        let mut faults = 0;
        for (page, thread, node, scans) in accesses {
            if scans {
                memory.scan(2);
            }
            faults += u64::from(memory.access(page, Tid(thread), NodeId(node)));
            prop_assert!(!memory.is_protected(page));
        }
        let counts = memory.counts();
        prop_assert_eq!(counts.faults, faults);
        prop_assert!(counts.splits + counts.failed_splits <= faults);
        prop_assert_eq!(counts.reapplied, if reapply { 511 * counts.splits } else { 0 });
        prop_assert!(counts.marked_moves <= counts.moved && (reset || counts.marked_moves == 0));
    }
}
