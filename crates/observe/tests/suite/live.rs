//! The live sources, on the machine that runs the tests. Where it forbids a source, the tests check the reason that is
//! given, and are reported as skipped.

use linux::{Pid, Tid, monotonic_ns};
use observe::{HintFaultOptions, HintFaults, LiveError, PerfOptions, PerfSource, SideBand, Target};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::{Duration, Instant};
use trace::{AccessKind, Event, Source, Stacks, What};

/// Held while a test starts programs, and while a test looks at this process's events: these include the programs of
/// others.
static PROGRAMS: Mutex<()> = Mutex::new(());

/// The opened source; or `None`, after checking that the error gives a helpful reason.
fn opened<T>(result: Result<T, LiveError>) -> Option<T> {
    result
        .inspect_err(|error| {
            test_tools::skipped(error);
            let known =
                ["perf_event_paranoid", "seccomp", "perf_event_mlock_kb", "does not have", "tracefs", "tracing"];
            assert!(known.iter().any(|reason| error.to_string().contains(reason)), "{error}");
        })
        .ok()
}

fn own_thread() -> Tid {
    Tid(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned())
}

fn names(events: &[Event], pid: Pid) -> Vec<(&str, bool)> {
    let named = events.iter().filter(|event| event.pid == pid).filter_map(|event| match &event.what {
        What::Named { name, exec } => Some((&**name, *exec)),
        _ => None,
    });
    named.collect()
}

