//! Virtual machines for whole-program tests: at most one for each CPU of the host at a time, from files that all users
//! can read. Each test checks that its run leaves nothing behind.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const PLUGIN: &str = "libnearside_lab_plugin.so";
/// The libraries that programs run with: to report their objects, and to spread what they touch first.
const LIBRARIES: [&str; 2] = ["libnearside_preload.so", "libnearside_start.so"];
const SHARED: &str = "/dev/shm";
/// Names in shared memory of recordings that run on this host at the same time.
const RECORDING: &str = "nearside-objects-";
/// Upper limit for a run of these tests, on a host however busy.
pub const LIMIT: &str = "1200";

/// Labs that exist now.
static LABS: Mutex<usize> = Mutex::new(0);
static LAB_GONE: Condvar = Condvar::new();

/// The right to boot machines, one at a time. As many labs have it at once as the host has CPUs: each uses one at least.
struct Turn;

impl Turn {
    fn wait() -> Self {
        let most = thread::available_parallelism().map_or(1, usize::from);
        let labs = LABS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut labs = LAB_GONE.wait_while(labs, |labs| *labs >= most).unwrap_or_else(PoisonError::into_inner);
        *labs += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *LABS.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        LAB_GONE.notify_one();
    }
}

/// A private folder for one test, with everything a run needs. It exists only for as long as the test has its turn.
pub struct Lab {
    folder: TempDir,
    /// Named shared memory that existed before: other programs', and what killed ones left.
    shared: Vec<OsString>,
    whole_model: bool,
    _turn: Turn,
}

impl Lab {
    /// Its runs have the whole model, not [`FAST`]: for tests of what things take.
    pub fn with_whole_model() -> Self {
        Self { whole_model: true, ..Self::new() }
    }

    pub fn new() -> Self {
        let turn = Turn::wait();
        let folder = TempDir::new().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let lab = Self { folder, shared: names(Path::new(SHARED)), whole_model: false, _turn: turn };
        for name in ["nearside", "nearside-workloads", PLUGIN].into_iter().chain(LIBRARIES) {
            let from = built().join(name);
            assert!(from.exists(), "{} is missing: run `cargo build --profile ci --workspace` first", from.display());
            // Not `fs::copy`: a process that another test starts meanwhile would hold the program open for writing.
            assert!(Command::new("cp").arg(from).arg(lab.path(name)).status().unwrap().success());
        }
        for name in ["work", "temporary"] {
            fs::create_dir(lab.path(name)).unwrap();
            fs::set_permissions(lab.path(name), fs::Permissions::from_mode(0o1777)).unwrap();
        }
        lab
    }

