//! Each access belongs to the object at its address at its time: claims C1 to C9 of the `MemProf` specification, 13.1.

use crate::support::{App, Library, Trace, allocated, event, freed, machine, mapped, objects, profile, sample};
use machine::{CpuId, NodeId, Pid, Tid};
use profile::{Data, File, Filter, Function, MemoryRange, NoSymbols, ObjectId, ObjectKind, Recording, Symbols};
use trace::{Event, Sample, Stacks, What};

const SITE: trace::StackId = Stacks::UNKNOWN;

fn starts(profile: &profile::Profile) -> Vec<(ObjectKind, u64, u64)> {
    objects(profile).iter().map(|object| (object.kind, object.start, object.from_ns)).collect()
}

#[test]
fn c1_an_address_inside_an_object_is_the_objects() {
    let found = profile(
        vec![event(1, 7, 7, allocated(0x5, 0xc, SITE))],
        [0x4, 0x5, 0x7, 0x10, 0x11].map(|address| sample(2, 7, 7, address)).to_vec(),
    );
    let kinds: Vec<_> = objects(&found).iter().map(|object| object.kind).collect();
    let (heap, unknown) = (ObjectKind::Heap, ObjectKind::Unknown);
    assert_eq!(kinds, [unknown, heap, heap, heap, unknown]);
}

#[test]
fn c2_an_address_that_is_used_again_is_another_instance() {
    let events = vec![
        event(10, 7, 7, allocated(0x1000, 64, SITE)),
        event(20, 7, 7, freed(0x1000)),
        event(30, 7, 8, allocated(0x1000, 64, SITE)),
    ];
    let samples = [5, 15, 20, 25, 30, 35].map(|time| sample(time, 7, 7, 0x1010)).to_vec();
    let found = profile(events, samples);
    let of = |kind, start, from| (kind, start, from);
    let (first, second) = (of(ObjectKind::Heap, 0x1000, 10), of(ObjectKind::Heap, 0x1000, 30));
    let nothing = of(ObjectKind::Unknown, 0, 5);
    assert_eq!(starts(&found), [nothing, first, nothing, nothing, second, second]);
    assert_eq!(found.objects()[1].until_ns, Some(20));
}

#[test]
fn what_was_only_counted_is_of_its_site() {
    let mut trace = Trace::new(&[7, 8]);
    trace.allocate((7, 7, 0), 0x1000, 64, "table_new");
    let small = |trace: &mut Trace, pid, objects, callers: &[&str]| {
        let stack = trace.stacks.id(&[&["malloc"], callers, &["main"]]
            .concat()
            .iter()
            .map(|name| App::in_function(name))
            .collect::<Vec<_>>());
        trace.event(pid, pid, 0, What::Counted { objects, bytes: 16 * objects, stack });
    };
    small(&mut trace, 7, 3, &["table_new"]);
    small(&mut trace, 8, 5, &["table_new", "handle"]);
    small(&mut trace, 8, 90, &["handle"]);
    let found = trace.profile();
    let told: Vec<_> =
        found.small_objects().iter().map(|of| (found.site_label(of.site), of.objects, of.bytes)).collect();
    assert_eq!(told, [("handle+0x59".to_owned(), 90, 1440), ("table_new+0x59".to_owned(), 8, 128)]);
    // Large and small objects of a code location have one site, and no access is attributed to small ones, whose
    // addresses are not known.
    assert_eq!(found.site_of(ObjectId(0)), Some(found.small_objects()[1].site));
    assert_eq!((found.objects().len(), found.site_ids().len()), (1, 2));
}

#[test]
fn c3_processes_have_their_own_addresses() {
    let events = vec![
        event(1, 7, 7, allocated(0x1000, 64, SITE)),
        event(2, 8, 8, allocated(0x1000, 64, SITE)),
        event(5, 8, 8, freed(0x1000)),
    ];
    let samples = vec![sample(3, 7, 7, 0x1000), sample(4, 8, 8, 0x1000), sample(6, 7, 7, 0x1000)];
    let found = profile(events, samples);
    let ids: Vec<_> = found.accesses().map(|access| access.object.0).collect();
    assert_eq!(ids, [0, 1, 0]);
    assert_eq!(objects(&found).iter().map(|object| object.process.0).collect::<Vec<_>>(), [0, 1, 0]);
}

