//! Lines of JSON, of the journal and the control socket.

use serde::Serialize;

/// A value as a line of JSON with its newline.
pub(crate) fn line(of: &impl Serialize) -> Vec<u8> {
    // Only map keys and paths that are not UTF-8 could fail; lines have neither.
    let mut line = serde_json::to_vec(of).unwrap_or_default();
    line.push(b'\n');
    line
}
