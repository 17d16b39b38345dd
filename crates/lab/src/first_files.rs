//! The guest's first file system (initramfs): this same program as the init process, the libraries it needs, and kernel
//! modules.

use crate::LabError;
use crate::cpu_table::{self, cpu_table};
use crate::protocol::{GuestModule, MODULES_FILE};
use crate::setup::Assets;
use crate::shape::Shape;
use cpio::newc::{Builder, ModeFileType, trailer};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of the archive: its path without a leading slash, its permissions, and its contents.
struct FirstFile {
    path: String,
    mode: u32,
    contents: Vec<u8>,
}

/// The whole archive, packed.
pub(crate) fn first_files(assets: &Assets, shape: &Shape) -> Result<Vec<u8>, LabError> {
    let modules = assets.guest_modules()?.into_iter();
    let modules: Vec<GuestModule> = modules
        .map(|(name, contents)| GuestModule { name: name.to_owned(), parameters: String::new(), contents })
        .collect();
    let modules = postcard::to_stdvec(&modules)
        .map_err(|why| LabError::Host { what: "write the list of kernel modules", why: io::Error::other(why) })?;
    let file = |path: &str, contents| FirstFile { path: path.to_owned(), mode: 0o644, contents };
    let mut files = this_program()?;
    files.push(file(MODULES_FILE, modules));
    files.extend(cpu_table(shape).map(|contents| file(cpu_table::FILE, contents)));
    pack(&files).map_err(LabError::host("pack the guest's first files"))
}

/// This program as `init`, with its dynamic loader and libraries where the loader looks for them.
fn this_program() -> Result<Vec<FirstFile>, LabError> {
    // This link leads to the file even if the file was replaced after this process started; it also works for other
    // processes.
    let program = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
    let mut files = vec![read(&program, "init", 0o755)?];
    for library in libraries(&program)? {
        let path = library.to_string_lossy().trim_start_matches('/').to_owned();
        files.push(read(&library, &path, 0o755)?);
    }
    Ok(files)
}

fn read(file: &Path, path: &str, mode: u32) -> Result<FirstFile, LabError> {
    let contents = std::fs::read(file).map_err(|why| LabError::file("read", file, why))?;
    Ok(FirstFile { path: path.to_owned(), mode, contents })
}

/// Variables by which a loader finds libraries elsewhere, as those of environment modules do. The guest's first program has
/// none of them.
const OF_LOADER: [&str; 3] = ["LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT"];

/// The loader and shared libraries of a program, as determined by its own loader.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, LabError> {
    let mut ldd = Command::new("ldd");
    // Ctrl-C is for this program.
    ldd.process_group(0);
    for variable in OF_LOADER {
        ldd.env_remove(variable);
    }
    let failed = |why| LabError::file("run `ldd` on", program, why);
    let listed = ldd.arg(program).output().map_err(failed)?;
    let text = String::from_utf8_lossy(&listed.stdout);
    let missing = text.lines().find(|line| line.contains("not found")).map(str::trim);
    let why = if listed.status.success() { missing.map(str::to_owned) } else { Some(listed.status.to_string()) };
    why.map_or_else(|| Ok(parse_libraries(&text)), |why| Err(failed(io::Error::other(why))))
}

/// The paths in the output of `ldd`: `name => /path (address)`, or `/path (address)` for the loader.
fn parse_libraries(listed: &str) -> Vec<PathBuf> {
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    listed.lines().filter_map(path).collect()
}

/// Packs the files and their parent folders in the format of the kernel's initramfs (cpio, "newc").
fn pack(files: &[FirstFile]) -> io::Result<Vec<u8>> {
    let mut archive = Vec::new();
    let mut folders = std::collections::BTreeSet::from(["proc", "sys", "dev"].map(PathBuf::from));
    for file in files {
        let above = Path::new(&file.path).ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
        folders.extend(above.map(Path::to_owned));
    }
    for folder in folders {
        let entry = Builder::new(&folder.to_string_lossy()).mode(0o755).set_mode_file_type(ModeFileType::Directory);
        entry.write(&mut archive, 0).finish()?;
    }
    for file in files {
        let size = u32::try_from(file.contents.len()).map_err(io::Error::other)?;
        let entry = Builder::new(&file.path).mode(file.mode).set_mode_file_type(ModeFileType::Regular);
        let mut entry = entry.write(&mut archive, size);
        entry.write_all(&file.contents)?;
        entry.finish()?;
    }
    trailer(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_ldd() {
        let listed = "\tlinux-vdso.so.1 (0x7ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        let paths = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(parse_libraries(listed), paths);
        assert!(parse_libraries("\tnot a dynamic executable\n").is_empty());
    }

    #[test]
    fn a_packed_archive_holds_folders_before_their_files() -> io::Result<()> {
        let file = FirstFile { path: "lib/x/y".into(), mode: 0o644, contents: b"hello".to_vec() };
        let archive = pack(&[file])?;
        let mut names = Vec::new();
        let mut rest = archive.as_slice();
        loop {
            let reader = cpio::newc::Reader::new(rest)?;
            if reader.entry().is_trailer() {
                break;
            }
            names.push(reader.entry().name().to_owned());
            rest = reader.finish()?;
        }
        assert_eq!(names, ["dev", "lib", "lib/x", "proc", "sys", "lib/x/y"]);
        Ok(())
    }
}
