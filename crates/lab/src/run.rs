//! Runs one command on a virtual machine: boots it, connects the streams, waits, and takes everything down.

use crate::LabError;
use crate::console::Console;
use crate::first_files::{FirstFile, pack, this_program};
use crate::protocol::{CHUNK, Ended, TASK_FILE, Task, ToGuest, ToHost, receive, send};
use crate::qemu_arguments::{Files, arguments};
use crate::setup::Assets;
use crate::shape::Shape;
use linux::{ChildSetup, SharedWords};
use model::pmu::{self, Pmu, Sample};
use model::{Configuration, Measured};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::{Handle, Signals};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The plugin's file name.
pub const PLUGIN: &str = "libnearside_lab_plugin.so";
/// Names the plugin's file where it is not beside this program.
pub const PLUGIN_VARIABLE: &str = "NEARSIDE_PLUGIN";

/// Host time that booting may take: a busy host with few cores needs a minute for 48 CPUs.
const BOOT_LIMIT: Duration = Duration::from_secs(300);

/// What to run, and where.
#[derive(Clone, Debug)]
pub struct Run {
    /// The virtual machine.
    pub shape: Shape,
    /// What the guest is to do.
    pub task: Task,
    /// Host time that all of it may take.
    pub timeout: Option<Duration>,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The kernel boots.
    Booting,
    /// The guest prepares the command.
    Preparing,
    /// The command runs.
    Running,
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// How the command ended.
    pub ended: Ended,
    /// What the model measured until then.
    pub measured: Measured,
    /// The samples, in the order in which they were taken.
    pub samples: Vec<Sample>,
    /// Samples for which there was no room.
    pub samples_dropped: u64,
    /// Host time from the start of QEMU to the start of the command.
    pub boot: Duration,
    /// Host time from there to the command's end.
    pub ran: Duration,
}

/// A connected socket to the guest that several threads write to.
type ToPort = Arc<Mutex<UnixStream>>;

/// Boots the machine, runs the command with this process's own streams, and ends the machine. `progress` hears of each stage.
pub fn run(assets: &Assets, run: &Run, progress: &mut dyn FnMut(Stage)) -> Result<Outcome, LabError> {
    progress(Stage::Booting);
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGWINCH]).map_err(LabError::host("watch for signals"))?;
    let shared = memory("nearside-pmu", pmu::BYTES, &[])?;
    let words = SharedWords::map(&shared, pmu::BYTES).map_err(LabError::host("map the virtual PMU"))?;
    let started = Instant::now();
    let mut machine = Running::start(assets, run, &shared, signals)?;
    let result = machine.follow(run, started, &words, progress);
    machine.end();
    result
}

/// A virtual machine and the threads that belong to it. Dropping it ends them.
struct Running {
    qemu: Child,
    port: UnixStream,
    console: Console,
    messages: Receiver<io::Result<Option<ToHost>>>,
    signal: Arc<AtomicI32>,
    signals: Handle,
    input_wanted: Sender<()>,
}

impl Running {
    fn start(assets: &Assets, run: &Run, shared: &OwnedFd, signals: Signals) -> Result<Self, LabError> {
        let (port, guest_port) = UnixStream::pair().map_err(LabError::host("make a pair of sockets"))?;
        // QEMU inherits its end; ours is closed on exec as every file of Rust's.
        rustix::io::fcntl_setfd(&guest_port, rustix::io::FdFlags::empty())
            .map_err(LabError::host("pass a socket on"))?;
        let configuration = Configuration { machine: run.shape.machine.clone(), memory: run.shape.memory.clone() };
        let configuration = serde_json::to_vec(&configuration).map_err(LabError::host("write the configuration"))?;
        let configuration = memory("nearside-configuration", configuration.len(), &configuration)?;
        let first_files = first_files(assets, &run.task)?;
        let first_files = memory("nearside-first-files", first_files.len(), &first_files)?;
        let plugin = find_plugin()?;
        let by_number = |file: &OwnedFd| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let files = Files {
            plugin: plugin.clone(),
            configuration: by_number(&configuration),
            pmu: by_number(shared),
            first_files: by_number(&first_files),
            port: guest_port.as_raw_fd(),
        };
        let mut command = Command::new(&assets.qemu);
        command.args(arguments(assets, &run.shape, &files, run.task.out.as_deref()));
        command.env("LD_PRELOAD", &plugin);
        if !assets.library_path.is_empty() {
            let path = std::env::join_paths(&assets.library_path)
                .map_err(|why| LabError::Host { what: "name QEMU's libraries", why: io::Error::other(why) })?;
            command.env("LD_LIBRARY_PATH", path);
        }
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.die_with_parent();
        // Signals of the terminal are for this program, which then ends QEMU.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut qemu = command.spawn().map_err(|why| LabError::file("run", &assets.qemu, why))?;
        drop(guest_port);
        let console = Console::follow(qemu.stdout.take(), qemu.stderr.take());
        let (sender, messages) = channel();
        let copy = || port.try_clone().map_err(LabError::host("copy a socket"));
        let (mut from_port, to_port) = (copy()?, Arc::new(Mutex::new(copy()?)));
        let (input_wanted, wanted) = channel();
        let signal = Arc::new(AtomicI32::new(0));
        let handle = signals.handle();
        let mut machine = Self { qemu, port, console, messages, signal: signal.clone(), signals: handle, input_wanted };
        let port = machine.port.try_clone().map_err(LabError::host("copy a socket"))?;
        let threads = [
            thread::Builder::new().spawn(move || {
                loop {
                    let message = receive(&mut from_port);
                    let last = !matches!(message, Ok(Some(_)));
                    if sender.send(message).is_err() || last {
                        break;
                    }
                }
            }),
            thread::Builder::new().spawn({
                let to_port = to_port.clone();
                move || forward_input(&wanted, &to_port)
            }),
            thread::Builder::new().spawn(move || watch_signals(signals, &signal, &port, &to_port)),
        ];
        for thread in threads {
            if let Err(why) = thread {
                machine.end();
                return Err(LabError::Host { what: "start a thread", why });
            }
        }
        Ok(machine)
    }