    /// A file of this lab's folder. The folder `work` is the working directory of every run.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles a program of `tests/lab/programs`, such as `parts.c`, to `work/parts`.
    pub fn compile(&self, source: &str) {
        let program = self.path("work").join(source).with_extension("");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/programs").join(source);
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-pthread", "-o"]).arg(program).arg(source);
        assert!(compiler.status().unwrap().success());
    }

    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).unwrap()
    }

    /// `nearside`, not yet run. Signals that the test runner ignores (`nohup`, background jobs) are not ignored.
    pub fn nearside(&self) -> Command {
        let mut command = Command::new("/usr/bin/env");
        command.arg("--default-signal=INT,HUP").arg(self.path("nearside"));
        command.current_dir(self.path("work")).env("TMPDIR", self.path("temporary"));
        command
    }

    /// `nearside lab run --machine MACHINE OPTIONS -- COMMAND`, not yet run.
    pub fn command<A: AsRef<OsStr>>(&self, machine: &str, options: &[&str], command: &[A]) -> Command {
        let mut run = self.nearside();
        run.args(["lab", "run", "--machine", machine]);
        if !self.whole_model {
            run.args(FAST);
        }
        if !options.contains(&"--timeout") {
            run.args(["--timeout", LIMIT]);
        }
        run.args(options).arg("--").args(command);
        run
    }

    /// Host time in which `small-2x2` surely boots and runs something brief, on a host as busy as now, s.
    pub fn brief_limit(&self) -> u64 {
        let began = Instant::now();
        self.script("small-2x2", &["--quiet", "--memory-per-node", "512M"], "true").succeeded();
        20 + 4 * began.elapsed().as_secs()
    }

    /// Runs a shell script on a machine. Nothing is left when it has ended.
    pub fn script(&self, machine: &str, options: &[&str], script: &str) -> RunOutput {
        self.run(self.command(machine, options, &["sh", "-c", script]), b"")
    }

    /// Runs with this input. Nothing is left when it has ended.
    pub fn run(&self, mut command: Command, input: &[u8]) -> RunOutput {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // The reader may close it early.
        let writer = thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        self.assert_nothing_left();
        RunOutput::from(output)
    }

    /// QEMU processes of this lab: its plugin is in their command line.
    pub fn machines(&self) -> Vec<u32> {
        let plugin = self.path(PLUGIN).into_os_string().into_encoded_bytes();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let dead = fs::read_to_string(entry.path().join("stat")).is_ok_and(|stat| stat.contains(") Z "));
            if !dead && line.windows(plugin.len()).any(|part| part == plugin) {
                found.push(pid);
            }
        }
        found
    }

    /// Checks that no QEMU process, temporary file or named shared memory is left.
    pub fn assert_nothing_left(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.machines().is_empty() {
            assert!(Instant::now() < deadline, "QEMU is left: {:?}", self.machines());
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(names(&self.path("temporary")), Vec::<OsString>::new());
        let is_ours = |name: &str| name.contains("nearside") && !name.starts_with(RECORDING);
        let left = |name: &OsString| !self.shared.contains(name) && is_ours(&name.to_string_lossy());
        assert_eq!(names(Path::new(SHARED)).into_iter().find(left), None);
    }

    /// Waits until the machine's own QEMU runs.
    pub fn wait_for_machine(&self, child: &mut Child) {
        while self.machines().is_empty() {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it started QEMU");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Names in a folder.
fn names(folder: &Path) -> Vec<OsString> {
    fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name()).collect()
}

/// Result of a run.
pub struct RunOutput {
    pub status: i32,
    pub output: Vec<u8>,
    pub error: String,
}

impl From<Output> for RunOutput {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().or(output.status.signal().map(|signal| -signal)).unwrap(),
            output: output.stdout,
            error: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl RunOutput {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.output).unwrap()
    }

    /// Asserts success.
    pub fn succeeded(self) -> Self {
        assert_eq!(self.status, 0, "{}\n{}", String::from_utf8_lossy(&self.output), self.error);
        self
    }

    /// Asserts a failure with this status and an error that contains all of this.
    pub fn failed(&self, status: i32, says: &[&str]) {
        assert_eq!(self.status, status, "{}", self.error);
        for part in says {
            assert!(self.error.contains(part), "no {part:?} in:\n{}", self.error);
        }
    }

    /// The text between a line `[name]` and the next such line.
    pub fn section(&self, name: &str) -> &str {
        let text = self.text();
        let start = text.find(&format!("[{name}]\n")).unwrap_or_else(|| panic!("no [{name}] in:\n{text}"));
        let line_end_on = &text[start + name.len() + 2..];
        &line_end_on[1..line_end_on.find("\n[").map_or(line_end_on.len(), |end| end + 1)]
    }

    /// The document in this section.
    pub fn json(&self, section: &str) -> Value {
        let text = self.section(section);
        serde_json::from_str(text).unwrap_or_else(|why| panic!("{why} in [{section}]:\n{text}\n{}", self.error))
    }
}

/// Cargo's folder with the programs and the plugin.
fn built() -> PathBuf {
    assert_cmd::cargo::cargo_bin("nearside").parent().unwrap().to_owned()
}

/// A description of a machine, as `nearside topology` prints it.
pub fn topology_of(preset: &str) -> Value {
    let output =
        Command::new(built().join("nearside")).args(["topology", "--json", "--from", preset]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

pub fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// Whether the user is root; otherwise the rest of the test is reported as skipped, which needs root to do this.
pub fn is_root_to(what: &str) -> bool {
    if !is_root() {
        test_tools::skipped(format_args!("only root can {what}"));
    }
    is_root()
}

/// All files and folders below one that other users have rights to, with these.
pub fn open_to_others(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.mode() & 0o077 != 0 {
            found.push((path.clone(), metadata.mode() & 0o077));
        }
        if metadata.is_dir() {
            found.extend(open_to_others(&path));
        }
    }
    found
}

/// Incompressible bytes, the same at each run (xorshift).
pub fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).flatten().take(count).collect()
}

/// Writes small-8x2 as a machine file, with a node 2 that has no memory and a node 7 that has no CPUs.
pub fn write_uneven_machine(path: &Path) {
    let preset = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/small-8x2.toml");
    let text = fs::read_to_string(preset).unwrap();
    let (head, nodes) = text.split_once("[[node]]\nid = 2\n").unwrap();
    let nodes = nodes.replacen("memory_bytes = \"1 GiB\"", "memory_bytes = \"0\"", 1).replace("cpus = \"14-15\"\n", "");
    let head = head.replace("cpus = \"12-15\"", "cpus = \"12-13\"");
    fs::write(path, format!("{head}[[node]]\nid = 2\n{nodes}")).unwrap();
}

/// The part of the model to use where no test asserts what the rest of it takes: runs take two thirds of the host's time.
pub const FAST: [&str; 2] = ["--fidelity", "fast"];
