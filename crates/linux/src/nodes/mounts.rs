//! Mounted file systems and their mount points.

use crate::processes::cgroup::unescaped;
use std::path::PathBuf;
use std::{fs, io};

/// A file system and its mount point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The mount point.
    pub path: PathBuf,
    /// The file system type: `ext4`.
    pub kind: String,
}

/// The mounts visible to the calling process. Needs no privileges.
pub fn mounts() -> io::Result<Vec<Mount>> {
    fs::read_to_string("/proc/self/mounts").map(|text| parse_mounts(&text))
}

/// Parses the text of /proc/PID/mounts. Malformed lines are skipped.
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
