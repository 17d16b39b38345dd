//! Processes that keep the host busy.

use bench::Error;
use linux::ChildSetup;
use std::process::{Child, Command, Stdio};

const PROCESSES: usize = 8;

/// Processes that keep the host's CPUs busy until this is dropped.
pub struct Busy(Vec<Child>);

impl Busy {
    /// Starts them.
    pub fn start() -> Result<Self, Error> {
        let mut busy = Self(Vec::new());
        for _ in 0..PROCESSES {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            command.die_with_parent();
            busy.0.push(command.spawn().map_err(Error::system("keep the host busy"))?);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // A failure means that it has ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
