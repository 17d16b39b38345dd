//! Start times of processes and threads, which distinguish one from a later one with the same number; and the boot
//! time.

use crate::perf::clock::monotonic_ns;
use crate::processes::process::{Pid, Process, ProcessError, Tid};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::io;

/// Ticks per second in user space, whatever the kernel's own clock is (`USER_HZ`).
const TICKS_PER_S: u64 = 100;

/// Start time and parent of a process or thread. Together with its number this is a unique identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StartTime {
    /// The process that started it; process 1 or a reaper once that parent has exited.
    pub parent: Pid,
    /// Start time in ticks since boot (100 per second).
    pub ticks: u64,
}

impl Process {
    /// The start of the process. Needs no privileges.
    pub fn start_time(&self) -> Result<StartTime, ProcessError> {
        let text = self.text("stat")?;
        parse_start_time(&text).ok_or(ProcessError::Malformed { pid: self.pid(), file: "stat", line: text })
    }

    /// The start of one of its threads; `None` if that thread has exited. Needs no privileges.
    pub fn thread_start_time(&self, thread: Tid) -> Option<StartTime> {
        parse_start_time(&self.text_below(&format!("task/{thread}/stat")).ok()?)
    }
}

impl StartTime {
    /// The start time in ns of `CLOCK_MONOTONIC`, accurate to one tick. That clock stops while the system is suspended;
    /// suspended time counts as before the start. Needs no privileges.
    pub fn monotonic_ns(&self) -> u64 {
        let ns_per_tick = 1_000_000_000 / TICKS_PER_S;
        let asleep_ns = (ticks() * ns_per_tick).saturating_sub(monotonic_ns());
        (self.ticks * ns_per_tick).saturating_sub(asleep_ns)
    }
}

/// Parses /proc/PID/stat: fields 4 and 22. Field 2 is a name in parentheses that may hold anything.
pub fn parse_start_time(stat: &str) -> Option<StartTime> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(1);
    let parent = Pid(fields.next()?.parse().ok()?);
    Some(StartTime { parent, ticks: fields.nth(22 - 5)?.parse().ok()? })
}

/// The current time, in the unit of [`StartTime::ticks`]. Needs no privileges.
pub fn ticks() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.cast_unsigned() * TICKS_PER_S + now.tv_nsec.cast_unsigned() * TICKS_PER_S / 1_000_000_000
}

/// The unique ID of this boot. Since Linux 2.6. Needs no privileges.
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_birth_is_found_behind_any_name() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let stat = format!("7 (a ) 1 (b) S {}", fields.join(" "));
        assert_eq!(parse_start_time(&stat), Some(StartTime { parent: Pid(4), ticks: 22 }));
        assert_eq!((parse_start_time("7 (a) S 1"), parse_start_time("")), (None, None));
    }

    #[test]
    fn a_child_begins_after_its_parent() {
        let own = Process::open(Pid(std::process::id())).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let start_time = Process::open(Pid(child.id())).and_then(|process| process.start_time());
        child.kill().and_then(|()| child.wait()).unwrap();
        let start_time = start_time.unwrap();
        assert_eq!(start_time.parent, own.pid());
        assert!((start_time.ticks..start_time.ticks + 60 * TICKS_PER_S).contains(&ticks()));
        assert!(start_time.ticks >= own.start_time().unwrap().ticks);
        assert_eq!(own.thread_start_time(Tid(own.pid().0)), own.start_time().ok());
        assert_eq!(own.thread_start_time(Tid(0)), None);
        assert_eq!(boot_id().unwrap().len(), 36);
    }
}
