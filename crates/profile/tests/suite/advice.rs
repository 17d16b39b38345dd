//! For each of its programs, the advice is the remedy that the `MemProf` study found: claims C10 to C13 of its
//! specification, 13.1, on traces of that shape.

use crate::support::{App, Trace, face_recognition, indexing, stream_clustering, web_server};
use machine::{CpuId, NodeId, Tid};
use profile::{Action, Advice, Confidence, Filter, IdealPlacement, Measurements, Predicate, Problem, Profile, Usage};
use trace::AccessKind;

fn top(profile: &Profile) -> Advice {
    profile.view(&Filter::default()).advice(3).into_iter().next().unwrap()
}

fn problem(profile: &Profile) -> Problem {
    profile.view(&Filter::default()).verdict(&Measurements::default()).problem
}

/// Whether `left` is within this relative distance of `right`.
fn near(left: f64, right: f64, part: f64) -> bool {
    (left / right - 1.0).abs() < part
}

#[test]
fn c10_one_writer_and_then_many_readers_replicate() {
    let profile = face_recognition().profile();
    let advice = top(&profile);
    assert_eq!(
        (advice.label.as_str(), advice.action, advice.confidence),
        ("makeMatrix+0x59", Action::Replicate, Confidence::High)
    );
    let view = profile.view(&Filter::default());
    let flow = view.flows_of_objects(&[advice.object.unwrap()]).remove(0);
    // Stores of one thread first, then loads of several.
    let stores = flow.accesses().take_while(|access| access.kind == AccessKind::Store).count();
    assert_eq!(stores, 300);
    assert!(flow.accesses().skip(stores).all(|access| access.kind == AccessKind::Load));
    let usage: Vec<_> = flow.phases().iter().map(|phase| (phase.usage, phase.node, phase.threads)).collect();
    assert_eq!(
        (usage.first(), usage.last()),
        (Some(&(Usage::Write, Some(NodeId(0)), 1)), Some(&(Usage::Read, None, 8)))
    );
    let facts = flow.facts();
    let last_store = flow.accesses().nth(stores - 1).unwrap().time_ns;
    assert_eq!((facts.read_only_since_ns, facts.first_writer.map(|writer| writer.tid)), (Some(last_store), Some(1)));
    assert!(facts.before_others_samples >= 300 && facts.by_allocating_thread.unwrap() < 0.3);
    assert!(advice.after_ns.unwrap() > last_store);
    let gain = advice.gain.unwrap();
    assert!(gain.local_access_ratio_after > 0.99 && gain.local_access_ratio_before < 0.35, "{gain:?}");
    assert!(near(gain.latency_after_ns, 103.0, 0.02) && gain.speedup > 1.19 && gain.speedup < 1.41, "{gain:?}");
    assert_eq!(problem(&profile), Problem::Distance);
}

#[test]
fn c11_many_writers_on_a_saturated_node_interleave() {
    let profile = stream_clustering().profile();
    let advice = top(&profile);
    assert_eq!(
        (advice.label.as_str(), advice.action, advice.confidence),
        ("makeMatrix+0x59", Action::Interleave, Confidence::High)
    );
    let mut out: Vec<_> = advice.ruled_out.iter().map(|out| out.action).collect();
    out.sort_unstable();
    assert_eq!(out, [Action::Replicate, Action::Migrate]);
    let gain = advice.gain.unwrap();
    assert!(gain.latency_after_ns < 220.0 && gain.speedup > 1.8 && gain.speedup < 4.0, "{gain:?}");
    assert!(near(gain.local_access_ratio_after, 0.25, 0.1), "{gain:?}");
    assert_eq!(problem(&profile), Problem::Contention);
    let parts = profile.view(&Filter::default()).flow().latency_over_time();
    let saturations = profile::saturations(&parts);
    assert_eq!((saturations.len(), saturations[0].node), (1, NodeId(0)));
}

