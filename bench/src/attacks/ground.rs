//! Where agents are attacked: a folder with two nodes of one CPU each and a kernel switch, which agents see in the place of
//! this host's own in a mount namespace, so that they place threads on any host and change no setting of it.

use crate::attacks::failed;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The user whose processes agents manage: no process of this host's own has it, nor one of another campaign.
pub fn load_user() -> u32 {
    1_000_000_000 + std::process::id()
}

/// How long an agent may take to start or to end.
const MOST_WAIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);
const NODES: &str = "/sys/devices/system/node";
/// A policy that needs no samples of memory accesses, which few virtual machines have.
const THREADS: &str = "policy = \"balanced\"\nround_s = 0.05\n";
/// Run in a mount namespace of its own, with the ground's folder as `$0`.
const ENTER: &str = "mount --bind \"$0/nodes\" /sys/devices/system/node || exit 99
    test ! -e /proc/sys/kernel/numa_balancing || mount --bind \"$0/switch\" /proc/sys/kernel/numa_balancing || exit 99
    exec \"$@\"";

/// The folder.
#[derive(Debug)]
pub struct Ground {
    folder: TempDir,
    programs: PathBuf,
}

impl Ground {
    /// Makes it; `nearside` and `nearside-workloads` are in the folder `programs`. Needs root and two CPUs.
    pub fn new(programs: &Path) -> io::Result<Self> {
        let ground = Self { folder: TempDir::new()?, programs: programs.to_owned() };
        fs::set_permissions(ground.folder.path(), Permissions::from_mode(0o755))?;
        for file in ["online", "possible", "has_cpu", "has_memory", "has_normal_memory"] {
            ground.write(&format!("nodes/{file}"), "0-1\n")?;
        }
        for (node, distance) in ["10 20\n", "20 10\n"].into_iter().enumerate() {
            let meminfo = fs::read_to_string(format!("{NODES}/node0/meminfo"))?;
            let meminfo = meminfo.replace("Node 0 ", &format!("Node {node} "));
            let (cpus, mask) = (format!("{node}\n"), format!("{}\n", node + 1));
            let files = [("cpulist", cpus.as_str()), ("cpumap", &mask), ("meminfo", &meminfo), ("distance", distance)];
            for (file, text) in files {
                ground.write(&format!("nodes/node{node}/{file}"), text)?;
            }
        }
        ground.write("switch", "1\n")?;
        Ok(ground)
    }

    /// A file of it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program of this name.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Writes a file, and makes the folders that it is in.
    pub fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        fs::write(&path, text)?;
        Ok(path)
    }

    /// Makes a folder of this user with this mode, empty.
    pub fn folder(&self, name: &str, owner: u32, mode: u32) -> io::Result<PathBuf> {
        let path = self.path(name);
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        chown(&path, Some(owner), Some(owner))?;
        Ok(path)
    }

    /// The value of the switch that agents see.
    pub fn switch(&self) -> io::Result<String> {
        fs::read_to_string(self.path("switch"))
    }

    /// A program that sees the two nodes.
    pub fn inside(&self, program: &Path) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", ENTER]).arg(self.folder.path()).arg(program);
        command
    }

    /// Starts `nearside agent` with this configuration, to which the managed user is added, and a
    /// policy where it names none. `before` are words in front of
    /// its command line.
    pub fn agent(&self, configuration: &str, before: &[&str]) -> io::Result<Agent> {
        let policy = if configuration.contains("policy = ") { "" } else { THREADS };
        let text = format!("{policy}{configuration}\n[managed]\nusers = [\"{}\"]\n", load_user());
        let file = self.write("agent.toml", &text)?;
        let said = self.path("said");
        let nearside = self.program("nearside");
        let mut command = match before.split_first() {
            Some((first, rest)) => {
                let mut command = self.inside(Path::new(first));
                command.args(rest).arg(nearside);
                command
            }
            None => self.inside(&nearside),
        };
        command.args(["agent", "--config"]).arg(file).stdin(Stdio::null()).stdout(Stdio::null());
        // A group of its own: what it starts, or traces it, can be ended with it.
        let child = command.stderr(File::create(&said)?).process_group(0).spawn()?;
        Ok(Agent { child, said, ended: None })
    }
}

/// How the start of an agent went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It serves.
    Up,
    /// It has ended.
    Ended(ExitStatus),
    /// Neither within 10 s.
    Hung,
}

/// A running agent; killed when dropped.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    said: PathBuf,
    ended: Option<ExitStatus>,
}

impl Agent {
    /// Waits until it serves or has ended.
    pub fn wait_until_up(&mut self) -> io::Result<Start> {
        let deadline = Instant::now() + MOST_WAIT;
        while Instant::now() < deadline {
            if let Some(status) = self.has_ended()? {
                return if status.code() == Some(99) { Err(failed(self.said())) } else { Ok(Start::Ended(status)) };
            }
            if self.said().contains(", control socket ") {
                return Ok(Start::Up);
            }
            sleep(LOOK);
        }
        Ok(Start::Hung)
    }

    /// Its exit status, if it has ended.
    pub fn has_ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Its process, or that of the program that traces it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed to standard error.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.said).unwrap_or_default()).into_owned()
    }

    /// Sends a signal, unless it has ended.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.has_ended()?.is_none() {
            kill_process(Pid::from_child(&self.child), signal)?;
        }
        Ok(())
    }

    /// Waits until it has ended, for at most 10 s.
    pub fn wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + MOST_WAIT;
        while self.has_ended()?.is_none() && Instant::now() < deadline {
            sleep(LOOK);
        }
        Ok(self.ended)
    }

    /// Ends it as a service manager does; `None` if it does not end within 10 s.
    pub fn stop(mut self) -> io::Result<Option<ExitStatus>> {
        self.signal(Signal::TERM)?;
        self.wait()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if !matches!(self.has_ended(), Ok(Some(_))) {
            // The group: a tracer's child would go on.
            let _ = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
