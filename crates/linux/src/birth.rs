//! When a process or thread began, which tells it from a later one that got its number; and when the system did.

use crate::clock::monotonic_ns;
use crate::process::{Pid, Process, ProcessError, Tid};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::io;

/// What the kernel tells user space, whatever its own clock is (`USER_HZ`).
const TICKS_PER_S: u64 = 100;

/// When and from whom a process or thread began. With its number, who it is: no later one has both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Birth {
    /// The process that started its process; process 1 or a reaper once that one has ended.
    pub parent: Pid,
    /// When it began: ticks of the kernel's clock (100 a second) since the system did.
    pub ticks: u64,
}

impl Process {
    /// When it began. Needs no rights.
    pub fn birth(&self) -> Result<Birth, ProcessError> {
        let text = self.text("stat")?;
        parse_birth(&text).ok_or(ProcessError::Malformed { pid: self.pid(), file: "stat", line: text })
    }

    /// When one of its threads began; nothing when that one has ended. Needs no rights.
    pub fn thread_birth(&self, thread: Tid) -> Option<Birth> {
        parse_birth(&self.text_below(&format!("task/{thread}/stat")).ok()?)
    }
}

impl Birth {
    /// When it was, ns of `CLOCK_MONOTONIC`, within a tick; that clock stands still while the system sleeps, which counts
    /// as before. Needs no rights.
    pub fn monotonic_ns(&self) -> u64 {
        let ns_per_tick = 1_000_000_000 / TICKS_PER_S;
        let asleep_ns = (ticks() * ns_per_tick).saturating_sub(monotonic_ns());
        (self.ticks * ns_per_tick).saturating_sub(asleep_ns)
    }
}

/// The birth in the text of /proc/PID/stat: its 4th and 22nd field, where the second is a name in parentheses that may
/// hold anything.
pub fn parse_birth(stat: &str) -> Option<Birth> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(1);
    let parent = Pid(fields.next()?.parse().ok()?);
    Some(Birth { parent, ticks: fields.nth(22 - 5)?.parse().ok()? })
}

/// The moment, in the unit of [`Birth::ticks`]. Needs no rights.
pub fn ticks() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.cast_unsigned() * TICKS_PER_S + now.tv_nsec.cast_unsigned() * TICKS_PER_S / 1_000_000_000
}

/// What names this boot of the system: no other one has the same. Since Linux 2.6. Needs no rights.
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
        assert_eq!(parse_birth(&stat), Some(Birth { parent: Pid(4), ticks: 22 }));
        assert_eq!((parse_birth("7 (a) S 1"), parse_birth("")), (None, None));
    }

    #[test]
    fn a_child_begins_after_its_parent() {
        let own = Process::open(Pid(std::process::id())).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let birth = Process::open(Pid(child.id())).and_then(|process| process.birth());
        child.kill().and_then(|()| child.wait()).unwrap();
        let birth = birth.unwrap();
        assert_eq!(birth.parent, own.pid());
        assert!((birth.ticks..birth.ticks + 60 * TICKS_PER_S).contains(&ticks()));
        assert!(birth.ticks >= own.birth().unwrap().ticks);
        assert_eq!(own.thread_birth(Tid(own.pid().0)), own.birth().ok());
        assert_eq!(own.thread_birth(Tid(0)), None);
        assert_eq!(boot_id().unwrap().len(), 36);
    }
}
