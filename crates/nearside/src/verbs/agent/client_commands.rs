//! Queries to the running agent.

use super::SOCKET;
use crate::output;
use crate::output::json;
use agent::control::{Answer, Request, ask};
use agent::journal::default_folder;
use report::{ExplanationText, StatusText, escape_text, prometheus};
use rustix::process::geteuid;
use serde::Serialize;
use std::error::Error;
use std::fs::symlink_metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
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
    // An agent of another user may answer at a socket that is named.
    output::write(&if json { text } else { escape_text(&text) }, None)?;
    Ok(ExitCode::SUCCESS)
}

/// Socket of this user's own agent, if there is one; one that was killed has left its socket.
fn default_socket() -> PathBuf {
    socket_of(geteuid().as_raw(), &default_folder(), Path::new(SYSTEM_FOLDER))
}

/// A folder of another user is not the user's own: in /tmp, any user may have taken its name first.
fn socket_of(uid: u32, own: &Path, systems: &Path) -> PathBuf {
    let is_own = symlink_metadata(own).is_ok_and(|folder| folder.is_dir() && folder.uid() == uid);
    let [own, systems] = [own, systems].map(|folder| folder.join(SOCKET));
    let is_left = || UnixStream::connect(&own).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    if is_own && own.exists() && !(systems.exists() && is_left()) { own } else { systems }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_socket_in_another_users_folder_is_not_the_users_own() {
        let folder = tempfile::tempdir().unwrap();
        let [own, systems] = ["own", "systems"].map(|name| folder.path().join(name));
        let uid = geteuid().as_raw();
        let socket = |uid, own: &Path| socket_of(uid, own, &systems);
        assert_eq!(socket(uid, &own), systems.join(SOCKET), "there is no agent of the user's own");
        std::fs::create_dir(&own).unwrap();
        let agent = UnixListener::bind(own.join(SOCKET)).unwrap();
        assert_eq!(socket(uid, &own), own.join(SOCKET));
        assert_eq!(socket(uid + 1, &own), systems.join(SOCKET));
        // A link may be another user's.
        let link = folder.path().join("link");
        symlink(&own, &link).unwrap();
        assert_eq!(socket(uid, &link), systems.join(SOCKET));
        drop(agent);
        std::fs::create_dir(&systems).unwrap();
        let _systems = UnixListener::bind(systems.join(SOCKET)).unwrap();
        assert_eq!(socket(uid, &own), systems.join(SOCKET), "it was killed");
    }
}