#[test]
fn c4_all_stacks_of_a_process_are_one_object() {
    let events = vec![
        event(1, 7, 7, mapped(0x7ff0_0000, 0x10000, "[stack]", false)),
        event(1, 7, 8, mapped(0x7f00_0000, 0x10000, "[stack:8]", false)),
        event(1, 9, 9, mapped(0x7ff0_0000, 0x10000, "[stack]", false)),
    ];
    let samples = vec![
        sample(2, 7, 7, 0x7ff0_0008),
        sample(3, 7, 8, 0x7f00_ffff),
        sample(4, 7, 7, 0x7f00_0000),
        sample(5, 9, 9, 0x7ff0_0008),
    ];
    let found = profile(events, samples);
    let ids: Vec<_> = found.accesses().map(|access| access.object.0).collect();
    assert_eq!(ids, [0, 0, 0, 1]);
    assert!(objects(&found).iter().all(|object| object.kind == ObjectKind::Stacks));
}

#[test]
fn c5_what_is_not_memory_is_left_out() {
    let memory = vec![
        MemoryRange { start: 0x1_0000_0000, end: 0x2_0000_0000, node: NodeId(1) },
        MemoryRange { start: 0, end: 0x8000_0000, node: NodeId(0) },
    ];
    let mut recording = Recording::new(crate::support::machine()).with_memory(memory);
    recording.add_samples([0x1000, 0x8000_0000, 0x1_0000_0000, 0x2_0000_0000].map(|physical| {
        let mut sample = sample(1, 7, 7, 0x1000);
        (sample.physical, sample.node) = (Some(physical), None);
        sample
    }));
    let found = recording.into_profile(&Stacks::new(), &NoSymbols);
    assert_eq!(found.accesses().map(|access| access.to).collect::<Vec<_>>(), [Some(NodeId(0)), Some(NodeId(1))]);
    assert_eq!(found.outside_memory(), 2);
}

#[test]
fn accesses_from_cpus_that_the_machine_lacks_are_counted() {
    let lacking = CpuId(crate::support::machine().cpus().iter().map(|cpu| cpu.0).max().unwrap() + 1);
    let from = |cpu: Option<CpuId>| {
        let known = sample(1, 7, 7, 0x1000);
        Sample { cpu: cpu.unwrap_or(known.cpu), ..known }
    };
    let found = profile(Vec::new(), vec![from(None), from(Some(lacking)), from(Some(lacking))]);
    assert_eq!(found.outside_cpus(), 2);
}

#[test]
fn c7_streams_may_come_out_of_order() {
    let events = vec![
        event(10, 7, 7, allocated(0x1000, 64, SITE)),
        event(20, 7, 7, freed(0x1000)),
        event(20, 7, 8, allocated(0x1000, 64, SITE)),
        event(30, 7, 8, freed(0x1000)),
        // The other thread's end of the object comes second in thread order.
        event(40, 7, 9, allocated(0x2000, 64, SITE)),
        event(50, 7, 8, allocated(0x2000, 64, SITE)),
        event(50, 7, 9, freed(0x2000)),
    ];
    let samples: Vec<_> = (5..60).flat_map(|time| [0x1000, 0x2000].map(|at| sample(time, 7, 7, at))).collect();
    let sorted = profile(events.clone(), samples.clone());
    let (mut events, mut samples) = (events, samples);
    events.reverse();
    samples.reverse();
    let reversed = profile(events, samples);
    assert!(sorted.accesses().eq(reversed.accesses()));
    let last = sorted.accesses().last().unwrap();
    assert_eq!(sorted.objects()[last.object.0 as usize].from_ns, 50);
}

