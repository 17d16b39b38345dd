//! The user's terminal: a progress line while a machine boots, and raw mode for `--shell`.

use indicatif::{ProgressBar, ProgressStyle};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io;
use std::time::Duration;

/// A progress line with the time elapsed; it shows only on a terminal.
pub fn progress_line() -> ProgressBar {
    let line = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        line.set_style(style);
    }
    line.enable_steady_tick(Duration::from_millis(100));
    line
}

/// About how long a machine boots, s of host time. Measured on a host of two cores: 4.3 s with 8 CPUs, 8.3 s with 48
/// (docs/figures.md).
pub fn expected_boot_s(cpus: usize) -> f64 {
    3.5 + 0.1 * cpus as f64
}

/// Standard input as a raw terminal, until this is dropped: every key goes to the guest, even Ctrl-C.
pub struct Raw(Termios);

impl Raw {
    /// Fails if standard input is not a terminal.
    pub fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_machines_boot_for_longer() {
        let seconds = [8, 48].map(|cpus| format!("{:.1}", expected_boot_s(cpus)));
        assert_eq!(seconds, ["4.3", "8.3"]);
    }
}
