//! `thread-clustering`, and the kernel's memory policies.

use crate::support::*;
#[allow(dead_code, reason = "each test file uses its part")]
use machine::{Machine, NodeId, Pid, SMALL_PAGE, Tid, presets};
use placement::{
    Action, NodeBytes, Observation, Outcome, Page, PageOf, Policy, Range, Rule, Settings, Thread, ThreadAccesses,
};

/// Threads and the pages that they share: each pair has pages on a separate node.
fn pairs(pages_of_pairs: &[(u32, u32, u32)]) -> (Vec<Thread>, Vec<Page>) {
    let mut threads = Vec::new();
    let mut pages = Vec::new();
    for (index, &(one, other, node)) in (0..).zip(pages_of_pairs) {
        threads.extend([one, other].map(|tid| far_thread(7, tid, &[(node, 50)])));
        let by = |tid| ThreadAccesses { tid: Tid(tid), accesses: 5 };
        pages.push(Page {
            threads: [by(one), by(other)].into_iter().collect(),
            writes: 1,
            ..page(index, node, &[(0, 5), (1, 5)])
        });
    }
    (threads, pages)
}

#[test]
fn threads_that_use_the_same_pages_share_a_node() {
    let mut policy = policy("thread-clustering");
    let (threads, pages) = pairs(&[(1, 4, 2), (2, 3, 1)]);
    let shared = Observation { pages, ..round(2, vec![process(7, 4.0)], threads.clone()) };
    let together: Vec<(u32, String)> =
        sent(&policy.decide(&shared)).into_iter().map(|(tid, cpus, _)| (tid, cpus)).collect();
    let [one, two] = ["4-7", "8-11"].map(str::to_owned);
    assert_eq!(together, [(1, two.clone()), (4, two), (2, one.clone()), (3, one)]);
    assert_eq!(sent(&policy.decide(&shared)), [], "once");
    let alone = sent(&policy.decide(&round(4, vec![process(7, 4.0)], threads)));
    assert!(alone.len() == 4 && alone.iter().all(|(_, cpus, rule)| cpus == "0-15" && *rule == Rule::NoLongerClustered));
}

#[test]
fn four_common_accesses_make_no_cluster_and_clusters_have_to_fit() {
    let decide = |accesses, busy| {
        let (mut threads, mut pages) = pairs(&[(1, 2, 2), (2, 3, 2), (3, 4, 2), (4, 5, 2), (5, 6, 2)]);
        threads.dedup_by_key(|thread| thread.tid);
        threads.sort_by_key(|thread| thread.tid);
        threads.dedup_by_key(|thread| thread.tid);
        for thread in &mut threads {
            thread.cpu_share = busy;
        }
        pages.iter_mut().flat_map(|page| &mut page.threads).for_each(|by| by.accesses = accesses);
        let shared = Observation { pages, ..round(2, vec![process(7, 4.0)], threads) };
        sent(&policy("thread-clustering").decide(&shared)).len()
    };
    assert_eq!(decide(4, 0.5), 0);
    assert_eq!(decide(5, 0.5), 6, "one cluster, through others; three CPUs busy of four");
    assert_eq!(decide(5, 1.0), 0, "six busy threads do not fit four CPUs");
}

#[test]
fn clusters_and_pages_take_turns() {
    let mut policy = policy("thread-clustering+carrefour");
    let (threads, pages) = pairs(&[(1, 4, 2), (2, 3, 1)]);
    let at = |number| Observation {
        pages: [pages.clone(), vec![page(100, 0, &[(2, 2)])]].concat(),
        traffic: even_traffic(100.0, 0.25),
        ..round(number, vec![process(7, 4.0)], threads.clone())
    };
    let even = policy.decide(&at(2));
    assert_eq!((sent(&even).len(), moves(&even)), (4, vec![]));
    let odd = policy.decide(&at(3));
    assert_eq!((sent(&odd).len(), moves(&odd)), (0, vec![(100, 2)]));
    let settled = policy.decide(&at(10));
    assert_eq!((sent(&settled).len(), moves(&settled)), (0, vec![(100, 2)]), "no thread moved");
}

