//! Carrefour on today's machines: processes that share pages, owners' choices, cpusets, budgets, huge pages, and moves
//! that do harm.

use crate::support::*;
#[allow(dead_code, reason = "each test file uses its part")]
use machine::{MemoryMode, MemoryPolicy, NodeId, Pid, SMALL_PAGE};
use placement::{
    Action, ControllerLoad, Decision, LinkLoad, NodeMemory, Observation, Outcome, Page, PageOf, Policy, Rule, Settings,
    Step, Thread,
};

/// Three processes on nodes 0 to 2 that read the same 20 pages of a file, which are on node 0.
fn readers_of_a_file(round: u64) -> Observation {
    let shared = |pid: u32, node: u32| {
        let of = move |number: u64| Page {
            pid: Pid(pid),
            address: (u64::from(pid) << 32) + number * SMALL_PAGE,
            frame: Some(number),
            is_replicable: true,
            ..page(number, 0, &[(node, 1)])
        };
        (0..20).map(of)
    };
    let pages = [7, 8, 9].into_iter().flat_map(|pid| shared(pid, pid - 7)).collect();
    Observation {
        processes: [7, 8, 9].map(|pid| process(pid, 1.0)).to_vec(),
        threads: [7, 8, 9].map(|pid| Thread { modified_share: Some(0.0), ..thread(pid, pid) }).to_vec(),
        ..observation(round, contended(), pages)
    }
}

#[test]
fn pages_that_are_moved_as_copying_fails_have_moved() {
    let at = |round, latency| Observation { latency_mean_ns: Some(latency), ..readers_of_a_file(round) };
    let mut settings = Settings::default();
    settings.thresholds.page_moves_max = 1;
    let mut policy = Policy::new("carrefour".parse().unwrap(), &machine(), settings).unwrap();
    let decision = policy.decide(&at(1, 100.0));
    let pages: Vec<PageOf> =
        moves(&decision).into_iter().map(|(number, _)| PageOf { pid: Pid(8), address: number * SMALL_PAGE }).collect();
    let (moved, copied) = pages.split_at(3);
    assert!(!copied.is_empty());
    let moved_instead = moved.to_vec();
    policy.learn(&Outcome { round: 1, refused: moved_instead.clone(), moved_instead, ..Outcome::default() });
    let mut later = policy.clone();
    let without_pages = |round| Observation { pages: Vec::new(), ..at(round, 130.0) };
    assert_eq!(moves(&policy.decide(&without_pages(2))), []);
    let back = policy.decide(&without_pages(3));
    assert_eq!(rules(&back)[0], Rule::MadeWorse);
    let wanted: Vec<(u64, u32)> = moved.iter().map(|page| (page.address / SMALL_PAGE, 0)).collect();
    assert_eq!(moves(&back), wanted, "copies do not go back");
    // Longer than the kernel's refusal counts.
    let decision = later.decide(&at(20, 100.0));
    let again = |page: &PageOf| {
        let is_copied = |action: &&Action| matches!(action, Action::Replicate { pid: Pid(8), pages, .. } if pages.contains(&page.address));
        actions(&decision).into_iter().any(|action| is_copied(&action))
    };
    assert!(!moved.iter().any(again), "they have moved once: {:?}", decision.steps);
    assert!(copied.iter().all(again), "{:?}", decision.steps);
}

