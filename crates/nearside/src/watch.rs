//! Printing something once, or again and again.

use crate::interrupt::interrupted;
use crate::output;
use clap::Args;
use serde::Serialize;
use std::error::Error;
use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long Ctrl-C may have to wait.
const PATIENCE: Duration = Duration::from_millis(50);
/// Empties the terminal and goes to its top.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// How often to look.
#[derive(Clone, Copy, Debug, Args)]
pub struct Watch {
    /// Look again every so many seconds until Ctrl-C [default: 2]; in JSON, one line each time
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = parse_seconds
    )]
    watch: Option<Duration>,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("seconds, from 0.01 to 86400".to_owned()),
    }
}

impl Watch {
    /// Whether there is more than one look.
    pub fn is_on(self) -> bool {
        self.watch.is_some()
    }

    /// Prints what `look` finds: once, or until it finds nothing more, it fails, the reader has seen enough or Ctrl-C.
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
            // What took longer than the period, or a night of suspension, is not made up for.
            next = (next + period).max(Instant::now());
            while !stop.load(Relaxed) && Instant::now() < next {
                sleep(next.saturating_duration_since(Instant::now()).min(PATIENCE));
            }
        }
        Ok(())
    }

    /// What was found, as text.
    pub fn text(self, found: &impl Display) -> String {
        // Looks are an empty line apart.
        if self.is_on() { format!("{found}\n") } else { found.to_string() }
    }

    /// What was found, as JSON: on several lines, or each time on one.
    pub fn json(self, found: &impl Serialize) -> Result<String, serde_json::Error> {
        let json = if self.is_on() { serde_json::to_string(found)? } else { serde_json::to_string_pretty(found)? };
        Ok(json + "\n")
    }
}
