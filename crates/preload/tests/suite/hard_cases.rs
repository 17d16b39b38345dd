//! Hard cases for a preloaded library.

use crate::support::{Program, Told, compile, library, options, record};
use observe::TickClock;
use observe::objects::{LIBRARY, ObjectOptions, ObjectRings, Obstacle, obstacle};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};
use trace::{Event, Stacks, What};

/// The thread that takes advice is not the last one, for which the process would wait.
#[test]
fn a_program_whose_main_thread_ends_before_the_others_ends() {
    let program = Program::new("main_ends.c", &["-pthread"]);
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let _never_closed = UnixListener::bind(&socket).unwrap();
    let mut command = Command::new(&program.path);
    command.env("LD_PRELOAD", library()).env(rings::ADVICE_VARIABLE, &socket).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it does not end");
        }
        sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"worked\n"[..]));
}

static CASES: LazyLock<Program> = LazyLock::new(|| Program::new("cases.c", &["-O2", "-fomit-frame-pointer"]));

/// Objects of this size, and the number of them that were freed, by process.
fn lives(told: &Told, size: u64) -> BTreeMap<u32, (usize, usize)> {
    let mut live = BTreeSet::new();
    let mut lives = BTreeMap::<u32, (usize, usize)>::new();
    // The events of each process by time.
    let mut events: Vec<&Event> = told.events.iter().collect();
    events.sort_by_key(|event| event.time_ns);
    for event in events {
        match event.what {
            What::Allocated { address, bytes, .. } => {
                live.remove(&(event.pid, address));
                if bytes == size {
                    assert!(live.insert((event.pid, address)), "{address:#x} was not free");
                    lives.entry(event.pid.0).or_default().0 += 1;
                }
            }
            What::Freed { address } if live.remove(&(event.pid, address)) => {
                lives.entry(event.pid.0).or_default().1 += 1;
            }
            _ => {}
        }
    }
    lives
}

fn nothing_is_lost(told: &Told) {
    assert_eq!((told.losses.lost, told.losses.malformed), (0, 0));
}

#[test]
fn threads_are_followed_whichever_way_they_end() {
    let told = CASES.run(&["threads"]).succeeded();
    nothing_is_lost(&told);
    for size in 1000..1004 {
        assert_eq!(lives(&told, size).into_values().collect::<Vec<_>>(), [(100, 100)], "{size}");
    }
    assert_eq!(lives(&told, 2000).into_values().collect::<Vec<_>>(), [(300_000, 300_000)]);
    // Including objects that their destructors free.
    assert_eq!(lives(&told, 4242).into_values().collect::<Vec<_>>(), [(3004, 3004)]);
    let count = |wanted: fn(&What) -> bool| told.events.iter().filter(|event| wanted(&event.what)).count();
    assert_eq!(count(|what| matches!(what, What::ThreadStarted)), 3004);
    assert_eq!(count(|what| matches!(what, What::ThreadEnded)), 3004);
    // The events of each thread are ordered by time.
    let mut last = BTreeMap::new();
    for event in &told.events {
        let before = last.insert((event.pid, event.tid), event.time_ns).unwrap_or(0);
        assert!(before <= event.time_ns, "{event:?} is before {before}");
    }
}

#[test]
fn stacks_may_be_small_deep_or_no_threads() {
    let told = CASES.run(&["stacks"]).succeeded();
    nothing_is_lost(&told);
    for (size, number, function) in
        [(3000, 10, "small"), (3001, 10, "deep"), (3002, 10, "in_coroutine"), (3003, 1, "handler")]
    {
        assert_eq!(lives(&told, size).into_values().collect::<Vec<_>>(), [(number, number)], "{size}");
        let stack = told.events.iter().find_map(|event| match event.what {
            What::Allocated { bytes, stack, .. } if bytes == size => Some(stack),
            _ => None,
        });
        let chain = told.stacks.chain(stack.unwrap());
        let functions: Vec<String> = chain.iter().map(|&address| CASES.function(&told, address)).collect();
        assert!(functions.iter().any(|name| name == function), "{size}: {functions:?}");
        // Beyond the signal frame, and no longer than requested.
        assert!(chain.len() <= 32 && (size != 3003 || functions.iter().any(|name| name == "main")), "{functions:?}");
    }
}

