//! Machine-readable output: JSON with `snake_case` names and SI units, and addresses that survive readers with 53 bits.

use crate::support::{App, face_recognition, indexing, web_server};
use profile::{Data, File, Filter, Function, Measurements, NoSymbols, Predicate, Recording, Symbols};
use serde_json::{Value, json, to_value};
use trace::{Stacks, What};

#[test]
fn an_object_says_where_it_comes_from() {
    let profile = face_recognition().profile();
    let view = profile.view(&Filter::default());
    let (object, _) = view.objects()[0];
    let summary = to_value(profile.object_summary(object)).unwrap();
    assert_eq!(summary["label"], "makeMatrix+0x59");
    assert_eq!((&summary["kind"], &summary["address"]), (&json!("heap"), &json!("0x7f0000000000")));
    assert_eq!((&summary["pid"], &summary["application"]), (&json!(1), &json!("app")));
    assert_eq!((&summary["allocated_by_tid"], &summary["allocated_on_node"]), (&json!(1), &json!(0)));
    let labels: Vec<&Value> =
        summary["allocated_from"].as_array().unwrap().iter().map(|frame| &frame["label"]).collect();
    assert_eq!(labels, ["malloc+0x59", "makeMatrix+0x59", "main+0x59"]);
    let advice = to_value(view.advice(1)).unwrap();
    assert_eq!((&advice[0]["action"], &advice[0]["confidence"]), (&json!("replicate"), &json!("high")));
    assert!(advice[0]["gain"]["speedup"].is_f64() && advice[0]["remote_share"].is_f64());
    let verdict = to_value(view.verdict(&Measurements::default())).unwrap();
    assert_eq!((&verdict["problem"], &verdict["unknown_share"]), (&json!("distance"), &json!(0.0)));
    assert!(to_value(view.flow().facts()).unwrap()["nodes"][0]["from"].is_u64());
}

#[test]
fn sites_are_alike_in_processes_that_lie_elsewhere() {
    let mut trace = web_server();
    // The last process has its program at another address.
    let moved = 0x10_0000;
    for event in trace.events.iter_mut().filter(|event| event.pid.0 == 40) {
        match &mut event.what {
            What::Mapped { start, .. } => *start += moved,
            What::Allocated { stack, .. } => {
                let chain: Vec<u64> = trace.stacks.chain(*stack).iter().map(|address| address + moved).collect();
                *stack = trace.stacks.id(&chain);
            }
            _ => {}
        }
    }
    for sample in trace.samples.iter_mut().filter(|sample| sample.pid.0 == 40) {
        sample.instruction += moved;
    }
    let profile = trace.profile();
    let view = profile.view(&Filter::default());
    assert_eq!(view.sites().len(), 1);
    assert_eq!((view.functions()[0].0.as_str(), view.functions().len()), ("transpose", 1));
    assert_eq!(view.processes().len(), 4);
    let of_site =
        profile.view(&Filter(vec![Predicate::Site("apr_pool".into()), Predicate::Function("transpose".into())]));
    assert_eq!(of_site.tally().samples, 6800);
}

#[test]
fn wrappers_of_the_program_are_no_sites() {
    let trace = indexing();
    let mut recording = Recording::new(crate::support::machine()).with_wrappers(vec!["table_new".into()]);
    recording.add_events(trace.events);
    recording.add_samples(trace.samples);
    let profile = recording.into_profile(&trace.stacks, &App);
    let (site, _) = profile.view(&Filter::default()).sites()[0];
    assert_eq!(profile.site_label(site), "main+0x59");
    assert!(profile.has_function("table_new") && !profile.has_function("table_old"));
}

/// `App`, with one function inlined into another called `whole`, and with an inlined container function.
struct Inlined;

impl Symbols for Inlined {
    fn functions(&self, file: &File, offset: u64) -> Vec<Function> {
        let own = App.functions(file, offset);
        if own.iter().all(|own| *own.name != *"table_new") {
            return own;
        }
        let beside =
            |name: &str| own.iter().map(|own| Function { name: name.into(), ..own.clone() }).collect::<Vec<_>>();
        [beside("std::vector<int, std::allocator<int> >::reserve(unsigned long)"), own.clone(), beside("whole")]
            .concat()
    }

    fn data(&self, file: &File, offset: u64) -> Option<Data> {
        App.data(file, offset)
    }
}

#[test]
fn what_is_inlined_may_be_the_site() {
    let trace = indexing();
    let mut recording = Recording::new(crate::support::machine());
    recording.add_events(trace.events);
    recording.add_samples(trace.samples);
    let profile = recording.into_profile(&trace.stacks, &Inlined);
    let view = profile.view(&Filter::default());
    assert_eq!(profile.site_label(view.sites()[0].0), "table_new+0x59");
    let (object, _) = view.objects()[0];
    let chain = profile.chain(profile.objects()[object.0 as usize].site);
    let names: Vec<&str> =
        chain.iter().map(|code| &*profile.code(*code).unwrap().function.as_ref().unwrap().name).collect();
    assert!(names.windows(2).any(|pair| pair == ["table_new", "whole"]), "{names:?}");
}

#[test]
fn objects_of_one_thread_are_not_shared() {
    let shared = Filter(vec![Predicate::Shared]);
    assert_eq!(indexing().profile().view(&shared).tally().samples, 0);
    let profile = web_server().profile();
    assert_eq!(profile.view(&shared).objects().len(), 40);
    let view = profile.view(&Filter::default());
    let threads: Vec<_> = view.threads().into_iter().map(|(thread, _)| thread).collect();
    assert!(view.flows_of_threads(&threads).iter().all(|flow| flow.node_changes() == 0));
    // A repeated ID gives a repeated flow, and an ID that does not exist gives an empty one.
    let odd = view.flows_of_threads(&[threads[0], threads[0], profile::ThreadId(999)]);
    assert_eq!((odd[0].len(), odd[2].len()), (odd[1].len(), 0));
    assert!(odd[0].len() > 500);
}

#[test]
fn an_empty_recording_is_an_empty_profile() {
    let profile = Recording::new(crate::support::machine()).into_profile(&Stacks::new(), &NoSymbols);
    assert!(profile.is_empty() && profile.span_ns().is_none());
    assert!(profile.view(&Filter::default()).advice(5).is_empty());
}