    /// From the first message to the last.
    fn follow(
        &mut self,
        run: &Run,
        started: Instant,
        words: &SharedWords,
        progress: &mut dyn FnMut(Stage),
    ) -> Result<Outcome, LabError> {
        let mut stage = Stage::Booting;
        let mut samples = Vec::new();
        let (mut began, mut boot) = (started, Duration::ZERO);
        let (mut output, mut error) = (io::stdout().lock(), io::stderr().lock());
        // Nobody listens any more: as with any program that writes to a closed pipe, the run goes on and its output is lost.
        let write = |to: &mut dyn Write, bytes: &[u8]| drop(to.write_all(bytes).and_then(|()| to.flush()));
        loop {
            let limit = match (stage, run.timeout) {
                (Stage::Booting, None) => Some(BOOT_LIMIT),
                (Stage::Booting, Some(limit)) => Some(limit.min(BOOT_LIMIT)),
                (_, limit) => limit,
            };
            let patience = limit.map_or(Duration::MAX, |limit| limit.saturating_sub(started.elapsed()));
            // Samples leave the ring as they come, so that it fills only when they come faster than that.
            let message = self.messages.recv_timeout(patience.min(Duration::from_millis(20)));
            if let Ok(pmu) = Pmu::open(words) {
                samples.extend(std::iter::from_fn(|| pmu.pop()));
            }
            let message = match message {
                Ok(Ok(Some(message))) => message,
                Ok(Err(why)) if self.signal.load(SeqCst) == 0 => {
                    return Err(LabError::Host { what: "understand the guest", why });
                }
                Ok(_) | Err(RecvTimeoutError::Disconnected) => return Err(self.died(stage)),
                Err(RecvTimeoutError::Timeout) => match limit {
                    Some(limit) if started.elapsed() >= limit => return Err(self.timed_out(stage, limit)),
                    _ => continue,
                },
            };
            match message {
                ToHost::Booted(_) => {
                    stage = Stage::Preparing;
                    progress(stage);
                }
                ToHost::Started => {
                    (began, boot) = (Instant::now(), started.elapsed());
                    stage = Stage::Running;
                    progress(stage);
                }
                ToHost::WantInput => drop(self.input_wanted.send(())),
                ToHost::Output(bytes) => write(&mut output, &bytes),
                ToHost::Error(bytes) => write(&mut error, &bytes),
                ToHost::NotStarted(number, command) => {
                    return Err(LabError::NotStarted { command, why: io::Error::from_raw_os_error(number) });
                }
                ToHost::Failed(what) => return Err(LabError::Guest { what, console: self.console.tail() }),
                ToHost::Ended(ended) => {
                    let pmu = Pmu::open(words).map_err(io::Error::other).map_err(LabError::host("read the PMU"))?;
                    samples.extend(std::iter::from_fn(|| pmu.pop()));
                    let measured =
                        serde_json::from_slice(&pmu.counters_json()).map_err(LabError::host("read the counters"))?;
                    let (samples_dropped, ran) = (pmu.dropped(), began.elapsed());
                    return Ok(Outcome { ended, measured, samples, samples_dropped, boot, ran });
                }
            }
        }
    }

