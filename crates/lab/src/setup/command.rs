//! Runs a program to its end and keeps its output.

use std::process::{Command, Stdio};

use super::SetupError;

/// Number of output lines quoted in errors: apt's reason is in the last few.
const QUOTED_LINES: usize = 6;

pub struct Finished {
    pub stdout: String,
    pub stderr: String,
    status: std::process::ExitStatus,
    command: String,
}

/// Runs `command` without stdin and in the C locale, whatever its exit status.
pub fn run(command: &mut Command) -> Result<Finished, SetupError> {
    let output = command.env("LC_ALL", "C").stdin(Stdio::null()).output().map_err(|error| SetupError::Program {
        program: command.get_program().to_string_lossy().into_owned(),
        error,
    })?;
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    Ok(Finished {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        status: output.status,
        command: words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "),
    })
}

impl Finished {
    /// The end of its output: stderr, or stdout if that is empty.
    pub fn last_lines(&self) -> String {
        let said = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(QUOTED_LINES)..].join("\n")
    }

    pub fn succeeded(&self) -> bool {
        self.status.success()
    }

    /// Its stdout, if it succeeded.
    pub fn checked(self) -> Result<String, SetupError> {
        if self.succeeded() {
            return Ok(self.stdout);
        }
        Err(self.failed(&self.status.to_string()))
    }

    /// The error for how it ended.
    pub fn failed(&self, status: &str) -> SetupError {
        SetupError::Command { command: self.command.clone(), status: status.to_string(), output: self.last_lines() }
    }
}
