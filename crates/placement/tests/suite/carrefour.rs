//! Claims C16 to C36 of the Carrefour specification.

use crate::support::*;
#[allow(dead_code, reason = "each test file uses its part")]
use machine::{NodeId, SMALL_PAGE, presets};
use placement::{
    Action, Decision, LinkLoad, NodeMemory, Observation, Outcome, Page, PageOf, Policy, Quantity, Rule, Sampling,
    Settings, Thread, Thresholds,
};

#[test]
fn c16_fewer_than_50_accesses_a_microsecond_do_nothing() {
    let at = |per_us| decide(&observation(1, even_traffic(per_us, 0.25), vec![misplaced()]));
    assert_eq!(rules(&at(49.0))[0], Rule::FewAccesses);
    assert_eq!(moves(&at(49.0)), []);
    assert_eq!(moves(&at(50.1)), [(1, 2)]);
    // Reaching the threshold is enough. The machine has no bandwidths, so that it is not scaled, and no links.
    let mut unmeasured = machine();
    unmeasured.nodes.iter_mut().for_each(|node| node.bandwidth_bytes_per_s = None);
    unmeasured.links.clear();
    let at = |per_us| {
        let decision = policy_on("carrefour", &unmeasured).decide(&observation(
            1,
            traffic_to([per_us, 0.0, 0.0, 0.0]),
            vec![misplaced()],
        ));
        moves(&decision)
    };
    assert_eq!((at(49.0), at(50.0)), (vec![], vec![(1, 2)]));
}

#[test]
fn c16_the_gate_follows_the_bandwidth_of_a_controller() {
    let at = |preset| {
        let policy = policy_on("carrefour", &presets::find(preset).unwrap());
        Thresholds::default().accesses_per_us_min_on(policy.costs())
    };
    assert!((at("opteron-8380x4") - 50.0).abs() < 1e-9);
    assert!((at("opteron-6164x2") - 50.0 * 5.85 / 7.58).abs() < 1e-9);
}

#[test]
fn c16_fewer_accesses_are_enough_where_they_load_a_link_as_much() {
    // Node 1's accesses to node 0, of 64 bytes each: one link is between them.
    let at = |load: f64| {
        let mut narrow = machine();
        narrow.links.iter_mut().for_each(|link| link.bandwidth_bytes_per_s = 20e6 * 64.0 / load);
        let mut observation = observation(1, traffic_to([20.0, 0.0, 0.0, 0.0]), vec![misplaced()]);
        // Coherence traffic loads links too, and moving pages does not change that.
        observation.links = vec![LinkLoad { from: NodeId(1), to: NodeId(0), utilisation: 0.95 }];
        policy_on("carrefour", &narrow).decide(&observation)
    };
    assert_eq!(rules(&at(0.42))[0], Rule::FewAccesses);
    assert_eq!((moves(&at(0.42)), moves(&at(0.43))), (vec![], vec![(1, 2)]));
}

#[test]
fn c17_processes_below_a_tenth_of_a_cpu_are_left_alone() {
    let at = |share| {
        let mut observation = observation(1, remote(), vec![misplaced()]);
        observation.processes = vec![process(7, share)];
        decide(&observation)
    };
    assert_eq!(rules(&at(0.09))[0], Rule::NoBusyProcess);
    assert_eq!((moves(&at(0.09)), moves(&at(0.11))), (vec![], vec![(1, 2)]));
}

#[test]
fn c18_pages_migrate_below_a_local_access_ratio_of_80_percent() {
    let at = |local| moves(&decide(&observation(1, even_traffic(100.0, local), vec![misplaced()])));
    assert_eq!((at(0.79), at(0.8001)), (vec![(1, 2)], vec![]));
}