#[test]
fn memory_on_two_saturated_nodes_of_four_is_spread() {
    let mut trace = stream_clustering();
    for (number, sample) in trace.samples.iter_mut().enumerate() {
        let node = [0, 0, 1, 1, 2][number % 5];
        sample.node = Some(NodeId(node));
        if node == 2 {
            sample.latency_ns = Some(130.0);
        }
    }
    let advice = top(&trace.profile());
    assert_eq!(advice.action, Action::Interleave, "{:?}", advice.evidence);
    assert!(advice.gain.is_some_and(|gain| gain.speedup > 1.1), "{:?}", advice.gain);
    let mut trace = stream_clustering();
    for (number, sample) in (0..).zip(&mut trace.samples) {
        (sample.node, sample.latency_ns) = (Some(NodeId(number % 4)), Some(400.0));
    }
    let everywhere = top(&trace.profile());
    assert_eq!(everywhere.action, Action::LeaveAlone, "{:?}", everywhere.evidence);
}

/// An array that a loop divides among threads on all nodes, and that one thread has filled.
#[test]
fn an_array_of_which_each_node_uses_its_part_goes_to_its_users() {
    let (mut trace, start, bytes) = (stream_clustering(), 0x7f00_0000_0000, 100 << 20);
    for sample in trace.samples.iter_mut().filter(|sample| sample.address >= start) {
        sample.address = start + u64::from(sample.cpu.0) * (bytes / 8) + (sample.address - start) / 8;
    }
    // An eighth of the samples are of the beginning, which one thread has alone.
    for (number, sample) in (0..500).zip(trace.samples.iter_mut().filter(|sample| sample.address >= start)) {
        (sample.cpu, sample.tid, sample.kind) = (CpuId(0), Tid(1), AccessKind::Store);
        sample.address = start + number * (bytes / 500);
    }
    let advice = top(&trace.profile());
    assert_eq!((advice.action, advice.node), (Action::Migrate, None), "{:?}", advice.evidence);
    let part = advice.evidence.iter().find(|evidence| evidence.what == "node_of_part").unwrap();
    assert!(part.value > 0.95, "{part:?}");
    assert!(advice.gain.is_some_and(|gain| gain.local_access_ratio_after > 0.95), "{:?}", advice.gain);
}

/// Samples that stand for different numbers of accesses.
#[test]
fn the_interval_of_the_local_share_contains_it() {
    let mut trace = Trace::new(&[1]);
    for number in 0..1000 {
        let node = number % 2;
        trace.access((1, 1, 0), 0x6000_0000 + 64 * u64::from(number), node, AccessKind::Load).weight =
            if node == 0 { 30.0 } else { 10.0 };
    }
    let verdict = trace.profile().view(&Filter::default()).verdict(&Measurements::default());
    let local = verdict.metrics.iter().find(|metric| metric.name == "local_access_ratio").unwrap().value.unwrap();
    let (low, high) = verdict.local_access_ratio_interval;
    assert!((0.74..0.76).contains(&local) && low < local && local < high, "{local}, {low} to {high}");
}

#[test]
fn accesses_selected_by_their_outcome_give_no_verdict() {
    let profile = stream_clustering().profile();
    let verdict = |predicate| profile.view(&Filter(vec![predicate])).verdict(&Measurements::default());
    let by_outcome = [
        Predicate::Remote,
        Predicate::ToNode([NodeId(0)].into_iter().collect()),
        Predicate::Access(AccessKind::Load),
        Predicate::LatencyAtLeast(1.0),
        Predicate::Not(Box::new(Predicate::Local)),
    ];
    for predicate in by_outcome {
        let verdict = verdict(predicate);
        assert_eq!((verdict.problem, verdict.is_numa_problem), (Problem::Unknown, false), "{verdict:?}");
        assert!(verdict.text.contains("the filter selects them by where they go"), "{}", verdict.text);
    }
    let whose = Predicate::Any(vec![Predicate::User]);
    assert_eq!(verdict(whose).problem, Problem::Contention);
}

