//! Saved boots: a machine continues from the boot of an earlier run, and boots where it cannot.

use crate::support::{Lab, RunOutput};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a run shows of its boot, and what must differ between runs.
struct Shown {
    /// The kernel's messages while it booted, with their times.
    boot: String,
    random: String,
    /// Seconds since 1970.
    time: u64,
}

impl Shown {
    fn of(ran: &RunOutput) -> Self {
        let section = |name| ran.section(name).to_owned();
        Self { boot: section("boot"), random: section("random"), time: section("time").trim().parse().unwrap() }
    }
}

/// A lab with a cache folder of its own, in which QEMU and the kernel are links.
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

fn run(lab: &Lab, options: &[&str]) -> Shown {
    let script = "echo '[boot]'; dmesg | head -n 50 | sed 's/^/|/'; echo '[random]'; cat /proc/sys/kernel/random/uuid; \
        cat /proc/sys/kernel/random/boot_id; echo '[time]'; date +%s";
    let options = [&["--quiet", "--as-root", "--memory-per-node", "300M"], options].concat();
    let mut run: Command = lab.command("small-2x2", &options, &["sh", "-c", script]);
    run.env("XDG_CACHE_HOME", lab.path("cache"));
    let ran = lab.run(run, b"").succeeded();
    assert_eq!(ran.error, "");
    Shown::of(&ran)
}

fn only_file(folder: &Path) -> PathBuf {
    let files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

#[test]
fn a_machine_continues_from_an_earlier_boot_with_its_own_time_and_random_numbers() {
    let (lab, boots) = with_own_cache();
    let (first, second, fresh) = (run(&lab, &[]), run(&lab, &[]), run(&lab, &["--fresh-boot"]));
    assert!(first.boot.contains("Linux version"), "{}", first.boot);
    assert_eq!(first.boot, second.boot);
    assert_ne!(first.boot, fresh.boot);
    assert!(first.random != second.random && first.random != fresh.random && second.random != fresh.random);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(first.time <= second.time && second.time <= fresh.time, "clocks go on between runs");
    assert!((now - 600..=now + 1).contains(&second.time), "{} at {now}", second.time);

    let saved = only_file(&boots);
    // A bit of its memory.
    let file = File::options().read(true).write(true).open(&saved).unwrap();
    let (middle, mut byte) = (file.metadata().unwrap().len() / 2, [0]);
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[byte[0] ^ 4], middle).unwrap();
    let after_damage = run(&lab, &[]);
    assert_ne!(after_damage.boot, first.boot, "a damaged boot is not continued");
    assert_eq!(run(&lab, &[]).boot, after_damage.boot, "the next one takes its place");
    only_file(&boots);
}
