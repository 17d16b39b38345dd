//! Files and folders for their owner only: traces and reports have command lines, addresses and names of processes that
//! other users may not look into. The umask changes nothing about that.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Creates a folder for its owner only, and its parents likewise. Folders that exist keep their modes.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    let is_new = !path.is_dir();
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    if is_new {
        // For umasks that take rights from the owner. Some file systems have no modes to change.
        let _ = fs::set_permissions(path, Permissions::from_mode(0o700));
    }
    Ok(())
}

/// Creates a file for its owner only. A file that exists is emptied and keeps its mode.
pub fn create_private_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).mode(0o600);
    match options.create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            options.create_new(false).create(true).truncate(true).open(path)
        }
        opened => {
            let file = opened?;
            // As for folders.
            let _ = file.set_permissions(Permissions::from_mode(0o600));
            Ok(file)
        }
    }
}
