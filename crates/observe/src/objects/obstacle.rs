//! Why the library cannot be loaded into a program.

use rustix::process::{getgid, getuid};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why the library cannot be loaded into a program, which is then recorded without objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The program has no dynamic linker.
    Static(PathBuf),
    /// The program runs with more privileges than its caller, so the dynamic linker ignores the caller's libraries.
    Privileged(PathBuf),
    /// The program is not for x86-64.
    OtherMachine(PathBuf),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static(path) => write!(
                f,
                "{} is linked statically, so no library can be loaded into it: link it dynamically",
                path.display()
            ),
            Self::Privileged(path) => write!(
                f,
                "{} is setuid, setgid or has capabilities, so the dynamic linker ignores libraries of its caller: \
                 use a copy without these, as its owner",
                path.display()
            ),
            Self::OtherMachine(path) => {
                write!(f, "{} is not for x86-64, but nearside's library is", path.display())
            }
        }
    }
}

/// Finds what keeps the library out of a program, from the program's file, or from its interpreter if it is a script.
/// `None` if the file shows no obstacle; whether the library was loaded is known only after the program has run.
/// Needs read permission for the file.
pub fn obstacle(program: &Path) -> io::Result<Option<Obstacle>> {
    let mut program = program.to_owned();
    // The kernel follows at most this many levels of interpreters.
    for _ in 0..5 {
        let file = File::open(&program)?;
        let metadata = file.metadata()?;
        let mut start = Vec::new();
        file.take(4096).read_to_end(&mut start)?;
        if let Some(line) = start.strip_prefix(b"#!") {
            let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
            let mut words = line.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty());
            program = String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned().into();
            continue;
        }
        let mut nothing = [0; 0];
        let has_capabilities = rustix::fs::getxattr(&program, c"security.capability", &mut nothing).is_ok();
        let rights = Rights { user: metadata.uid(), group: metadata.gid(), mode: metadata.mode(), has_capabilities };
        if rights.are_more_than(getuid().as_raw(), getgid().as_raw()) {
            return Ok(Some(Obstacle::Privileged(program)));
        }
        return Ok(match linkage(&start) {
            Some(Linkage::Other) => Some(Obstacle::OtherMachine(program)),
            Some(Linkage::Static) => Some(Obstacle::Static(program)),
            Some(Linkage::Dynamic) | None => None,
        });
    }
    Ok(None)
}

/// Privileges that a program's file grants.
#[derive(Clone, Copy, Debug)]
struct Rights {
    user: u32,
    group: u32,
    mode: u32,
    has_capabilities: bool,
}

impl Rights {
    /// Whether they differ from those of this user and group, in which case the kernel puts the dynamic linker in
    /// secure mode.
    fn are_more_than(self, user: u32, group: u32) -> bool {
        let other_user = self.mode & 0o4000 != 0 && self.user != user;
        // Without group execute permission, the bit has another meaning.
        let other_group = self.mode & 0o2010 == 0o2010 && self.group != group;
        other_user || other_group || self.has_capabilities && user != 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linkage {
    Dynamic,
    Static,
    Other,
}

/// Parses the start of an ELF file. `None` if it is not one, or its program headers are elsewhere.
fn linkage(start: &[u8]) -> Option<Linkage> {
    const PT_INTERP: u32 = 3;
    const EM_X86_64: u16 = 62;
    let (class, machine) = (*start.strip_prefix(b"\x7fELF")?.first()?, start.get(18..20)?);
    if class != 2 || machine != EM_X86_64.to_le_bytes() {
        return Some(Linkage::Other);
    }
    let at = |offset: usize, bytes: usize| -> Option<usize> {
        let bytes = start.get(offset..offset.checked_add(bytes)?)?;
        let value = bytes.iter().rev().fold(0_u64, |value, &byte| value << 8 | u64::from(byte));
        usize::try_from(value).ok()
    };
    let (offset, size, number) = (at(32, 8)?, at(54, 2)?, at(56, 2)?);
    for index in 0..number {
        let kind = at(offset.checked_add(index.checked_mul(size)?)?, 4)?;
        if kind == PT_INTERP as usize {
            return Some(Linkage::Dynamic);
        }
    }
    Some(Linkage::Static)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_program_of_this_system_lets_the_library_in() {
        let this = std::env::current_exe().unwrap();
        assert_eq!(obstacle(&this).unwrap(), None);
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        fs::write(&script, format!("#! {} -x\n", this.display())).unwrap();
        assert_eq!(obstacle(&script).unwrap(), None);
        fs::set_permissions(&script, fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(obstacle(&script).unwrap(), None);
        // The setuid bit grants nothing to the file's owner.
        let copy = folder.path().join("copy");
        fs::copy(&this, &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(obstacle(&copy).unwrap(), None);
        assert!(obstacle(&folder.path().join("nothing")).is_err());
    }

    #[test]
    fn rights_that_the_caller_lacks_keep_the_library_out() {
        let rights = |mode, has_capabilities| Rights { user: 0, group: 0, mode, has_capabilities };
        for (mode, has_capabilities, of_user, of_root) in [
            (0o755, false, false, false),
            (0o4755, false, true, false),
            (0o2755, false, true, false),
            (0o2745, false, false, false),
            (0o755, true, true, false),
        ] {
            let rights = rights(mode, has_capabilities);
            assert_eq!(rights.are_more_than(1000, 1000), of_user, "{rights:?}");
            assert_eq!(rights.are_more_than(0, 0), of_root, "{rights:?}");
        }
        assert!(Rights { user: 1000, ..rights(0o4755, false) }.are_more_than(0, 0), "root loses privileges");
    }

    #[test]
    fn headers_tell_how_a_program_is_linked() {
        let mut start = vec![0; 64 + 2 * 56];
        start[..5].copy_from_slice(b"\x7fELF\x02");
        (start[18], start[32], start[54], start[56]) = (62, 64, 56, 2);
        assert_eq!(linkage(&start), Some(Linkage::Static));
        start[64 + 56] = 3;
        assert_eq!(linkage(&start), Some(Linkage::Dynamic));
        start[18] = 40;
        assert_eq!(linkage(&start), Some(Linkage::Other));
        assert_eq!(linkage(b"#!/bin/sh"), None);
        assert!(Obstacle::Static("/x".into()).to_string().contains("/x is linked statically"));
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(mut bytes: Vec<u8>) {
            let _ = linkage(&bytes);
            bytes.splice(0..0, *b"\x7fELF\x02");
            let _ = linkage(&bytes);
        }
    }
}
