//! Ends what a program started if nearside is killed: the kernel ends the program itself, but none of its children.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Reads process groups, each in the place of the one before, and ends the last one once nearside has closed the pipe, as
/// the kernel does if it kills nearside. An empty line means no group.
const SCRIPT: &str = r#"trap '' HUP INT TERM
while read -r line; do group=$line; done
test -z "$group" || kill -s KILL -- "-$group""#;

/// A process that outlives nearside by as long as it takes to end a process group.
pub(crate) struct Guard {
    process: Child,
    groups: Option<ChildStdin>,
}

impl Guard {
    pub(crate) fn start() -> io::Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut process = shell.spawn()?;
        let groups = process.stdin.take();
        Ok(Self { process, groups })
    }

    /// Guards this group from now on, or none.
    pub(crate) fn guard(&mut self, group: Option<u32>) {
        let line = group.map(|group| group.to_string()).unwrap_or_default();
        // If the user has ended it, runs go on without it.
        let _ = self.groups.as_mut().map(|groups| writeln!(groups, "{line}"));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.groups = None;
        // It ends as its input does; a failure to wait leaves an entry in the process table.
        let _ = self.process.wait();
    }
}
