//! The folder whose files come back: how QEMU keeps what the guest makes of them, and what the host gets of that.
//!
//! The guest's root must not make device nodes or setuid files on the host, so QEMU makes plain files with mode 0600 and
//! keeps owners, modes and kinds as extended attributes, or beside them where the folder cannot have these. Programs that
//! the guest built are to run on the host as well: their owner gets the right to execute them afterwards.

use crate::guest::OUT_TAG;
use rustix::fs::{FileType, Mode, OFlags, fchmod, fgetxattr, fstat, getxattr, open};
use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};

/// Where QEMU keeps the guest's mode of a file (`hw/9pfs/9p-local.c`): 4 bytes, little-endian.
const MODE_ATTRIBUTE: &std::ffi::CStr = c"user.virtfs.mode";
/// The folder of such modes where there are no extended attributes: a file of the same name, with a line `virtfs.mode=N`.
const METADATA: &str = ".virtfs_metadata";
/// Most bytes of such a file: it has four short lines.
const MOST_NOTED: u64 = 4096;
/// The mode of QEMU's files, and of programs among them.
const PLAIN: Mode = Mode::RUSR.union(Mode::WUSR);
const PROGRAM: Mode = PLAIN.union(Mode::XUSR);

/// QEMU's option for the folder.
pub(crate) fn option(out: &Path) -> String {
    option_with(out, has_attributes(out))
}

fn option_with(out: &Path, has_attributes: bool) -> String {
    // QEMU requires commas within a value to be doubled.
    let path = out.to_string_lossy().replace(',', ",,");
    let model = if has_attributes { "mapped-xattr" } else { "mapped-file" };
    format!("local,path={path},mount_tag={OUT_TAG},security_model={model},multidevs=remap")
}

/// Whether files there can have extended attributes: on FAT, NFS 3 and tmpfs before Linux 6.6 they cannot.
fn has_attributes(folder: &Path) -> bool {
    getxattr(folder, MODE_ATTRIBUTE, &mut [0; 0]) != Err(Errno::OPNOTSUPP)
}

/// Lets the owner execute the programs below a folder that a guest, which has ended, could execute. Files that cannot be
/// reached stay as they are.
pub(crate) fn make_programs_executable(out: &Path) {
    let mut folders = vec![out.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && entry.file_name() != METADATA => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => {
                    let _ = make_executable(&folder, &entry.path());
                }
                _ => {}
            }
        }
    }
}

fn make_executable(folder: &Path, path: &Path) -> Result<(), Errno> {
    let file = open(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let status = fstat(&file)?;
    // Only what QEMU has made, and the user has not changed.
    let is_plain = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
        && Mode::from_raw_mode(status.st_mode) == PLAIN;
    let mut mode = [0; 4];
    let guests = match fgetxattr(&file, MODE_ATTRIBUTE, &mut mode) {
        Ok(4) => Some(u32::from_le_bytes(mode)),
        _ => noted_mode(folder, path),
    };
    let is_program = |mode: u32| {
        FileType::from_raw_mode(mode) == FileType::RegularFile && Mode::from_raw_mode(mode).contains(Mode::XUSR)
    };
    if is_plain && guests.is_some_and(is_program) { fchmod(&file, PROGRAM) } else { Ok(()) }
}

/// The guest's mode in a file beside the file itself.
fn noted_mode(folder: &Path, path: &Path) -> Option<u32> {
    let noted: PathBuf = folder.join(METADATA).join(path.file_name()?);
    let bytes = machine::bounded::bytes(&noted, MOST_NOTED).ok()?;
    String::from_utf8(bytes).ok()?.lines().find_map(|line| line.strip_prefix("virtfs.mode=")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{XattrFlags, setxattr};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_guests_root_makes_only_plain_files_on_the_host() {
        for (has_attributes, model) in [(true, "mapped-xattr"), (false, "mapped-file")] {
            let out = option_with(Path::new("/a,b"), has_attributes);
            assert!(out.starts_with("local,path=/a,,b,mount_tag=out,"), "{out}");
            assert!(out.contains(&format!(",security_model={model},")), "{out}");
        }
        assert!(!has_attributes(Path::new("/proc/self")));
    }

    #[test]
    fn programs_of_the_guest_are_executable_and_nothing_else_changes() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a").join(METADATA)).unwrap();
        let regular = FileType::RegularFile.as_raw_mode();
        let link = FileType::Symlink.as_raw_mode();
        let files = [
            ("program", regular | 0o6755, 0o600, 0o700),
            ("text", regular | 0o644, 0o600, 0o600),
            ("link", link | 0o777, 0o600, 0o600),
            ("changed", regular | 0o755, 0o640, 0o640),
        ];
        for (name, guests, mode, _) in files {
            let path = folder.path().join("a").join(name);
            fs::write(&path, "x").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            if setxattr(&path, MODE_ATTRIBUTE, &guests.to_le_bytes(), XattrFlags::empty()).is_err() {
                fs::write(folder.path().join("a").join(METADATA).join(name), format!("virtfs.mode={guests}\n"))
                    .unwrap();
            }
        }
        std::os::unix::fs::symlink("/bin/true", folder.path().join("of-host")).unwrap();
        make_programs_executable(folder.path());
        for (name, .., wanted) in files {
            let mode = fs::metadata(folder.path().join("a").join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, wanted, "{name}");
        }
        let noted = folder.path().join("a").join(METADATA);
        fs::write(noted.join("text"), "virtfs.uid=0\nvirtfs.mode=33261\n").unwrap();
        assert_eq!(noted_mode(&folder.path().join("a"), &folder.path().join("a/text")), Some(0o100_755));
    }
}
