//! Files of which a process and its children see a copy of their own, in memory of chosen nodes.

use machine::{NodeSet, SMALL_PAGE};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, mount_remount, unmount,
};
use rustix::process::{getgid, getuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// A step that was refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}", path.display())]
pub struct FileCopyError {
    /// What was tried.
    pub what: &'static str,
    /// With which file or folder.
    pub path: PathBuf,
    /// The answer.
    #[source]
    pub why: io::Error,
}

/// Shows this process, and those that it starts, copies of these files in place of the files: read-only, as they are now,
/// in memory of these nodes (page by page in turn, if there are several). Other processes see the files. The memory is
/// released when the last of these processes has ended. Each file is counted in full in this process's control group.
///
/// Needs `CAP_SYS_ADMIN`, or a kernel on which any user may make user namespaces: the process then is in one of its own,
/// in which only its user and group have names. The process must have one thread. Since Linux 3.8.
pub fn replicate_files(files: &[PathBuf], nodes: &NodeSet) -> Result<(), FileCopyError> {
    let Some(first) = files.first() else { return Ok(()) };
    let scratch = std::env::temp_dir();
    let failed = |what, path: &Path| {
        let path = path.to_owned();
        move |why: io::Error| FileCopyError { what, path, why }
    };
    let originals = files.iter().map(|path| {
        let (file, found) = open(path).map_err(failed("read", path))?;
        Ok((path, file, found))
    });
    let originals: Vec<(&PathBuf, File, PathBuf)> = originals.collect::<Result<_, FileCopyError>>()?;
    own_mounts().map_err(failed("make a mount namespace for copies of", first))?;
    for (path, mut original, found) in originals {
        // As it is in the own namespace, and before its folder may be hidden.
        let place = File::open(&found).map_err(failed("read", path))?;
        let copied = copy(&mut original, &scratch, nodes);
        copied.map_err(failed("copy", path))?;
        let shown = show(&place, &scratch, &found);
        shown.map_err(failed("show a copy in place of", path))?;
    }
    Ok(())
}

/// The file, and its path without symbolic links.
fn open(path: &Path) -> io::Result<(File, PathBuf)> {
    // Opening a pipe without a writer would wait for one.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    Ok((file, fs::canonicalize(path)?))
}

/// From here on, mounts are seen by this process and those that it starts.
fn own_mounts() -> io::Result<()> {
    // SAFETY: what is unshared is no file descriptor and no memory.
    let unshared = unsafe { unshare_unsafe(UnshareFlags::NEWNS) };
    match unshared {
        Err(Errno::PERM) => {
            let (user, group) = (getuid().as_raw(), getgid().as_raw());
            // SAFETY: as before.
            let unshared = unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) };
            // How the kernel says that no further user namespace is allowed.
            unshared.map_err(|error| if error == Errno::NOSPC { Errno::PERM } else { error })?;
            // Else the kernel accepts no map of groups from an ordinary user.
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
        }
        other => other?,
    }
    Ok(mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?)
}

/// The path of a copy below a folder on which a file system is mounted for it.
fn of_copy(scratch: &Path) -> PathBuf {
    scratch.join("copy")
}

/// Mounts a file system in memory of these nodes on a folder, with a copy of a file.
fn copy(original: &mut File, scratch: &Path, nodes: &NodeSet) -> io::Result<()> {
    // Pages of a file system are where the policy says, whichever thread reads them first.
    let policy = if nodes.len() == 1 { "bind" } else { "interleave" };
    let bytes = original.metadata()?.len().next_multiple_of(SMALL_PAGE).max(SMALL_PAGE);
    let options = CString::new(format!("mode=0700,size={bytes},mpol={policy}:{nodes}"))?;
    mount("nearside", scratch, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(options.as_c_str()))?;
    let filled = (|| {
        let attributes = original.metadata()?;
        let mut copy = OpenOptions::new().write(true).create_new(true).mode(0o600).open(of_copy(scratch))?;
        io::copy(original, &mut copy)?;
        let times = fs::FileTimes::new().set_accessed(attributes.accessed()?).set_modified(attributes.modified()?);
        copy.set_times(times)?;
        // In a user namespace, other owners have no names: the caller's own can read it all the same.
        let _ = fchown(&copy, Some(attributes.uid()), Some(attributes.gid()));
        copy.set_permissions(fs::Permissions::from_mode(attributes.permissions().mode() & 0o7777))
    })();
    if filled.is_err() {
        let _ = unmount(scratch, UnmountFlags::DETACH);
    }
    filled
}

/// Puts the copy in the file's place, read-only: what was written to it would be lost.
fn show(place: &File, scratch: &Path, found: &Path) -> io::Result<()> {
    let place = format!("/proc/self/fd/{}", place.as_raw_fd());
    let bound = mount_bind(of_copy(scratch), place.as_str());
    unmount(scratch, UnmountFlags::DETACH)?;
    bound?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    Ok(mount_remount(found, flags, "")?)
}
