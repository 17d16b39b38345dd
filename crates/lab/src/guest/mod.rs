//! The guest's side of the lab: this program is also the virtual machine's init process. It mounts the host's file
//! system as root, runs the command, and forwards its streams.

mod btf;
mod command;
mod file_system;
mod kernel;
mod pmu;
mod shake;

use crate::protocol::{self, GuestModule, MODULES_FILE, PORT, Start, ToGuest, ToHost};
pub(crate) use file_system::{OUT_TAG, ROOT_TAG};
use machine::chain;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What the kernel's 9p client reports of a write that ended because its process was killed: `ERESTARTSYS`, which no
/// other file system lets a program see.
const KILLED_WRITER: i32 = 512;

/// Why the guest failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct GuestError {
    what: String,
    #[source]
    why: io::Error,
}

/// Adds the attempted operation to an error.
pub(crate) trait Tried<T> {
    fn tried(self, what: impl Into<String>) -> Result<T, GuestError>;
}

impl<T, E: Into<io::Error>> Tried<T> for Result<T, E> {
    fn tried(self, what: impl Into<String>) -> Result<T, GuestError> {
        self.map_err(|why| GuestError { what: what.into(), why: why.into() })
    }
}

/// Sends messages to the host, from any thread.
#[derive(Clone)]
pub(crate) struct Host(Arc<Mutex<File>>);

impl Host {
    pub(crate) fn send(&self, message: &ToHost) {
        let mut port = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A host that no longer listens has ended this machine.
        let _ = protocol::send(&mut *port, message);
    }
}

/// Whether this process is the init process of a virtual machine of the lab.
pub fn is_guest() -> bool {
    std::process::id() == 1 && Path::new("/").join(MODULES_FILE).is_file()
}

/// Runs the guest's side and powers the machine off.
pub fn main() {
    if let Err(why) = start() {
        // The port itself may be missing, so print to the console: the host keeps its last lines.
        eprintln!("nearside guest: {}", chain(&why));
    }
    let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
}

fn start() -> Result<(), GuestError> {
    let text = std::fs::read(Path::new("/").join(MODULES_FILE)).tried("read the list of kernel modules")?;
    let modules: Vec<GuestModule> =
        postcard::from_bytes(&text).map_err(io::Error::other).tried("understand the list of kernel modules")?;
    kernel::load_modules(&modules)?;
    file_system::mount_kernel_file_systems()?;
    let port = find_port()?;
    let open = || File::options().read(true).write(true).open(&port).tried(format!("open {}", port.display()));
    let (to_host, from_host) = open().and_then(|port| {
        let copy = port.try_clone().tried("open the port twice")?;
        Ok((Host(Arc::new(Mutex::new(port))), copy))
    })?;
    if let Err(why) = serve(&to_host, from_host) {
        to_host.send(&ToHost::Failed(chain(&why)));
    }
    // The host ends this machine after it has read the last message; powering off at once could overtake that.
    std::thread::sleep(Duration::from_secs(60));
    Ok(())
}

fn serve(host: &Host, mut from_host: File) -> Result<(), GuestError> {
    let offsets = pmu::task_offsets()?;
    kernel::start_cpus()?;
    // The host may save the machine in this state, and continue from it many times: nothing before this may depend on what
    // runs.
    host.send(&ToHost::Booted);
    wait_for(&mut from_host, |message| (message == ToGuest::Continue).then_some(()))?;
    host.send(&ToHost::Preparing);
    let start = |message| if let ToGuest::Start(start) = message { Some(*start) } else { None };
    let Start { task, modules, time, entropy } = wait_for(&mut from_host, start)?;
    kernel::set_clock(time)?;
    kernel::add_entropy(&entropy)?;
    kernel::load_modules(&modules)?;
    file_system::enter_host_root(task.out.as_deref().map(Path::new))?;
    file_system::describe_machine(&task.machine)?;
    linux::bring_loopback_up().tried("bring the loopback interface up")?;
    kernel::configure(&task)?;
    let pmu = pmu::GuestPmu::find(&task, offsets)?;
    let mut last = command::run(&task, host, from_host, &pmu)?;
    if let Some(out) = &task.out {
        let written = File::open(out).and_then(|folder| Ok(rustix::fs::syncfs(&folder)?));
        match written.map_err(|why| command::error_number(&why)) {
            Ok(()) => {}
            Err(KILLED_WRITER) => host.send(&ToHost::WriterKilled),
            Err(number) => last = ToHost::NotKept(number),
        }
    }
    host.send(&last);
    Ok(())
}

/// Waits for a message. Others before it, such as sizes of the terminal, are out of date by then.
fn wait_for<T>(from_host: &mut File, wanted: impl Fn(ToGuest) -> Option<T>) -> Result<T, GuestError> {
    loop {
        let received =
            protocol::receive(from_host).and_then(|message| message.ok_or(io::ErrorKind::UnexpectedEof.into()));
        if let Some(found) = wanted(received.tried("receive the task")?) {
            return Ok(found);
        }
    }
}

/// The serial port with the lab's name; the kernel may need a moment to create it.
fn find_port() -> Result<PathBuf, GuestError> {
    let ports = Path::new("/sys/class/virtio-ports");
    for _ in 0..500 {
        for port in std::fs::read_dir(ports).into_iter().flatten().flatten() {
            let name = std::fs::read_to_string(port.path().join("name")).unwrap_or_default();
            if name.trim_end() == PORT {
                return Ok(Path::new("/dev").join(port.file_name()));
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::from(io::ErrorKind::NotFound)).tried(format!("find a port named {PORT} in {}", ports.display()))
}