#[test]
fn signal_handlers_may_come_at_any_moment() {
    let told = CASES.run(&["signals"]).succeeded();
    let text = told.text();
    let events: u64 = text.trim().strip_prefix("events ").unwrap().parse().unwrap();
    let of_it = |what: &What| match *what {
        What::Allocated { bytes, .. } | What::Announced { bytes, .. } => u64::from(bytes == 5000 || bytes == 5001),
        _ => 0,
    };
    let allocated: u64 = told.events.iter().map(|event| of_it(&event.what)).sum();
    assert_eq!(told.losses.malformed, 0);
    // Each event is recorded or counted; of a pair either may be lost.
    let missing = events / 2 - allocated;
    let lost = told.losses.lost + told.losses.outside;
    assert!(missing <= lost && lost <= 2000, "{missing} of {events}, {:?}", told.losses);
}

#[test]
fn forks_and_executed_programs_tell_of_themselves() {
    let told = CASES.run(&["processes"]).succeeded();
    nothing_is_lost(&told);
    for (size, processes, objects) in [(6000, 2, 50), (6001, 2, 50), (6002, 4, 10), (6004, 3, 10), (6005, 1, 5)] {
        let lives = lives(&told, size);
        assert_eq!(lives.len(), processes, "{size}: {lives:?}");
        assert!(lives.values().all(|&life| life == (objects, objects)), "{size}: {lives:?}");
    }
    let main = told.events[0].pid;
    let forks = |parent| told.events.iter().filter(|event| event.what == What::ProcessStarted { parent }).count();
    assert_eq!((forks(Some(main)), forks(None)), (4, 3));
    let executed = |event: &&Event| matches!(event.what, What::Named { exec: true, .. });
    assert_eq!(told.events.iter().filter(executed).count(), 4);
}

#[test]
fn a_fork_that_can_make_no_file_is_known_to_tell_nothing() {
    let told = CASES.run(&["silent"]).succeeded();
    nothing_is_lost(&told);
    let child: u32 = told.text().trim().strip_prefix("child ").unwrap().parse().unwrap();
    let events: Vec<&What> = told.events.iter().filter(|event| event.pid.0 == child).map(|event| &event.what).collect();
    assert_eq!(events, [&What::Invalidated { start: 0, bytes: u64::MAX }]);
    assert_eq!(told.losses.silent, 1);
}

#[test]
fn no_umask_hides_a_programs_file_from_the_recorder() {
    let mut clock = TickClock::detect();
    let mut rings = ObjectRings::create(&options(), &clock).unwrap();
    let environment = rings.environment(&library(), None);
    let folder =
        environment.iter().find(|(name, _)| *name == rings::FOLDER_VARIABLE).map(|(_, folder)| folder).unwrap();
    let mut child =
        Command::new("sh").args(["-c", "umask 0777; exec sleep 60"]).envs(environment.clone()).spawn().unwrap();
    let (mut stacks, mut events) = (Stacks::new(), Vec::new());
    let sleeps = |event: &Event| matches!(&event.what, What::Named { name, .. } if **name == *"sleep");
    while !events.iter().any(sleeps) {
        rings.look(&mut clock).unwrap();
        rings.drain(&clock, &mut stacks, &mut events);
    }
    let files = std::fs::read_dir(folder).unwrap().flatten();
    let its = files.filter(|file| file.file_name().to_string_lossy().starts_with(&format!("{}.", child.id())));
    let modes: Vec<u32> = its.map(|file| file.metadata().unwrap().permissions().mode() & 0o7777).collect();
    child.kill().and_then(|()| child.wait()).unwrap();
    assert_eq!(modes, [0o600, 0o600]);
}

#[test]
fn the_library_may_be_installed_at_any_path() {
    for name in ["a b", "a:b", "$LIB"] {
        let place = tempfile::tempdir().unwrap();
        let installed = place.path().join(name).join(LIBRARY);
        std::fs::create_dir(installed.parent().unwrap()).unwrap();
        std::fs::copy(library(), &installed).unwrap();
        let mut clock = TickClock::detect();
        let mut rings = ObjectRings::create(&options(), &clock).unwrap();
        let library = rings.loadable(installed).unwrap();
        let mut command = Command::new(&CASES.path);
        let output = command.arg("nothing").envs(rings.environment(&library, None)).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
        let (mut stacks, mut events) = (Stacks::new(), Vec::new());
        rings.look(&mut clock).unwrap();
        rings.finish(&clock, &mut stacks, &mut events);
        assert!(events.iter().any(|event| matches!(event.what, What::Allocated { .. })), "{name}: {events:?}");
    }
    assert_eq!(ObjectRings::create(&options(), &TickClock::detect()).unwrap().loadable(library()).unwrap(), library());
}