/// Two arrays on one saturated node: to interleave one of them leaves the other there.
#[test]
fn sites_of_one_cause_are_predicted_together() {
    let mut trace = Trace::new(&[1]);
    let arrays = [(0x7f00_0000_0000, "makeMatrix"), (0x7f10_0000_0000, "table_new")];
    for (start, function) in arrays {
        trace.allocate((1, 1, 0), start, 50 << 20, function);
    }
    for number in 0..4000 {
        let thread = trace.random(8) as u32;
        let kind = if trace.random(5) == 0 { AccessKind::Store } else { AccessKind::Load };
        let address = arrays[number % 2].0 + trace.random(50 << 20);
        let sample = trace.access((1, 1 + thread, thread), address, 0, kind);
        sample.weight = 90.0;
        sample.latency_ns = Some(380.0 + (number % 64) as f32);
    }
    let profile = trace.profile();
    let view = profile.view(&Filter::default());
    let advice = view.advice(3);
    let together = view.together(&advice);
    assert_eq!(together.len(), 1, "{together:?}");
    assert_eq!((together[0].action, together[0].labels.len()), (Action::Interleave, 2));
    let alone = advice.iter().filter_map(|advice| advice.gain).map(|gain| gain.speedup).fold(1.0, f64::max);
    assert!(together[0].gain.speedup > 1.2 * alone, "{together:?}, alone {alone}");
    // One site has nothing to be placed with.
    assert_eq!(stream_clustering().profile().view(&Filter::default()).together(&advice[..1]), []);
}

#[test]
fn c12_own_objects_on_another_node_are_allocated_locally() {
    let profile = indexing().profile();
    let advice = top(&profile);
    assert_eq!(
        (advice.label.as_str(), advice.action, advice.confidence),
        ("table_new+0x59", Action::AllocateLocally, Confidence::High)
    );
    assert_eq!((advice.objects, advice.object), (400, None));
    let flow = profile.view(&Filter::default()).flows_of_sites(&[advice.site]).remove(0);
    let facts = flow.facts();
    assert_eq!((facts.by_allocating_thread, facts.avoidable.by_pinning_accesses), (Some(1.0), 0.0));
    assert!(near(facts.avoidable.by_allocation_accesses, advice.counts.remote_accesses, 1e-9));
    let gain = advice.gain.unwrap();
    assert!(gain.local_access_ratio_after > 0.99 && gain.speedup > 1.1 && gain.speedup < 1.41, "{gain:?}");
}

/// Each process maps the same memory, as forked servers and programs with shared files do, and is alone on its node.
#[test]
fn what_several_processes_map_is_one_object() {
    let pids = [1, 2, 3, 4];
    let of_processes = |is_same_memory: bool| {
        let (start, bytes) = (0x7f00_0000_0000, 4 << 20);
        let mut trace = Trace::new(&pids);
        for pid in pids {
            trace.allocate((pid, pid, 2 * (pid - 1)), start, bytes, "makeMatrix");
        }
        for number in 0..4000 {
            let pid = pids[number % 4];
            let offset = trace.random(bytes);
            let sample = trace.access((pid, pid, 2 * (pid - 1)), start + offset, 0, AccessKind::Load);
            let memory = if is_same_memory { 0 } else { u64::from(pid) * bytes };
            (sample.physical, sample.weight, sample.latency_ns) = (Some(memory + offset), 90.0, Some(400.0));
        }
        top(&trace.profile())
    };
    let shared = of_processes(true);
    assert_eq!((shared.action, shared.objects, shared.processes.len()), (Action::Interleave, 1, 0), "{shared:?}");
    assert!(shared.evidence.iter().any(|evidence| evidence.text == "4 processes map the same memory"), "{shared:?}");
    let copies = shared.ruled_out.iter().find(|ruled_out| ruled_out.action == Action::Replicate).unwrap();
    assert_eq!(copies.because.text, "each of the 4 processes would need a copy of its own");
    let private = of_processes(false);
    assert_eq!((private.action, private.objects), (Action::AllocateLocally, 4), "{private:?}");
    let is_shared = |advice: &Advice| advice.evidence.iter().any(|evidence| evidence.what == "processes");
    assert!(is_shared(&shared) && !is_shared(&private), "{private:?}");
}

