//! Which user may report on which process. A recorder's folder may be open to all users, so that programs that drop
//! their privileges can go on.

use linux::Pid;
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::fs;

/// Users that have reported on processes of their own.
#[derive(Debug)]
pub struct Owners(BTreeSet<u32>);

impl Owners {
    /// No users yet.
    pub fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Whether a file of this user may report on a process. Root and the recorder's user may report on all processes,
    /// other users on their own. The owner of an ended process cannot be checked: users that have reported on a
    /// process of their own before are trusted.
    pub fn may_tell(&mut self, user: u32, pid: Pid) -> bool {
        if user == 0 || user == geteuid().as_raw() {
            return true;
        }
        match fs::read_to_string(format!("/proc/{}/status", pid.0)) {
            Ok(status) => {
                let is_own = users(&status).any(|of| of == user);
                if is_own {
                    self.0.insert(user);
                }
                is_own
            }
            Err(_) => self.0.contains(&user),
        }
    }
}

/// The user IDs of a process: real, effective, saved and file system.
fn users(status: &str) -> impl Iterator<Item = u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    line.split_whitespace().filter_map(|user| user.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_reports_on_own_processes_only() {
        let own = Pid(std::process::id());
        let (user, other) = (geteuid().as_raw(), 123_456);
        let mut owners = Owners::new();
        assert!(owners.may_tell(user, own) && owners.may_tell(0, own));
        assert!(!owners.may_tell(other, own) && !owners.may_tell(other, Pid(u32::MAX)));
        let status = "Name:\tx\nUid:\t1000\t1001\t1002\t1003\nGid:\t7\t7\t7\t7\n";
        assert_eq!(users(status).collect::<Vec<_>>(), [1000, 1001, 1002, 1003]);
        assert_eq!(users("").count(), 0);
    }
}
