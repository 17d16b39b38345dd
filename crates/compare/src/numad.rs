//! numad, the daemon that places whole processes: started for a run, and ended after it.

use linux::{Pid, program_file};
use rustix::process::{Signal, getuid, kill_process};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PROGRAM: &str = "numad";
/// Its pid file.
const PID_FILE: &str = "/run/numad.pid";
/// The shortest scan intervals that can be set, s: numad chooses between two.
pub const PERIODS_S: &str = "1:2";
/// Time limit for it to start or to end.
const TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A numad started by nearside; it ends when this is dropped.
pub struct Numad {
    program: PathBuf,
    pid: Pid,
    /// Whether it scans all processes, or only those that are registered with it.
    all: bool,
}

impl Numad {
    /// Starts it. With `all` it scans every process of the machine, which must not be in use by others. Needs root.
    pub fn start(all: bool) -> Result<Self, String> {
        let path = std::env::var_os("PATH");
        let program = program_file(OsStr::new(PROGRAM), path.as_deref())
            .ok_or("it is not installed (package numad)".to_owned())?;
        if !getuid().is_root() {
            return Err("it needs root".to_owned());
        }
        if running().is_some() {
            return Err(format!("another one runs already: `{PROGRAM} -i 0` ends it"));
        }
        // `-H 0` keeps numad from changing how the kernel makes huge pages.
        let scan = if all { "1" } else { "0" };
        let mut command = Command::new(&program);
        command.args(["-i", PERIODS_S, "-H", "0", "-S", scan]);
        let output = command.stdin(Stdio::null()).output().map_err(|why| format!("cannot start it: {why}"))?;
        let since = Instant::now();
        while since.elapsed() < TIMEOUT {
            if let Some(pid) = running() {
                return Ok(Self { program, pid, all });
            }
            sleep(POLL_INTERVAL);
        }
        // It may begin later, and would place the processes of all other runs.
        let _ = Command::new(&program).args(["-i", "0"]).stdin(Stdio::null()).output();
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(format!("it did not start ({}): {said}", output.status))
    }

    /// Registers a process, unless it scans all of them.
    pub fn add(&self, pid: Pid) -> Result<(), String> {
        if self.all {
            return Ok(());
        }
        let told = Command::new(&self.program).args(["-p", &pid.to_string()]).stdin(Stdio::null()).output();
        let told = told.map_err(|why| format!("cannot register with numad process {pid}: {why}"))?;
        if told.status.success() { Ok(()) } else { Err(format!("numad did not accept process {pid}: {}", told.status)) }
    }

    /// CPU time that it has used, s. Since Linux 2.6.9.
    pub fn cpu_seconds(&self) -> Option<f64> {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.pid)).ok()?;
        let ran_ns: u64 = text.split_ascii_whitespace().next()?.parse().ok()?;
        Some(ran_ns as f64 / 1e9)
    }
}

impl Drop for Numad {
    fn drop(&mut self) {
        let Some(pid) = rustix::process::Pid::from_raw(self.pid.0.cast_signed()) else { return };
        // If it has ended by itself, its number may be another process's.
        if running() == Some(self.pid) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let since = Instant::now();
        // It removes its file itself; its parent may reap it a little later.
        while running() == Some(self.pid) && since.elapsed() < TIMEOUT {
            sleep(POLL_INTERVAL);
        }
        if running() == Some(self.pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// The running numad, if there is one.
fn running() -> Option<Pid> {
    let pid: u32 = fs::read_to_string(Path::new(PID_FILE)).ok()?.trim().parse().ok()?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    (name.trim() == PROGRAM).then_some(Pid(pid))
}