/// A parent maps it before it forks: with `MAP_SHARED`, all have the same pages, of which each child uses a quarter.
#[test]
fn parts_that_forked_processes_use_may_be_of_the_same_memory() {
    let may_be_shared = |offset: fn(u32, u64) -> u64, frames: Option<u64>| {
        let (start, bytes) = (0x7f00_0000_0000, 4 << 20);
        let mut trace = Trace::new(&[1, 2, 3, 4]);
        for pid in 1..=4 {
            trace.allocate((pid, pid, 2 * (pid - 1)), start, bytes, "makeMatrix");
        }
        for number in 0..4000 {
            let pid = 1 + number % 4;
            let offset = offset(pid, trace.random(bytes));
            let sample = trace.access((pid, pid, 2 * (pid - 1)), start + offset, 0, AccessKind::Store);
            sample.physical = frames.map(|apart| u64::from(pid) * apart + offset);
        }
        top(&trace.profile()).may_be_shared
    };
    let own_quarter = |pid: u32, at: u64| (u64::from(pid) - 1) * (1 << 20) + at % (1 << 20);
    assert!(may_be_shared(own_quarter, Some(0)) && may_be_shared(own_quarter, None));
    // Copies, of which each uses all.
    assert!(!may_be_shared(|_, at| at, Some(1 << 30)));
    assert!(!top(&stream_clustering().profile()).may_be_shared);
}

#[test]
fn c13_what_processes_share_among_their_threads_pins_them() {
    let profile = web_server().profile();
    let advice = top(&profile);
    assert_eq!(
        (advice.label.as_str(), advice.action, advice.confidence),
        ("apr_pool_create+0x59", Action::PinThreads, Confidence::High)
    );
    let mut nodes: Vec<_> = advice.processes.iter().map(|process| process.node.0).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [0, 1, 2, 3]);
    let gain = advice.gain.unwrap();
    assert!(gain.local_access_ratio_after > 0.99 && gain.speedup > 1.1, "{gain:?}");
    // Where they wait for each other's lines, the model of memory says nothing of what that gains.
    let mut trace = web_server();
    trace.samples.iter_mut().for_each(|sample| sample.served = Some(trace::Served::Peer));
    let advice = top(&trace.profile());
    assert_eq!((advice.action, advice.gain), (Action::PinThreads, None), "{:?}", advice.evidence);
}

#[test]
fn what_is_local_or_seldom_seen_is_left_alone() {
    let mut local = stream_clustering();
    for sample in &mut local.samples {
        (sample.node, sample.latency_ns) = (Some(NodeId(sample.cpu.0 / 2)), Some(103.0));
    }
    let local = local.profile();
    assert_eq!(top(&local).action, Action::LeaveAlone);
    assert_eq!(problem(&local), Problem::None);
    let mut few = stream_clustering();
    few.samples.truncate(9);
    let few = few.profile();
    assert_eq!((top(&few).action, top(&few).confidence), (Action::LeaveAlone, Confidence::Low));
    assert_eq!(problem(&few), Problem::Unknown);
    assert_eq!(problem(&crate::support::profile(Vec::new(), Vec::new())), Problem::Unknown);
}

#[test]
fn without_a_saturated_node_interleaving_is_ruled_out() {
    let mut trace = stream_clustering();
    for sample in &mut trace.samples {
        sample.latency_ns = Some(if sample.cpu.0 < 2 { 103.0 } else { 145.0 });
        sample.weight = 1.0;
    }
    let advice = top(&trace.profile());
    assert_eq!(advice.action, Action::LeaveAlone);
    assert!(advice.ruled_out.iter().any(|out| out.action == Action::Interleave), "{:?}", advice.ruled_out);
}