#[test]
fn weighted_interleave_has_the_measured_proportions() {
    let mut uneven = machine();
    uneven.nodes[1].bandwidth_bytes_per_s = Some(2.0 * 7.58e9);
    let mut policy = policy_on("weighted-interleave:0-1", &uneven);
    assert_eq!(memory(&mut policy, 7), "weighted interleave: 0-1 with weights 0=1,1=2");
    let mut observation = observation(1, vec![], (0..6).map(|number| page(number, 3, &[(0, 1)])).collect());
    observation.processes[0].adopted = true;
    assert_eq!(moves(&policy.decide(&observation)), [(0, 0), (1, 1), (2, 1), (3, 0), (4, 1), (5, 1)]);
}

#[test]
fn bind_moves_only_what_lies_elsewhere() {
    let mut policy = policy("bind:1-2");
    assert_eq!(memory(&mut policy, 7), "bind: 1-2");
    let mut observation = observation(1, vec![], (0..4).map(|number| page(number, number as u32, &[(0, 1)])).collect());
    assert_eq!(moves(&policy.decide(&observation)), [], "the kernel has put it there, if it could");
    observation.processes[0].adopted = true;
    assert_eq!(moves(&policy.decide(&observation)), [(0, 1), (3, 2)]);
}

#[test]
fn what_the_kernel_refuses_is_left_alone_for_some_rounds() {
    let mut policy = policy("bind:1");
    let mut at = |number, refused: Vec<PageOf>| {
        let mut observation = observation(number, vec![], (0..2).map(|number| page(number, 0, &[(0, 1)])).collect());
        observation.processes[0].adopted = true;
        let moved = moves(&policy.decide(&observation));
        policy.learn(&Outcome { round: number, refused, ..Outcome::default() });
        moved
    };
    assert_eq!(at(1, vec![PageOf { pid: PID, address: SMALL_PAGE }]), [(0, 1), (1, 1)]);
    assert_eq!([at(2, vec![]), at(16, vec![])], [vec![(0, 1)], vec![(0, 1)]]);
    assert_eq!(at(17, vec![]), [(0, 1), (1, 1)]);
}

#[test]
fn memory_that_is_bound_stays_so_wherever_its_process_goes() {
    let mut policy = policy("auto+bind:2");
    policy.admit(&process(7, 1.0), &far_thread(7, 7, &[(2, 100)]));
    let range = Range {
        pid: Pid(7),
        start: 0,
        end: 1 << 20,
        bytes: vec![NodeBytes { node: NodeId(2), bytes: 1 << 20 }],
        memory_policy: None,
        shared: None,
    };
    let threads = vec![far_thread(7, 7, &[(2, 100)])];
    let decision = policy.decide(&Observation { ranges: vec![range], ..round(1, vec![process(7, 1.0)], threads) });
    assert!(!decision.steps.iter().any(|step| matches!(step.action, Action::MoveRanges { .. })), "{decision:?}");
}

#[test]
fn a_thread_that_shares_nothing_is_left_alone() {
    let (threads, _) = pairs(&[(1, 2, 0), (3, 4, 0)]);
    let pages = threads.iter().map(|thread| page(thread.tid.0.into(), 1, &[(1, 5)])).collect();
    let idle = Thread { accesses: Vec::new(), ..thread(7, 9) };
    let threads = threads.into_iter().chain([idle]).collect();
    let alone = Observation { pages, ..round(2, vec![process(7, 4.0)], threads) };
    assert_eq!(sent(&policy("thread-clustering").decide(&alone)), []);
}

#[test]
fn policies_that_a_machine_has_no_nodes_for_are_refused() {
    let error = |name: &str, machine: &Machine| {
        machine::chain(&Policy::new(name.parse().unwrap(), machine, Settings::default()).unwrap_err())
    };
    assert_eq!(
        error("bind:2-9", &machine()),
        "policy bind:2-9 wants CPUs on nodes 4-9, which have none; nodes 0-3 have"
    );
    let cxl = presets::find("epyc-9224x2-cxl").unwrap();
    let without_cpus = cxl.nodes.iter().find(|node| node.cpus.is_empty()).unwrap().id;
    assert!(error(&format!("bind:{without_cpus}"), &cxl).contains("wants CPUs on nodes"));
    assert!(Policy::new(format!("kernel+bind:{without_cpus}").parse().unwrap(), &cxl, Settings::default()).is_ok());
    assert!(error("fixed:99", &machine()).contains("wants CPU 99, which opteron-8380x4 does not have: it has 0-15"));
    assert!(error("interleave:!all", &machine()).contains("selects nothing"));
}
