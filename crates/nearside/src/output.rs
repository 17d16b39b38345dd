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
    let Some(path) = file else { return write_more(text).map(|_| ()) };
    let written = File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| OutputError { path: Some(path.to_owned()), source })
}

/// Writes a text to standard output; whether somebody reads on.
pub fn write_more(text: &str) -> Result<bool, OutputError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(source) => Err(OutputError { path: None, source }),
    }
}
