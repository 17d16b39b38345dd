//! Tests of cures of this process's own memory.

use super::*;

#[test]
fn a_join_costs_a_huge_page_and_what_is_one_already_costs_nothing() {
    let memory = vec![1_u8; 4 * HUGE_PAGE as usize];
    let address = (memory.as_ptr().addr() as u64).next_multiple_of(HUGE_PAGE);
    let block = || join(Pid(std::process::id()), &[(address, NodeId(0))], None);
    let Ok((first, joined)) = block() else { return };
    // The kernel may have no huge pages, or not show them.
    if joined.is_empty() {
        assert_eq!(first.joined, 0);
        return;
    }
    assert_eq!(first.moved_bytes(), first.joined * HUGE_PAGE);
    let (again, joined) = block().unwrap();
    assert_eq!((again.joined, again.moved_bytes(), joined), (0, 0, vec![address]));
    drop(memory);
}
