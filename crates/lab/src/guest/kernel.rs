//! Settings of the guest's kernel.

use super::{GuestError, Tried};
use crate::protocol::{GuestModule, Task};
use rustix::time::{ClockId, Timespec, clock_settime};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Loads modules.
pub(crate) fn load_modules(modules: &[GuestModule]) -> Result<(), GuestError> {
    for GuestModule { name, parameters, contents } in modules {
        let tried = || format!("load the kernel module {name}");
        let parameters = CString::new(parameters.as_str()).map_err(std::io::Error::other).tried(tried())?;
        rustix::system::init_module(contents, &parameters).tried(tried())?;
    }
    Ok(())
}

/// Sets the clock to this time since 1970: that of a saved boot has stood still since it was saved.
pub(crate) fn set_clock(time: Duration) -> Result<(), GuestError> {
    let time = Timespec::try_from(time).map_err(std::io::Error::other).tried("set the clock")?;
    clock_settime(ClockId::Realtime, time).tried("set the clock")
}

/// Makes the kernel draw other random numbers than all machines that continue from the same saved boot.
pub(crate) fn add_entropy(entropy: &[u8]) -> Result<(), GuestError> {
    let random = Path::new("/dev/urandom");
    let added = File::options().write(true).open(random).and_then(|mut file| {
        file.write_all(entropy)?;
        linux::use_added_entropy(&file)
    });
    added.tried(format!("write random bytes to {}", random.display()))
}

fn write(path: &str, value: &str) -> Result<(), GuestError> {
    fs::write(path, value).tried(format!("write {value} to {path}"))
}

/// Starts every CPU but the first, which boots alone: while Linux boots it patches its own code repeatedly, and stops
/// every CPU for each patch, which costs QEMU a minute of host time with many CPUs.
pub(crate) fn start_cpus() -> Result<(), GuestError> {
    let folder = Path::new("/sys/devices/system/cpu");
    let listed = fs::read_dir(folder).tried(format!("list {}", folder.display()))?;
    let mut cpus: Vec<u32> =
        listed.flatten().filter_map(|entry| entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok()).collect();
    cpus.sort_unstable();
    for cpu in cpus {
        let switch = folder.join(format!("cpu{cpu}/online"));
        // The first CPU cannot be switched off, and has no switch.
        if fs::read_to_string(&switch).is_ok_and(|state| state.trim() == "0") {
            write(&switch.to_string_lossy(), "1")?;
        }
    }
    Ok(())
}

/// Files with periods, in ms, of kernel services that work in seconds.
const PERIODS_MS: [&str; 5] = [
    "/sys/kernel/debug/sched/numa_balancing/scan_delay_ms",
    "/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms",
    "/sys/kernel/debug/sched/numa_balancing/scan_period_max_ms",
    "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs",
    "/sys/kernel/mm/transparent_hugepage/khugepaged/alloc_sleep_millisecs",
];

/// Applies the requested settings.
pub(crate) fn configure(task: &Task) -> Result<(), GuestError> {
    rustix::system::sethostname(b"nearside-lab").tried("set the host's name")?;
    // perf and tracing are among the lab's purposes.
    write("/proc/sys/kernel/perf_event_paranoid", "-1")?;
    write("/proc/sys/kernel/kptr_restrict", "0")?;
    if let Some(on) = task.numa_balancing {
        write("/proc/sys/kernel/numa_balancing", if on { "1" } else { "0" })?;
    }
    if let Some(mode) = &task.transparent_huge_pages {
        write("/sys/kernel/mm/transparent_hugepage/enabled", mode)?;
    }
    if task.time_scale > 1 {
        for path in PERIODS_MS {
            let period = fs::read_to_string(path).tried(format!("read {path}"))?;
            let period: u32 = period.trim().parse().map_err(std::io::Error::other).tried(format!("read {path}"))?;
            write(path, &(period / task.time_scale).max(1).to_string())?;
        }
    }
    Ok(())
}
