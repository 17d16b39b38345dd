//! Queries to the running agent.

use super::SOCKET;
use crate::output;
use crate::output::json;
use agent::control::{Answer, Request, ask};
use agent::journal::default_folder;
use report::{ExplanationText, StatusText, prometheus};
use serde::Serialize;
use std::error::Error;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Socket of the system's agent, for members of its socket's group.
const SYSTEM_FOLDER: &str = "/run/nearside";

/// Output format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text; metrics are `OpenMetrics`.
    Text,
    Json,
    /// Metrics in Prometheus's text format.
    Prometheus,
}

/// Whether the agent is paused, as JSON.
#[derive(Serialize)]
struct Paused {
    paused: bool,
}

/// What the agent does from now on, as JSON.
#[derive(Serialize)]
struct Ordered {
    does: String,
}

/// Sends the query and prints the answer.
pub fn print(socket: Option<&Path>, request: &Request, form: Form) -> Result<ExitCode, Box<dyn Error>> {
    let socket = socket.map_or_else(default_socket, Path::to_owned);
    let json = form == Form::Json;
    let text = match ask(&socket, request)? {
        Answer::Status(status) if json => json::document(&status)?,
        Answer::Status(status) => StatusText(&status).to_string(),
        Answer::Explained(explanation) if json => json::document(&explanation)?,
        Answer::Explained(explanation) => ExplanationText(&explanation).to_string(),
        Answer::Paused(paused) if json => json::document(&Paused { paused })?,
        Answer::Ordered(does) if json => json::document(&Ordered { does })?,
        Answer::Ordered(does) => format!("the agent {does}\n"),
        Answer::Paused(true) => "the agent is paused\n".to_owned(),
        Answer::Paused(false) => "the agent is running\n".to_owned(),
        Answer::Metrics(text) if form == Form::Prometheus => prometheus(&text),
        Answer::Metrics(text) | Answer::Refused(text) => text,
    };
    output::write(&text, None)?;
    Ok(ExitCode::SUCCESS)
}

/// Socket of this user's own agent, if there is one; one that was killed has left its socket.
fn default_socket() -> PathBuf {
    let [own, systems] = [default_folder(), SYSTEM_FOLDER.into()].map(|folder| folder.join(SOCKET));
    let is_left = || UnixStream::connect(&own).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    if own.exists() && !(systems.exists() && is_left()) { own } else { systems }
}
