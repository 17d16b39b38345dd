//! The sessions of processes.

use crate::processes::process::{Pid, Process};
use rustix::process::{getpid, getppid};

/// Whether the parent of this process is of the same session, as a shell with job control is. Only then is there a
/// process that may continue this one once it is stopped. Needs no privileges.
pub fn is_of_parents_session() -> bool {
    let session = |pid: rustix::process::Pid| {
        let process = Process::open(Pid(pid.as_raw_nonzero().get().cast_unsigned())).ok()?;
        session_number(&process.text("stat").ok()?)
    };
    let parents = getppid().and_then(session);
    parents.is_some() && parents == session(getpid())
}

/// The session in the text of /proc/PID/stat: field 6, 0 for a session of another PID namespace, as in containers. Field
/// 2 is a name in parentheses that may hold anything.
fn session_number(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(6 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_is_found_behind_any_name() {
        assert_eq!(session_number("7 (a) S 1 (b) S 4 5 0 7 8"), Some(0));
        assert_eq!(session_number("7 (a) S 4 5 6"), Some(6));
        assert_eq!(
            (session_number("7 (a) S 4 5"), session_number("7 (a) S 4 5 x"), session_number("")),
            (None, None, None)
        );
    }
}
