//! A program of the managed user, and what agents change of it and of the system.

use bench::attacks::{Agent, Ground, Start, load_user};
use linux::{ChildSetup, CpuSet, Credentials, Pid, Process, Tid, affinity};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest wait for programs that were killed.
const MOST_WAIT: Duration = Duration::from_secs(10);

/// Everything that an agent changes, or leaves: two of these are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The CPUs of each thread of the program, of this process and of the first one.
    cpus: BTreeMap<u32, CpuSet>,
    /// The kernel's switch.
    switch: String,
    /// The memory policies of the program's ranges that have one, by address: the program maps memory itself, too.
    policies: Vec<String>,
    /// The names in the agent's folder, and whether a process of it is left.
    left: Vec<String>,
}

/// The program, and the folder of its agents.
pub struct Load {
    ground: Ground,
    child: Child,
    folder: PathBuf,
}

impl Load {
    /// Starts the program, which checks its results. Needs root.
    pub fn start(ground: Ground) -> io::Result<Self> {
        let folder = ground.folder("own", 0, 0o755)?;
        let who = Credentials { uid: load_user(), gid: load_user(), groups: Vec::new() };
        // A build may be in a folder that other users cannot enter.
        let copy = ground.path("nearside-workloads");
        fs::copy(ground.program("nearside-workloads"), &copy)?;
        let mut program = Command::new(copy);
        program.args(["checksum", "--size", "1M", "--threads", "3", "--writes", "1000000", "--repeat", "1000000"]);
        let child = program.stdout(Stdio::null()).die_with_parent().run_as(who).spawn()?;
        let mut this = Self { ground, child, folder };
        // All its threads.
        while this.threads()?.len() < 4 {
            if !this.is_well()? {
                return Err(io::Error::other("the managed program has ended at once"));
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(this)
    }

    /// The ground.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// The configuration of an agent that changes CPUs, which is what changes on any host.
    pub fn acting(&self) -> String {
        format!(
            "policy = \"balanced\"\nround_s = 0.02\nfolder = \"{}\"\n[log]\nfile = \"{}\"\n[metrics]\nfile = \"{}\"\n",
            self.folder.display(),
            self.ground.path("decisions").display(),
            self.ground.path("agent.prom").display()
        )
    }

    /// Starts an agent that changes nothing, and ends it: it restores what earlier ones have left. Returns what it said
    /// unless that worked.
    pub fn restore(&self) -> io::Result<Option<String>> {
        let quiet =
            format!("policy = \"first-touch\"\nkernel_balancing = \"keep\"\nfolder = \"{}\"\n", self.folder.display());
        let mut agent = self.ground.agent(&quiet, &[])?;
        let start = agent.wait_until_up()?;
        let said = agent.said();
        let is_done = start == Start::Up && agent.stop()?.is_some_and(|status| status.success());
        Ok(Some(said).filter(|_| !is_done))
    }

    fn threads(&self) -> io::Result<Vec<u32>> {
        let names = fs::read_dir(format!("/proc/{}/task", self.child.id()))?;
        Ok(names.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    /// What agents change, now.
    pub fn state(&self) -> io::Result<State> {
        let mut cpus = BTreeMap::new();
        for tid in self.threads()?.into_iter().chain([1, std::process::id()]) {
            cpus.insert(tid, affinity(Tid(tid))?);
        }
        let process = Process::open(Pid(self.child.id())).map_err(io::Error::other)?;
        let maps = fs::read_to_string(format!("/proc/{}/numa_maps", process.pid()))?;
        let policy = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let mut left: Vec<String> = fs::read_dir(&self.folder)?
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        left.sort_unstable();
        left.extend(self.agents());
        Ok(State {
            cpus,
            switch: self.ground.switch()?,
            policies: maps.lines().map(policy).filter(|line| !line.ends_with(" default")).collect(),
            left,
        })
    }

    /// Processes that were started with this ground's configuration.
    fn agents(&self) -> Vec<String> {
        let configuration = self.ground.path("agent.toml").into_os_string().into_encoded_bytes();
        let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
        let is_ours = |name: &String| {
            let line = fs::read(format!("/proc/{name}/cmdline")).unwrap_or_default();
            line.windows(configuration.len()).any(|part| part == configuration)
        };
        let names = processes.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(is_ours).map(|name| format!("process {name}")).collect()
    }

    /// Whether an agent accepts connections.
    pub fn is_served(&self) -> bool {
        std::os::unix::net::UnixStream::connect(self.folder.join("agent.sock")).is_ok()
    }

    /// Whether the program still runs: it ends when it finds a wrong result.
    pub fn is_well(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether an agent has changed the CPUs of the program since.
pub fn has_acted(before: &State, now: &State) -> bool {
    before.cpus != now.cpus
}

/// Ends an agent, whatever it does, with the programs that prepare its start: it leads a process group.
pub fn kill(agent: &mut Agent) -> io::Result<()> {
    let group = rustix::process::Pid::from_raw(agent.pid().cast_signed());
    if let (Some(group), None) = (group, agent.has_ended()?) {
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL)?;
    }
    agent.wait()?;
    // The other programs are not children of this process, and end a moment later.
    let deadline = Instant::now() + MOST_WAIT;
    while group.is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok())
        && Instant::now() < deadline
    {
        sleep(Duration::from_millis(1));
    }
    Ok(())
}