#[test]
fn a_path_that_is_too_long_is_not_cut_to_another() {
    let told = CASES.run(&["long"]).succeeded();
    let object = &told.printed()["long"];
    let names = told.events.iter().filter_map(|event| match &event.what {
        What::Mapped { start, name, .. } if *start == object.address => Some(&**name),
        _ => None,
    });
    assert_eq!(names.collect::<Vec<_>>(), [""]);
}

#[test]
fn the_program_sees_nothing_of_it() {
    let told = CASES.run(&["nothing"]).succeeded();
    nothing_is_lost(&told);
    let alone = Command::new(&CASES.path).arg("nothing").stdin(Stdio::null()).output().unwrap();
    assert_eq!(told.output.stdout, alone.stdout);
    for (size, number) in [(7000, 10), (7001, 10), (7002, 10), (7003, 1000)] {
        assert_eq!(lives(&told, size).into_values().collect::<Vec<_>>(), [(number, number)], "{size}");
    }
}

#[test]
fn libraries_come_and_go_at_the_same_address() {
    let names = ["first.so", "second.so"].map(|name| CASES.beside(name));
    compile("library.c", &names[0], &["-shared", "-fPIC", "-O2"]);
    compile("library.c", &names[1], &["-shared", "-fPIC", "-O2", "-DDIFFERENT"]);
    let [first, second] = names.each_ref().map(|name| name.to_str().unwrap());
    let told = CASES.run(&["libraries", first, second]).succeeded();
    nothing_is_lost(&told);
    for number in 0..20 {
        let is_it = |event: &&Event| matches!(event.what, What::Allocated { bytes, .. } if bytes == 8000 + number);
        let event = told.events.iter().find(is_it).unwrap();
        let What::Allocated { stack, .. } = event.what else { unreachable!() };
        let chain = told.stacks.chain(stack);
        // The library that was mapped at the code's address at that time.
        let library = told.events.iter().rev().find_map(|mapped| match &mapped.what {
            What::Mapped { start, bytes, name, file: Some(_), .. }
                if mapped.time_ns <= event.time_ns && (*start..start + bytes).contains(&chain[0]) =>
            {
                Some(name.to_string())
            }
            _ => None,
        });
        assert_eq!(library.as_deref(), Some([first, second][number as usize % 2]));
        assert_eq!(CASES.function(&told, chain[1]), "main");
    }
}

#[test]
fn a_process_may_end_in_the_middle() {
    let told = CASES.run(&["exit"]).succeeded();
    assert_eq!(told.losses.malformed, 0);
    assert!(told.events.iter().any(|event| matches!(event.what, What::Allocated { bytes: 6003, .. })));
}

#[test]
fn an_allocator_of_its_own_announces_objects() {
    let told = CASES.run(&["pool"]).succeeded();
    let object = &told.printed()["pool"];
    assert_eq!(told.life(object.address), "NW");
    let [(bytes, stack)] = told.objects(object.address)[..] else { panic!() };
    assert_eq!((bytes, CASES.function(&told, told.stacks.chain(stack)[0])), (9000, "from_pool".to_owned()));
}

#[test]
fn the_end_of_a_block_and_of_what_is_announced_in_it_are_different() {
    let told = CASES.run(&["nested"]).succeeded();
    let block = &told.printed()["block"];
    assert!(told.life(block.address).ends_with("ANWNF"), "{}", told.life(block.address));
    nothing_is_lost(&told);
}

#[test]
fn a_named_region_has_its_name_and_site() {
    let told = CASES.run(&["region"]).succeeded();
    nothing_is_lost(&told);
    let printed = told.printed();
    let name = |address| {
        told.events.iter().find_map(|event| match &event.what {
            What::Announced { address: at, name: Some(name), .. } if *at == address => Some(name.to_string()),
            _ => None,
        })
    };
    let [region, index] = ["region", "index"].map(|name| &printed[name]);
    assert_eq!(name(region.address).as_deref(), Some("shared_buffers"));
    assert_eq!(
        name(index.address).as_deref(),
        Some("an index with a long name, of which the kernel would refuse `this`")
    );
    assert_eq!((told.life(region.address).as_str(), told.life(index.address).as_str()), ("NW", "N"));
    let [(bytes, stack)] = told.objects(region.address)[..] else { panic!() };
    assert_eq!((bytes, CASES.function(&told, told.stacks.chain(stack)[0])), (region.bytes, "main".to_owned()));
    assert!(!told.events.iter().any(|event| matches!(event.what, What::Announced { bytes: 0, .. })));
    // The kernel shows it, if it was built with such names.
    let text = told.text();
    match text.lines().find(|line| line.contains("[anon:")) {
        Some(line) => {
            let wanted = format!("{:x}-{:x} ", region.address, region.address + region.bytes);
            assert!(line.starts_with(&wanted) && line.ends_with("[anon:shared_buffers]"), "{line}");
        }
        None => test_tools::skipped("this kernel has no names of anonymous memory"),
    }
}

