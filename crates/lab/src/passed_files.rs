//! Files that QEMU gets from this program: inherited ones, and the plugin.

use crate::LabError;
use crate::kernel_image;
use rustix::fs::{MemfdFlags, Mode, OFlags, ftruncate, memfd_create, open};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The plugin's file name.
pub const PLUGIN: &str = "libnearside_lab_plugin.so";
/// Overrides the plugin's path, if it is not beside this program.
pub const PLUGIN_VARIABLE: &str = "NEARSIDE_PLUGIN";

/// The kernel of an image in unnamed memory, or `None` if QEMU has to start the image itself.
pub(crate) fn unpacked_kernel(image: &Path) -> Result<Option<OwnedFd>, LabError> {
    let image = std::fs::read(image).map_err(|why| LabError::file("read", image, why))?;
    kernel_image::unpacked(&image).map(|kernel| memory("nearside-kernel", kernel.len(), &kernel)).transpose()
}

/// Unnamed memory with these contents, which QEMU inherits.
pub(crate) fn memory(name: &str, bytes: usize, contents: &[u8]) -> Result<OwnedFd, LabError> {
    let make = || -> io::Result<OwnedFd> {
        let file = memfd_create(name, MemfdFlags::empty())?;
        ftruncate(&file, bytes as u64)?;
        std::fs::File::from(file.try_clone()?).write_all(contents)?;
        Ok(file)
    };
    make().map_err(LabError::host("make shared memory"))
}

/// An open file or folder that QEMU inherits.
pub(crate) fn inherited(path: &Path, flags: OFlags) -> Result<OwnedFd, LabError> {
    open(path, flags, Mode::empty()).map_err(|why| LabError::file("open", path, why.into()))
}

/// The path of an open file for a process that inherits it.
pub(crate) fn by_number(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Beside this program, or in `lib/nearside` beside its folder, or where the variable says.
pub(crate) fn find_plugin() -> Result<PathBuf, LabError> {
    if let Some(named) = std::env::var_os(PLUGIN_VARIABLE) {
        let named = PathBuf::from(named);
        return std::fs::canonicalize(&named).map_err(|why| LabError::file("find the lab's plugin", &named, why));
    }
    let program = std::env::current_exe().map_err(LabError::host("find out where this program is"))?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let folders = vec![folder.to_owned(), folder.join("../lib/nearside")];
    let found = folders.iter().map(|folder| folder.join(PLUGIN)).find_map(|file| std::fs::canonicalize(file).ok());
    found.ok_or(LabError::NoPlugin { name: PLUGIN, folders, variable: PLUGIN_VARIABLE })
}
