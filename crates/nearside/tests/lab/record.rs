//! `nearside record` in the lab: samples of the virtual PMU and the object events of the program form one trace, in
//! which accesses belong to the right objects.

use crate::support::{LIMIT, Lab, is_root_to};
use machine::CpuId;
use profile::{Filter, ObjectKind, Predicate, Profile, Recording};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use test_tools::Checks;
use test_tools::json_fields::assert_documented;
use trace::{About, Event, Record, Served, Source, Trace, What};

/// A trace and its profile.
struct Shown {
    about: About,
    profile: Profile,
    events: Vec<Event>,
}

fn shown(folder: &Path, source: Source) -> Shown {
    let trace = Trace::open(folder).unwrap();
    let machine = trace.machine().unwrap().clone();
    let [near, far] = [0, 1].map(|node| machine.latency_ns(machine.nodes[0].id, machine.nodes[node].id));
    assert!(near.is_some() && near < far, "the preset's own numbers");
    let mut recording = Recording::new(machine);
    let (mut samples, mut events) = (Vec::new(), Vec::new());
    let mut records = trace.records().unwrap();
    for record in &mut records {
        match record.unwrap() {
            Record::Sample(sample) => samples.push(sample),
            Record::Event(event) => events.push(event),
        }
    }
    let has_latency = source == Source::Lab;
    assert!(samples.iter().all(|sample| sample.source == source && sample.latency_ns.is_some() == has_latency));
    recording.add_samples(samples);
    recording.add_events(events.iter().cloned());
    let profile = recording.into_profile(records.stacks(), &trace.symbols().unwrap());
    Shown { about: trace.about().clone(), profile, events }
}

impl Shown {
    /// Samples that pass a filter, and how many of them match `is` by kind and call chain.
    fn samples(&self, filter: Vec<Predicate>, is: impl Fn(ObjectKind, &[&str]) -> bool) -> (u64, u64) {
        let view = self.profile.view(&Filter(filter));
        let belong = view.objects().into_iter().filter(|(object, _)| {
            let summary = self.profile.object_summary(*object).unwrap();
            let labels: Vec<&str> = summary.allocated_from.iter().map(|frame| frame.label.as_str()).collect();
            is(summary.kind, &labels)
        });
        (view.tally().samples, belong.map(|(_, tally)| tally.samples).sum())
    }
}

const SCRIPT: &str = include_str!("programs/record.sh");

#[test]
fn accesses_in_the_lab_belong_to_their_objects() {
    let lab = Lab::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/programs/reuse.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-g", "-o"]).arg(lab.path("work/reuse")).arg(source);
    assert!(compiler.status().unwrap().success());
    let ran = lab.script("small-4x2", &["--quiet", "--thp", "never", "--out", "out"], SCRIPT).succeeded();
    let out = |name: &str| lab.path("work/out").join(name);
    let json = |name: &str| {
        let summary = lab.json(&format!("work/out/{name}"));
        assert_documented("record --json FILE", [&summary]);
        summary
    };

    let checks = Checks::new();
    checks.part("streamcluster", || {
        accesses_belong_to_the_array(ran.section("streamcluster"), &out("streamcluster"), &json("streamcluster.json"));
    });
    checks.part("reuse", || accesses_belong_to_short_lived_objects(ran.section("reuse"), &out("reuse")));
    checks.part("rate", || {
        let (samples, seconds) = (json("rate.json")["samples"].as_f64(), json("rate.json")["seconds"].as_f64());
        let rate = samples.unwrap() / seconds.unwrap();
        assert!((25_000.0..100_000.0).contains(&rate), "{rate} a second, and not 50,000 within a factor of two");
        assert_eq!(json("rate.json")["objects"], 0);
    });
    checks.part("faults", || {
        let said = ran.section("faults");
        assert!(said.contains("readers: ") && said.ends_with("status 0\n"), "{said}");
        assert!(json("faults.json")["sources"][0]["event"].as_str().unwrap().contains("page_fault_user"));
        who_used_pages_and_what_the_kernel_told_of_them(&out("faults"));
    });
    checks.part("killed", || {
        assert_eq!(ran.section("killed"), "0\n", "the switch for page faults is off again");
    });
    checks.part("blind", || {
        let lost = json("blind.json")["lost"][0].clone();
        assert!(
            lost["what"].as_str().unwrap().contains("turned off during the recording") && lost["count"] == 1,
            "{lost}"
        );
    });
    checks.part("twice", || {
        let said = ran.section("twice");
        assert!(said.contains("are taken already") && said.ends_with("status 125\n"), "{said}");
    });
    if is_root_to("record as another user") {
        checks.part("user", || {
            let said = ran.section("user");
            assert!(
                said.contains("it belongs to the user who began the lab's run") && said.ends_with("status 125\n"),
                "{said}"
            );
        });
    }
}