#[test]
fn pages_of_a_file_that_processes_read_from_their_own_nodes_are_copied_for_each() {
    let mut observation = readers_of_a_file(1);
    let possible = |observation: &Observation| -> Vec<(u32, String, usize, bool)> {
        let decision = decide(observation);
        let of = |action: &Action| match action {
            Action::Replicate { pid, nodes, pages, is_possible: true, instead } => {
                Some((pid.0, nodes.to_string(), pages.len(), instead.is_some()))
            }
            _ => None,
        };
        actions(&decision).into_iter().filter_map(of).collect()
    };
    // The pages are on node 0, which needs no copy of them. One process has them interleaved where copying fails.
    let copied = [(8, "1".to_owned(), 20, true), (9, "2".to_owned(), 20, false)];
    assert_eq!(possible(&observation), copied);
    // Only one process was sampled, but others map the page.
    let mut alone = observation.clone();
    alone.pages.retain(|page| page.pid == Pid(9));
    assert_eq!(possible(&alone), [(9, "2".to_owned(), 20, false)]);
    // Its node is full, or forbidden.
    let full = |node: u32| NodeMemory { node: NodeId(node), total_bytes: 1 << 30, free_bytes: 0 };
    let mut of_full = observation.clone();
    of_full.memory = vec![full(2), NodeMemory { node: NodeId(0), total_bytes: 64 << 30, free_bytes: 64 << 30 }];
    assert_eq!(possible(&of_full), copied[..1]);
    let mut forbidden = observation.clone();
    forbidden.processes[2].nodes = nodes("0-1");
    assert_eq!(possible(&forbidden).iter().map(|of| of.0).collect::<Vec<_>>(), [8]);
    for page in observation.pages.iter_mut().filter(|page| page.pid == Pid(8)) {
        page.is_replicable = false;
    }
    assert_eq!(possible(&observation), []);
}

#[test]
fn a_page_that_several_processes_map_moves_once_with_all_their_accesses() {
    let of = |pid: u32, node: u32, frame| Page { pid: Pid(pid), frame, ..page(u64::from(pid), 0, &[(node, 2)]) };
    let decide = |frame| {
        let mut observation = observation(1, remote(), vec![of(7, 1, frame), of(8, 2, frame)]);
        observation.processes = vec![process(7, 1.0), process(8, 1.0)];
        moves(&decide(&observation))
    };
    assert_eq!(decide(None), [(7, 1), (8, 2)]);
    assert_eq!(decide(Some(3)), [], "two nodes use it");
}

#[test]
fn owners_choices_are_respected_unless_told_otherwise() {
    let bound = Page { is_bound: true, ..misplaced() };
    let mut of_process = observation(1, remote(), vec![misplaced()]);
    of_process.processes[0].memory_policy = Some(MemoryPolicy::new(MemoryMode::Bind, nodes("0-3")));
    let of_page = observation(1, remote(), vec![bound]);
    let settings = Settings { respect_owner: false, ..Settings::default() };
    for observation in [of_page, of_process] {
        assert_eq!(moves(&decide(&observation)), []);
        let mut policy = Policy::new("carrefour".parse().unwrap(), &machine(), settings.clone()).unwrap();
        assert_eq!(moves(&policy.decide(&observation)), [(1, 2)]);
    }
}

#[test]
fn pages_go_only_where_a_cpuset_allows_and_to_the_nearest_node_of_those() {
    let mut observation = observation(1, remote(), vec![page(1, 0, &[(3, 2)])]);
    // From node 3 nodes 1 and 2 are one hop away, node 0 is two.
    observation.processes[0].nodes = nodes("0,2");
    assert_eq!(moves(&decide(&observation)), [(1, 2)]);
    observation.processes[0].nodes = nodes("0");
    assert_eq!(moves(&decide(&observation)), []);
}

#[test]
fn pages_with_the_most_samples_move_first_where_not_all_fit() {
    let pages = || (0..100).map(|number| page(number, 0, &[(2, 2 + number)])).collect::<Vec<_>>();
    let hottest: Vec<(u64, u32)> = (90..100).map(|number| (number, 2)).collect();
    let budget = Observation { budget_bytes: Some(10 * SMALL_PAGE), ..observation(1, remote(), pages()) };
    assert_eq!(moves(&decide(&budget)), hottest);
    // A node keeps a fiftieth of its memory free.
    let mut full = observation(1, remote(), pages());
    full.memory[2].free_bytes = full.memory[2].total_bytes / 50 + 10 * SMALL_PAGE;
    assert_eq!(moves(&decide(&full)), hottest);
    full.memory[2].free_bytes = 0;
    assert_eq!(rules(&decide(&full)), [Rule::NoRoom, Rule::FewOperations]);
    let none = Observation { budget_bytes: Some(0), ..budget };
    assert_eq!(rules(&decide(&none)), [Rule::NoRoom, Rule::FewOperations]);
}