#[test]
fn c8_a_block_that_moves_is_another_instance() {
    let events = vec![
        event(10, 7, 7, allocated(0x1000, 0x100, SITE)),
        event(20, 7, 7, freed(0x1000)),
        event(20, 7, 7, allocated(0x5000, 0x200, SITE)),
        event(30, 7, 7, What::Resized { address: 0x5000, bytes: 0x1000 }),
        event(40, 7, 7, What::Resized { address: 0x5000, bytes: 0x10 }),
    ];
    let at = |time, address| sample(time, 7, 7, address);
    let found = profile(
        events,
        vec![at(11, 0x10ff), at(21, 0x5000), at(22, 0x10ff), at(31, 0x5fff), at(41, 0x500f), at(42, 0x5010)],
    );
    let heap = |start, from| (ObjectKind::Heap, start, from);
    let nothing = (ObjectKind::Unknown, 0, 22);
    let second = heap(0x5000, 20);
    assert_eq!(starts(&found), [heap(0x1000, 10), second, nothing, second, second, nothing]);
    assert_eq!(found.objects()[1].bytes, 0x1000);
}

#[test]
fn c9_data_of_binaries_have_names() {
    let map = |start, bytes, offset, executable| What::Mapped {
        start,
        bytes,
        offset,
        name: "/lib/libwork.so".into(),
        file: None,
        executable,
    };
    let events = vec![
        event(1, 7, 7, map(0x7000_1000, 0x2000, 0x1000, true)),
        event(1, 7, 7, map(0x7000_3000, 0x1000, 0x3000, false)),
        event(1, 7, 7, mapped(0x7000_4000, 0x1000, "", false)),
        event(1, 7, 7, mapped(0x6000_0000, 0x1000, "/data/points", false)),
    ];
    let addresses = [0x7000_2010, 0x7000_3020, 0x7000_4030, 0x7000_4900, 0x6000_0000, 0x7000_1000];
    let mut recording = Recording::new(crate::support::machine());
    recording.add_events(events);
    recording.add_samples(addresses.into_iter().zip(2..).map(|(address, time)| {
        let mut sample = sample(time, 7, 7, address);
        sample.instruction = 0x7000_1004;
        sample
    }));
    let found = recording.into_profile(&Stacks::new(), &Library);
    let name = |name: &Option<std::sync::Arc<str>>| name.as_deref().unwrap_or("-").to_owned();
    let kinds: Vec<_> = objects(&found).iter().map(|object| (object.kind, name(&object.name))).collect();
    let expected = [
        (ObjectKind::BinarySection, ".plt"),
        (ObjectKind::Static, "table"),
        (ObjectKind::Static, "zeroed"),
        (ObjectKind::Unknown, ""),
        (ObjectKind::MappedFile, "/data/points"),
        (ObjectKind::BinarySection, ""),
    ];
    assert_eq!(kinds, expected.map(|(kind, name)| (kind, name.to_owned())));
    let plt = objects(&found)[0];
    assert_eq!((plt.start, plt.bytes), (0x7000_2000, 0x100));
    assert_eq!(found.file(plt.file.unwrap()).unwrap().name.as_ref(), "/lib/libwork.so");
    let code = found.code(found.accesses().next().unwrap().code).unwrap();
    assert_eq!((code.offset, code.function.as_ref().unwrap().name.as_ref()), (0x1004, "work"));
}

/// A section with a variable at its beginning, and one in the middle.
struct Section;

impl Symbols for Section {
    fn functions(&self, _: &File, _: u64) -> Vec<Function> {
        Vec::new()
    }

    fn data(&self, _: &File, offset: u64) -> Option<Data> {
        let of = |name: &str, variable, start, bytes| Data { name: name.into(), variable, start, bytes };
        let all = [of("first", true, 0x1000, 8), of("middle", true, 0x1800, 8), of(".bss", false, 0x1000, 0x1000)];
        all.into_iter().find(|data| (data.start..data.start + data.bytes).contains(&offset))
    }
}