#[test]
fn a_program_is_observed_from_its_first_instruction_with_what_it_starts() {
    let _alone = PROGRAMS.lock();
    let Some(mut side_band) = opened(SideBand::open(&Target::Program)) else { return };
    let began = monotonic_ns();
    let shell = ["sh", "-c", "cat /proc/self/maps; exec true"];
    let program = Command::new(shell[0]).args(&shell[1..]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let pid = Pid(program.id());
    let maps = String::from_utf8(program.wait_with_output().unwrap().stdout).unwrap();
    let mut events = Vec::new();
    side_band.drain(&mut Stacks::new(), &mut events);
    let ended = monotonic_ns();
    assert!(side_band.lost().is_empty(), "{:?}", side_band.lost());
    assert!(events.iter().all(|event| (began..ended).contains(&event.time_ns)), "{events:?}");
    assert!(events.is_sorted_by_key(|event| event.time_ns));
    assert_eq!(names(&events, pid), [("sh", true), ("true", true)]);
    // No other process is reported.
    let child = events.iter().find(|event| event.what == What::ProcessStarted { parent: Some(pid) }).unwrap().pid;
    assert!(events.iter().all(|event| [pid, child].contains(&event.pid)), "{events:?}");
    assert_eq!(names(&events, child), [("cat", true)]);
    for pid in [pid, child] {
        assert!(events.iter().any(|event| event.pid == pid && event.what == What::ThreadEnded));
    }
    // Each mapping of a file's code that the child saw in its own maps was reported, with its inode.
    let mappings = linux::parse_maps(&maps).unwrap();
    let of_code = mappings.iter().filter(|mapping| mapping.execute && mapping.inode != 0);
    for mapping in of_code.clone() {
        let is_told = events.iter().any(|event| match &event.what {
            What::Mapped { start, name, file: Some(file), executable: true, .. } => {
                (event.pid, *start, &**name, file.inode)
                    == (child, mapping.range.start, mapping.name.as_str(), mapping.inode)
            }
            _ => false,
        });
        assert!(is_told, "{mapping:?}");
    }
    assert!(of_code.count() > 1);
}

#[test]
fn what_is_running_is_reported_first_and_then_what_starts() {
    let _alone = PROGRAMS.lock();
    let ((is_there, ready), (release, wait)) = (channel(), channel::<()>());
    let there = std::thread::Builder::new().name("was there".into()).spawn(move || {
        is_there.send(()).unwrap();
        wait.recv()
    });
    ready.recv().unwrap();
    let pid = Pid(std::process::id());
    let Some(mut side_band) = opened(SideBand::open(&Target::Pids(vec![pid]))) else { return };
    let (mut stacks, mut events) = (Stacks::new(), Vec::new());
    side_band.drain(&mut stacks, &mut events);
    assert_eq!(events[0].what, What::ProcessStarted { parent: None });
    assert!(events.iter().all(|event| event.pid == pid), "{events:?}");
    assert!(names(&events, pid).contains(&("was there", false)));
    let here = std::ptr::from_ref(&release) as u64;
    let mapped = |events: &[Event], address: u64| {
        let last = events.iter().rev().find_map(|event| match &event.what {
            What::Mapped { start, bytes, name, .. } if (*start..start + bytes).contains(&address) => Some(name.clone()),
            _ => None,
        });
        last.map(|name| name.to_string())
    };
    assert!(mapped(&events, here).is_some());
    let code = mapped(&events, names as *const () as u64).unwrap();
    assert_eq!(code, std::env::current_exe().unwrap().to_str().unwrap());

    let (told, tell) = channel();
    let (release_new, wait) = channel::<()>();
    let new = std::thread::Builder::new().name("comes".into()).spawn(move || {
        let local = 0_u8;
        told.send((own_thread(), std::ptr::from_ref(&local) as u64)).unwrap();
        wait.recv()
    });
    let (tid, address) = tell.recv().unwrap();
    // Its stack is reported as soon as the thread is seen waiting.
    let since = Instant::now();
    while mapped(&events, address) != Some(format!("[stack:{tid}]")) && since.elapsed() < Duration::from_secs(20) {
        sleep(Duration::from_millis(1));
        side_band.drain(&mut stacks, &mut events);
    }
    assert_eq!(mapped(&events, address), Some(format!("[stack:{tid}]")));
    let of_thread = |what: &What| events.iter().any(|event| event.tid == tid && event.what == *what);
    assert!(of_thread(&What::ThreadStarted));
    assert!(of_thread(&What::Named { name: "comes".into(), exec: false }));
    drop((release, release_new));
    let _ = (there.unwrap().join(), new.unwrap().join());
}

#[test]
fn the_system_is_observed_if_permitted() {
    let _alone = PROGRAMS.lock();
    let Some(mut side_band) = opened(SideBand::open(&Target::System)) else { return };
    let mut child = Command::new("true").spawn().unwrap();
    let pid = Pid(child.id());
    child.wait().unwrap();
    let mut events = Vec::new();
    side_band.drain(&mut Stacks::new(), &mut events);
    assert!(names(&events, pid).contains(&("true", true)), "{events:?}");
    let own = Pid(std::process::id());
    assert!(events.iter().any(|event| event.pid == own && event.what == What::ProcessStarted { parent: None }));
}

#[test]
fn a_process_that_is_not_there_is_no_target() {
    let error = SideBand::open(&Target::Pids(vec![Pid(u32::MAX >> 1)])).err().unwrap();
    let told = "cannot listen to processes, threads and mappings (perf): there is no process 2147483647";
    assert!(error.to_string().starts_with(told), "{error}");
}

/// The processor of a virtual machine can seldom sample.
#[test]
fn the_processor_samples_accesses_or_the_reason_is_given() {
    let _alone = PROGRAMS.lock();
    let result = PerfSource::open(&PerfOptions::default());
    let why = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
    if ["performance counters", "samples memory accesses (AMD's", "arm_spe_0"].iter().any(|what| why.contains(what)) {
        assert!(why.starts_with("cannot sample accesses to memory (perf): "), "{why}");
        return test_tools::skipped(why);
    }
    let Some(mut source) = opened(result) else { return };
    Command::new("true").status().unwrap();
    let mut samples = Vec::new();
    source.finish(&mut Stacks::new(), &mut samples, &mut Vec::new());
    let own = Pid(std::process::id());
    assert!(samples.iter().all(|sample| sample.pid != own && sample.address > 0), "{samples:?}");
}

/// A page fault of this test shows whether hint faults can be distinguished from first touches.
#[test]
fn page_faults_can_be_observed_or_the_reason_is_given() {
    let Some(tells_first_touches) = opened(HintFaults::try_out()) else { return };
    eprintln!("first touches are distinguished: {tells_first_touches}");
}

/// A thread on another node uses memory that this one has placed on its own node.
#[test]
fn who_uses_a_page_is_seen_where_the_kernel_marks_pages() {
    let state = linux::NodeState::read(std::path::Path::new("/sys")).unwrap();
    let with_cpus: Vec<_> = state.cpus.values().filter(|cpus| !cpus.is_empty()).collect();
    let [here, there, ..] = with_cpus.as_slice() else {
        return test_tools::skipped("memory is on one node");
    };
    linux::set_affinity(own_thread(), here).unwrap();
    let mut memory = linux::Pages::reserve(16 << 20).unwrap();
    // A huge page would give a single fault.
    memory.advise_huge(false).unwrap();
    let range = memory.range();
    let words: &[AtomicU64] = memory.fill(|_| AtomicU64::new(0));
    let options = HintFaultOptions { target: Target::Pids(vec![Pid(std::process::id())]), switch_on: true };
    let Some(mut faults) = opened(HintFaults::open(&options)) else { return };
    let (stop, mut samples, mut events) = (AtomicBool::new(false), Vec::new(), Vec::new());
    let since = Instant::now();
    let user = std::thread::scope(|scope| {
        let (told, tell) = channel();
        let stop = &stop;
        scope.spawn(move || {
            linux::set_affinity(own_thread(), there).unwrap();
            told.send(own_thread()).unwrap();
            while !stop.load(Relaxed) {
                for word in words.iter().step_by(512) {
                    word.store(word.load(Relaxed) + 1, Relaxed);
                }
            }
        });
        let user = tell.recv().unwrap();
        while samples.len() < 1000 && since.elapsed() < Duration::from_secs(60) {
            sleep(Duration::from_millis(20));
            faults.drain(&mut Stacks::new(), &mut samples, &mut events);
        }
        stop.store(true, Relaxed);
        user
    });
    faults.finish(&mut Stacks::new(), &mut samples, &mut events);
    let of_words: Vec<_> = samples.iter().filter(|sample| range.contains(&sample.address)).collect();
    assert!(of_words.len() > 500, "{}", samples.len());
    assert!(of_words.iter().all(|sample| sample.source == Source::HintFault && sample.kind != AccessKind::Load));
    let by_user = of_words.iter().filter(|sample| sample.tid == user).count();
    assert!(by_user * 10 > of_words.len() * 9, "{by_user} of {}", of_words.len());
}
