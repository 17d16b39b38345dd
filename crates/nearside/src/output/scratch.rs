//! A folder for files that are not kept.

use std::env;
use std::error::Error;
use tempfile::TempDir;

/// Makes an empty folder, which is removed when it is dropped, also with what is in it.
pub fn scratch_folder() -> Result<TempDir, Box<dyn Error>> {
    let failed = |error| {
        let place = env::temp_dir();
        format!("cannot make a temporary folder in {} ({error}): name another place in TMPDIR", place.display()).into()
    };
    // Of a process that is killed it is left, and its name tells whose it is.
    tempfile::Builder::new().prefix("nearside-").tempdir().map_err(failed)
}
