//! File systems that are mounted, and where.

use crate::cgroup::unescaped;
use std::path::PathBuf;
use std::{fs, io};

/// A file system and where it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub path: PathBuf,
    /// The kind of file system: `ext4`.
    pub kind: String,
}

/// What the calling process sees mounted. Needs no rights.
pub fn mounts() -> io::Result<Vec<Mount>> {
    fs::read_to_string("/proc/self/mounts").map(|text| parse_mounts(&text))
}

/// Reads the text of /proc/PID/mounts. Lines that the kernel does not write are left out.
pub fn parse_mounts(text: &str) -> Vec<Mount> {
    let mount = |line: &str| {
        let mut words = line.split(' ').skip(1);
        Some(Mount { path: unescaped(words.next()?).into(), kind: words.next()?.to_owned() })
    };
    text.lines().filter_map(mount).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_mount_has_a_path_and_a_kind() {
        let mounts = parse_mounts("/dev/vda1 /my\\040files ext4 rw,relatime 0 0\n\nproc /proc proc rw 0 0\nbroken\n");
        let mount = |path: &str, kind: &str| Mount { path: path.into(), kind: kind.into() };
        assert_eq!(mounts, [mount("/my files", "ext4"), mount("/proc", "proc")]);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            parse_mounts(&text);
        }
    }
}
