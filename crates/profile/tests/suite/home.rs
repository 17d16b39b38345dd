//! Homes of threads and memory by their accesses: feature F51 of the `MemProf` specification.

use crate::support::{event, profile, sample};
use linux::{Pid, Tid};
use machine::{CpuId, HUGE_PAGE, NodeId, SMALL_PAGE};
use profile::{Filter, MemoryHome, Profile};
use trace::{Sample, What};

const START: u64 = 0x7f00_0000_0000;

/// An access of process 7: by this thread on the first CPU of node `from`, to memory of node `to`.
fn access(tid: u32, from: u32, address: u64, to: u32) -> Sample {
    Sample { cpu: CpuId(from * 2), node: Some(NodeId(to)), ..sample(5, 7, tid, address) }
}

fn memory_homes(profile: &Profile) -> Vec<MemoryHome> {
    profile.view(&Filter::default()).memory_homes(Pid(7))
}

#[test]
fn memory_belongs_to_the_node_that_uses_it_most() {
    let ninth = |from, page: u64, count| vec![access(7, from, START + page * SMALL_PAGE, 0); count];
    let [mine, mixed, far] = [0, 1, 9].map(|part| START + part * HUGE_PAGE);
    let second = HUGE_PAGE / SMALL_PAGE;
    let samples =
        [ninth(3, 0, 9), ninth(1, 0, 1), ninth(2, second + 4, 6), ninth(1, second + 2, 5), ninth(0, 9 * second, 1)];
    let profile = profile(vec![], samples.concat());
    let pages = vec![(mixed + 2 * SMALL_PAGE, NodeId(1)), (mixed + 4 * SMALL_PAGE, NodeId(2))];
    let home = |start, node, pages| MemoryHome { start, node: NodeId(node), pages };
    assert_eq!(memory_homes(&profile), [home(mine, 3, vec![]), home(mixed, 2, pages), home(far, 0, vec![])]);
}

#[test]
fn caches_the_kernel_and_other_processes_say_nothing_of_where_memory_belongs() {
    let peer = Sample { served: Some(trace::Served::Peer), ..access(7, 1, START, 0) };
    let cache = Sample { served: Some(trace::Served::L1), ..access(7, 1, START, 0) };
    let kernel = Sample { kernel: true, ..access(7, 1, START, 0) };
    let other = Sample { pid: Pid(8), tid: Tid(8), ..access(7, 1, START, 0) };
    let profile = profile(vec![], vec![peer, cache, kernel, other]);
    assert_eq!(memory_homes(&profile), []);
    assert!(profile.view(&Filter::default()).thread_homes(Pid(7)).is_empty());
    assert_eq!(profile.view(&Filter::default()).last_access_ns(Pid(7)), Some(5));
    assert_eq!(profile.view(&Filter::default()).last_access_ns(Pid(9)), None);
}

#[test]
fn threads_belong_where_most_of_their_memory_is_and_300_samples_say_nothing_yet() {
    let accesses = |tid, to, count| vec![access(tid, 0, START, to); count];
    let samples = [accesses(7, 2, 200), accesses(7, 1, 101), accesses(9, 3, 300)].concat();
    let homes = profile(vec![], samples).view(&Filter::default()).thread_homes(Pid(7));
    let told: Vec<_> = homes.iter().map(|home| (home.tid.0, home.node.0, home.samples, home.is_sure())).collect();
    assert_eq!(told, [(7, 2, 301, true), (9, 3, 300, false)]);
}

/// The kernel reuses PIDs and TIDs.
#[test]
fn only_the_last_process_of_a_number_is_meant() {
    let again = [event(10, 7, 7, What::ThreadEnded), event(20, 7, 7, What::ProcessStarted { parent: None })];
    let later = Sample { time_ns: 30, ..access(7, 2, START + HUGE_PAGE, 0) };
    let profile = profile(again.to_vec(), vec![access(7, 1, START, 0), later]);
    let homes: Vec<_> = memory_homes(&profile).iter().map(|home| (home.start, home.node.0)).collect();
    assert_eq!(homes, [(START + HUGE_PAGE, 2)]);
}