#[test]
fn a_variable_in_a_section_is_not_the_section() {
    let mut recording = Recording::new(machine());
    recording.add_events([event(1, 7, 7, mapped(0x7000_0000, 0x10000, "/lib/libwork.so", true))]);
    let addresses = [0x7000_1004, 0x7000_1100, 0x7000_1804, 0x7000_1000, 0x7000_1900];
    recording.add_samples(addresses.into_iter().zip(2..).map(|(address, time)| sample(time, 7, 7, address)));
    let found = recording.into_profile(&Stacks::new(), &Section);
    let found = objects(&found).into_iter().map(|object| (object.name.clone().unwrap().to_string(), object.bytes));
    let expected = [("first", 8), (".bss", 0x1000), ("middle", 8), ("first", 8), (".bss", 0x1000)];
    assert_eq!(found.collect::<Vec<_>>(), expected.map(|(name, bytes)| (name.to_owned(), bytes)));
}

#[test]
fn a_fork_has_copies_and_an_exec_nothing() {
    let events = vec![
        event(10, 7, 7, allocated(0x1000, 64, SITE)),
        event(11, 7, 7, allocated(0x2000, 64, SITE)),
        event(20, 8, 8, What::ProcessStarted { parent: Some(Pid(7)) }),
        event(30, 8, 8, freed(0x2000)),
        event(40, 8, 8, What::Named { name: "other".into(), exec: true }),
        event(50, 7, 7, freed(0x1000)),
        event(60, 9, 9, What::ProcessStarted { parent: Some(Pid(7)) }),
    ];
    let at = |time, pid, address| sample(time, pid, pid, address);
    let found = profile(
        events,
        vec![
            at(21, 7, 0x1000),
            at(22, 8, 0x1000),
            at(31, 8, 0x2000),
            at(32, 7, 0x2000),
            at(41, 8, 0x1000),
            at(51, 7, 0x1000),
            at(61, 9, 0x2000),
        ],
    );
    let of: Vec<_> = objects(&found)
        .iter()
        .map(|object| (object.kind == ObjectKind::Heap, found.processes()[object.process.0 as usize].pid.0))
        .collect();
    assert_eq!(of, [(true, 7), (true, 8), (false, 8), (true, 7), (false, 8), (false, 7), (true, 9)]);
    // The copy ended with the process's old program; the parent's went on.
    let copy = objects(&found)[1];
    assert_eq!((copy.from_ns, copy.until_ns), (20, Some(40)));
    assert_eq!(found.objects()[0].until_ns, Some(50));
    assert_eq!(found.processes()[1].name.as_deref(), Some("other"));
}

#[test]
fn a_pid_and_a_tid_that_are_used_again_are_others() {
    let events = vec![
        event(10, 7, 7, What::ProcessStarted { parent: None }),
        event(10, 7, 7, What::ThreadStarted),
        event(11, 7, 7, allocated(0x1000, 64, SITE)),
        event(12, 7, 8, What::ThreadStarted),
        event(13, 7, 8, What::ThreadEnded),
        event(14, 7, 8, What::ThreadStarted),
        event(15, 7, 8, What::ThreadEnded),
        event(20, 7, 7, What::ThreadEnded),
        event(30, 7, 7, What::ProcessStarted { parent: None }),
        event(30, 7, 7, What::ThreadStarted),
    ];
    let found = profile(
        events,
        vec![sample(11, 7, 7, 0x1000), sample(12, 7, 8, 0x1000), sample(14, 7, 8, 0x1000), sample(31, 7, 7, 0x1000)],
    );
    let threads: Vec<_> = found.accesses().map(|access| access.thread.0).collect();
    assert_eq!(threads, [0, 1, 2, 3]);
    assert_eq!(
        found.processes().iter().map(|process| (process.pid, process.until_ns)).collect::<Vec<_>>(),
        [(Pid(7), Some(20)), (Pid(7), None)]
    );
    assert_eq!(found.threads()[2].tid, Tid(8));
    assert_eq!(objects(&found)[3].kind, ObjectKind::Unknown);
}

