//! The virtual PMU from the guest's side: the memory of a PCI device.

use super::btf::Btf;
use super::{GuestError, Tried};
use crate::protocol::Task;
use linux::SharedWords;
use model::pmu::{self, Command, Pmu, TaskOffsets};
use rustix::fs::{FlockOperation, Gid, Uid, fchown, flock};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The plugin polls once per millisecond of host time; far less often on a very busy host.
const SWITCHES_MAX: u32 = 20_000;

pub(crate) struct GuestPmu {
    words: Arc<SharedWords>,
    /// Held locked while the host reads the samples.
    _file: File,
}

impl GuestPmu {
    /// Finds the device and reports to the plugin where this kernel keeps the running thread. The command's user may
    /// use the device. A reader of samples locks it: here that is done on behalf of the host.
    pub(crate) fn find(task: &Task, offsets: TaskOffsets) -> Result<Self, GuestError> {
        let device = find_device()?;
        let tried = || format!("map {}", device.display());
        let file = File::options().read(true).write(true).open(&device).tried(tried())?;
        let words = SharedWords::map(&file, pmu::BYTES).tried(tried())?;
        let (user, group) = (Uid::from_raw(task.uid), Gid::from_raw(task.gid));
        fchown(&file, Some(user), Some(group)).tried(format!("give {} to the user", device.display()))?;
        if task.sample_period != 0 {
            flock(&file, FlockOperation::NonBlockingLockExclusive).tried(format!("lock {}", device.display()))?;
        }
        let found = Self { words: Arc::new(words), _file: file };
        found.pmu()?.set_task_offsets(offsets);
        Ok(found)
    }

    /// A handle for another thread.
    pub(crate) fn words(&self) -> Arc<SharedWords> {
        self.words.clone()
    }

    pub(crate) fn pmu(&self) -> Result<Pmu<'_>, GuestError> {
        Pmu::open(&self.words).map_err(io::Error::other).tried("open the virtual PMU")
    }

    /// Switches the plugin's timing of memory accesses on or off, and waits until it is done.
    pub(crate) fn switch(&self, to: Command) -> Result<(), GuestError> {
        let pmu = self.pmu()?;
        pmu.set_command(to);
        for _ in 0..SWITCHES_MAX {
            if pmu.state() == to {
                return Ok(());
            }
            // The plugin switches when this CPU executes this instruction.
            std::hint::spin_loop();
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(io::Error::from(io::ErrorKind::TimedOut)).tried(format!("switch the model to {to:?}"))
    }
}

fn find_device() -> Result<PathBuf, GuestError> {
    linux::pci_memory(Path::new("/sys"), pmu::PCI_IDS, pmu::PCI_RESOURCE, pmu::BYTES as u64)
        .ok_or(io::ErrorKind::NotFound)
        .tried("find the virtual PMU among the devices of /sys/bus/pci")
}

/// Where this kernel keeps the running thread, from its own symbols and types.
pub(crate) fn task_offsets() -> Result<TaskOffsets, GuestError> {
    find_task_offsets().ok_or(io::ErrorKind::InvalidData).tried(
        "find where the kernel keeps the running thread (current_task in /proc/kallsyms, task_struct in /sys/kernel/btf/vmlinux)",
    )
}

fn find_task_offsets() -> Option<TaskOffsets> {
    let types = fs::read("/sys/kernel/btf/vmlinux").ok()?;
    let types = Btf::read(&types)?;
    // Linux 6.2 to 6.14 keeps it in a structure of hot per-CPU data, other versions in a variable of its own.
    let (name, address) = symbol(&["pcpu_hot", "current_task"])?;
    let current_task = if name == "pcpu_hot" { address + types.offset_of(name, "current_task")? } else { address };
    let member = |name| types.offset_of("task_struct", name);
    Some(TaskOffsets {
        current_task,
        tid: member("pid")?,
        pid: member("tgid")?,
        name: member("comm")?,
        address_space: member("active_mm")?,
        page_table: types.offset_of("mm_struct", "pgd")?,
    })
}

/// The first of these symbols in the kernel's list, with its address. Up to Linux 6.14 per-CPU symbols come first. The
/// kernel generates the list as it is read, so reading all of it would cost a second.
fn symbol<'a>(wanted: &[&'a str]) -> Option<(&'a str, u64)> {
    let listed = BufReader::new(File::open("/proc/kallsyms").ok()?);
    listed.lines().map_while(Result::ok).find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (address, name) = (words.next()?, words.nth(1)?);
        let name = wanted.iter().find(|&&wanted| wanted == name)?;
        Some((*name, u64::from_str_radix(address, 16).ok()?))
    })
}