#[test]
fn what_the_whole_program_should_lose_by_is_not_advised() {
    // A thread on the saturated node uses its own object on an idle node: if the object were local, it would only queue
    // with the others.
    let mut trace = Trace::new(&[1]);
    let (block, own) = (0x7f00_0000_0000, 0x6000_0000);
    trace.allocate((1, 1, 0), block, 100 << 20, "makeMatrix");
    trace.allocate((1, 1, 0), own, 1 << 20, "table_new");
    for number in 0..4000 {
        let thread = trace.random(8) as u32;
        if number % 4 == 0 {
            let address = own + trace.random(1 << 20);
            trace.access((1, 1, 0), address, 1, AccessKind::Load).weight = 90.0;
        } else {
            let address = block + trace.random(100 << 20);
            let sample = trace.access((1, 1 + thread, thread), address, 0, AccessKind::Load);
            (sample.weight, sample.latency_ns) = (90.0, Some(412.0));
        }
    }
    let advice = trace.profile().view(&Filter::default()).advice(3);
    let own = advice.iter().find(|advice| advice.label.starts_with("table_new")).unwrap();
    assert_eq!((own.action, own.gain.is_none()), (Action::LeaveAlone, true), "{own:?}");
    let lost = own.ruled_out.iter().find(|out| out.because.what == "predicted_speedup").unwrap();
    assert_eq!(lost.action, Action::AllocateLocally);
    assert!(lost.because.value < 1.0 && lost.because.text.contains("should be 0."), "{lost:?}");
    // All remaining advice promises a gain.
    assert!(advice.iter().filter_map(|advice| advice.gain.as_ref()).all(|gain| gain.speedup >= 1.0), "{advice:?}");
    assert!(advice.iter().any(|advice| advice.gain.is_some()), "{advice:?}");
}

#[test]
fn a_program_that_hardly_uses_memory_is_no_victim() {
    let mut trace = face_recognition();
    trace.samples.iter_mut().for_each(|sample| sample.weight = 0.1);
    let profile = trace.profile();
    assert_eq!(problem(&profile), Problem::NotMemoryBound);
    // Counters take precedence over samples.
    let measured = Measurements { instructions: Some(1e9), memory_accesses: Some(5.1e6), ..Measurements::default() };
    let verdict = profile.view(&Filter::default()).verdict(&measured);
    assert_eq!(verdict.problem, Problem::Distance);
    // What the samples stand for gains next to nothing.
    assert!(!verdict.is_numa_problem && verdict.metrics[0].counted, "{verdict:?}");
    let few = Measurements { memory_accesses: Some(4.9e6), ..measured };
    assert_eq!(profile.view(&Filter::default()).verdict(&few).problem, Problem::NotMemoryBound);
    // Counted waiting time takes precedence over both.
    let waiting = Measurements { memory_bound: Some(0.3), ..few };
    assert_eq!(profile.view(&Filter::default()).verdict(&waiting).problem, Problem::Distance);
    let working = Measurements { memory_bound: Some(0.03), memory_accesses: Some(5.1e6), ..waiting };
    assert_eq!(profile.view(&Filter::default()).verdict(&working).problem, Problem::NotMemoryBound);
}

