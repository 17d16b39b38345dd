//! Properties of any trace: claims C6, C14 and C15 of the `MemProf` specification, 13.1, and C7 again.

use crate::support::{allocated, event, freed, mapped, profile, sample};
use machine::{CpuId, NodeId, Pid, Tid};
use profile::{Filter, Measurements, ObjectId, ObjectKind, Predicate, Profile, Ranking, ThreadId};
use proptest::prelude::*;
use trace::{AccessKind, Event, Sample, Served, What};

const SITE: trace::StackId = trace::Stacks::UNKNOWN;

fn any_event() -> impl Strategy<Value = Event> {
    let address = (0_u64..40).prop_map(|page| page * 64);
    let bytes = prop_oneof![Just(0), 1_u64..400, Just(u64::MAX)];
    let what = prop_oneof![
        4 => (address.clone(), bytes.clone()).prop_map(|(at, bytes)| allocated(at, bytes, SITE)),
        3 => address.clone().prop_map(freed),
        2 => (address.clone(), bytes.clone(), prop::option::of("(|a)")).prop_map(|(address, bytes, name)| {
            What::Announced { address, bytes, stack: SITE, name: name.map(Into::into) }
        }),
        1 => address.clone().prop_map(|address| What::Withdrawn { address }),
        1 => (address.clone(), bytes.clone()).prop_map(|(address, bytes)| What::Resized { address, bytes }),
        1 => (address.clone(), bytes.clone(), "(|/lib/a|\\[stack\\]|\\[heap\\])")
            .prop_map(|(at, bytes, name)| mapped(at, bytes, &name, false)),
        1 => (address.clone(), bytes.clone()).prop_map(|(start, bytes)| What::Unmapped { start, bytes }),
        1 => (address.clone(), bytes.clone()).prop_map(|(start, bytes)| What::Invalidated { start, bytes }),
        1 => (address.clone(), bytes.clone(), address, bytes)
            .prop_map(|(old, old_bytes, start, bytes)| What::Remapped { old, old_bytes, start, bytes }),
        1 => prop::option::of(0_u32..3).prop_map(|parent| What::ProcessStarted { parent: parent.map(Pid) }),
        1 => Just(What::ThreadStarted),
        1 => Just(What::ThreadEnded),
        1 => any::<bool>().prop_map(|exec| What::Named { name: "a".into(), exec }),
    ];
    (0_u32..3, 0_u32..4, what).prop_map(|(pid, tid, what)| event(0, pid, tid, what))
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let kind = prop_oneof![Just(AccessKind::Load), Just(AccessKind::Store), Just(AccessKind::Unknown)];
    let served = prop::option::of(prop_oneof![Just(Served::L1), Just(Served::Peer), Just(Served::Dram)]);
    let odd = prop_oneof![Just(f32::NAN), Just(-1.0), Just(f32::INFINITY), 0.1_f32..1000.0];
    let place = (0_u32..12, prop::option::of(0_u32..6), prop_oneof![0_u64..3000, any::<u64>()]);
    ((0_u32..3, 0_u32..4), place, kind, served, odd.clone(), prop::option::of(odd)).prop_map(
        |((pid, tid), (cpu, node, address), kind, served, weight, latency_ns)| Sample {
            cpu: CpuId(cpu),
            node: node.map(NodeId),
            kind,
            served,
            weight,
            latency_ns,
            ..sample(0, pid, tid, address)
        },
    )
}

/// Events and samples at arbitrary times.
fn any_trace() -> impl Strategy<Value = (Vec<Event>, Vec<Sample>)> {
    (prop::collection::vec(any_event(), 0..60), prop::collection::vec(any_sample(), 0..120), any::<u64>()).prop_map(
        |(mut events, mut samples, seed)| {
            let (events_to, samples_to) = (events.len() as u64 * 3, samples.len() as u64 * 2);
            let spread = |at: usize, of: u64| (at as u64 * 7919 + seed % 1000) % of.max(1) + at as u64;
            let mut used = std::collections::HashSet::new();
            let mut free = |mut time: u64| {
                while !used.insert(time) {
                    time += 1;
                }
                time
            };
            for (at, event) in events.iter_mut().enumerate() {
                event.time_ns = free(spread(at, events_to));
            }
            for (at, sample) in samples.iter_mut().enumerate() {
                sample.time_ns = free(spread(at, samples_to));
            }
            (events, samples)
        },
    )
}

fn total<T>(ranking: &Ranking<T>) -> (u64, f64) {
    ranking
        .iter()
        .fold((0, 0.0), |(samples, accesses), (_, tally)| (samples + tally.samples, accesses + tally.accesses))
}