#[test]
fn c19_pages_are_dealt_above_an_imbalance_of_35_percent() {
    // Loads m + d, m, m, m - d have an imbalance of d / m times the root of 2 / 3.
    let at = |imbalance: f64| {
        let d = 25.0 * imbalance * 1.5_f64.sqrt();
        let shared = (0..200).map(|number| page(number, 0, &[(0, 1), (1, 1)])).map(written).collect();
        let decision = decide(&observation(1, traffic_to([25.0 + d, 25.0, 25.0, 25.0 - d]), shared));
        assert!((decision.metrics.imbalance.unwrap() - imbalance).abs() < 1e-9);
        moves(&decision).len()
    };
    assert_eq!(at(0.35 - 1e-9), 0);
    assert!(at(0.36) > 0);
}

#[test]
fn c20_replication_wants_at_most_5_percent_of_lines_modified() {
    let at = |share| decide(&with_modified(observation(1, remote(), read_shared()), share));
    assert!(replicates(&at(0.05)) && !replicates(&at(0.06)));
    // Each thread has to be below; if none was measured, reads decide, and unknown is not enough.
    let mut two = with_modified(observation(1, remote(), read_shared()), 0.0);
    two.threads.push(Thread { modified_share: Some(0.06), ..thread(7, 9) });
    two.threads.push(thread(7, 10));
    assert!(!replicates(&decide(&two)));
    let reads = |ratio| {
        let mut observation = observation(1, remote(), read_shared());
        observation.processes[0].read_ratio = ratio;
        replicates(&decide(&observation))
    };
    assert!(reads(Some(0.9)) && !reads(Some(0.89)) && !reads(None));
}

#[test]
fn c21_replication_wants_three_quarters_of_memory_free() {
    let at = |used: u64| {
        let mut observation = with_modified(observation(1, remote(), read_shared()), 0.0);
        let memory = |node| NodeMemory { node: NodeId(node), total_bytes: 100 << 20, free_bytes: (100 - used) << 20 };
        observation.memory = (0..4).map(memory).collect();
        replicates(&decide(&observation))
    };
    assert!(at(25) && !at(26));
}

#[test]
fn c22_c23_imbalance_is_over_n_minus_1() {
    let imbalance = |loads| decide(&observation(1, traffic_to(loads), vec![])).metrics.imbalance;
    assert_eq!(imbalance([100.0; 4]), Some(0.0));
    assert_eq!(imbalance([400.0, 0.0, 0.0, 0.0]), Some(2.0));
    assert_eq!(imbalance([0.0; 4]), None);
}

#[test]
fn c24_c25_c26_two_samples_from_another_node_move_a_page() {
    let of = |page| moves(&decide(&observation(1, remote(), vec![page])));
    assert_eq!(of(page(1, 0, &[(2, 1)])), []);
    assert_eq!(of(page(1, 0, &[(2, 2)])), [(1, 2)]);
    assert_eq!(of(page(1, 2, &[(2, 2)])), []);
}

/// The code waives the two samples while interleaving is on (9.4).
#[test]
fn c24_one_sample_is_enough_while_interleaving_is_on() {
    assert_eq!(moves(&decide(&observation(1, contended(), vec![page(1, 0, &[(2, 1)])]))), [(1, 2)]);
}

#[test]
fn c27_c28_c29_c30_shared_pages_are_replicated_dealt_or_left() {
    let steps = |traffic, modified, pages: Vec<Page>| {
        let decision = decide(&with_modified(observation(1, traffic, pages), modified));
        let rules: Vec<Rule> = real_steps(&decision).iter().map(|step| step.reason.rule).collect();
        (rules, moves(&decision).len())
    };
    let written = || read_shared().into_iter().map(written).collect::<Vec<_>>();
    assert_eq!(steps(remote(), 0.0, read_shared()), (vec![Rule::SeveralNodesRead], 0), "C27");
    let (rules, dealt) = steps(contended(), 0.0, written());
    assert_eq!(rules, [Rule::SeveralNodesUse], "C28");
    assert!(dealt > 300, "C28: {dealt}");
    assert_eq!(steps(remote(), 0.0, written()), (vec![], 0), "C29");
    let (rules, dealt) = steps(contended(), 0.5, read_shared());
    assert_eq!(rules, [Rule::SeveralNodesUse], "C30");
    assert!(dealt > 300, "C30: {dealt}");
}

