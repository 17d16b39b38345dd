//! What samples show, and what they do not: the number of threads, of samples, and who uses a stack.

use crate::support::{Trace, face_recognition, machine, mapped, stream_clustering};
use machine::{NodeId, Tid};
use profile::{Action, Filter, Measurements, Metric, NoSymbols, Profile, Recording, Verdict};
use trace::{AccessKind, Count, Counter, Served, Source, Stacks};

fn verdict(profile: &Profile) -> Verdict {
    profile.view(&Filter::default()).verdict(&Measurements::default())
}

fn metric<'a>(verdict: &'a Verdict, name: &str) -> &'a Metric {
    verdict.metrics.iter().find(|metric| metric.name == name).unwrap()
}

/// The number of a sample's thread, from that of the eight and of the sample.
type Threads<'a> = &'a dyn Fn(u32, usize) -> u32;

/// Eight CPUs do the same work with eight threads, with many that wait most of the time, and with many that live one after
/// another.
#[test]
fn what_threads_wait_for_memory_does_not_depend_on_their_number() {
    let of = |thread: Threads<'_>| {
        let mut trace = face_recognition();
        for (number, sample) in trace.samples.iter_mut().enumerate() {
            (sample.tid, sample.weight) = (Tid(thread(sample.tid.0, number)), 50.0);
        }
        let verdict = verdict(&trace.profile());
        let potential = verdict.potential.unwrap();
        (metric(&verdict, "memory_bound").value.unwrap(), potential.speedup, verdict.is_numa_problem)
    };
    let (bound, speedup, is_problem) = of(&|tid, _| tid);
    assert!(is_problem && speedup > 1.05, "{speedup}");
    let waiting = |tid: u32, number: usize| tid + 8 * (number as u32 % 25);
    let in_turn = |tid: u32, number: usize| tid + 8 * (number as u32 / 400);
    let cases: [(&str, Threads<'_>); 2] = [("waiting", &waiting), ("in turn", &in_turn)];
    for (case, threads) in cases {
        let (many_bound, many_speedup, many) = of(threads);
        assert!(many && (many_bound / bound - 1.0).abs() < 0.15, "{case}: {many_bound} and {bound}");
        assert!(((many_speedup - 1.0) / (speedup - 1.0) - 1.0).abs() < 0.15, "{case}: {many_speedup} and {speedup}");
    }
}

/// A page fault says who uses a page, not how often: no limit holds for what is not known.
#[test]
fn faults_tell_no_bandwidth() {
    let loads = |source: Source| {
        let mut trace = stream_clustering();
        trace.samples.iter_mut().for_each(|sample| sample.source = source);
        let verdict = verdict(&trace.profile());
        ["controller_load", "link_load"].map(|name| metric(&verdict, name).value.is_some())
    };
    assert_eq!(loads(Source::Lab), [true, true]);
    assert_eq!([loads(Source::HintFault), loads(Source::Perf)], [[false, false], [false, false]]);
}

/// A fault for a read may be of what is written next.
#[test]
fn what_may_be_written_is_not_replicated() {
    let why_not = |is_unknown: fn(AccessKind) -> bool| {
        let mut trace = face_recognition();
        for sample in trace.samples.iter_mut().filter(|sample| is_unknown(sample.kind)) {
            sample.kind = AccessKind::Unknown;
        }
        let advice = trace.profile().view(&Filter::default()).advice(1).remove(0);
        assert_ne!(advice.action, Action::Replicate, "{:?}", advice.evidence);
        advice.ruled_out.into_iter().find(|out| out.action == Action::Replicate).unwrap().because.text
    };
    let only_writes_known = why_not(|kind| kind == AccessKind::Load);
    assert!(only_writes_known.starts_with("100.0 % of 300 accesses after initialisation write"), "{only_writes_known}");
    assert_eq!(why_not(|_| true), "it is not known whether accesses after initialisation write");
}

/// `record --source counters` samples no access.
#[test]
fn counters_are_read_without_samples() {
    let count = |time_ms: u64, node, value| Count {
        time_ns: time_ms * 1_000_000,
        counter: Counter::ControllerBytes,
        from: None,
        to: Some(NodeId(node)),
        cpu: None,
        value,
    };
    let counts = vec![count(5, 0, 100), count(5, 1, 100), count(9, 0, 3_000_100), count(9, 1, 100)];
    let profile = Recording::new(machine()).with_counts(counts).into_profile(&Stacks::new(), &NoSymbols);
    let view = profile.view(&Filter::default());
    let load = view.measured().controllers[&NodeId(0)];
    let bandwidth = profile.machine().nodes[0].bandwidth_bytes_per_s.unwrap();
    assert!((load * bandwidth / 0.75e9 - 1.0).abs() < 1e-9, "{load}");
    let verdict = view.verdict(view.measured());
    let imbalance = metric(&verdict, "imbalance");
    assert_eq!((imbalance.value, imbalance.counted), (Some(2.0), true));
    assert_eq!(profile.span_ns(), None);
}

/// A line that cores take from each other says nothing of the memory that it belongs to.
#[test]
fn lines_of_other_cores_are_no_contention_of_memory() {
    let values = |served: Served| {
        let mut trace = stream_clustering();
        trace.samples.iter_mut().for_each(|sample| sample.served = Some(served));
        let verdict = verdict(&trace.profile());
        ["latency_over_idle", "local_access_ratio"].map(|name| metric(&verdict, name).value)
    };
    let [latency, local] = values(Served::Dram);
    assert!(latency.is_some_and(|factor| factor > 2.0) && local.is_some());
    assert_eq!(values(Served::Peer), [None, None]);
}

/// Intel's processors sample loads and stores at rates of their own.
#[test]
fn few_stores_that_stand_for_many_are_many() {
    let mut trace = face_recognition();
    for (number, sample) in trace.samples.iter_mut().enumerate().skip(300) {
        let is_store = number % 200 == 0;
        sample.kind = if is_store { AccessKind::Store } else { AccessKind::Load };
        sample.weight = if is_store { 2000.0 } else { 10.0 };
    }
    let advice = trace.profile().view(&Filter::default()).advice(1).remove(0);
    assert_eq!(advice.action, Action::LeaveAlone, "{:?}", advice.evidence);
}

/// An array in the stack of the first thread, which others use, too.
#[test]
fn threads_are_not_pinned_for_what_they_share_on_a_stack() {
    let stack = 0x7ff0_0000;
    let advised = |shared: bool, ends: bool| {
        let mut trace = Trace::new(&[1]);
        trace.event(1, 1, 0, mapped(stack, 0x10_0000, "[stack]", false));
        for number in 0..4000 {
            // Of threads that end, the next one has the stack.
            let thread = if ends { number / 500 } else { number % 8 };
            let own = if shared || ends { 0 } else { u64::from(thread) * 0x1_0000 };
            let address = stack + own + trace.random(0x1_0000);
            trace.access((1, 1 + thread, thread), address, 0, AccessKind::Load);
        }
        trace.profile().view(&Filter::default()).advice(1).remove(0).action
    };
    assert_eq!([advised(false, false), advised(false, true)], [Action::PinThreads; 2]);
    assert_ne!(advised(true, false), Action::PinThreads);
}
