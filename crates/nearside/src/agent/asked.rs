//! Asking the agent that runs.

use super::SOCKET;
use crate::output;
use ::agent::control::{Answer, Request, ask};
use ::agent::journal::default_folder;
use report::{ExplanationText, StatusText, prometheus};
use serde::Serialize;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where the system's agent is, for those who are in its socket's group.
const SYSTEM_FOLDER: &str = "/run/nearside";

/// As what an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text; metrics are `OpenMetrics`.
    Text,
    Json,
    /// Metrics as Prometheus's own text.
    Prometheus,
}

/// Asks, and prints the answer.
pub fn print(socket: Option<&Path>, request: Request, form: Form) -> Result<ExitCode, Box<dyn Error>> {
    let socket = socket.map_or_else(default_socket, Path::to_owned);
    let json = form == Form::Json;
    let text = match ask(&socket, request)? {
        Answer::Status(status) if json => line(&status)?,
        Answer::Status(status) => StatusText(&status).to_string(),
        Answer::Explained(explanation) if json => line(&explanation)?,
        Answer::Explained(explanation) => ExplanationText(&explanation).to_string(),
        Answer::Paused(paused) if json => format!("{{\"paused\":{paused}}}\n"),
        Answer::Paused(true) => "the agent is paused\n".to_owned(),
        Answer::Paused(false) => "the agent goes on\n".to_owned(),
        Answer::Metrics(text) if form == Form::Prometheus => prometheus(&text),
        Answer::Metrics(text) | Answer::Refused(text) => text,
    };
    output::write(&text, None)?;
    Ok(ExitCode::SUCCESS)
}

fn line(of: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(of)? + "\n")
}

/// That of an agent of this user's own, if there is one.
fn default_socket() -> PathBuf {
    let own = default_folder().join(SOCKET);
    if own.exists() { own } else { Path::new(SYSTEM_FOLDER).join(SOCKET) }
}
