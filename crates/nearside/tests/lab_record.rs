//! `nearside record` in the lab: samples of the virtual PMU and what the program tells of its objects make one trace, in
//! which accesses belong to the right objects.

mod support;

use profile::{Filter, ObjectKind, Predicate, Profile, Recording};
use std::path::Path;
use support::Lab;
use trace::{Record, Served, Trace, What};

/// A trace, and what it shows.
struct Shown {
    trace: Trace,
    profile: Profile,
    events: Vec<trace::Event>,
}

fn shown(folder: &Path) -> Shown {
    let trace = Trace::open(folder).unwrap();
    let mut recording = Recording::new(trace.machine().unwrap().clone());
    let (mut samples, mut events) = (Vec::new(), Vec::new());
    let mut records = trace.records().unwrap();
    for record in &mut records {
        match record.unwrap() {
            Record::Sample(sample) => samples.push(sample),
            Record::Event(event) => events.push(event),
        }
    }
    recording.add_samples(samples);
    recording.add_events(events.iter().cloned());
    let profile = recording.into_profile(records.stacks(), &trace.symbols().unwrap());
    Shown { trace, profile, events }
}

#[test]
fn accesses_in_the_lab_belong_to_their_objects() {
    let lab = Lab::new();
    let script = "
        ../nearside record --quiet -o out/streamcluster --json out/streamcluster.json -- \\
            ../nearside-workloads streamcluster --size 16M --repeat 3
        echo \"status $?\"
    ";
    let ran = lab.script("small-4x2", &["--quiet", "--out", "out"], script).succeeded();
    println!("{}{}", ran.text(), ran.error);
    let Shown { trace, profile, events } = shown(&lab.path("work/out/streamcluster"));
    println!("{:#?}", trace.about());
    println!("{} events, {} accesses", events.len(), profile.len());
    for (what, filter) in [("all", Filter::default()), ("dram", Filter(vec![Predicate::User]))] {
        let view = profile.view(&filter);
        println!("{what}: {:?}", view.tally());
        for (object, tally) in view.objects().into_iter().take(12) {
            let s = profile.object_summary(object).unwrap();
            println!(
                "{:6} {:?} {} {} {:x} bytes {} {:?}",
                tally.samples,
                s.kind,
                s.label,
                s.process.pid,
                s.address,
                s.bytes,
                s.allocated_from.iter().map(|f| f.label.clone()).collect::<Vec<_>>()
            );
        }
    }
    let _ = (ObjectKind::Heap, Served::Dram, What::ThreadStarted);
}
