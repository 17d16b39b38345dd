//! `nearside record` on any host: what a trace has, however the program ends, and wrong requests.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use trace::{Event, Record, Trace, What};

/// A folder to record in.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let library = assert_cmd::cargo::cargo_bin("nearside").with_file_name("libnearside_preload.so");
        assert!(library.exists(), "{} is missing: run `cargo build --profile ci --workspace` first", library.display());
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn nearside(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("nearside"));
        command.current_dir(self.0.path()).arg("record").args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn record(&self, arguments: &[&str]) -> Output {
        self.nearside(arguments).output().unwrap()
    }

    fn script(&self, script: &str) -> Output {
        self.record(&["-o", "trace", "--json", "told.json", "--", "sh", "-c", script])
    }

    fn told(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path("told.json")).unwrap()).unwrap()
    }

    fn compile(&self, name: &str, source: &str, arguments: &[&str]) -> bool {
        fs::write(self.path("program.c"), source).unwrap();
        let mut compiler = Command::new("cc");
        compiler.current_dir(self.0.path()).args(["-O1", "-g", "program.c", "-o", name]).args(arguments);
        compiler.output().unwrap().status.success()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn events(folder: &Path) -> Vec<Event> {
    let trace = Trace::open(folder).unwrap();
    assert!(trace.about().complete, "{:?}", trace.about());
    let records = trace.records().unwrap().map(Result::unwrap);
    records
        .filter_map(|record| match record {
            Record::Event(event) => Some(event),
            Record::Sample(_) => None,
        })
        .collect()
}

#[test]
fn a_summary_that_cannot_be_written_leaves_the_trace_and_the_programs_status() {
    let place = Place::new();
    let output = place.record(&["-o", "trace", "--json", "/dev/full", "--", "sh", "-c", "exit 7"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(7) && said.contains("cannot write to /dev/full: the disk is full"), "{said}");
    assert!(!events(&place.path("trace")).is_empty());
}

#[test]
fn the_program_is_as_without_it_and_the_trace_as_it_was() {
    let place = Place::new();
    let mut command =
        place.nearside(&["-o", "trace", "--json", "told.json", "--", "sh", "-c", "cat; echo bad >&2; exit 7"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"in\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(7), "in\n"), "{said}");
    assert!(said.starts_with("bad\nnearside: recorded "), "{said}");
    let told = place.told();
    assert_eq!((&told["exit_status"], &told["trace"], &told["simulated"]), (&7.into(), &"trace".into(), &false.into()));
    let trace = Trace::open(&place.path("trace")).unwrap();
    let about = trace.about();
    assert_eq!(about.command, ["sh", "-c", "cat; echo bad >&2; exit 7"]);
    let uname = |what: &str| text(&Command::new("uname").arg(what).output().unwrap().stdout).trim().to_owned();
    assert_eq!([&about.host, &about.kernel, &about.architecture], [&uname("-n"), &uname("-r"), &uname("-m")]);
    assert!(about.began_unix_s > 1_700_000_000);
    assert_eq!(trace.machine().unwrap().cpus(), machine::Machine::from_sysfs(Path::new("/sys")).unwrap().cpus());
    let events = events(&place.path("trace"));
    let objects = events.iter().filter(|event| matches!(event.what, What::Allocated { .. })).count() as u64;
    assert_eq!((told["events"].as_u64(), told["objects"].as_u64()), (Some(events.len() as u64), Some(objects)));
    assert!(objects > 0);
    assert!(!Path::new("/dev/shm").read_dir().unwrap().flatten().any(|entry| {
        let ours = entry.file_name().to_string_lossy().starts_with("nearside-objects-");
        let its =
            |file: fs::DirEntry| file.file_name().to_string_lossy().starts_with(&format!("{}.", child_of(&events)));
        ours && entry.path().read_dir().unwrap().flatten().any(its)
    }));
}

#[test]
fn a_recording_that_ends_before_its_program_has_no_time_of_its_run() {
    let place = Place::new();
    for (name, duration, whole) in [("cut", "0.1", false), ("whole", "60", true)] {
        let output = place.record(&["-o", name, "--quiet", "--duration", duration, "--", "sleep", "0.5"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let trace = Trace::open(&place.path(name)).unwrap();
        assert_eq!((trace.about().complete, trace.about().is_whole_run()), (true, whole), "{name}");
    }
}

#[test]
fn small_objects_are_reported_by_site() {
    let place = Place::new();
    let source = "#include <stdlib.h>
        void *volatile kept[1000];
        __attribute__((noinline)) static void *cell(void) { return malloc(40); }
        int main(void) { for (int i = 0; i < 1000; i++) kept[i] = cell(); return kept[7] == malloc(5000); }";
    assert!(place.compile("cells", source, &["-fno-optimize-sibling-calls"]));
    // Another program runs in the process afterwards, and this one's code is known all the same.
    let arguments = ["-o", "trace", "--json", "told.json", "--small-objects", "64", "--", "sh", "-c"];
    let output = place.record(&[&arguments[..], &["./cells && exec ./cells"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(" small objects, counted by site\n"), "{}", text(&output.stderr));
    assert!(place.told()["small_objects"].as_u64() >= Some(2000));
    let report = Command::new(assert_cmd::cargo::cargo_bin("nearside"))
        .current_dir(place.path("."))
        .args(["report", "trace", "--json"])
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let first = &report["small_objects"]["first"][0];
    assert!(first["label"].as_str().unwrap().starts_with("cell+"), "{first}");
    assert_eq!((first["objects"].as_u64(), first["called_from"][0].as_str()), (Some(2000), Some("main")), "{first}");
    assert!(first["source"].as_str().unwrap().contains("program.c:3"), "{first}");
    let large = report["objects"]["first"].as_array().unwrap();
    assert!(large.iter().filter(|row| row["label"].as_str().unwrap().starts_with("main+")).count() == 2, "{large:?}");
}

/// The process that was recorded first.
fn child_of(events: &[Event]) -> u32 {
    events.iter().map(|event| event.pid.0).next().unwrap()
}

#[test]
fn forks_execs_and_crashes_are_recorded() {
    let place = Place::new();
    let output = place.script("/bin/true & (exec cat /dev/null); wait; kill -SEGV $$");
    assert_eq!(output.status.code(), Some(128 + 11), "{}", text(&output.stderr));
    let events = events(&place.path("trace"));
    for program in ["true", "cat", "sh"] {
        let named = |event: &&Event| matches!(&event.what, What::Named { name, .. } if **name == *program);
        let named = events.iter().find(named).unwrap_or_else(|| panic!("no {program}"));
        let objects = |event: &&Event| event.pid == named.pid && matches!(event.what, What::Allocated { .. });
        assert!(program == "true" || events.iter().find(objects).is_some(), "{program} has no objects");
        let maps = |event: &&Event| {
            event.pid == named.pid && matches!(&event.what, What::Mapped { name, .. } if name.contains("libc"))
        };
        assert!(events.iter().find(maps).is_some(), "{program} has no libraries");
    }
    assert_eq!(place.told()["processes"], 3);
    let starts: Vec<_> = events.iter().filter(|event| matches!(event.what, What::ProcessStarted { .. })).collect();
    let mut pids: Vec<_> = starts.iter().map(|event| event.pid).collect();
    pids.sort();
    pids.dedup();
    assert_eq!(pids.len(), starts.len(), "each process starts once: {starts:?}");
}

#[test]
fn what_cannot_be_started_leaves_no_trace() {
    let place = Place::new();
    for (program, status, says) in [
        ("no-such-program", 127, "cannot start no-such-program: no folder of PATH has"),
        ("/etc/passwd", 126, "cannot start /etc/passwd: this user may not execute it"),
    ] {
        let output = place.record(&["--", program]);
        assert_eq!(output.status.code(), Some(status));
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
    assert_eq!(place.0.path().read_dir().unwrap().count(), 0);
    for (arguments, says) in [
        (&["--period", "0", "--", "true"][..], "--period"),
        (&["--duration", "never", "--", "true"], "--duration"),
        (&["-o", "trace"], "CMD"),
    ] {
        let output = place.record(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
}

#[test]
fn no_trace_is_written_over() {
    let place = Place::new();
    for folder in ["nearside-trace", "nearside-trace-2"] {
        let output = place.record(&["--no-objects", "--source", "none", "--", "true"]);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stderr).contains(&format!(": {folder} (")), "{}", text(&output.stderr));
        assert!(place.path(folder).join("trace.toml").is_file());
    }
    let output = place.record(&["-o", "nearside-trace", "--", "touch", "ran"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        text(&output.stderr).contains("nearside-trace exists and is not an empty folder"),
        "{}",
        text(&output.stderr)
    );
    assert!(!place.path("ran").exists(), "nothing is started");
}

#[test]
fn a_program_that_the_library_cannot_enter_is_recorded_without_objects() {
    let place = Place::new();
    let source = "#include <stdlib.h>\nint main(void) { return malloc(9999) ? 3 : 4; }";
    if !place.compile("static", source, &["-static"]) {
        return test_tools::skipped("there is no static C library");
    }
    let output = place.record(&["-o", "trace", "--json", "told.json", "--", "./static"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("no objects were recorded: ./static is linked statically"), "{said}");
    assert_eq!(place.told()["objects"], 0);
    assert_eq!(place.told()["processes"], 1);
}

/// Allocates before and after it drops root, and in a thread that starts after that. Compilers would remove memory that
/// is freed unused.
const DROPS: &str = "
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static void *work(void *nothing) { (void)nothing; return malloc(77777); }
int main(void) {
    pthread_t thread;
    void *before = malloc(55555), *in_thread;
    if (setgid(65534) || setuid(65534)) return 4;
    void *after = malloc(66666);
    if (pthread_create(&thread, 0, work, 0) || pthread_join(thread, &in_thread)) return 5;
    free(before); free(after); free(in_thread);
    return getuid() == 65534 ? 3 : 6;
}";

/// Needs root, which has privileges to drop.
#[test]
fn programs_that_told_nothing_are_named() {
    let place = Place::new();
    assert_eq!(place.script("env -i sleep 0; env -i sleep 0; cat /dev/null").status.code(), Some(0));
    let notes = place.told()["notes"].to_string();
    // Without process events of the kernel, only programs with the library are known.
    if !notes.contains("processes are known by their objects only") {
        assert!(notes.contains("no objects were reported by sleep (2 times): the library"), "{notes}");
    }
}

#[test]
fn a_recording_that_could_not_be_reported_does_not_begin() {
    let place = Place::new();
    let output = place.record(&["--json", "missing/told.json", "--", "sh", "-c", "echo ran; exit 3"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(125), ""));
    assert!(text(&output.stderr).contains("cannot write to missing/told.json"), "{}", text(&output.stderr));
}

#[test]
fn a_program_that_drops_its_privileges_is_recorded_on() {
    let place = Place::new();
    assert!(place.compile("drops", DROPS, &["-pthread", "-fno-builtin"]));
    if !rustix::process::getuid().is_root() {
        return test_tools::skipped("only root has privileges to drop");
    }
    let output = place.record(&["-o", "trace", "--", "./drops"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let events = events(&place.path("trace"));
    for size in [55_555, 66_666, 77_777] {
        let allocated = |event: &&Event| matches!(event.what, What::Allocated { bytes, .. } if bytes == size);
        let allocated =
            events.iter().find(allocated).unwrap_or_else(|| panic!("no object of {size} bytes: {events:?}"));
        let freed = |event: &Event| match (&event.what, &allocated.what) {
            (What::Freed { address }, What::Allocated { address: of, .. }) => address == of,
            _ => false,
        };
        assert!(events.iter().any(freed), "{size}");
    }
}

/// Needs root, to create a setuid program that another user runs.
#[test]
fn a_setuid_program_is_recorded_without_objects() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let source = "#include <unistd.h>\nint main(void) { return geteuid() == 0 ? 3 : 4; }";
    assert!(place.compile("setuid", source, &[]));
    if !rustix::process::getuid().is_root() {
        return test_tools::skipped("only root can make a setuid program that another user runs");
    }
    let permit = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    permit(&place.path("setuid"), 0o4755);
    permit(place.0.path(), 0o1777);
    // Other users may not read cargo's target folder.
    for name in ["nearside", "libnearside_preload.so"] {
        fs::copy(assert_cmd::cargo::cargo_bin("nearside").with_file_name(name), place.path(name)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.current_dir(place.0.path()).args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.args(["./nearside", "record", "-o", "trace", "--json", "told.json", "--", "./setuid"]);
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("no objects were recorded: ./setuid is setuid, setgid or has capabilities"), "{said}");
    assert_eq!((&place.told()["objects"], &place.told()["processes"]), (&0.into(), &1.into()));
    events(&place.path("trace"));
    // For its owner the setuid bit changes nothing, and there is no note.
    let output = place.record(&["-o", "owner", "--", "./setuid"]);
    assert!(!text(&output.stderr).contains("no objects were recorded"), "{}", text(&output.stderr));
}

#[test]
fn signals_reach_the_program_and_the_trace_is_complete() {
    let place = Place::new();
    let script = "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.01; done";
    let command = &mut place.nearside(&["-o", "trace", "--", "sh", "-c", script]);
    let mut child = command.spawn().unwrap();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    std::io::Read::read_to_string(&mut output, &mut line).unwrap();
    assert_eq!((line.as_str(), child.wait().unwrap().code()), ("ready\ncaught\n", Some(9)));
    assert!(!events(&place.path("trace")).is_empty());
    // A program that ignores it is left running the second time.
    let script = "trap '' TERM; echo ready; sleep 2; echo done";
    let mut child = place.nearside(&["-o", "second", "--", "sh", "-c", script]).spawn().unwrap();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut String::new()).unwrap();
    let (began, pid) = (Instant::now(), Pid::from_raw(child.id().cast_signed()).unwrap());
    while child.try_wait().unwrap().is_none() {
        let _ = kill_process(pid, Signal::TERM);
        sleep(Duration::from_millis(50));
    }
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut output, &mut rest).unwrap();
    assert_eq!(rest, "done\n");
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(!events(&place.path("second")).is_empty());
}

#[test]
fn a_recording_ends_after_its_time_and_the_program_goes_on() {
    let place = Place::new();
    let script = "sleep 0.5; /bin/cat /dev/null; exit 5";
    let output = place.record(&["-o", "trace", "--duration", "0.1", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(5));
    let named = |event: &Event| matches!(&event.what, What::Named { name, .. } if **name == *"cat");
    assert!(!events(&place.path("trace")).iter().any(named));
}

/// Needs root, for the small disk.
#[test]
fn on_a_full_disk_what_was_written_can_be_read() {
    let place = Place::new();
    let disk = place.path("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = rustix::process::getuid().is_root()
        && Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "none"])
            .arg(&disk)
            .status()
            .unwrap()
            .success();
    if !mounted {
        return test_tools::skipped("only root, outside of containers, can mount a small disk");
    }
    let workloads = assert_cmd::cargo::cargo_bin("nearside").with_file_name("nearside-workloads");
    let script = "\"$0\" allocate --bursts 300 > /dev/null; echo done; exit 3";
    let output = place.record(&["-o", "disk/trace", "--", "sh", "-c", script, workloads.to_str().unwrap()]);
    let read = Trace::open(&disk.join("trace"))
        .map(|trace| (trace.about().complete, trace.records().unwrap().map(Result::unwrap).count()));
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(125), "done\n"), "{said}");
    assert!(
        said.contains("No space left on device")
            && said.contains("what was written before it, if anything was, can be read"),
        "{said}"
    );
    let (complete, records) = read.unwrap();
    assert!(!complete && records > 0, "{records}");
}

/// Where the counters of CPUs cannot be had, the recording goes on and says why.
#[test]
fn counters_of_cpus_are_recorded_or_a_note_says_why_not() {
    let place = Place::new();
    let ran = place.record(&["--cpu-counters", "--source", "none", "--no-objects", "-o", "trace", "--", "true"]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let trace = Trace::open(&place.path("trace")).unwrap();
    let counts = trace.counts().unwrap();
    let note =
        trace.about().notes.iter().find(|note| note.starts_with("cannot count where each CPU's accesses are served"));
    assert_eq!(counts.iter().any(|count| count.cpu.is_some()), note.is_none(), "{:?}", trace.about().notes);
}

#[test]
fn a_trace_that_cannot_be_begun_leaves_nothing_in_the_way_of_the_next() {
    let place = Place::new();
    let limited = place.nearside(&["-o", "trace", "--", "true"]);
    let mut shell = Command::new("sh");
    shell.current_dir(place.0.path()).args(["-c", "ulimit -f 0; exec \"$0\" \"$@\""]).arg(limited.get_program());
    let output = shell.args(limited.get_args()).output().unwrap();
    assert!(!output.status.success() && !place.path("trace").exists(), "{}", text(&output.stderr));
    assert!(place.record(&["-o", "trace", "--", "true"]).status.success());
}

/// `timeout` signals its child and then the whole group.
#[test]
fn a_signal_that_comes_twice_at_once_does_not_leave_the_program_behind() {
    let place = Place::new();
    let script = "trap 'echo caught' TERM; echo ready; sleep 0.3; sleep 0.3; exit 9";
    let mut child = place.nearside(&["-o", "trace", "--", "sh", "-c", script]).spawn().unwrap();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut String::new()).unwrap();
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    for _ in 0..3 {
        kill_process(pid, Signal::TERM).unwrap();
        sleep(Duration::from_millis(20));
    }
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut output, &mut rest).unwrap();
    // How many of them the shell sees as one depends on what it does when they come.
    assert!(rest.starts_with("caught\n") && rest.lines().all(|line| line == "caught"), "{rest}");
    assert_eq!(child.wait().unwrap().code(), Some(9));
}
