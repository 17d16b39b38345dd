//! Folders and files that no other user may exchange: a privileged program reaches its own files only through these.
//!
//! Each folder on the way from `/` is opened below the one before and checked, and the last descriptor is kept, so a
//! name is looked up once. Files are single names below it: `openat` with `O_NOFOLLOW` then crosses no link and needs no
//! `openat2`, which older kernels and system call filters refuse.

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, chmod, chownat, fchmod, fstat, mkdirat, openat,
    readlinkat, statat,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::{Component, Path, PathBuf};

/// Most symbolic links on the way, as in the kernel.
const MOST_LINKS: usize = 40;
/// Write permission of the group and of all users.
const GROUP_MAY_WRITE: u32 = 0o020;
const ALL_MAY_WRITE: u32 = 0o002;
/// In a folder with this bit, only its owner and a file's owner may rename or remove the file.
const STICKY: u32 = 0o1000;
/// Connections that wait to be accepted, as in the standard library.
const BACKLOG: i32 = 128;
/// The permissions of a mode.
const PERMISSIONS: u32 = 0o7777;

/// Who besides root and the caller may write to the folders on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// No other user.
    Owners,
    /// Members of their groups too. Some distributions let the group of the log service write to /var/log.
    Groups,
}

/// Why a folder or file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFolderError {
    /// The system refused.
    #[error("cannot {what} {}", path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another user could exchange or read it.
    #[error("{} is not safe from other users: {} (owner {owner}, mode {mode:04o}) {why}", path.display(), part.display())]
    Unsafe {
        /// The file or folder that was asked for.
        path: PathBuf,
        /// What is wrong: itself, or a folder on the way.
        part: PathBuf,
        /// The user that this belongs to.
        owner: u32,
        /// Its permissions.
        mode: u32,
        /// What is wrong with it, and what to do.
        why: String,
    },
}

impl PrivateFolderError {
    fn system<E: Into<io::Error>>(what: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        move |error| Self::System { what, path: path.to_owned(), source: error.into() }
    }

    fn from_stat(path: &Path, part: &Path, found: &Stat, why: String) -> Self {
        let (path, part) = (path.to_owned(), part.to_owned());
        Self::Unsafe { path, part, owner: found.st_uid, mode: found.st_mode & PERMISSIONS, why }
    }
}

/// An open folder whose files no other user can exchange.
#[derive(Debug)]
pub struct PrivateFolder {
    folder: OwnedFd,
    path: PathBuf,
}

impl PrivateFolder {
    /// Opens an existing folder. It and its parents belong to root or the caller, and others may write to them only
    /// where the sticky bit protects what is in them. Symbolic links of root and the caller are followed.
    pub fn open(path: &Path, trust: Trust) -> Result<Self, PrivateFolderError> {
        Self::reach(path, trust, None)
    }

    /// Opens a folder that belongs to the caller and that no other user may write to; creates it, but not its parents,
    /// with this mode. It may not be a symbolic link.
    pub fn create(path: &Path, mode: u32) -> Result<Self, PrivateFolderError> {
        let this = Self::reach(path, Trust::Owners, Some(mode))?;
        let found = fstat(&this.folder).map_err(PrivateFolderError::system("look at", path))?;
        let refused = |why| Err(PrivateFolderError::from_stat(path, path, &found, why));
        if found.st_uid != geteuid().as_raw() {
            return refused(format!("belongs to another user: chown {} it, or choose another", geteuid().as_raw()));
        }
        if found.st_mode & (GROUP_MAY_WRITE | ALL_MAY_WRITE) != 0 {
            return refused(format!("may be written to by others: chmod go-w {}", path.display()));
        }
        Ok(this)
    }