#[test]
fn what_finds_no_room_is_counted() {
    let options = ObjectOptions { ring_bytes: 64 << 10, patience: Duration::ZERO, ..ObjectOptions::default() };
    let told = CASES.run_with(&["pairs", "4000", "200000"], &options).succeeded();
    let of_it = |what: &What| matches!(what, What::Allocated { bytes: 4000, .. });
    let allocated = told.events.iter().filter(|event| of_it(&event.what)).count() as u64;
    let freed = told.events.iter().filter(|event| matches!(event.what, What::Freed { .. })).count() as u64;
    assert_eq!(told.losses.malformed, 0);
    assert!(allocated + freed + told.losses.lost >= 400_000, "{allocated} {freed} {:?}", told.losses);
    // Lost events concern no known object.
    let objects: BTreeSet<u64> = told
        .events
        .iter()
        .filter_map(|event| match event.what {
            What::Allocated { address, bytes: 4000, .. } => Some(address),
            _ => None,
        })
        .collect();
    let untold = told.events.iter().any(|event| match event.what {
        What::Invalidated { start, bytes } => objects.iter().any(|object| (start..start + bytes).contains(object)),
        _ => false,
    });
    assert!(untold || told.losses.lost == 0);
}

#[test]
fn a_recorder_that_ends_blocks_no_thread() {
    let options = ObjectOptions { ring_bytes: 64 << 10, patience: Duration::from_secs(3600), ..options() };
    let mut clock = TickClock::detect();
    let mut rings = ObjectRings::create(&options, &clock).unwrap();
    let mut command = Command::new(&CASES.path);
    let mut child =
        command.args(["pairs", "4000", "200000"]).envs(rings.environment(&library(), None)).spawn().unwrap();
    let (mut stacks, mut events) = (Stacks::new(), Vec::new());
    while events.is_empty() {
        rings.look(&mut clock).unwrap();
        rings.drain(&clock, &mut stacks, &mut events);
    }
    // The ring has room for two thousand of its events.
    rings.finish(&clock, &mut stacks, &mut events);
    assert!(child.wait().unwrap().success());
}

#[test]
fn small_objects_are_counted_by_site() {
    let options = ObjectOptions { small_bytes: 5000, ..options() };
    let told = CASES.run_with(&["pairs", "4000", "10000"], &options).succeeded();
    nothing_is_lost(&told);
    assert!(lives(&told, 4000).is_empty());
    let counted = told.events.iter().filter_map(|event| match event.what {
        What::Counted { objects, bytes, stack } if objects >= 10_000 => Some((objects, bytes, stack)),
        _ => None,
    });
    let [(10_000, 40_000_000, stack)] = counted.collect::<Vec<_>>()[..] else { panic!("{:?}", told.events) };
    let chain = told.stacks.chain(stack);
    assert!(chain.iter().any(|&address| CASES.function(&told, address) == "main"));
    let large = CASES.run_with(&["pairs", "6000", "100"], &options).succeeded();
    assert_eq!(lives(&large, 6000).into_values().collect::<Vec<_>>(), [(100, 100)]);
}

#[test]
fn counts_are_recorded_at_their_time() {
    let options = ObjectOptions { small_bytes: 5000, ..options() };
    let told = CASES.run_with(&["levels", "4000"], &options).succeeded();
    nothing_is_lost(&told);
    let counted = told.events.iter().filter(|event| matches!(event.what, What::Counted { .. }));
    let times: BTreeSet<u64> = counted.map(|event| event.time_ns).collect();
    assert!(times.len() > 100, "{times:?}");
}

#[test]
fn every_form_of_new_and_delete_is_reported() {
    for flags in [&["-O2"][..], &["-O2", "-static-libstdc++", "-static-libgcc", "-fsized-deallocation"]] {
        let program = Program::new("operators.cc", &[flags, &["-std=c++17"]].concat());
        let told = program.run(&[]).succeeded();
        nothing_is_lost(&told);
        assert!(told.text().ends_with("caught\n"));
        let printed = told.printed();
        assert_eq!(printed.len(), 7);
        for (name, object) in &printed {
            let objects = told.objects(object.address);
            let sizes: Vec<u64> = objects.iter().map(|(bytes, _)| *bytes).collect();
            // Aligned forms may ask for a multiple of the alignment.
            assert!(sizes.contains(&object.bytes), "{name}: {sizes:?}");
            assert!(told.life(object.address).contains("AF"), "{name}");
        }
        let chain = told.stacks.chain(told.objects(printed["plain"].address)[0].1);
        let names: Vec<String> = chain.iter().map(|&address| program.function(&told, address)).collect();
        let site = names.iter().position(|name| name.contains("site")).unwrap();
        assert!(site <= 1 && names[site + 1] == "main", "{names:?}");
    }
}