    /// The port was closed: by a signal's handler, or because QEMU ended.
    fn died(&mut self, stage: Stage) -> LabError {
        if let signal @ 1.. = self.signal.load(SeqCst) {
            return LabError::Interrupted(signal);
        }
        // A machine that only hung up has still to be ended; one that ended by itself says how.
        thread::sleep(Duration::from_millis(100));
        let _ = self.qemu.kill();
        let status = self.qemu.wait().map_or_else(|why| why.to_string(), |status| status.to_string());
        self.console.wait();
        let when = when(stage);
        match self.console.panic() {
            Some(reason) => LabError::Panic { when, reason, console: self.console.tail() },
            None => LabError::Qemu { when, status, said: self.console.tail() },
        }
    }

    fn timed_out(&self, stage: Stage, limit: Duration) -> LabError {
        let (state, advice) = match stage {
            Stage::Booting => ("did not boot", ": give it more time with --timeout, fewer CPUs, or a less busy host"),
            _ => ("did not end the command", ", as --timeout asks"),
        };
        LabError::Timeout { state, limit, advice, console: self.console.tail() }
    }

    /// Ends QEMU and lets the threads go.
    fn end(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        let _ = self.port.shutdown(Shutdown::Both);
        self.signals.close();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn when(stage: Stage) -> &'static str {
    match stage {
        Stage::Booting => "while the guest booted",
        Stage::Preparing => "before the command began",
        Stage::Running => "while the command ran",
    }
}

/// Unnamed memory with these contents, which QEMU inherits.
fn memory(name: &str, bytes: usize, contents: &[u8]) -> Result<OwnedFd, LabError> {
    let make = || -> io::Result<OwnedFd> {
        let file = memfd_create(name, MemfdFlags::empty())?;
        ftruncate(&file, bytes as u64)?;
        std::fs::File::from(file.try_clone()?).write_all(contents)?;
        Ok(file)
    };
    make().map_err(LabError::host("make shared memory"))
}

fn first_files(assets: &Assets, task: &Task) -> Result<Vec<u8>, LabError> {
    let mut files = this_program()?;
    let mut task = task.clone();
    for (index, (name, contents)) in assets.guest_modules()?.into_iter().enumerate() {
        let path = format!("{index:02}-{}.ko", name.replace('/', "-"));
        task.modules.push(path.clone());
        files.push(FirstFile { path, mode: 0o644, contents });
    }
    let contents = postcard::to_stdvec(&task)
        .map_err(|why| LabError::Host { what: "write the guest's task", why: io::Error::other(why) })?;
    files.push(FirstFile { path: TASK_FILE.into(), mode: 0o600, contents });
    pack(&files).map_err(LabError::host("pack the guest's first files"))
}

/// Beside this program, or in `lib/nearside` beside the folder it is in, or where the variable says.
fn find_plugin() -> Result<PathBuf, LabError> {
    if let Some(named) = std::env::var_os(PLUGIN_VARIABLE) {
        let named = PathBuf::from(named);
        return std::fs::canonicalize(&named).map_err(|why| LabError::file("find the lab's plugin", &named, why));
    }
    let program = std::env::current_exe().map_err(LabError::host("find out where this program is"))?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let folders = vec![folder.to_owned(), folder.join("../lib/nearside")];
    let found = folders.iter().map(|folder| folder.join(PLUGIN)).find_map(|file| std::fs::canonicalize(file).ok());
    found.ok_or(LabError::NoPlugin { name: PLUGIN, folders, variable: PLUGIN_VARIABLE })
}

/// Sends standard input, a part whenever the guest asks for one.
fn forward_input(wanted: &Receiver<()>, to_port: &ToPort) {
    let mut buffer = vec![0; CHUNK];
    while wanted.recv().is_ok() {
        let count = io::stdin().lock().read(&mut buffer).unwrap_or(0);
        let message = ToGuest::Input(buffer[..count].to_vec());
        let sent = send(&mut *to_port.lock().unwrap_or_else(PoisonError::into_inner), &message);
        if count == 0 || sent.is_err() {
            break;
        }
    }
}

/// Notes a signal that asks this program to end, and closes the port so that it does.
fn watch_signals(mut signals: Signals, noted: &AtomicI32, port: &UnixStream, to_port: &ToPort) {
    for signal in &mut signals {
        if signal == SIGWINCH {
            if let Some((rows, columns)) = terminal_size() {
                let mut to_port = to_port.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = send(&mut *to_port, &ToGuest::Resize(rows, columns));
            }
        } else {
            noted.store(signal, SeqCst);
            let _ = port.shutdown(Shutdown::Both);
        }
    }
}

/// Rows and columns of the terminal that standard input is; none where it is none.
pub fn terminal_size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(io::stdin()).ok()?;
    Some((size.ws_row, size.ws_col))
}
