//! The file of a program.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The file that would run for this program name, as far as can be determined: `path` is `$PATH`.
pub fn program_file(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    let named = Path::new(program);
    if named.components().count() > 1 || named.is_absolute() {
        return Some(named.to_owned());
    }
    std::env::split_paths(path?).map(|folder| folder.join(named)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_shells_do() {
        let path = OsStr::new("/no/such/folder:/bin:/usr/bin");
        assert_eq!(program_file(OsStr::new("sh"), Some(path)), Some("/bin/sh".into()));
        assert_eq!(program_file(OsStr::new("./sh"), Some(path)), Some("./sh".into()));
        assert_eq!(program_file(OsStr::new("no-such-program"), Some(path)), None);
        assert_eq!(program_file(OsStr::new("sh"), None), None);
    }
}
