//! QEMU: the user's own, the host's, or the cached one, whichever is usable first.

use super::absolute;
use machine::chain;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::apt::Apt;
use super::cache::{Cache, create_folder};
use super::command::{Finished, run};
use super::requirements::{QEMU_MINIMUM, QEMU_VARIABLE};
use super::{SetupError, Version};

/// Its name in the cache folder.
pub const FOLDER: &str = "qemu";

const PROGRAM: &str = "qemu-system-x86_64";
/// The dynamic loader, which starts programs with libraries of another folder.
const LOADER: &str = "ld-linux-x86-64.so.2";
/// Libraries that the lab's plugin is linked with beside the C library. QEMU need not be.
const PLUGINS_LIBRARY: &str = "libgcc_s.so.1";
/// Where Debian's QEMU looks for firmware, relative to the root.
const FIRMWARE: [&str; 3] = ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"];
/// Where Debian keeps shared libraries, relative to the root.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A QEMU, and how to start it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qemu {
    /// The `qemu-system-x86_64`, at least 11.1 and able to load plugins.
    pub program: PathBuf,
    /// Its version.
    pub version: Version,
    /// The folder with all of its libraries and their loader; `None` if it uses the host's.
    libraries: Option<PathBuf>,
    /// The folder for its `-L` option; `None` if it finds its firmware itself.
    pub firmware: Option<PathBuf>,
}

impl Qemu {
    pub(super) fn find(cache: &Cache) -> Result<Qemu, SetupError> {
        if let Some(program) = std::env::var_os(QEMU_VARIABLE) {
            let path = absolute(PathBuf::from(program));
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
            let folder = cache.path(FOLDER);
            cache.undamaged(&folder).and_then(|()| Qemu::cached(&folder)).map_err(|not_cached| SetupError::NotSetUp {
                what: "QEMU".to_string(),
                tried: vec![not_on_path, not_cached],
                options: String::new(),
            })
        })
    }

    fn installed(program: &Path) -> Result<Qemu, String> {
        let version = probe(program, None)?;
        Ok(Qemu { program: program.to_path_buf(), version, libraries: None, firmware: None })
    }

    fn cached(folder: &Path) -> Result<Qemu, String> {
        let program = folder.join("bin").join(PROGRAM);
        if !program.exists() {
            return Err(format!("none in {}", folder.display()));
        }
        let libraries = folder.join("lib");
        let version = probe(&program, Some(&libraries))?;
        Ok(Qemu { program, version, libraries: Some(libraries), firmware: Some(folder.join("firmware")) })
    }

    /// The cache's folder that it is in, if it is.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.libraries.as_deref()?.parent()
    }

    /// Starts it with a library preloaded before all others. Arguments may follow.
    pub fn command(&self, preloaded: &Path) -> Command {
        let mut command =
            start(&self.program, self.libraries.as_deref(), &["--preload".as_ref(), preloaded.as_os_str()]);
        if self.libraries.is_none() {
            command.env("LD_PRELOAD", preloaded);
        }
        command
    }
}

/// Starts a program; if its libraries are not the host's, through their own loader, which gets `options`.
fn start(program: &Path, libraries: Option<&Path>, options: &[&OsStr]) -> Command {
    let Some(libraries) = libraries else { return Command::new(program) };
    let mut command = Command::new(libraries.join(LOADER));
    command.args(["--inhibit-cache", "--library-path"]).arg(libraries).args(options).arg(program);
    command
}

fn on_path() -> Option<PathBuf> {
    let executable = |path: &PathBuf| {
        path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| absolute(folder.join(PROGRAM))).find(executable)
}

/// The version of a QEMU that starts, is new enough and loads plugins; else the problem with it.
fn probe(program: &Path, libraries: Option<&Path>) -> Result<Version, String> {
    let said = |arguments: &[&str]| {
        let finished = run(start(program, libraries, &[]).args(arguments));
        finished.and_then(Finished::checked).map_err(|error| chain(&error))
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

/// Reads `QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1)`.
fn version_in(answer: &str) -> Option<Version> {
    Version::parse(answer.lines().next()?.split_once("version ")?.1)
}

/// Fetches QEMU with all of its libraries, and keeps the files that [`Qemu::cached`] needs in `into`.
pub fn fetch(apt: &Apt, into: &Path, progress: &dyn Fn(&str)) -> Result<(), SetupError> {
    let (version, package) = apt.choose_qemu(QEMU_MINIMUM)?;
    progress(&format!("fetching QEMU {version} and its libraries (36 MiB)"));
    let unpacked = apt.download_qemu(&package)?;
    let [bin, lib, firmware] = ["bin", "lib", "firmware"].map(|name| into.join(name));
    for folder in [&bin, &lib, &firmware] {
        create_folder(folder)?;
    }
    let (program, libraries) = (unpacked.join("usr/bin").join(PROGRAM), unpacked.join(LIBRARIES));
    let listed = run(&mut start(&program, Some(&libraries), &["--list".as_ref()]))?.checked()?;
    for library in linked(&listed).chain([LOADER, PLUGINS_LIBRARY]) {
        copy(&libraries.join(library), &lib)?;
    }
    copy(&program, &bin)?;
    for image in FIRMWARE.iter().flat_map(|place| files(&unpacked.join(place))) {
        if image.extension().is_some_and(|extension| extension == "bin" || extension == "rom") {
            copy(&image, &firmware)?;
        }
    }
    Qemu::cached(into).map(|_| ()).map_err(|reason| SetupError::Unavailable {
        reason: format!("QEMU {version} was fetched but does not run here: {reason}"),
    })
}

/// Parses the output of a dynamic loader: `libfdt.so.1 => /usr/lib/x86_64-linux-gnu/libfdt.so.1 (0x00007f46f21fd000)`.
/// The loader's own line begins with a path, and the kernel's library has none.
fn linked(listed: &str) -> impl Iterator<Item = &str> {
    let names = listed.lines().filter_map(|line| line.trim().split_once(" => "));
    names.map(|(name, _)| name).filter(|name| !name.contains('/'))
}

/// The entries of a folder; empty if it does not exist.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| !path.is_dir()).collect()
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
        let answer = "QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1~bpo13+1)\nCopyright (c) 2003-2026";
        assert_eq!(version_in(answer), Some(Version { major: 11, minor: 1, patch: 3 }));
        assert_eq!(
            version_in("QEMU emulator version 9.2.50 (v9.2.0-1-g1)"),
            Some(Version { major: 9, minor: 2, patch: 50 })
        );
        for answer in ["", "qemu", "Copyright\nversion 11.1", "version"] {
            assert_eq!(version_in(answer), None, "{answer}");
        }
    }

    #[test]
    fn knows_libraries_by_what_the_loader_lists() {
        let listed = "\
\tlinux-vdso.so.1 (0x00007f46f21fd000)
\tlibfdt.so.1 => /a b/libfdt.so.1 (0x00007f46f0cc3000)
\tlibc.so.6 => /a b/libc.so.6 (0x00007f46f0400000)
\t/lib64/ld-linux-x86-64.so.2 => /a b/ld-linux-x86-64.so.2 (0x00007f46f21ff000)
";
        assert_eq!(linked(listed).collect::<Vec<_>>(), ["libfdt.so.1", "libc.so.6"]);
        assert_eq!(linked("").count(), 0);
    }
}
