//! QEMU: the user's own, the host's, or the cached one, whichever is first and serves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::apt::Apt;
use super::cache::{Cache, create_folder};
use super::command::run;
use super::{SetupError, Version};

/// Names the QEMU to use instead of the one on `PATH` or the one that setup fetches.
pub const QEMU_VARIABLE: &str = "NEARSIDE_QEMU";

/// The first release with version 4 of the plugin interface, which the lab's plugin is written for.
pub const QEMU_MINIMUM: Version = Version::series(10, 0);

/// Its name in the cache folder.
pub const FOLDER: &str = "qemu";

const PROGRAM: &str = "qemu-system-x86_64";
/// Where Debian's QEMU looks for firmware, under the root.
const FIRMWARE: [&str; 3] = ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"];
/// Where Debian keeps shared libraries, under the root.
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];

#[derive(Debug)]
pub struct Qemu {
    pub program: PathBuf,
    pub version: Version,
    pub library_path: Vec<PathBuf>,
    pub firmware: Option<PathBuf>,
}

impl Qemu {
    pub fn find(cache: &Cache) -> Result<Qemu, SetupError> {
        if let Some(program) = std::env::var_os(QEMU_VARIABLE) {
            let path = PathBuf::from(program);
            return Qemu::installed(&path).map_err(|reason| SetupError::Variable {
                variable: QEMU_VARIABLE,
                path,
                reason,
                expected: format!("a {PROGRAM} {QEMU_MINIMUM} or newer built with plugins"),
            });
        }
        let on_path = match on_path() {
            Some(path) => Qemu::installed(&path),
            None => Err(format!("no {PROGRAM} on PATH")),
        };
        on_path.or_else(|not_on_path| {
            Qemu::cached(&cache.path(FOLDER)).map_err(|not_cached| SetupError::NotSetUp {
                what: "QEMU".to_string(),
                tried: vec![not_on_path, not_cached],
                options: String::new(),
            })
        })
    }

    fn installed(program: &Path) -> Result<Qemu, String> {
        let version = probe(program, &[])?;
        Ok(Qemu { program: program.to_path_buf(), version, library_path: vec![], firmware: None })
    }

    fn cached(folder: &Path) -> Result<Qemu, String> {
        let program = folder.join("bin").join(PROGRAM);
        if !program.exists() {
            return Err(format!("none in {}", folder.display()));
        }
        let library_path = vec![folder.join("lib")];
        let version = probe(&program, &library_path)?;
        Ok(Qemu { program, version, library_path, firmware: Some(folder.join("firmware")) })
    }
}

fn on_path() -> Option<PathBuf> {
    let executable = |path: &PathBuf| {
        path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(PROGRAM)).find(executable)
}

/// The version of a QEMU that starts, is new enough and loads plugins; else what is wrong with it.
fn probe(program: &Path, library_path: &[PathBuf]) -> Result<Version, String> {
    let said = |argument: &[&str]| {
        let mut command = Command::new(program);
        if let Ok(path) = std::env::join_paths(library_path)
            && !path.is_empty()
        {
            command.env("LD_LIBRARY_PATH", path);
        }
        run(command.args(argument)).and_then(super::command::Finished::checked).map_err(|error| error.to_string())
    };
    let answer = said(&["--version"])?;
    let version = version_in(&answer).ok_or_else(|| format!("{} does not say its version", program.display()))?;
    if version < QEMU_MINIMUM {
        return Err(format!("{} is {version}, older than {QEMU_MINIMUM}", program.display()));
    }
    said(&["-plugin", "help"])
        .map_err(|error| format!("{} was built without plugins: {error}", program.display()))
        .map(|_| version)
}

/// Reads `QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)`.
fn version_in(answer: &str) -> Option<Version> {
    Version::parse(answer.lines().next()?.split_once("version ")?.1)
}

/// Fetches QEMU and the libraries that this host lacks, and keeps in `into` what [`Qemu::cached`] asks for.
pub fn fetch(apt: &Apt, into: &Path, progress: &dyn Fn(&str)) -> Result<(), SetupError> {
    let (version, package) = apt.choose_qemu(QEMU_MINIMUM)?;
    progress(&format!("fetching QEMU {version} and the libraries that this host lacks (20 MB)"));
    let unpacked = apt.download_qemu(&package)?;
    let [bin, lib, firmware] = ["bin", "lib", "firmware"].map(|name| into.join(name));
    for folder in [&bin, &lib, &firmware] {
        create_folder(folder)?;
    }
    rename(&unpacked.join("usr/bin").join(PROGRAM), &bin)?;
    for library in LIBRARIES.iter().flat_map(|place| files(&unpacked.join(place))) {
        if is_library(&library) {
            rename(&library, &lib)?;
        }
    }
    // A host that has another QEMU has some of the firmware already, and apt does not fetch that again.
    for place in [Path::new("/"), &unpacked].into_iter().flat_map(|root| FIRMWARE.map(|place| root.join(place))) {
        for image in files(&place) {
            if image.extension().is_some_and(|extension| extension == "bin" || extension == "rom") {
                copy(&image, &firmware)?;
            }
        }
    }
    Qemu::cached(into).map(|_| ()).map_err(|reason| SetupError::Unavailable {
        reason: format!("QEMU {version} was fetched but does not run here: {reason}"),
    })
}

/// The entries of a folder, none when it is not there.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| !path.is_dir()).collect()
}

/// `libfdt-1.6.1.so`, `libaio.so.1`, and the links between them.
fn is_library(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "so")
        || path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so."))
}

fn rename(from: &Path, folder: &Path) -> Result<(), SetupError> {
    let to = folder.join(from.file_name().unwrap_or_default());
    fs::rename(from, &to).map_err(SetupError::io("create", &to))
}

fn copy(from: &Path, folder: &Path) -> Result<(), SetupError> {
    let to = folder.join(from.file_name().unwrap_or_default());
    fs::copy(from, &to).map(|_| ()).map_err(SetupError::io("create", &to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_version_that_qemu_says() {
        let answer = "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2+deb13u1~bpo12+1)\nCopyright (c) 2003-2025";
        assert_eq!(version_in(answer), Some(Version { major: 10, minor: 0, patch: 2 }));
        assert_eq!(
            version_in("QEMU emulator version 9.2.50 (v9.2.0-1-g1)"),
            Some(Version { major: 9, minor: 2, patch: 50 })
        );
        for answer in ["", "qemu", "Copyright\nversion 10.0", "version"] {
            assert_eq!(version_in(answer), None, "{answer}");
        }
    }

    #[test]
    fn knows_libraries_by_name() {
        for (name, expected) in
            [("libfdt-1.6.1.so", true), ("libaio.so.1.0.1", true), ("libx.a", false), ("resort", false)]
        {
            assert_eq!(is_library(Path::new(name)), expected, "{name}");
        }
    }
}