#[test]
fn a_round_does_no_more_than_its_cap_and_actions_are_batches() {
    let pages: Vec<Page> = (0..40_000).map(|number| page(number, 0, &[(2, 2)])).collect();
    let decision = decide(&observation(1, remote(), pages));
    assert_eq!(moves(&decision).len(), 30_000);
    let sizes: Vec<usize> = actions(&decision)
        .into_iter()
        .filter_map(|action| if let Action::MovePages { pages, .. } = action { Some(pages.len()) } else { None })
        .collect();
    assert_eq!((sizes.len(), sizes[0], sizes.iter().sum::<usize>()), (15, 2048, 30_000));
}

fn huge(number: u64, accesses: &[(u32, u64)], is_falsely_shared: bool) -> Page {
    Page { page_bytes: 512 * SMALL_PAGE, is_falsely_shared, ..page(512 * number, 0, accesses) }
}

fn splits(decision: &Decision) -> Vec<Rule> {
    let is_split = |step: &&Step| matches!(step.action, Action::SplitHugePages { .. });
    decision.steps.iter().filter(is_split).map(|step| step.reason.rule).collect()
}

#[test]
fn huge_pages_that_the_detector_finds_falsely_shared_are_split_unless_only_what_is_published_is_wanted() {
    let of = |settings: &Settings, is_falsely_shared, traffic| {
        let pages = vec![huge(1, &[(1, 6), (2, 4)], is_falsely_shared)];
        let mut policy = Policy::new("carrefour".parse().unwrap(), &machine(), settings.clone()).unwrap();
        splits(&policy.decide(&observation(1, traffic, pages)))
    };
    let own = Settings::default();
    assert_eq!(of(&own, true, remote()), [Rule::FalselyShared]);
    assert_eq!(of(&own, false, remote()), []);
    assert_eq!(of(&own, true, even_traffic(100.0, 1.0)), [], "all is local");
    let mut published = Settings::default();
    published.thresholds.split_shared = 0;
    assert_eq!(of(&published, true, remote()), []);
}

#[test]
fn a_shared_huge_page_that_is_too_hot_to_be_dealt_is_split() {
    let hot = huge(1000, &[(1, 6), (2, 6)], false);
    let others = |count| (0..count).map(|number| written(page(number, 0, &[(1, 1), (2, 1)])));
    let with = |count| splits(&decide(&observation(1, contended(), others(count).chain([hot.clone()]).collect())));
    assert_eq!(with(90), [Rule::TooHotToBalance], "12 of 192 samples are 6.25 %");
    assert_eq!(with(100), [], "12 of 212 are 5.7 %");
}

#[test]
fn moves_that_make_accesses_slower_are_taken_back() {
    let mut policy = policy("carrefour");
    let at =
        |round, latency, pages| Observation { latency_mean_ns: Some(latency), ..observation(round, remote(), pages) };
    assert_eq!(moves(&policy.decide(&at(1, 100.0, vec![misplaced()]))), [(1, 2)]);
    assert_eq!(moves(&policy.decide(&at(2, 130.0, vec![]))), []);
    let back = policy.decide(&at(3, 130.0, vec![]));
    assert_eq!((moves(&back), rules(&back)[0]), (vec![(1, 0)], Rule::MadeWorse));
    let rest = policy.decide(&at(4, 100.0, vec![misplaced()]));
    assert_eq!((moves(&rest), rules(&rest)[0]), (vec![], Rule::Resting));
}

#[test]
fn what_does_not_fit_goes_back_in_the_next_rounds() {
    let mut policy = policy("carrefour");
    let mut at = |round, latency, pages| {
        let observation = observation(round, remote(), pages);
        let budget_bytes = (round > 1).then_some(SMALL_PAGE);
        moves(&policy.decide(&Observation { latency_mean_ns: Some(latency), budget_bytes, ..observation }))
    };
    assert_eq!(at(1, 100.0, vec![misplaced(), page(2, 0, &[(3, 2)])]), [(1, 2), (2, 3)]);
    assert_eq!(at(2, 130.0, vec![]), []);
    assert_eq!(at(3, 130.0, vec![]), [(1, 0)]);
    assert_eq!(at(4, 130.0, vec![misplaced()]), [(2, 0)]);
    assert_eq!(at(5, 130.0, vec![misplaced()]), []);
}