/// Remote accesses are a problem only if placing memory gains something.
#[test]
fn a_small_gain_is_not_worth_acting_on() {
    let verdict_of = |weight: f32, samples: std::ops::Range<usize>| {
        let mut trace = face_recognition();
        trace.samples.iter_mut().for_each(|sample| sample.weight = weight);
        trace.samples = trace.samples[samples].to_vec();
        trace.profile().view(&Filter::default()).verdict(&Measurements::default())
    };
    let much = verdict_of(50.0, 0..4300);
    let (potential, text) = (much.potential.unwrap(), much.text);
    let (low, high) = potential.speedup_interval;
    assert!(
        much.is_numa_problem && low >= 1.05 && low < potential.speedup && potential.speedup < high,
        "{potential:?}"
    );
    assert!(
        text.starts_with("NUMA is the problem: only ") && text.contains("; with all memory local it would be "),
        "{text}"
    );
    assert_eq!(potential.placement, IdealPlacement::Local);
    let little = verdict_of(8.0, 0..4300);
    let potential = little.potential.unwrap();
    assert!(
        !little.is_numa_problem && potential.speedup > 1.01 && potential.speedup_interval.1 < 1.05,
        "{potential:?}"
    );
    assert!(little.text.starts_with("NUMA is not worth acting on: only "), "{}", little.text);
    assert_eq!(little.problem, Problem::Distance, "the cause is reported all the same");
    // Of few samples, the same gain is not sure.
    let few = verdict_of(50.0, 290..360);
    assert!(!few.is_numa_problem && few.text.contains("record longer"), "{}", few.text);
}

#[test]
fn without_latencies_numa_may_be_the_problem() {
    let mut trace = face_recognition();
    trace.samples.iter_mut().for_each(|sample| sample.latency_ns = None);
    let verdict = trace.profile().view(&Filter::default()).verdict(&Measurements::default());
    assert!(verdict.potential.is_none() && verdict.is_numa_problem);
    assert!(verdict.text.starts_with("NUMA may be the problem: only "), "{}", verdict.text);
}

/// Seven threads poll a word until the first has done its work.
#[test]
fn threads_that_wait_are_no_reason_to_replicate() {
    let mut trace = crate::support::Trace::new(&[1]);
    let (word, table) = (0x6000_0000, 0x7000_0000);
    trace.allocate((1, 1, 0), word, 64, "table_new");
    trace.allocate((1, 1, 0), table, 1 << 20, "makeMatrix");
    for number in 0..4000 {
        let thread = 1 + trace.random(7) as u32;
        let address = table + trace.random(1 << 20);
        trace.access((1, 1, 0), address, 0, AccessKind::Load);
        trace.access((1, 1 + thread, thread), word, 0, AccessKind::Load).instruction = App::in_function("handle");
        if number % 100 == 0 {
            trace.access((1, 1, 0), word, 0, AccessKind::Store).instruction = App::in_function("main");
        }
    }
    let profile = trace.profile();
    let view = profile.view(&Filter::default());
    let waiting = view.waiting();
    assert_eq!((waiting.samples, waiting.lines), (4040, 1), "{waiting:?}");
    assert!(near(waiting.share, 0.5, 0.02) && waiting.functions == ["handle", "main"], "{waiting:?}");
    let of_word = view.advice(9).into_iter().find(|advice| advice.label.starts_with("table_new")).unwrap();
    assert_eq!((of_word.action, of_word.evidence[0].what), (Action::LeaveAlone, "waiting"), "{of_word:?}");
    // Threads that work on shared data do not wait: C10 to C13.
    for trace in [face_recognition(), stream_clustering(), indexing(), web_server()] {
        assert_eq!(trace.profile().view(&Filter::default()).waiting().samples, 0);
    }
}

#[test]
fn who_locks_in_the_only_thread_does_not_wait() {
    let waiting = |threads: u32| {
        let mut trace = crate::support::Trace::new(&[1]);
        for number in 0..400 {
            let thread = number % threads;
            let access = trace.access((1, 1 + thread, thread), 0x6000_0000 + u64::from(number), 0, AccessKind::Store);
            access.instruction = App::in_function("pthread_mutex_lock");
        }
        trace.profile().view(&Filter::default()).waiting()
    };
    assert_eq!((waiting(1).samples, waiting(1).functions.len()), (0, 0));
    assert_eq!((waiting(2).samples, waiting(2).functions), (400, vec!["pthread_mutex_lock".to_owned()]));
}

