//! What tests of all crates share: skips that are reported, checks that do not hide each other, and JSON output that is
//! documented.

pub mod json_fields;

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Reports that this system cannot run the calling test, or the rest of it, and why. `tools/count-tests` counts these
/// lines at the end of `make test`. Tests never return early without it.
pub fn skipped(reason: impl Display) {
    let thread = thread::current();
    let line = format!("skipped: {}: {reason}\n", thread.name().unwrap_or("?"));
    // Not `eprintln`: the test runner hides what that prints in a test that passes.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Parts of a test that are all checked, even if one fails. For tests that take long to come to their assertions, such
/// as those that boot a virtual machine: the first failing assertion must not hide the others.
///
/// Panics when it is dropped if a part has failed. The runner prints each part's own message.
#[derive(Debug, Default)]
pub struct Checks {
    parts: Cell<usize>,
    failed: RefCell<Vec<String>>,
}

impl Checks {
    /// No parts yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs the assertions of a part.
    pub fn part(&self, name: impl Display, assertions: impl FnOnce()) {
        self.parts.set(self.parts.get() + 1);
        // A part that has panicked leaves nothing that another one could see.
        if catch_unwind(AssertUnwindSafe(assertions)).is_err() {
            self.failed.borrow_mut().push(name.to_string());
        }
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        let failed = self.failed.take();
        assert!(
            failed.is_empty() || thread::panicking(),
            "{} of {} parts failed: {}; their messages are above",
            failed.len(),
            self.parts.get(),
            failed.join(", ")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_hides_another() {
        let mut reached = Vec::new();
        let all = catch_unwind(AssertUnwindSafe(|| {
            let checks = Checks::new();
            for part in 0..4 {
                checks.part(part, || {
                    reached.push(part);
                    assert!(part % 2 == 0);
                });
            }
        }));
        assert_eq!(reached, [0, 1, 2, 3]);
        let message = all.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(*message, "2 of 4 parts failed: 1, 3; their messages are above");
        Checks::new().part("good", || ());
    }
}
