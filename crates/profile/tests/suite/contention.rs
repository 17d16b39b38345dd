//! Saturated memory: whether it is at the same time as all other memory, and what is advised then.

use crate::support::{App, Trace, machine, stream_clustering};
use machine::NodeId;
use profile::{Action, Advice, Filter, IdealPlacement, Measurements, Problem, Profile, Recording, Verdict};
use trace::AccessKind;

const SAMPLES: u32 = 4000;
const BYTES: u64 = 16 << 20;

fn verdict(profile: &Profile) -> Verdict {
    profile.view(&Filter::default()).verdict(&Measurements::default())
}

fn top(profile: &Profile) -> Advice {
    profile.view(&Filter::default()).advice(3).into_iter().next().unwrap()
}

/// Two threads on each of four nodes use an array that is on their node and saturates its memory, with the node of each
/// sample.
fn local_arrays(node: impl Fn(u32) -> u32) -> Trace {
    sampled_arrays(SAMPLES, node)
}

fn sampled_arrays(samples: u32, node: impl Fn(u32) -> u32) -> Trace {
    let mut trace = Trace::new(&[1]);
    let start = |node: u32| 0x7f00_0000_0000 + u64::from(node) * BYTES;
    for node in 0..4 {
        trace.allocate((1, 1 + 2 * node, 2 * node), start(node), BYTES, "makeMatrix");
    }
    for number in 0..samples {
        let node = node(number);
        let thread = 2 * node + trace.random(2) as u32;
        let address = start(node) + trace.random(BYTES);
        let sample = trace.access((1, 1 + thread, thread), address, node, AccessKind::Load);
        (sample.weight, sample.latency_ns) = (90.0, Some(380.0 + (number % 64) as f32));
    }
    trace
}

#[test]
fn nodes_that_are_saturated_one_after_the_other_are_not_busy_alike() {
    let in_turn = local_arrays(|number| number / (SAMPLES / 4)).profile();
    let verdict_in_turn = verdict(&in_turn);
    let text = &verdict_in_turn.text;
    assert_eq!((verdict_in_turn.problem, verdict_in_turn.is_numa_problem), (Problem::Contention, true), "{text}");
    assert!(
        text.contains("one node's memory after another is contended (4.0 times its idle latency, 100.0 %"),
        "{text}"
    );
    let potential = verdict_in_turn.potential.unwrap();
    assert!(potential.placement == IdealPlacement::Interleaved && potential.speedup > 1.2, "{potential:?}");
    let metric = verdict_in_turn.metrics.iter().find(|metric| metric.name == "saturated_alone").unwrap();
    assert_eq!((metric.value, metric.is_bad), (Some(1.0), true));
    let advice = top(&in_turn);
    assert_eq!(advice.action, Action::Interleave, "{advice:?}");
    assert!(advice.evidence.iter().any(|evidence| evidence.what == "saturated_alone"), "{:?}", advice.evidence);
    assert!(advice.gain.is_some_and(|gain| gain.speedup > 1.2), "{:?}", advice.gain);

    let at_once = local_arrays(|number| number % 4).profile();
    let verdict_at_once = verdict(&at_once);
    assert_eq!(verdict_at_once.problem, Problem::Bandwidth, "{}", verdict_at_once.text);
    let advice = top(&at_once);
    assert_eq!((advice.action, advice.gain), (Action::LeaveAlone, None), "{advice:?}");
    assert!(advice.ruled_out.iter().any(|out| out.action == Action::Interleave), "{:?}", advice.ruled_out);
}

/// An interval has few samples of each node then: five or more of some nodes and fewer of others, by chance.
#[test]
fn few_samples_do_not_show_that_nodes_are_saturated_one_after_the_other() {
    for samples in [500, 1000, 2000] {
        let profile = sampled_arrays(samples, |number| number.wrapping_mul(0x9e37_79b1) >> 30).profile();
        let verdict = verdict(&profile);
        assert_eq!(verdict.problem, Problem::Bandwidth, "{samples}: {}", verdict.text);
        assert_ne!(top(&profile).action, Action::Interleave, "{samples}");
    }
}

#[test]
fn memory_of_a_saturated_node_is_spread_although_it_is_local() {
    let saturated = local_arrays(|_| 0).profile();
    let verdict = verdict(&saturated);
    let potential = verdict.potential.unwrap();
    assert_eq!((verdict.problem, potential.placement), (Problem::Contention, IdealPlacement::Interleaved));
    let advice = top(&saturated);
    assert_eq!(advice.action, Action::Interleave, "{advice:?}");
    let names: Vec<_> = advice.evidence.iter().map(|evidence| evidence.what).collect();
    assert_eq!(names, ["remote", "home_node", "latency_over_idle"], "{:?}", advice.evidence);
    assert!(advice.gain.is_some_and(|gain| gain.speedup > 1.2), "{:?}", advice.gain);
    let mut idle = local_arrays(|_| 0);
    idle.samples.iter_mut().for_each(|sample| sample.latency_ns = Some(103.0));
    let idle = top(&idle.profile());
    assert_eq!((idle.action, idle.ruled_out.len()), (Action::LeaveAlone, 0), "{idle:?}");
}

/// The thread allocates on node 0, whose memory it saturates from node 3.
#[test]
fn a_moved_thread_is_not_pinned_where_to_spread_its_memory_gains_more() {
    let moved = |latency_ns: f32| {
        let mut trace = Trace::new(&[1]);
        let start = 0x7f00_0000_0000;
        trace.allocate((1, 1, 0), start, BYTES, "makeMatrix");
        for _ in 0..SAMPLES {
            let address = start + trace.random(BYTES);
            let sample = trace.access((1, 1, 6), address, 0, AccessKind::Load);
            (sample.weight, sample.latency_ns) = (90.0, Some(latency_ns));
        }
        top(&trace.profile())
    };
    let saturated = moved(500.0);
    assert_eq!(saturated.action, Action::Interleave, "{saturated:?}");
    assert_eq!(
        (saturated.ruled_out[0].action, saturated.ruled_out[0].because.what),
        (Action::PinThreads, "smaller_gain")
    );
    assert_eq!(saturated.evidence.last().unwrap().what, "latency_over_idle");
    assert_eq!(moved(145.0).action, Action::PinThreads);
}

#[test]
fn on_one_node_numa_cannot_be_the_problem() {
    let trace = stream_clustering();
    let mut machine = machine();
    machine.nodes.truncate(1);
    machine.links.clear();
    let mut recording = Recording::new(machine);
    recording.add_events(trace.events);
    recording.add_samples(trace.samples.into_iter().filter(|sample| sample.cpu.0 < 2));
    let profile = recording.into_profile(&trace.stacks, &App);
    let verdict = verdict(&profile);
    assert_eq!((verdict.is_numa_problem, verdict.potential), (false, None));
    assert!(verdict.text.starts_with("NUMA cannot be the problem: "), "{}", verdict.text);
    assert_eq!(profile.machine().nodes[0].id, NodeId(0));
}

/// perf.data has no latencies of the machine.
#[test]
fn what_is_not_known_is_left_out_of_the_verdict() {
    let mut trace = local_arrays(|number| number % 4);
    trace.samples.iter_mut().for_each(|sample| (sample.latency_ns, sample.weight) = (None, 1.0));
    let verdict = verdict(&trace.profile());
    assert_eq!(verdict.text, "NUMA is not the problem: 100.0 % of the accesses are local", "{:?}", verdict.problem);
}