/// The kernel reports the end of the first thread, and the program's threads under its TID from then on.
#[test]
fn a_program_that_another_thread_executes_ends_with_its_process() {
    let events = vec![
        event(10, 7, 7, What::ProcessStarted { parent: None }),
        event(11, 7, 8, What::ThreadStarted),
        event(12, 7, 9, What::ThreadStarted),
        event(20, 7, 9, What::ThreadEnded),
        event(20, 7, 7, What::ThreadEnded),
        event(21, 7, 7, What::Named { name: "next".into(), exec: true }),
        event(22, 7, 7, mapped(0x1000, 0x1000, "next", false)),
        event(30, 7, 7, What::ThreadEnded),
        event(40, 7, 7, What::ProcessStarted { parent: None }),
    ];
    let found = profile(events, vec![sample(25, 7, 7, 0x1000), sample(41, 7, 7, 0x1000)]);
    let processes: Vec<_> = found.processes().iter().map(|process| process.until_ns).collect();
    assert_eq!(processes, [Some(30), None]);
    let ended: Vec<_> = found.threads().iter().map(|thread| (thread.tid.0, thread.until_ns)).collect();
    assert_eq!(ended, [(8, Some(21)), (9, Some(20)), (7, Some(20)), (7, Some(30)), (7, None)]);
    assert_eq!(objects(&found)[1].kind, ObjectKind::Unknown, "the mapping was the ended process's");
}

/// The library reports what a program maps without the file's identity, and the kernel reports it again, with that, when
/// its rights change.
#[test]
fn a_mapped_file_whose_rights_change_stays_the_object() {
    let file = trace::FileIdentity::of_mapping("/data/table", None, 77);
    let again =
        What::Mapped { start: 0x10000, bytes: 0x4000, offset: 0, name: "/data/table".into(), file, executable: false };
    let events = vec![
        event(1, 7, 7, mapped(0x10000, 0x4000, "/data/table", false)),
        event(2, 7, 7, allocated(0x10000, 0x4000, SITE)),
        event(4, 7, 7, again),
    ];
    let found = profile(events, [3, 5].map(|time| sample(time, 7, 7, 0x11000)).to_vec());
    let [before, after] = [0, 1].map(|at| objects(&found)[at]);
    assert!(std::ptr::eq(before, after), "{before:?} {after:?}");
    assert_eq!((before.kind, before.until_ns), (ObjectKind::MappedFile, None));
}