#[test]
fn c31_pages_leave_a_loaded_node_by_its_share_and_go_to_the_less_loaded_ones() {
    let shared = (0..20_000).map(|number| written(page(number, 0, &[(1, 2), (3, 1)]))).collect();
    let decision = decide(&observation(1, traffic_to([70.0, 10.0, 10.0, 10.0]), shared));
    let moves = moves(&decision);
    let share = |count: usize| count as f64 / 20_000.0;
    assert!((share(moves.len()) - 0.63).abs() < 0.01, "{}", share(moves.len()));
    for node in 1..4 {
        let part = share(moves.iter().filter(|(_, to)| *to == node).count());
        assert!((part - 0.21).abs() < 0.01, "{part} to node {node}");
    }
    let weights: Vec<u32> = actions(&decision)
        .iter()
        .find_map(|action| match action {
            Action::InterleavePages { weights, .. } => Some(weights.iter().map(|node| node.weight).collect()),
            _ => None,
        })
        .unwrap();
    assert_eq!(weights, [30, 90, 90, 90]);
}

fn sampling(decision: &Decision) -> Option<Sampling> {
    actions(decision)
        .into_iter()
        .find_map(|action| if let Action::SetSampling(rate) = action { Some(*rate) } else { None })
}

#[test]
fn c32_nine_operations_lower_the_rate_and_ten_raise_it() {
    let mut policy = policy("carrefour");
    let mut round = 0;
    let mut with = |count: u64| {
        round += 1;
        let pages = (0..count).map(|number| page(100 * round + number, 0, &[(2, 2)])).collect();
        sampling(&policy.decide(&observation(round, remote(), pages)))
    };
    assert_eq!(with(10), None, "it begins at the full rate");
    let low = Sampling { interval_cycles: 262_112, divisor: 4, page_cap: 10_000 };
    assert_eq!(with(9), Some(low));
    assert_eq!(with(3), None);
    let full = Sampling { interval_cycles: 65_528, divisor: 1, page_cap: 30_000 };
    assert_eq!(with(10), Some(full));
    assert_eq!(policy.sampling(), full);
}

#[test]
fn c32_operations_that_the_kernel_refuses_are_none() {
    let mut policy = policy("carrefour");
    let pages = || (0..20).map(|number| page(number, 0, &[(2, 2)])).collect::<Vec<_>>();
    assert_eq!(moves(&policy.decide(&observation(1, remote(), pages()))).len(), 20);
    let refused = (0..20).map(|number| PageOf { pid: PID, address: number * SMALL_PAGE }).collect();
    policy.learn(&Outcome { round: 1, refused, ..Outcome::default() });
    let next = policy.decide(&observation(2, remote(), pages()));
    assert_eq!(moves(&next), [], "they are not asked for again at once");
    assert_eq!(sampling(&next).map(|rate| rate.divisor), Some(4));
    assert_eq!(moves(&policy.decide(&observation(17, remote(), pages()))).len(), 20, "but later");
}

#[test]
fn c34_a_page_that_goes_back_and_forth_stays() {
    let mut policy = policy("carrefour");
    let mut at =
        |round, node, user| moves(&policy.decide(&observation(round, remote(), vec![page(1, node, &[(user, 2)])])));
    assert_eq!(at(1, 0, 1), [(1, 1)]);
    assert_eq!(at(2, 1, 0), [(1, 0)]);
    assert_eq!(at(3, 0, 1), []);
    assert_eq!(at(50, 0, 2), []);
}

#[test]
fn c34_a_page_that_goes_on_or_returns_much_later_moves() {
    let mut policy = policy("carrefour");
    let mut at =
        |round, node, user| moves(&policy.decide(&observation(round, remote(), vec![page(1, node, &[(user, 2)])])));
    assert_eq!(at(1, 0, 1), [(1, 1)]);
    assert_eq!(at(2, 1, 3), [(1, 3)]);
    assert_eq!(at(9, 3, 1), [(1, 1)]);
    assert_eq!(at(10, 1, 2), [(1, 2)]);
}