#[test]
fn one_user_after_another_migrates() {
    let mut trace = crate::support::Trace::new(&[1]);
    trace.allocate((1, 1, 0), 0x6000_0000, 1 << 20, "table_new");
    for number in 0..2000_u32 {
        let cpu = number / 500 * 2;
        let address = 0x6000_0000 + trace.random(1 << 20);
        trace.access((1, 1 + cpu, cpu), address, 0, AccessKind::Store);
    }
    let profile = trace.profile();
    let advice = top(&profile);
    assert_eq!((advice.action, advice.node), (Action::Migrate, None));
    let flow = profile.view(&Filter::default()).flows_of_sites(&[advice.site]).remove(0);
    let nodes: Vec<_> = flow.phases().iter().filter_map(|phase| phase.node).collect();
    assert!(nodes.starts_with(&[NodeId(0)]) && nodes.ends_with(&[NodeId(3)]), "{nodes:?}");
    // For its last user alone, there is one node to move it to.
    let last = Filter(vec![Predicate::FromNode([NodeId(3)].into_iter().collect())]);
    assert_eq!(profile.view(&last).advice(1)[0].node, Some(NodeId(3)));
}

const HUGE: u64 = 0x6000_0000;

/// A huge page of which each thread uses its own eighth.
fn parts_of_a_huge_page() -> crate::support::Trace {
    let mut trace = crate::support::Trace::new(&[1]);
    trace.allocate((1, 99, 0), HUGE, 2 << 20, "table_new");
    for _ in 0..20_000 {
        let thread = trace.random(8) as u32;
        let address = HUGE + u64::from(thread) * (256 << 10) + trace.random(256 << 10);
        trace.access((1, 1 + thread, thread), address, 0, AccessKind::Store);
    }
    trace
}

#[test]
fn pages_that_lie_like_a_huge_one_in_physical_memory_are_one() {
    let advised = |frame: fn(u64) -> u64| {
        let mut trace = parts_of_a_huge_page();
        for sample in &mut trace.samples {
            sample.physical = Some(frame(sample.address / 4096) * 4096 + sample.address % 4096);
        }
        top(&trace.profile()).action
    };
    assert_eq!(advised(|page| page + (4 << 9)), Action::SplitHugePages);
    for other in [|page: u64| page + 1, |page: u64| page ^ 1, |page: u64| 1000 + page % 7] {
        assert_ne!(advised(other), Action::SplitHugePages);
    }
}

#[test]
fn parts_of_huge_pages_that_nodes_use_by_themselves_want_small_pages() {
    let mut trace = parts_of_a_huge_page();
    trace.event(1, 1, 0, trace::What::PagePlaced { address: HUGE, bytes: 2 << 20, node: NodeId(0), from: None });
    let profile = trace.profile();
    let advice = top(&profile);
    assert_eq!((advice.action, advice.confidence), (Action::SplitHugePages, Confidence::High));
    let flow = profile.view(&Filter::default()).flow();
    let pages = flow.huge_pages();
    assert!(pages.len() == 1 && pages[0].is_huge && pages[0].is_falsely_shared());
    assert_eq!(flow.pages().iter().filter(|page| page.from.len() == 1).count(), flow.pages().len());
}

/// More small pages than are examined.
#[test]
fn of_many_huge_pages_some_tell_that_small_pages_are_wanted() {
    let (huge_pages, small_pages) = (300, 512);
    let mut trace = crate::support::Trace::new(&[1]);
    trace.allocate((1, 1, 0), HUGE, huge_pages << 21, "table_new");
    for _ in 0..400_000 {
        let page = trace.random(huge_pages * small_pages);
        let node = (page % small_pages / 128) as u32;
        trace.access((1, 1 + node, 2 * node), HUGE + page * 4096, 0, AccessKind::Load);
    }
    for sample in &mut trace.samples {
        sample.physical = Some(sample.address - HUGE);
    }
    let advice = top(&trace.profile());
    assert_eq!((advice.action, advice.confidence), (Action::SplitHugePages, Confidence::High));
}