    fn reach(path: &Path, trust: Trust, create: Option<u32>) -> Result<Self, PrivateFolderError> {
        let failed = |what| PrivateFolderError::system::<Errno>(what, path);
        let whole = std::path::absolute(path).map_err(PrivateFolderError::system("find", path))?;
        let root = || openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let (mut at, mut here) = (root().map_err(failed("open"))?, PathBuf::from("/"));
        check(path, &here, &fstat(&at).map_err(failed("look at"))?, trust)?;
        let (mut ahead, mut links, mut is_new) = (parts(&whole), 0, false);
        while let Some(part) = ahead.pop() {
            let create = create.filter(|_| ahead.is_empty());
            let there = here.join(&part);
            if let Some(mode) = create {
                match mkdirat(&at, &part, Mode::from_raw_mode(mode)) {
                    Err(error) if error != Errno::EXIST => {
                        return Err(PrivateFolderError::system("make the folder", &there)(error));
                    }
                    made => is_new = made.is_ok(),
                }
            }
            let next = openat(&at, &part, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
                .map_err(PrivateFolderError::system("open the folder", &there))?;
            let found = fstat(&next).map_err(failed("look at"))?;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory => {
                    check(path, &there, &found, trust)?;
                    at = next;
                    if part == ".." {
                        here.pop();
                    } else {
                        here = there;
                    }
                }
                FileType::Symlink if create.is_none() && links < MOST_LINKS => {
                    if !is_trusted(found.st_uid) {
                        let why = "is a symbolic link of another user: remove it, or choose another folder".to_owned();
                        return Err(PrivateFolderError::from_stat(path, &there, &found, why));
                    }
                    links += 1;
                    let target = readlinkat(&next, "", Vec::new()).map_err(failed("follow"))?;
                    let target = Path::new(OsStr::from_bytes(target.as_bytes())).to_owned();
                    if target.is_absolute() {
                        (at, here) = (root().map_err(failed("open"))?, "/".into());
                    }
                    ahead.extend(parts(&target));
                }
                FileType::Symlink => return Err(PrivateFolderError::system("use the folder", &there)(Errno::LOOP)),
                _ => return Err(PrivateFolderError::system("use the folder", &there)(Errno::NOTDIR)),
            }
        }
        // A descriptor of `O_PATH` can neither be listed nor get a mode.
        let folder = openat(&at, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(failed("open the folder"))?;
        if let Some(mode) = create.filter(|_| is_new) {
            fchmod(&folder, Mode::from_raw_mode(mode)).map_err(failed("restrict the folder"))?;
        }
        Ok(Self { folder, path: path.to_owned() })
    }

    /// Its path, as it was asked for.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens or creates a regular file of the caller's own, to read and to append, with this mode at any umask.
    pub fn file(&self, name: &str, mode: u32) -> Result<File, PrivateFolderError> {
        let path = self.path.join(name);
        let failed = |what| PrivateFolderError::system::<Errno>(what, &path);
        // Opening a pipe without a reader must not wait for one.
        let flags =
            OFlags::RDWR | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let name = one_name(name, &path)?;
        let open = |flags| openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR);
        // First without O_CREAT: with it, fs.protected_regular refuses another user's file before it can be described.
        let opened = match open(flags) {
            // Another process may create it in between.
            Err(Errno::NOENT) => {
                open(flags | OFlags::CREATE | OFlags::EXCL).or_else(|why| open(flags).map_err(|_| why))
            }
            found => found,
        };
        let file = File::from(opened.map_err(failed("open"))?);
        let found = fstat(&file).map_err(failed("look at"))?;
        let why = match () {
            () if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile => "is not a regular file",
            () if found.st_uid != geteuid().as_raw() => "belongs to another user",
            () if found.st_nlink > 1 => "has further names, by hard links",
            () => "",
        };
        if !why.is_empty() {
            let why = format!("{why}: remove it, or choose another file");
            return Err(PrivateFolderError::from_stat(&path, &path, &found, why));
        }
        fchmod(&file, Mode::from_raw_mode(mode)).map_err(failed("restrict"))?;
        Ok(file)
    }