/// Nearly all accesses served by memory are to the array that one thread filled, and its site is known.
fn accesses_belong_to_the_array(said: &str, folder: &Path, told: &Value) {
    assert!(
        said.contains("checksum") && said.contains("nearside: recorded ") && said.ends_with("status 0\n"),
        "{said}"
    );
    let shown_of = shown(folder, Source::Lab);
    let about = &shown_of.about;
    assert!(about.complete && about.simulated && about.host == "nearside-lab", "{about:?}");
    assert_eq!(about.lost, [], "{about:?}");
    assert_eq!(told["samples"].as_u64(), Some(shown_of.profile.len() as u64));
    assert_eq!(told["processes"], 1);
    let from_memory = || vec![Predicate::User, Predicate::Served(vec![Served::Dram])];
    let is_points =
        |kind, labels: &[&str]| kind == ObjectKind::Heap && labels.iter().any(|label| label.contains("streamcluster"));
    let (all, of_points) = shown_of.samples(from_memory(), is_points);
    assert!(all > 1000 && of_points * 10 > all * 8, "{of_points} of {all}");
    let (all, unknown) = shown_of.samples(vec![Predicate::User], |kind, _| kind == ObjectKind::Unknown);
    // The rest is the C library's: the dynamic linker's memory, and what malloc keeps between objects.
    assert!(unknown * 20 < all, "{unknown} of {all} are unknown");
    // Times of the kernel and of the program are on one clock: threads start before they access anything.
    let threads = shown_of.events.iter().filter(|event| matches!(event.what, What::ThreadStarted)).count();
    assert!(threads >= 8, "{threads} of at least one for each CPU");
}

/// Objects that live only for microseconds, always at the same address, by the code that allocated them.
fn accesses_belong_to_short_lived_objects(said: &str, folder: &Path) {
    assert_eq!(said, "reused\nreused\nstatus 0\n");
    let shown_of = shown(folder, Source::Lab);
    for (function, site) in [("write_a", "site_a"), ("write_b", "site_b")] {
        let is_own =
            |kind, labels: &[&str]| kind == ObjectKind::Heap && labels.iter().any(|label| label.starts_with(site));
        let filter = || vec![Predicate::User, Predicate::Function(function.to_owned())];
        let (all, own) = shown_of.samples(filter(), is_own);
        // If the guest's clock stood still while the recorder drained, a few have no order.
        assert!(all > 1000 && own * 100 > all * 99, "{function}: {own} of {all}");
    }
    // Programs begin, fork and end within a millisecond of each other: the kernel's events and the samples of the
    // virtual PMU are in one order, and code that all of them execute has each one's own addresses.
    let view = shown_of.profile.view(&Filter(vec![Predicate::User]));
    let unknown: u64 = view.functions().iter().filter(|(name, _)| name == "[unknown]").map(|(_, of)| of.samples).sum();
    assert!(unknown * 1000 < view.tally().samples, "{unknown} of {} are of no known code", view.tally().samples);
}

/// Page faults of NUMA balancing have a thread, a CPU and an object; processes, threads and files come from the kernel.
fn who_used_pages_and_what_the_kernel_told_of_them(folder: &Path) {
    let Shown { about, profile, events } = shown(folder, Source::HintFault);
    assert!(about.complete && about.sources.iter().all(|source| source.source == Source::HintFault), "{about:?}");
    let view = profile.view(&Filter(vec![Predicate::User]));
    let (object, tally) = view.objects().into_iter().max_by_key(|(_, tally)| tally.samples).unwrap();
    let object = profile.object_summary(object).unwrap();
    // Two threads of node 1 read 8 MiB of node 0: all pages are marked at least once.
    assert!(tally.samples > 500 && object.bytes >= 8 << 20, "{tally:?} {object:?}");
    assert!(profile.accesses().filter(|access| [CpuId(2), CpuId(3)].contains(&access.cpu)).count() > 500);
    assert!(view.threads().len() >= 2, "{:?}", view.threads());
    let told = |what: &dyn Fn(&What) -> bool| events.iter().filter(|event| what(&event.what)).count();
    assert!(told(&|what| matches!(what, What::ThreadStarted)) >= 2);
    assert_eq!(told(&|what| matches!(what, What::Named { name, exec: true } if name.starts_with("nearside-work"))), 1);
    let program = |what: &What| {
        let What::Mapped { name, file: Some(file), executable: true, .. } = what else { return false };
        name.ends_with("/nearside-workloads") && file.build_id.is_some()
    };
    assert!(told(&program) >= 1, "{events:?}");
}

#[test]
fn a_program_is_recorded_on_a_virtual_machine_in_one_step() {
    let lab = Lab::new();
    let mut command = lab.nearside();
    command.args(["lab", "record", "--machine", "small-2x2", "--fidelity", "fast", "--timeout", LIMIT]);
    command.args([
        "--json",
        "both.json",
        "--period",
        "50",
        "--",
        "sh",
        "-c",
        "../nearside-workloads chase --size 2M; exit 7",
    ]);
    let ran = lab.run(command, b"");
    assert_eq!(ran.status, 7, "{}", ran.error);
    assert!(ran.text().starts_with("chase: ") && ran.error.contains("nearside: recorded "), "{}", ran.error);
    let shown = shown(&lab.path("work/nearside-trace"), Source::Lab);
    assert!(shown.about.complete && shown.profile.len() > 100, "{:?}", shown.about);
    // Both reports are merged, and no other file is left.
    let (both, trace) = (lab.json("work/both.json"), lab.path("work/nearside-trace"));
    assert_eq!([&both["run"]["exit_status"], &both["recording"]["exit_status"]], [7, 7]);
    assert_eq!([&both["run"]["machine"], &both["recording"]["trace"]], ["small-2x2", trace.to_str().unwrap()]);
    assert_eq!(both["recording"]["samples"].as_u64(), Some(shown.profile.len() as u64));
    assert!(both["run"]["dram_accesses"].as_u64() > Some(1000), "{both}");
    assert!(!trace.join("report.json").exists());
    // A missing program leaves nothing behind.
    let mut command = lab.nearside();
    command.args(["lab", "record", "--machine", "no-such-machine", "-o", "none", "--", "true"]);
    lab.run(command, b"").failed(125, &["no-such-machine"]);
    assert!(!lab.path("work/none").exists());
}
