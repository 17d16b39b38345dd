//! Saved boots: a machine continues from the boot of an earlier run, and boots where it cannot.

use crate::support::{Lab, RunOutput};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A lab with a cache folder of its own, in which QEMU and the kernel are links, and the folder of its boots.
fn with_own_cache() -> (Lab, PathBuf) {
    let lab = Lab::new();
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| Path::new(&std::env::var_os("HOME").unwrap()).join(".cache"));
    let own = lab.path("cache/nearside");
    fs::create_dir_all(&own).unwrap();
    for entry in fs::read_dir(cache.join("nearside")).unwrap().flatten().filter(|entry| entry.file_name() != "boots") {
        symlink(entry.path(), own.join(entry.file_name())).unwrap();
    }
    (lab, own.join("boots"))
}

fn command(lab: &Lab, options: &[&str], script: &str) -> Command {
    let options = [&["--quiet", "--as-root", "--memory-per-node", "300M"], options].concat();
    let mut run = lab.command("small-2x2", &options, &["sh", "-c", script]);
    run.env("XDG_CACHE_HOME", lab.path("cache"));
    run
}

/// What a run shows of its boot, and what must differ between runs.
struct Shown {
    /// The kernel's messages while it booted, with their times.
    boot: String,
    random: String,
    boot_id: String,
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Runs, and checks that its clock is the host's.
fn run(lab: &Lab, options: &[&str]) -> Shown {
    let script = "echo '[boot]'; dmesg | head -n 50 | sed 's/^/|/'; echo '[random]'; cat /proc/sys/kernel/random/uuid; \
        echo '[id]'; cat /proc/sys/kernel/random/boot_id; echo '[time]'; date +%s";
    let before = seconds();
    let ran = lab.run(command(lab, options, script), b"").succeeded();
    assert_eq!(ran.error, "");
    let time = ran.section("time").trim().parse().unwrap();
    assert!((before..=seconds()).contains(&time), "{time} in a run from {before} on");
    let section = |name| ran.section(name).to_owned();
    Shown { boot: section("boot"), random: section("random"), boot_id: section("id") }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_machine_continues_from_an_earlier_boot_with_its_own_time_and_random_numbers() {
    let (lab, boots) = with_own_cache();
    // The boot is older than a second when it is continued.
    let (first, fresh, second) = (run(&lab, &[]), run(&lab, &["--fresh-boot"]), run(&lab, &[]));
    assert!(first.boot.contains("Linux version"), "{}", first.boot);
    assert_eq!(first.boot, second.boot);
    assert_ne!(first.boot, fresh.boot);
    let differ = |of: fn(&Shown) -> &str| of(&first) != of(&second) && of(&first) != of(&fresh);
    assert!(differ(|shown| &shown.random) && differ(|shown| &shown.boot_id));
    let saved = files(&boots);
    assert_eq!(saved.len(), 1, "{saved:?}");
    assert_ne!(run(&lab, &["--cpus-per-node", "1"]).boot, first.boot, "another machine");
    assert_eq!(files(&boots).len(), 2);

    // A bit of the checksum at its end: QEMU gets nearly all of the state.
    let file = File::options().read(true).write(true).open(&saved[0]).unwrap();
    let (last, mut byte) = (file.metadata().unwrap().len() - 1, [0]);
    file.read_exact_at(&mut byte, last).unwrap();
    file.write_all_at(&[byte[0] ^ 4], last).unwrap();
    let after_damage = run(&lab, &[]);
    assert_ne!(after_damage.boot, first.boot, "a damaged boot is not continued");
    assert_eq!(run(&lab, &[]).boot, after_damage.boot, "the next one takes its place");
    assert_eq!(files(&boots).len(), 2);
}

#[test]
fn where_no_boot_can_be_saved_machines_boot() {
    let (lab, boots) = with_own_cache();
    fs::write(&boots, "").unwrap();
    assert!(run(&lab, &[]).boot.contains("Linux version"));
}

/// Bytes of the state that QEMU, a child of this process, has written so far.
fn written(nearside: &Child) -> u64 {
    let children = format!("/proc/{0}/task/{0}/children", nearside.id());
    let qemu = fs::read_to_string(children).unwrap_or_default();
    let states = files(Path::new(&format!("/proc/{}/fd", qemu.trim()))).into_iter();
    let states = states.filter(|fd| fs::read_link(fd).is_ok_and(|to| to.to_string_lossy().contains("nearside-boot")));
    states.filter_map(|fd| Some(fs::metadata(fd).ok()?.len())).max().unwrap_or(0)
}

/// While the state is saved, and while it is loaded.
#[test]
fn a_run_that_is_interrupted_leaves_a_whole_boot_or_none() {
    let (lab, boots) = with_own_cache();
    let start = || {
        let mut run = command(&lab, &[], "sleep 1000");
        run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let interrupt = |child: Child| {
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let ran = RunOutput::from(child.wait_with_output().unwrap());
        lab.assert_nothing_left();
        ran.failed(130, &["interrupted by signal 2"]);
    };
    for least_bytes in [1, 50 << 20] {
        let mut child = start();
        while written(&child) < least_bytes {
            assert!(child.try_wait().unwrap().is_none(), "it ended before its state was saved");
            thread::sleep(Duration::from_millis(1));
        }
        interrupt(child);
        assert!(files(&boots).is_empty());
    }
    let first = run(&lab, &[]);
    for after_ms in [0, 100, 300, 600] {
        let mut child = start();
        lab.wait_for_machine(&mut child);
        thread::sleep(Duration::from_millis(after_ms));
        interrupt(child);
    }
    assert_eq!(run(&lab, &[]).boot, first.boot);
}