#[test]
fn objects_of_operators_that_call_no_malloc_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("liballocator.so");
    compile("allocator.cc", &library, &["-std=c++17", "-shared", "-fPIC", "-O2"]);
    let program = Program::new("operators.cc", &["-O2", "-std=c++17", library.to_str().unwrap()]);
    let told = program.run(&[]).succeeded();
    nothing_is_lost(&told);
    assert!(told.text().ends_with("caught\n"));
    for (name, object) in &told.printed() {
        assert_eq!(told.life(object.address), "NW", "{name}");
        assert_eq!(told.objects(object.address)[0].0, object.bytes, "{name}");
    }
    let plain = &told.printed()["plain"];
    let chain = told.stacks.chain(told.objects(plain.address)[0].1);
    let names: Vec<String> = chain.iter().take(2).map(|&address| program.function(&told, address)).collect();
    assert!(names[0].contains("site") && names[1] == "main", "{names:?}");
    // Small objects are counted, and no unrecorded object ends.
    let small = program.run_with(&[], &ObjectOptions { small_bytes: 5000, ..options() }).succeeded();
    let of_it = |object: &crate::support::Printed| small.life(object.address).contains('N');
    assert!(!small.printed().values().any(of_it));
    let counted = small.events.iter().any(|event| matches!(event.what, What::Counted { bytes: 1501, .. }));
    assert!(counted, "{:?}", small.events);
}

#[test]
fn a_library_in_cpp_may_come_to_a_program_in_c() {
    let library = CASES.beside("plugin.so");
    compile("plugin.cc", &library, &["-std=c++17", "-shared", "-fPIC"]);
    let library = library.to_str().unwrap();
    let told = CASES.run(&["libraries", library, library]).succeeded();
    nothing_is_lost(&told);
    for number in 0..20 {
        let events = told.events.iter();
        let of_it = |event: &&Event| matches!(event.what, What::Allocated { bytes, .. } if bytes == 8000 + number);
        // By `operator new` and by `malloc`; the others are larger.
        assert_eq!(events.filter(of_it).count(), 2, "{number}");
    }
}

/// One allocator looks functions up before there is an environment, and frees the error message; the other requires to
/// be the first library.
#[test]
fn programs_with_sanitizers_are_recorded_like_others() {
    for sanitizer in ["-fsanitize=leak", "-fsanitize=address"] {
        let program = Program::new("cases.c", &[sanitizer]);
        let mut command = Command::new(&program.path);
        let told = record(command.args(["pairs", "4000", "100"]).env("LSAN_OPTIONS", "detect_leaks=0"), &options());
        let told = told.succeeded();
        assert_eq!(lives(&told, 4000).into_values().collect::<Vec<_>>(), [(100, 100)], "{sanitizer}");
    }
}

#[test]
fn a_program_that_it_cannot_enter_is_known_before_and_after() {
    let program = Program::new("objects.c", &["-static"]);
    assert_eq!(obstacle(&program.path).unwrap(), Some(Obstacle::Static(program.path.clone())));
    let told = program.run(&[]).succeeded();
    assert!(told.events.is_empty() && told.losses.lost == 0);
    assert_eq!(obstacle(&CASES.path).unwrap(), None);
}

#[test]
fn without_a_recorder_it_only_passes_on() {
    for folder in [None, Some("/nowhere"), Some("/proc"), Some("")] {
        let mut command = Command::new(&CASES.path);
        command.arg("nothing").env("LD_PRELOAD", library());
        if let Some(folder) = folder {
            command.env("NEARSIDE_RINGS", folder);
        }
        assert!(command.output().unwrap().status.success(), "{folder:?}");
    }
    // Limits that leave no room for a file of rings.
    for limit in ["ulimit -f 0", "ulimit -f 100", "ulimit -v 60000"] {
        let script = format!("{limit}; exec \"$0\" pairs 100 1000");
        let told = record(Command::new("sh").args(["-c", &script]).arg(&CASES.path), &options());
        assert!(told.output.status.success(), "{limit}: {:?}", told.output);
    }
}
