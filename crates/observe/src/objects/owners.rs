//! Which user may report on which process. If root records, the folder is open to all users, so that programs that drop
//! their privileges can go on.

use linux::{Pid, Process};
use rustix::process::geteuid;
use std::collections::BTreeMap;

/// Maximum number of processes between one that reports and the nearest known one.
const MOST_GENERATIONS: usize = 256;

/// The processes that belong to the recorded program, each with its start in ticks, so that a later process of the same
/// number is not mistaken for it.
#[derive(Debug, Default)]
pub struct Owners(BTreeMap<Pid, u64>);

impl Owners {
    /// Adds a process that is known to belong to the program, unless it has ended.
    pub fn add(&mut self, pid: Pid) {
        let process = Process::open(pid).and_then(|process| process.start_time());
        self.0.extend(process.map(|start| (pid, start.ticks)));
    }

    /// Whether a file of this user may report on a process. Root and the recorder's user may report on all processes,
    /// another user on a descendant of the recorded program that runs as that user now. Ended processes have no user
    /// that could be checked.
    pub fn may_tell(&mut self, user: u32, pid: Pid) -> bool {
        if user == 0 || user == geteuid().as_raw() {
            self.add(pid);
            return true;
        }
        self.runs_as(user, pid).is_some_and(|runs| runs)
    }

    /// `None` if the process, or an ancestor before the nearest known one, has ended.
    fn runs_as(&mut self, user: u32, pid: Pid) -> Option<bool> {
        let process = Process::open(pid).ok()?;
        if !process.status().ok()?.uids.contains(&user) {
            return Some(false);
        }
        let mut start = process.start_time().ok()?;
        let mut line = vec![(pid, start.ticks)];
        while line.last().is_some_and(|(pid, ticks)| self.0.get(pid) != Some(ticks)) {
            if line.len() > MOST_GENERATIONS {
                return Some(false);
            }
            let parent = start.parent;
            start = Process::open(parent).ok()?.start_time().ok()?;
            line.push((parent, start.ticks));
        }
        // Descendants stay known after the processes between have ended.
        self.0.extend(line);
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A user that has no process here.
    const OTHER: u32 = 123_456;

    fn ended(mut child: Child) -> Pid {
        child.kill().and_then(|()| child.wait()).unwrap();
        Pid(child.id())
    }

    #[test]
    fn root_and_the_recorder_report_on_all_processes_and_others_on_none() {
        let (user, own) = (geteuid().as_raw(), Pid(std::process::id()));
        let mut owners = Owners::default();
        assert!(owners.may_tell(user, own) && owners.may_tell(0, Pid(u32::MAX)));
        assert!(!owners.may_tell(OTHER, own) && !owners.may_tell(OTHER, Pid(u32::MAX)));
    }

    #[test]
    fn a_user_reports_on_living_descendants_of_the_program_only() {
        let (user, own) = (geteuid().as_raw(), Pid(std::process::id()));
        let sleep = || Command::new("sleep").arg("60").spawn().unwrap();
        let (child, mut owners) = (sleep(), Owners::default());
        let pid = Pid(child.id());
        let unknown = owners.runs_as(user, pid);
        owners.add(own);
        let known = [owners.runs_as(user, pid), owners.runs_as(OTHER, pid), owners.runs_as(user, Pid(1))];
        // The parent of this process is no descendant of it.
        let parent = Process::open(own).unwrap().start_time().unwrap().parent;
        let of_parent = owners.runs_as(user, parent);
        // A process of a number that the program had before.
        owners.0.insert(own, 0);
        let later = sleep();
        let of_later = owners.runs_as(user, Pid(later.id()));
        let gone = [ended(child), ended(later)].map(|pid| owners.runs_as(user, pid));
        assert_eq!((known[0], known[1]), (Some(true), Some(false)));
        for answer in [unknown, known[2], of_parent, of_later, gone[0], gone[1]] {
            assert_ne!(answer, Some(true));
        }
    }
}