#[test]
fn threads_that_were_moved_away_are_pinned() {
    let mut trace = crate::support::Trace::new(&[1]);
    trace.allocate((1, 1, 0), 0x6000_0000, 1 << 20, "table_new");
    for _ in 0..1000 {
        let address = 0x6000_0000 + trace.random(1 << 20);
        trace.access((1, 1, 6), address, 0, AccessKind::Load);
    }
    let profile = trace.profile();
    let advice = top(&profile);
    assert_eq!((advice.action, advice.confidence), (Action::PinThreads, Confidence::High));
    let facts = profile.view(&Filter::default()).flow().facts();
    assert!((facts.avoidable.by_pinning_accesses, facts.avoidable.by_allocation_accesses) == (1000.0, 0.0));
}

/// Four threads count in an array, each in words of its own `apart` bytes from the next one's; lines come from other
/// cores' caches.
fn counting(apart: u64, word: fn(u32, u64) -> u64) -> Profile {
    let mut trace = crate::support::Trace::new(&[1]);
    trace.allocate((1, 99, 0), 0x6000_0000, 1 << 20, "table_new");
    for _ in 0..2000 {
        let thread = trace.random(4) as u32;
        let part = word(thread, trace.random(4));
        let kind = if trace.random(2) == 0 { AccessKind::Store } else { AccessKind::Load };
        let sample = trace.access((1, 1 + thread, 2 * thread), 0x6000_0000 + part * apart, 0, kind);
        sample.served = Some(trace::Served::Peer);
        // Sources that know another core's cache often do not know the memory's node.
        sample.node = None;
    }
    trace.profile()
}

/// F32: false sharing of lines, and not of pages, is what padding cures.
#[test]
fn lines_of_which_threads_use_parts_of_their_own_are_to_be_padded() {
    let advice = top(&counting(8, |thread, _| u64::from(thread)));
    assert_eq!((advice.action, advice.confidence, advice.gain), (Action::Pad, Confidence::High, None));
    assert_eq!(advice.evidence[0].what, "falsely_shared_lines");
    assert!(advice.evidence[0].text.contains("take the same cache line"), "{}", advice.evidence[0].text);
    // Each thread's word in a line of its own: what other caches serve then is not false sharing.
    assert_ne!(top(&counting(64, |thread, _| u64::from(thread))).action, Action::Pad);
    // All threads use all words.
    assert_ne!(top(&counting(8, |_, any| any)).action, Action::Pad);
}

/// A few words that threads share among many of their own, and lines with few samples, do not decide.
#[test]
fn padding_needs_samples_and_parts_of_ones_own() {
    let sparse = counting(8, |thread, any| 100 * any + u64::from(thread));
    assert_eq!(top(&sparse).action, Action::Pad, "four lines of 500 samples");
    let mut trace = crate::support::Trace::new(&[1]);
    trace.allocate((1, 99, 0), 0x6000_0000, 1 << 20, "table_new");
    for number in 0..2000_u64 {
        let thread = (number % 4) as u32;
        let address = 0x6000_0000 + number / 4 * 64 + u64::from(thread) * 8;
        let sample = trace.access((1, 1 + thread, 2 * thread), address, 0, AccessKind::Store);
        (sample.served, sample.latency_ns) = (Some(trace::Served::Peer), Some(5000.0));
    }
    let profile = trace.profile();
    let advice = top(&profile);
    assert_eq!(
        (advice.action, advice.evidence[0].what),
        (Action::LeaveAlone, "from_cores"),
        "lines of four samples each"
    );
    // Three quarters are remote, but no placement of memory makes lines of other cores local.
    assert_eq!(problem(&profile), Problem::SharedLines);
    // However few accesses an instruction reach memory.
    let measured = Measurements { instructions: Some(1e12), ..Measurements::default() };
    assert_eq!(profile.view(&Filter::default()).verdict(&measured).problem, Problem::SharedLines);
}
