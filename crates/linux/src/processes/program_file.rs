//! The file of a program, and why it does not start.

use rustix::io::Errno;
use std::env;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The file that would run for this program name, as far as can be determined: `path` is `$PATH`.
pub fn program_file(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    let named = Path::new(program);
    if named.components().count() > 1 || named.is_absolute() {
        return Some(named.to_owned());
    }
    env::split_paths(path?).map(|folder| folder.join(named)).find(|file| file.is_file())
}

/// Why a program could not be started, from the system's answer, and what helps.
pub fn why_not_started(program: &OsStr, error: &io::Error) -> String {
    let file = program_file(program, env::var_os("PATH").as_deref());
    let is_there = file.as_ref().is_some_and(|file| file.exists());
    let is_folder = file.as_ref().is_some_and(|file| file.is_dir());
    let why = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) if is_there => "the interpreter that its first line names does not exist",
        Some(Errno::NOENT) if file.is_some() => "there is no such file: check its path",
        Some(Errno::NOENT) => {
            "no folder of PATH has a program of this name: check the name, or give the path, as in ./program"
        }
        Some(Errno::ACCESS) if is_folder => "it is a folder",
        Some(Errno::ACCESS) => "this user may not execute it: chmod +x makes a file a program",
        Some(Errno::NOEXEC) => "it is neither a program for this machine, nor a script whose first line begins with #!",
        _ => return error.to_string(),
    };
    why.to_owned()
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

    #[test]
    fn a_program_that_does_not_start_has_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
        let program = |path: &Path| path.as_os_str().to_owned();
        for (program, number, why) in [
            ("no-such-program".into(), Errno::NOENT, "no folder of PATH has"),
            ("./no-such-program".into(), Errno::NOENT, "there is no such file"),
            (program(&script), Errno::NOENT, "the interpreter"),
            (program(folder.path()), Errno::ACCESS, "it is a folder"),
            (program(&script), Errno::ACCESS, "may not execute"),
            (program(&script), Errno::NOEXEC, "neither a program"),
            (program(&script), Errno::NOMEM, "os error 12"),
        ] {
            let said = why_not_started(&program, &io::Error::from(number));
            assert!(said.contains(why), "{}: {said}", program.display());
        }
    }
}