fn check_flows(profile: &Profile, filter: &Filter) -> Result<(), TestCaseError> {
    let view = profile.view(filter);
    let objects: Vec<ObjectId> = view.objects().into_iter().map(|(object, _)| object).collect();
    let threads: Vec<ThreadId> = view.threads().into_iter().map(|(thread, _)| thread).collect();
    let mut of_objects: Vec<_> =
        view.flows_of_objects(&objects).iter().flat_map(|flow| flow.numbered().collect::<Vec<_>>()).collect();
    let mut of_threads: Vec<_> =
        view.flows_of_threads(&threads).iter().flat_map(|flow| flow.numbered().collect::<Vec<_>>()).collect();
    of_objects.sort_by_key(|(number, _)| *number);
    of_threads.sort_by_key(|(number, _)| *number);
    // C6: each access is in one thread's and one object's flow, with equal fields.
    prop_assert_eq!(&of_objects, &of_threads);
    prop_assert_eq!(of_objects.len() as u64, view.tally().samples);
    prop_assert!(of_objects.windows(2).all(|pair| pair[0].0 < pair[1].0));
    for (flow, object) in view.flows_of_objects(&objects).iter().zip(&objects) {
        prop_assert!(flow.accesses().all(|access| access.object == *object));
        prop_assert!(flow.accesses().collect::<Vec<_>>().windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns));
    }
    // C15: however accesses are grouped, shares add up to 100 %.
    let (samples, accesses) = (view.tally().samples, view.tally().accesses);
    let same = |(of, weighted): (u64, f64)| of == samples && (weighted - accesses).abs() <= 1e-9 * accesses;
    prop_assert!(same(total(&view.objects())) && same(total(&view.sites())) && same(total(&view.threads())));
    prop_assert!(same(total(&view.processes())) && same(total(&view.functions())) && same(total(&view.code())));
    let shares: f64 = view.objects().iter().map(|(_, tally)| tally.counts(view.tally()).share).sum();
    prop_assert!(samples == 0 || (shares - 1.0).abs() < 1e-9, "{}", shares);
    Ok(())
}

proptest! {
    // Advice with gains is slow without optimisation.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn c6_c15_every_access_is_in_one_flow_of_each_kind((events, samples) in any_trace()) {
        let profile = profile(events, samples);
        check_flows(&profile, &Filter::default())?;
        check_flows(&profile, &Filter(vec![Predicate::Access(AccessKind::Store)]))?;
        // No query panics or divides by zero.
        let view = profile.view(&Filter::default());
        let _ = (view.advice(5), view.verdict(&Measurements::default()), view.flow().facts());
        let _ = (view.flow().phases(), view.flow().latency_over_time(), view.flow().pages(), view.flow().huge_pages());
        for access in profile.accesses() {
            let object = &profile.objects()[access.object.0 as usize];
            let thread = &profile.threads()[access.thread.0 as usize];
            prop_assert_eq!(object.process, thread.process);
            // An access is only to a live object.
            let lived = object.until_ns.is_none_or(|until_ns| access.time_ns < until_ns);
            prop_assert!(lived && object.from_ns <= access.time_ns, "{object:?} {access:?}");
            if object.bytes > 0 {
                prop_assert!(access.address >= object.start && access.address - object.start < object.bytes);
            }
        }
    }
}

proptest! {
    #[test]
    fn c7_the_order_of_the_streams_does_not_matter(
        (events, samples) in any_trace(),
        (seed, other) in (any::<u64>(), any::<u64>()),
    ) {
        let first = profile(events.clone(), samples.clone());
        let (mut events, mut samples) = (events, samples);
        let mixed = |time_ns: u64, seed: u64| (time_ns ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        events.sort_by_key(|event| mixed(event.time_ns, seed));
        samples.sort_by_key(|sample| mixed(sample.time_ns, other));
        let second = profile(events, samples);
        let told = |profile: &Profile| profile.accesses().map(|access| format!("{access:?}")).collect::<Vec<_>>();
        prop_assert_eq!(told(&first), told(&second));
        prop_assert_eq!(format!("{:?}", first.objects()), format!("{:?}", second.objects()));
    }

    #[test]
    fn c14_remote_accesses_have_no_local_share((events, samples) in any_trace()) {
        let profile = profile(events, samples);
        let view = profile.view(&Filter(vec![Predicate::Remote]));
        for (_, tally) in view.objects() {
            prop_assert_eq!(tally.samples, tally.remote_samples);
            prop_assert_eq!(tally.local_access_ratio(), Some(0.0));
        }
        check_flows(&profile, &Filter(vec![Predicate::Remote]))?;
    }

    #[test]
    fn a_predicate_and_its_opposite_part_the_accesses((events, samples) in any_trace(), which in 0_usize..20) {
        let profile = profile(events, samples);
        let all = [
            Predicate::Remote,
            Predicate::Local,
            Predicate::User,
            Predicate::Application("a".into()),
            Predicate::Pid(vec![Pid(1)]),
            Predicate::Tid(vec![Tid(1), Tid(2)]),
            Predicate::Thread(ThreadId(0)),
            Predicate::Cpu("0-3".parse().unwrap()),
            Predicate::FromNode("1".parse().unwrap()),
            Predicate::ToNode("1-2".parse().unwrap()),
            Predicate::FunctionContains("a".into()),
            Predicate::Site("unknown".into()),
            Predicate::Object(ObjectId(0)),
            Predicate::Kind(ObjectKind::Heap),
            Predicate::Served(vec![Served::Dram]),
            Predicate::NotLocalCache,
            Predicate::LatencyAtLeast(100.0),
            Predicate::Time(10..=50),
            Predicate::Address(0..=100),
            Predicate::Any(vec![Predicate::Remote, Predicate::Local]),
        ];
        let holds = all[which].clone();
        let not = Filter(vec![Predicate::Not(Box::new(holds.clone()))]);
        let count = |filter: &Filter| profile.view(filter).tally().samples;
        let (yes, no) = (count(&Filter(vec![holds.clone()])), count(&not));
        prop_assert_eq!(yes + no, profile.len() as u64);
        prop_assert_eq!(count(&Filter(vec![holds, not.0[0].clone()])), 0);
    }
}
