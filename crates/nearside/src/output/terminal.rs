//! The terminal of standard output: its width, its colours, and a pager for long reports.

use super::{OutputError, write, write_private};
use crate::interrupt::asked_to_end;
use clap::{Args, ValueEnum};
use report::Layout;
use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Options of every command.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Terminal")]
pub struct Terminal {
    #[arg(
        help = "When to colour text: auto is on a terminal, unless NO_COLOR is set",
        long, value_enum, value_name = "WHEN", global = true, default_value_t = Color::Auto, hide_possible_values = true)]
    color: Color,

    /// Print reports that are longer than the terminal without a pager
    #[arg(long, global = true)]
    no_pager: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

/// The pager if neither `NEARSIDE_PAGER` nor `PAGER` is set.
const PAGER: &str = "less";
/// What less does if LESS is not set, as for git: end if the text fits, show colours, leave the text on the screen.
const LESS: &str = "FRX";
/// The widest help, in columns: clap's default.
const MOST_HELP: usize = 100;
/// The exit codes of a shell that cannot start a program.
const NOT_STARTED: [i32; 2] = [126, 127];

impl Terminal {
    /// Whether text is coloured.
    pub fn is_coloured(self) -> bool {
        match self.color {
            Color::Always => true,
            Color::Never => false,
            // https://no-color.org: any value but an empty one.
            Color::Auto => is_set("NO_COLOR").is_none() && io::stdout().is_terminal() && !is_dumb(),
        }
    }

    /// The layout of a report for a file, or for standard output if there is none.
    pub fn layout(self, file: Option<&Path>) -> Layout {
        if file.is_some() {
            return Layout::PIPED;
        }
        // A terminal may have no size: those of serial lines.
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0);
        Layout::new(size.map_or(Layout::PIPED.width(), |size| size.ws_col.into()), self.is_coloured())
    }

    /// A report as text for standard output: as wide as the terminal. In a pipe, where programs may read it, tables are
    /// as wide as they get.
    pub fn text(self, report: &impl Display) -> String {
        match io::stdout().is_terminal() {
            true => self.layout(None).text(report),
            false if self.is_coloured() => format!("{report:#}"),
            false => report.to_string(),
        }
    }

    /// Prints lines of text on standard output. On a terminal, what is wider than it goes on below.
    pub fn print_lines(self, text: &str) -> Result<(), OutputError> {
        if io::stdout().is_terminal() { write(&self.layout(None).wrapped_lines(text), None) } else { write(text, None) }
    }

    /// Prints a report on standard output, or writes it to a file for its owner only.
    pub fn print(self, report: &impl Display, file: Option<&Path>) -> Result<(), OutputError> {
        let text = self.layout(file).text(report);
        if file.is_none() && self.page(&text) { Ok(()) } else { write_private(&text, file) }
    }

    /// Shows a text in the user's pager, as git does. Returns false if there is none.
    fn page(self, text: &str) -> bool {
        if self.no_pager || is_dumb() || !io::stdout().is_terminal() {
            return false;
        }
        let pager = env::var_os("NEARSIDE_PAGER").or_else(|| env::var_os("PAGER")).unwrap_or_else(|| PAGER.into());
        if pager.is_empty() || pager == "cat" {
            return false;
        }
        // Ctrl-C is for the pager, which otherwise would be left behind on the terminal.
        let Ok(_asked) = asked_to_end() else { return false };
        let mut command = Command::new("sh");
        command.arg("-c").arg(pager).stdin(Stdio::piped());
        if env::var_os("LESS").is_none() {
            command.env("LESS", LESS);
        }
        let Ok(mut child) = command.spawn() else { return false };
        // A pager that is left before the end of the text closes the pipe.
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
        child.wait().is_ok_and(|status| status.code().is_none_or(|code| !NOT_STARTED.contains(&code)))
    }
}

/// Columns of `--help`.
pub fn help_width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0);
    let columns = || is_set("COLUMNS")?.to_str()?.parse().ok();
    size.map(|size| size.ws_col.into()).or_else(columns).map_or(MOST_HELP, |width: usize| width.min(MOST_HELP))
}

fn is_set(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn is_dumb() -> bool {
    env::var_os("TERM").is_some_and(|term| term == "dumb")
}
