//! The lab is interrupted at random moments, and leaves no process, file or shared memory.

use crate::Part;
use crate::random::Random;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Latest moment: the machine has booted, run a program and ended before, mostly.
const LATEST: Duration = Duration::from_secs(6);
/// How long the lab may take to end.
const MOST_WAIT: Duration = Duration::from_secs(30);

pub fn run(programs: &Path, count: usize, seed: u64) -> Part {
    let folder = tempfile::tempdir()?;
    let mut random = Random(seed);
    let (mut interrupted, mut broken) = (0, Vec::new());
    let names = |name: &str| -> io::Result<_> {
        let path = folder.path().join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    };
    let (temporary, out) = (names("temporary")?, names("work")?);
    for number in 0..count {
        let moment = random.moment(LATEST);
        let signal = if random.below(2) == 0 { Signal::INT } else { Signal::TERM };
        let before = outside();
        let mut run = Command::new(programs.join("nearside"));
        run.args(["lab", "run", "--quiet", "--fidelity", "fast", "--machine", "small-2x2", "--timeout", "300"]);
        run.args(["--", "sh", "-c", "echo x > /tmp/x; sleep 0.2"]).current_dir(&out).env("TMPDIR", &temporary);
        let mut child = run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        sleep(moment);
        if child.try_wait()?.is_none() {
            interrupted += 1;
            kill_process(Pid::from_child(&child), signal)?;
        }
        if !has_ended(&mut child)? {
            broken.push(format!("interrupt {number} after {moment:?}: the lab goes on"));
            child.kill()?;
            child.wait()?;
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut left = left(&temporary, &before)?;
        while !left.is_empty() && Instant::now() < deadline {
            sleep(Duration::from_millis(20));
            left = self::left(&temporary, &before)?;
        }
        if !left.is_empty() {
            broken.push(format!("interrupt {number} after {moment:?}: left {left:?}"));
        }
    }
    Ok((format!("{interrupted} runs interrupted, {} had ended before", count - interrupted), broken))
}

fn has_ended(child: &mut Child) -> io::Result<bool> {
    let deadline = Instant::now() + MOST_WAIT;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            return Ok(false);
        }
        sleep(Duration::from_millis(5));
    }
    Ok(true)
}

/// Files of the lab outside its temporary folder: its cache, and shared memory of labs that this campaign has started.
fn outside() -> BTreeSet<String> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(Into::into);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let mut found = BTreeSet::new();
    if let Some(cache) = cache.or_else(home).map(|cache: std::path::PathBuf| cache.join("nearside")) {
        for folder in [cache.clone(), cache.join("kernel"), cache.join("qemu")] {
            let Ok(entries) = fs::read_dir(folder) else { continue };
            found.extend(entries.flatten().map(|entry| entry.path().to_string_lossy().into_owned()));
        }
    }
    found
}

fn left(temporary: &Path, before: &BTreeSet<String>) -> io::Result<Vec<String>> {
    let names = fs::read_dir(temporary)?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut left: Vec<String> = names.collect();
    left.extend(outside().difference(before).cloned());
    let mark = temporary.to_string_lossy().into_owned();
    for entry in fs::read_dir("/proc")?.flatten() {
        // QEMU and all else that the lab starts inherits TMPDIR, which names this campaign's folder.
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|&byte| byte == 0).any(|one| one == format!("TMPDIR={mark}").as_bytes()) {
            left.push(format!("process {}", entry.file_name().to_string_lossy()));
        }
    }
    // Shared memory of other labs on this host has other processes, which map it: what no process maps is left.
    for entry in fs::read_dir("/dev/shm")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("nearside-lab") && !is_mapped(&name)? {
            left.push(format!("/dev/shm/{name}"));
        }
    }
    Ok(left)
}

fn is_mapped(name: &str) -> io::Result<bool> {
    for entry in fs::read_dir("/proc")?.flatten() {
        if fs::read_to_string(entry.path().join("maps")).is_ok_and(|maps| maps.contains(name)) {
            return Ok(true);
        }
    }
    Ok(false)
}
