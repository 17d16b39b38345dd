//! What a verb prints: to standard output or into a file.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Why the output could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to {}: {source}", path.as_ref().map_or_else(|| "standard output".into(), |path| path.display().to_string()))]
pub struct OutputError {
    /// The file; nothing for standard output.
    path: Option<PathBuf>,
    source: io::Error,
}

/// Writes all of a text. A reader that has seen enough (`| head`) is no error.
pub fn write(text: &str, file: Option<&Path>) -> Result<(), OutputError> {
    let written = match file {
        Some(path) => File::create(path).and_then(|mut file| file.write_all(text.as_bytes())),
        None => to_stdout(text),
    };
    written.map_err(|source| OutputError { path: file.map(Path::to_owned), source })
}

fn to_stdout(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