/// A damaged trace has any times.
#[test]
fn accesses_at_the_end_of_time_are_a_phase() {
    let found = profile(Vec::new(), vec![sample(u64::MAX, 7, 7, 0x1000), sample(u64::MAX, 7, 7, 0x2000)]);
    let phases = found.view(&Filter::default()).flow().phases();
    assert_eq!(phases.iter().map(|phase| phase.samples).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_hole_belongs_to_nothing_and_a_larger_mapping_keeps_objects() {
    let events = vec![
        event(1, 7, 7, mapped(0x10000, 0x8000, "", false)),
        event(2, 7, 7, allocated(0x10000, 0x4000, SITE)),
        event(3, 7, 7, What::Unmapped { start: 0x11000, bytes: 0x1000 }),
        // As the kernel reports it when rights change.
        event(4, 7, 7, mapped(0x10000, 0x9000, "", false)),
        event(6, 7, 7, What::Unmapped { start: 0, bytes: u64::MAX }),
    ];
    let found = profile(events, [0x10fff, 0x11000, 0x12000, 0x18fff].map(|address| sample(5, 7, 7, address)).to_vec());
    let kinds: Vec<_> = objects(&found).iter().map(|object| object.kind).collect();
    let (heap, unknown) = (ObjectKind::Heap, ObjectKind::Unknown);
    assert_eq!(kinds, [heap, unknown, heap, unknown]);
    assert_eq!(found.objects()[0].until_ns, Some(6));
    assert_eq!((objects(&found)[3].start, objects(&found)[3].bytes), (0x10000, 0x9000));
}

#[test]
fn pages_that_were_placed_tell_the_node() {
    let placed = |address, bytes, node, from| What::PagePlaced { address, bytes, node: NodeId(node), from };
    let events = vec![
        event(1, 7, 7, placed(0x1000, 0x1000, 2, None)),
        event(5, 7, 7, placed(0x1000, 0x1000, 3, Some(NodeId(2)))),
    ];
    let samples = [(2, 0x1fff), (3, 0x2000), (6, 0x1000)].map(|(time, address)| {
        let mut sample = sample(time, 7, 7, address);
        sample.node = None;
        sample
    });
    let found = profile(events, samples.to_vec());
    let nodes: Vec<_> = found.accesses().map(|access| access.to.map(|node| node.0)).collect();
    assert_eq!(nodes, [Some(2), None, Some(3)]);
    assert_eq!(found.placements().len(), 2);
}

/// A part of a huge page that is placed anew leaves the rest where it was.
#[test]
fn placements_that_overlap_replace_what_they_overlap() {
    let placed = |address, bytes, node| What::PagePlaced { address, bytes, node: NodeId(node), from: None };
    let events = vec![
        event(1, 7, 7, placed(0x20_0000, 0x20_0000, 0)),
        event(1, 7, 7, placed(0x20_2000, 0x1000, 1)),
        event(1, 7, 7, placed(0x3f_f000, 0x2000, 3)),
        event(4, 7, 7, placed(0x20_0000, 0x20_0000, 2)),
    ];
    let at = [
        (2, 0x20_1fff),
        (2, 0x20_2800),
        (2, 0x20_3000),
        (2, 0x3f_efff),
        (2, 0x3f_f000),
        (2, 0x40_0fff),
        (2, 0x40_1000),
    ];
    let later = [(5, 0x20_2800), (5, 0x3f_f000), (5, 0x40_0000)];
    let samples =
        at.iter().chain(&later).map(|(time, address)| trace::Sample { node: None, ..sample(*time, 7, 7, *address) });
    let found = profile(events, samples.collect());
    let nodes: Vec<_> = found.accesses().map(|access| access.to.map(|node| node.0)).collect();
    let expected = [0, 1, 0, 0, 3, 3].map(Some).into_iter().chain([None]).chain([2, 2, 3].map(Some));
    assert_eq!(nodes, expected.collect::<Vec<_>>());
}

#[test]
fn nothing_is_known_of_objects_in_an_invalidated_range() {
    let events = vec![
        event(1, 7, 7, allocated(0x1000, 0x1000, SITE)),
        event(1, 7, 7, allocated(0x5000, 64, SITE)),
        event(1, 7, 7, allocated(0x9000, 64, SITE)),
        event(3, 7, 7, What::Invalidated { start: 0x1800, bytes: 0x4000 }),
        event(5, 7, 7, allocated(0x5000, 64, SITE)),
    ];
    let samples = [(2, 0x1000), (4, 0x1000), (2, 0x5000), (4, 0x5000), (6, 0x5000), (4, 0x9000)];
    let found = profile(events, samples.map(|(time, address)| sample(time, 7, 7, address)).to_vec());
    let kinds: Vec<_> = found.accesses().map(|access| (access.time_ns, access.address)).zip(objects(&found)).collect();
    let of = |time, address| kinds.iter().find(|(access, _)| *access == (time, address)).unwrap().1.from_ns;
    let heap =
        |time, address| kinds.iter().find(|(access, _)| *access == (time, address)).unwrap().1.kind == ObjectKind::Heap;
    assert!(heap(2, 0x1000) && heap(2, 0x5000) && heap(4, 0x9000));
    assert!(!heap(4, 0x1000) && !heap(4, 0x5000));
    assert_eq!((heap(6, 0x5000), of(6, 0x5000)), (true, 5));
    assert_eq!(found.objects()[0].until_ns, Some(3));
}

/// A damaged trace may say that a process started another one and was started by it.
#[test]
fn a_process_that_names_its_descendant_as_its_parent_keeps_what_is_its_own() {
    let events = vec![
        event(1, 7, 7, allocated(0x1000, 64, Stacks::UNKNOWN)),
        event(2, 8, 8, What::ProcessStarted { parent: Some(Pid(7)) }),
        event(3, 7, 7, freed(0x1000)),
        event(4, 7, 7, What::ProcessStarted { parent: Some(Pid(8)) }),
    ];
    let profile = profile(events, vec![sample(5, 7, 7, 0x1000), sample(6, 8, 8, 0x1000)]);
    let kinds: Vec<ObjectKind> = objects(&profile).iter().map(|object| object.kind).collect();
    assert_eq!(kinds, [ObjectKind::Unknown, ObjectKind::Heap]);
    assert_eq!(profile.processes()[0].parent, None);
}

#[test]
fn a_fork_that_tells_nothing_has_none_of_its_parents_objects() {
    let events = vec![
        event(1, 7, 7, allocated(0x1000, 64, SITE)),
        event(2, 8, 8, What::ProcessStarted { parent: Some(Pid(7)) }),
        event(4, 8, 8, What::Invalidated { start: 0, bytes: u64::MAX }),
        event(4, 99, 99, What::Invalidated { start: 0, bytes: u64::MAX }),
    ];
    let samples = [(3, 8), (5, 8), (6, 7)].map(|(time, pid)| sample(time, pid, pid, 0x1000)).to_vec();
    let found = profile(events, samples);
    let kinds: Vec<_> = objects(&found).iter().map(|object| (object.kind, object.process.0)).collect();
    assert_eq!(kinds, [(ObjectKind::Heap, 1), (ObjectKind::Unknown, 1), (ObjectKind::Heap, 0)]);
    assert_eq!(found.processes().len(), 2);
}

#[test]
fn what_is_mapped_elsewhere_stays_the_file_that_it_is() {
    let remapped = |time, old, start, bytes| event(time, 7, 7, What::Remapped { old, old_bytes: 0x1000, start, bytes });
    let events = vec![
        event(1, 7, 7, mapped(0x1000, 0x2000, "/data/matrix", false)),
        event(1, 7, 7, allocated(0x1000, 0x2000, SITE)),
        remapped(3, 0x2000, 0x9000, 0x2000),
        event(4, 7, 7, allocated(0x9000, 0x2000, SITE)),
        event(5, 7, 7, mapped(0x20000, 0x1000, "", false)),
        event(5, 7, 7, allocated(0x20000, 0x1000, SITE)),
        remapped(7, 0x20000, 0x20000, 0x4000),
        event(7, 7, 7, What::Resized { address: 0x20000, bytes: 0x4000 }),
    ];
    let samples = [(2, 0x2800), (4, 0x1800), (4, 0x2800), (4, 0xa800), (6, 0x20000), (8, 0x23fff)];
    let found = profile(events, samples.map(|(time, address)| sample(time, 7, 7, address)).to_vec());
    let kinds: Vec<_> = found
        .accesses()
        .map(|access| access.address)
        .zip(objects(&found).iter().map(|object| (object.kind, object.start)))
        .collect();
    let (file, heap) = (ObjectKind::MappedFile, ObjectKind::Heap);
    let of = |at: usize| kinds[at];
    assert_eq!([of(0), of(1)], [(0x2800, (file, 0x1000)), (0x1800, (file, 0x1000))]);
    assert_eq!(of(2).1.0, ObjectKind::Unknown);
    assert_eq!(of(3), (0xa800, (file, 0x9000)));
    assert_eq!([of(4), of(5)], [(0x20000, (heap, 0x20000)), (0x23fff, (heap, 0x20000))]);
}

/// A rule of `--regions` names it: the recorder says so, and no thread of the program.
#[test]
fn who_allocated_what_the_recorder_names_is_unknown() {
    let named =
        || What::Announced { address: 0x5000, bytes: 0x1000, stack: Stacks::UNKNOWN, name: Some("table".into()) };
    let allocator = |cpu: Option<CpuId>| {
        let events = vec![Event { cpu, ..event(1, 7, 7, named()) }];
        let profile = profile(events, vec![sample(5, 7, 8, 0x5010)]);
        let objects = objects(&profile);
        (objects[0].kind, objects[0].allocated_by.is_some())
    };
    assert_eq!(allocator(None), (ObjectKind::Region, false));
    assert_eq!(allocator(Some(CpuId(0))), (ObjectKind::Region, true));
}