    /// Opens a regular file for reading that only root, the caller and those that are trusted may change. Symbolic links
    /// of root and the caller are followed, where that holds for their folders.
    pub fn existing_file(path: &Path, trust: Trust) -> Result<File, PrivateFolderError> {
        Self::linked_file(path, trust, MOST_LINKS)
    }

    fn linked_file(path: &Path, trust: Trust, links: usize) -> Result<File, PrivateFolderError> {
        let failed = |what| PrivateFolderError::system::<Errno>(what, path);
        let name = path.file_name().ok_or_else(|| failed("open")(Errno::INVAL))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = Self::open(parent, trust)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&folder.folder, name, flags, Mode::empty()) {
            Err(Errno::LOOP) if links > 0 => {
                let link = statat(&folder.folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed("look at"))?;
                if ![0, geteuid().as_raw()].contains(&link.st_uid) {
                    let why = "is another user's symbolic link: remove it, or choose another file".to_owned();
                    return Err(PrivateFolderError::from_stat(path, path, &link, why));
                }
                let target = readlinkat(&folder.folder, name, Vec::new()).map_err(failed("follow"))?;
                return Self::linked_file(&parent.join(OsStr::from_bytes(target.as_bytes())), trust, links - 1);
            }
            opened => File::from(opened.map_err(failed("open"))?),
        };
        let found = fstat(&file).map_err(failed("look at"))?;
        let refused = |why: &str| Err(PrivateFolderError::from_stat(path, path, &found, why.to_owned()));
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return refused("is not a regular file: choose one");
        }
        // The sticky bit protects no file.
        let mut without = found;
        without.st_mode &= !STICKY;
        check(path, path, &without, trust)?;
        Ok(file)
    }

    /// Replaces a file, or makes it, with exactly this mode. Readers find the old contents or the new ones, never a part.
    /// What another user has put into the file's place, or beside it, is replaced and not followed.
    pub fn replace(&self, name: &str, mode: u32, contents: &[u8]) -> Result<(), PrivateFolderError> {
        let path = self.path.join(name);
        let failed = |what| PrivateFolderError::system::<io::Error>(what, &path);
        let new = format!(".{}-new", one_name(name, &path)?);
        // Of a run that was killed. A folder of that name is left, and refused by the next call.
        let _ = self.remove(&new);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&self.folder, new.as_str(), flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(opened.map_err(|error| failed("make")(error.into()))?);
        let written = file
            .write_all(contents)
            .and_then(|()| Ok(fchmod(&file, Mode::from_raw_mode(mode))?))
            .and_then(|()| self.rename(&new, name));
        if written.is_err() {
            let _ = self.remove(&new);
        }
        written.map_err(failed("write"))
    }

    /// Makes a socket that listens, with exactly this mode, owner and group; other owners need `CAP_CHOWN`. The mode is
    /// set on the socket's own descriptor before it has a name, and the rest on a descriptor of what has got the name.
    pub fn listen(&self, name: &str, mode: u32, owner: (u32, u32)) -> Result<UnixListener, PrivateFolderError> {
        self.listen_as(SocketType::STREAM, name, mode, owner)
    }

    /// Like [`listen`](Self::listen), for messages instead of streams (`SOCK_SEQPACKET`).
    pub fn listen_for_messages(
        &self,
        name: &str,
        mode: u32,
        owner: (u32, u32),
    ) -> Result<UnixListener, PrivateFolderError> {
        self.listen_as(SocketType::SEQPACKET, name, mode, owner)
    }

    fn listen_as(
        &self,
        kind: SocketType,
        name: &str,
        mode: u32,
        owner: (u32, u32),
    ) -> Result<UnixListener, PrivateFolderError> {
        let path = self.path.join(name);
        let failed = |what| PrivateFolderError::system::<Errno>(what, &path);
        let name = one_name(name, &path)?;
        let address = SocketAddrUnix::new(&path).map_err(failed("make the socket"))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None).map_err(failed("make a socket for"))?;
        // Linux gives this mode, less the umask, to the file that `bind` makes.
        fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(failed("restrict"))?;
        bind(&socket, &address).map_err(failed("make the socket"))?;
        let its_file = openat(&self.folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            .map_err(failed("open"))?;
        let found = fstat(&its_file).map_err(failed("look at"))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket || found.st_uid != geteuid().as_raw() {
            let why = "is not the socket that was made: choose another folder".to_owned();
            return Err(PrivateFolderError::from_stat(&path, &path, &found, why));
        }
        // `fchmod` refuses descriptors of `O_PATH`. The mode comes first, as only its owner may change it.
        let by_number = format!("/proc/self/fd/{}", its_file.as_raw_fd());
        chmod(by_number, Mode::from_raw_mode(mode)).map_err(failed("restrict the socket"))?;
        // Without a wish there is nothing to change, and no right or system call is needed for it.
        if (found.st_uid, found.st_gid) != owner {
            let (owner, group) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
            chownat(&its_file, "", Some(owner), Some(group), AtFlags::EMPTY_PATH)
                .map_err(failed("change the owner or group (which needs CAP_CHOWN, and in the systemd unit socket-group.conf) of the socket"))?;
        }
        listen(&socket, BACKLOG).map_err(failed("listen on"))?;
        Ok(socket.into())
    }

    /// What kind of file this name is; none if there is none. A symbolic link is one itself.
    pub fn kind(&self, name: &str) -> io::Result<Option<FileType>> {
        match statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => Ok(Some(FileType::from_raw_mode(there.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether this name is this open file.
    pub fn has(&self, name: &str, file: impl AsFd) -> bool {
        let there = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        there
            .and_then(|there| Ok((there, fstat(file)?)))
            .is_ok_and(|(there, held)| (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino))
    }

    /// The names in it, sorted.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            names
                .extend(entry?.file_name().to_str().ok().filter(|name| ![".", ".."].contains(name)).map(str::to_owned));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Renames a file, which replaces the one with the new name.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.folder, from, &self.folder, to)?)
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.folder, name, AtFlags::empty())?)
    }
}

