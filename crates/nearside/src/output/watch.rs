//! Prints something once or repeatedly.

use crate::interrupt::interrupted;
use crate::options::seconds::seconds;
use crate::output;
use crate::output::json;
use crate::output::terminal::Terminal;
use clap::Args;
use serde::Serialize;
use std::error::Error;
use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest delay before Ctrl-C takes effect.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Clears the terminal and moves to its top.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// The interval between two readings.
#[derive(Clone, Copy, Debug, Args)]
pub struct Watch {
    /// Repeat every SECONDS until Ctrl-C [default: 2]; in JSON, one line each time
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = seconds(0.01..=86_400.0)
    )]
    watch: Option<Duration>,
}

impl Watch {
    /// Whether there is more than one reading.
    pub fn is_on(self) -> bool {
        self.watch.is_some()
    }

    /// Prints the result of `look` once, or until there is no further result, it fails, the reader closes the output,
    /// or Ctrl-C.
    pub fn print(self, mut look: impl FnMut() -> Result<Option<String>, Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
        let Some(period) = self.watch else {
            return Ok(look()?.map_or(Ok(()), |text| output::write(&text, None))?);
        };
        let stop = interrupted()?;
        let clear = io::stdout().is_terminal();
        let mut next = Instant::now();
        while !stop.load(Relaxed) {
            let Some(text) = look()? else { break };
            let text = if clear { format!("{CLEAR}{text}") } else { text };
            if !output::write_more(&text)? {
                break;
            }
            // Readings missed because one took long, or the machine was suspended, are not made up for.
            next = (next + period).max(Instant::now());
            while !stop.load(Relaxed) && Instant::now() < next {
                sleep(next.saturating_duration_since(Instant::now()).min(POLL_INTERVAL));
            }
        }
        Ok(())
    }

    /// The reading as text.
    pub fn text(self, found: &impl Display, terminal: Terminal) -> String {
        let end = if self.is_on() { "\n" } else { "" };
        // Readings are separated by an empty line.
        terminal.text(found) + end
    }

    /// The reading as JSON: pretty-printed, or one line per reading.
    pub fn json(self, found: &impl Serialize) -> Result<String, serde_json::Error> {
        if self.is_on() { json::line(found) } else { json::document(found) }
    }
}