/// After each of these, the address of a page that was to stay has another page.
#[test]
fn history_ends_with_the_page() {
    let moved_later = |sign: &dyn Fn(&mut Policy), round, node| {
        let mut policy = policy("carrefour");
        let at = |policy: &mut Policy, round, node, user| {
            moves(&policy.decide(&observation(round, remote(), vec![page(1, node, &[(user, 2)])])))
        };
        assert_eq!(at(&mut policy, 1, 0, 1), [(1, 1)]);
        assert_eq!(at(&mut policy, 2, 1, 0), [(1, 0)]);
        assert_eq!(at(&mut policy, 3, 0, 1), []);
        sign(&mut policy);
        at(&mut policy, round, node, 1) == [(1, 1)]
    };
    assert!(!moved_later(&|_| (), 4, 0), "it is the same page");
    assert!(moved_later(&|policy| policy.executed(PID), 4, 0));
    assert!(moved_later(&|policy| policy.forget(PID), 4, 0), "another process has the PID");
    let gone = Outcome { round: 3, gone: vec![PageOf { pid: PID, address: SMALL_PAGE }], ..Outcome::default() };
    assert!(moved_later(&|policy| policy.learn(&gone), 4, 0));
    assert!(moved_later(&|_| (), 4, 2), "it had moved to node 0");
    assert!(moved_later(&|_| (), 68, 0), "it has not been sampled for 64 rounds");
}

#[test]
fn a_page_that_is_gone_is_not_taken_for_one_that_the_kernel_refuses() {
    let mut policy = policy("carrefour");
    let mut at = |round, outcome| {
        let moved = moves(&policy.decide(&observation(round, remote(), vec![misplaced()])));
        policy.learn(&Outcome { round, ..outcome });
        moved
    };
    let pages = vec![PageOf { pid: PID, address: SMALL_PAGE }];
    assert_eq!(at(1, Outcome { gone: pages.clone(), ..Outcome::default() }), [(1, 2)]);
    assert_eq!(at(2, Outcome { refused: pages, ..Outcome::default() }), [(1, 2)]);
    assert_eq!(at(3, Outcome::default()), []);
}

/// Of the kernel that replicates pages: no agent of nearside reports written copies, as no kernel of today has them.
#[test]
fn c35_the_sixth_write_reverts_a_replicated_page_for_good() {
    let mut policy = policy("carrefour");
    let replicated = |decision: &Decision| {
        let steps = actions(decision).into_iter();
        steps
            .filter_map(|action| if let Action::Replicate { pages, .. } = action { Some(pages.len()) } else { None })
            .sum()
    };
    let round = |number| with_modified(observation(number, remote(), read_shared()), 0.0);
    let all: usize = replicated(&policy.decide(&round(1)));
    assert_eq!(all, 500);
    let page = PageOf { pid: PID, address: 3 * SMALL_PAGE };
    for write in 1..=5 {
        policy.learn(&Outcome { round: write, copies_written: vec![page], ..Outcome::default() });
        let decision = policy.decide(&round(write + 1));
        assert!(!rules(&decision).contains(&Rule::CopiesAreWritten), "write {write}");
    }
    policy.learn(&Outcome { round: 6, copies_written: vec![page], ..Outcome::default() });
    let decision = policy.decide(&round(7));
    let reverts = Action::Revert { pid: PID, pages: vec![page.address] };
    assert!(actions(&decision).contains(&&reverts));
    assert_eq!(replicated(&decision), 499_usize);
    policy.decide(&round(50));
    let later = policy.decide(&round(100));
    assert!(!rules(&later).contains(&Rule::CopiesAreWritten));
    assert_eq!(replicated(&later), 499_usize);
}