/// Root may do anything anyway.
fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == geteuid().as_raw()
}

/// Whether no other user can exchange what is in a folder.
fn check(path: &Path, part: &Path, found: &Stat, trust: Trust) -> Result<(), PrivateFolderError> {
    let refused = |why| Err(PrivateFolderError::from_stat(path, part, found, why));
    if !is_trusted(found.st_uid) {
        return refused("belongs to another user: choose one of root's or your own".to_owned());
    }
    let others = match trust {
        Trust::Owners => GROUP_MAY_WRITE | ALL_MAY_WRITE,
        Trust::Groups => ALL_MAY_WRITE,
    };
    if found.st_mode & others != 0 && found.st_mode & STICKY == 0 {
        let who = if others & GROUP_MAY_WRITE == 0 { "o" } else { "go" };
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        let kind = if is_file { "file" } else { "folder" };
        return refused(format!(
            "may be written to by others: chmod {who}-w {}, or choose another {kind}",
            part.display()
        ));
    }
    Ok(())
}

/// The names of a path, last first.
fn parts(path: &Path) -> Vec<OsString> {
    let name = |part: Component| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        _ => None,
    };
    path.components().rev().filter_map(name).collect()
}

/// The name of a file in a folder must not lead out of it.
fn one_name<'a>(name: &'a str, path: &Path) -> Result<&'a str, PrivateFolderError> {
    let is_one = Path::new(name).file_name() == Some(OsStr::new(name));
    if is_one { Ok(name) } else { Err(PrivateFolderError::system("open", path)(Errno::INVAL)) }
}

#[cfg(test)]
mod tests;