#[test]
fn the_cost_of_an_access_follows_from_latencies_and_loads() {
    let mut loaded = observation(1, even_traffic(100.0, 1.0), vec![]);
    let idle_ns = decide(&loaded).metrics.access_ns.unwrap();
    assert!((idle_ns - 104.4).abs() < 0.1, "{idle_ns}");
    loaded.controllers = vec![ControllerLoad { node: NodeId(0), utilisation: 0.9 }];
    assert!(decide(&loaded).metrics.access_ns.unwrap() > 1.2 * idle_ns);
    let mut far = observation(1, traffic_to([10.0, 0.0, 0.0, 0.0]), vec![]);
    let far_ns = decide(&far).metrics.access_ns.unwrap();
    let many = observation(1, traffic_to([50.0, 0.0, 0.0, 0.0]), vec![]);
    assert!(decide(&many).metrics.access_ns.unwrap() > 1.1 * far_ns, "what links carry follows from accesses");
    far.links = vec![LinkLoad { from: NodeId(1), to: NodeId(0), utilisation: 0.9 }];
    assert!(decide(&far).metrics.access_ns.unwrap() > 1.2 * far_ns);
}

#[test]
fn reasons_are_words_and_numbers() {
    let decision = decide(&observation(1, remote(), vec![misplaced()]));
    assert_eq!(
        decision.steps[0].to_string(),
        "move 1 page (4 KiB) of process 7 to node 2: only that node uses them: memory accesses 100.0 \
         a µs (threshold 50 a µs), busiest link 42.1 % (threshold 42 %), local access ratio 25.0 % (threshold 80 %), \
         imbalance 0.0 % (threshold 35 %), pages 1, samples 2"
    );
    let json = serde_json::to_value(&decision.steps[0]).unwrap();
    assert_eq!(json["action"]["do"], "move_pages");
    assert_eq!(json["reason"]["rule"], "one_node_uses");
    assert_eq!(json["reason"]["facts"][2]["quantity"], "local_access_ratio");
    assert_eq!(json["reason"]["facts"][2]["threshold"], 0.8);
}

#[test]
fn a_machine_with_one_node_has_nothing_to_place() {
    let mut one = machine();
    one.nodes.truncate(1);
    one.packages.truncate(1);
    one.links.clear();
    for name in ["carrefour", "auto", "interleave"] {
        let decision = policy_on(name, &one).decide(&observation(1, remote(), vec![misplaced()]));
        assert_eq!(rules(&decision), [Rule::OneNode]);
    }
}

#[test]
fn more_pages_move_only_when_earlier_ones_have_paid_for_it() {
    let mut settings = Settings::default();
    let thresholds = &mut settings.thresholds;
    (thresholds.move_bytes_per_s, thresholds.credit_share) = ((40 * SMALL_PAGE) as f64, 0.0);
    let mut policy = Policy::new("carrefour".parse().unwrap(), &machine(), settings).unwrap();
    let mut round = 0;
    let mut decide = |latency_ns, pages| {
        round += 1;
        let pages = (0..pages).map(|number| page(1000 * round + number, 0, &[(2, 2)])).collect();
        let observation = Observation { latency_mean_ns: Some(latency_ns), ..observation(round, remote(), pages) };
        policy.decide(&observation)
    };
    let moved = |decision: &Decision| moves(decision).len();
    let (first, second) = (decide(200.0, 30), decide(200.0, 30));
    assert_eq!((moved(&first), moved(&second)), (30, 10));
    assert_eq!(rules(&decide(200.0, 30)), [Rule::SavedTooLittle]);
    assert_eq!(rules(&decide(200.0, 0)), [Rule::NothingMisplaced]);
    assert!(rules(&second).contains(&Rule::SavedTooLittle), "what cannot move needs no samples: {:?}", rules(&second));
    assert_eq!(moved(&decide(150.0, 30)), 23, "24 of 40 pages' time was saved");
}