#[test]
fn c36_with_all_gates_shut_nothing_is_done_and_few_samples_are_taken() {
    let pages = read_shared().into_iter().chain([misplaced()]).collect();
    let decision = decide(&observation(1, even_traffic(100.0, 0.9), pages));
    assert_eq!(rules(&decision), [Rule::AllGatesShut, Rule::FewOperations]);
    assert_eq!(actions(&decision)[0], &Action::Nothing);
    assert_eq!(sampling(&decision).map(|rate| rate.divisor), Some(4));
    let reason = &decision.steps[0].reason;
    assert_eq!(reason.value(Quantity::LocalAccessRatio).map(|ratio| (ratio * 100.0).round()), Some(90.0));
    assert!(
        reason.to_string().ends_with("local access ratio 90.0 % (threshold 80 %), imbalance 0.0 % (threshold 35 %)")
    );
}

/// Of multiplexed counters: those that the agent opens always run, so it reports no share.
#[test]
fn counters_that_hardly_ran_are_not_believed() {
    let with = |running| {
        let observation = Observation { counters_running: running, ..observation(1, remote(), vec![misplaced()]) };
        rules(&decide(&observation))[0]
    };
    assert_eq!(with(Some(0.14)), Rule::CountersRanTooLittle);
    assert_eq!((with(Some(0.15)), with(None)), (Rule::OneNodeUses, Rule::OneNodeUses));
    assert_eq!(rules(&decide(&observation(1, vec![], vec![misplaced()])))[0], Rule::NoTraffic);
}

#[test]
fn the_first_replication_wants_500_pages_and_later_ones_one() {
    let mut policy = policy("carrefour");
    let mut with = |round, count| {
        let pages = read_shared().into_iter().take(count).collect();
        policy.decide(&with_modified(observation(round, contended(), pages), 0.0))
    };
    let few = with(1, 499);
    assert!(!replicates(&few));
    assert_eq!(rules(&few)[0], Rule::SeveralNodesUse, "they get the next best");
    assert!(replicates(&with(2, 500)));
    assert!(replicates(&with(3, 1)));
}

#[test]
fn what_cannot_be_replicated_tells_the_next_best() {
    let decision = decide(&with_modified(observation(1, contended(), read_shared()), 0.0));
    let Action::Replicate { is_possible: false, instead: Some(instead), pages, nodes: readers, .. } =
        actions(&decision)[0]
    else {
        panic!("{:?}", decision.steps)
    };
    assert_eq!((pages.len(), readers.to_string()), (500, "0-1".to_owned()));
    assert!(matches!(&**instead, Action::InterleavePages { pages, .. } if pages.len() > 300));
    assert!(decision.steps[0].to_string().contains("if the kernel could; instead deal"), "{}", decision.steps[0]);
}

/// The policy as published has no additions, and no thresholds of these.
#[test]
fn carrefour_as_published_is_carrefour_without_its_additions() {
    let new = |name: &str, settings| Policy::new(name.parse().unwrap(), &machine(), settings);
    let usual = |name| new(name, Settings::default()).unwrap();
    let published = usual("carrefour-published");
    assert_eq!(published.name().to_string(), "carrefour-published");
    assert_eq!(*published.settings(), Settings::default(), "those that the user gave");
    assert!(!published.splits_shared() && usual("carrefour").splits_shared());
    // An overloaded link opens the gates of one only; many accesses open those of both.
    let mut narrow = machine();
    narrow.links.iter_mut().for_each(|link| link.bandwidth_bytes_per_s = 20e6 * 64.0 / 1.5);
    let moved = |name, traffic| moves(&policy_on(name, &narrow).decide(&observation(1, traffic, vec![misplaced()])));
    let few = || traffic_to([20.0, 0.0, 0.0, 0.0]);
    assert_eq!((moved("carrefour", few()), moved("carrefour-published", few())), (vec![(1, 2)], vec![]));
    assert_eq!(moved("carrefour-published", remote()), [(1, 2)]);
    let mut settings = Settings::default();
    settings.thresholds.split_shared = 0;
    let refused = new("carrefour-published", settings).unwrap_err().to_string();
    assert_eq!(refused, "carrefour-published has no split_shared: `carrefour` has");
}
