//! Threads that are another user.

use crate::attacks::failed;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// The attacker's user and group.
pub const OTHER: u32 = 54_322;

/// Ends the attacker's loop, also where the attacked side panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Repeats `attack` as user [`OTHER`], in a thread, until `meanwhile` has returned. Needs root. System calls that a C
/// library makes for all threads would change the whole process; these change the calling thread.
pub fn while_another_user<T>(
    mut attack: impl FnMut() + Send,
    meanwhile: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let attacker = scope.spawn(|| -> io::Result<()> {
            set_thread_groups(&[])?;
            set_thread_gid(Gid::from_raw(OTHER))?;
            set_thread_uid(Uid::from_raw(OTHER))?;
            while !is_over.load(Relaxed) {
                attack();
            }
            Ok(())
        });
        let over = Over(&is_over);
        let done = meanwhile();
        drop(over);
        attacker.join().map_err(|_| failed("the attacker panicked"))??;
        done
    })
}
