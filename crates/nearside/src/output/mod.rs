//! Output of a verb: to standard output or into a file.

pub mod json;
pub mod pictures;
pub mod scratch;
pub mod terminal;
pub mod watch;

use crate::options::usage_error::UsageError;
use rustix::fs::{Access, access};
use std::collections::BTreeSet;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::iter::successors;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Why the output could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to {}", path.as_ref().map_or_else(|| "standard output".into(), |path| path.display().to_string()))]
pub struct OutputError {
    /// The file; nothing for standard output.
    path: Option<PathBuf>,
    source: io::Error,
}

impl OutputError {
    /// Where the folder of the file is missing, says so: the system's answer is that of a missing file.
    fn of_file(path: &Path, source: io::Error) -> Self {
        let folder = folder_of(path);
        let is_missing = source.kind() == ErrorKind::NotFound && !folder.exists();
        let missing = || {
            let folder = folder.display();
            io::Error::new(ErrorKind::NotFound, format!("there is no folder {folder}: mkdir -p {folder} makes it"))
        };
        Self { path: Some(path.to_owned()), source: if is_missing { missing() } else { source } }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether a file is standard output, as `-` is.
pub fn is_output(file: &Path) -> bool {
    file == Path::new("-")
}

/// Refuses two outputs of one name, of which the second would replace the first.
pub fn check_names<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<(), Box<dyn Error>> {
    let mut seen = BTreeSet::new();
    // Devices take any number of outputs.
    let is_file = |file: &Path| is_output(file) || file.metadata().map_or(true, |there| there.is_file());
    match files.into_iter().find(|file| is_file(file) && !seen.insert(*file)) {
        Some(twice) if is_output(twice) => Err(UsageError::boxed(
            "only one of these can go to standard output: name a file instead of - for the others",
        )),
        Some(twice) => Err(UsageError::boxed(format!("two outputs are {}: name another file", twice.display()))),
        None => Ok(()),
    }
}

/// Fails if a file could not be written at the end, before work begins whose result would be lost; `-` is standard
/// output. Creates nothing.
pub fn check(file: &Path) -> Result<(), OutputError> {
    if is_output(file) {
        return Ok(());
    }
    // Opening a pipe and closing it would end its reader.
    if is_stream(file) {
        return access(file, Access::WRITE_OK).map_err(|error| OutputError::of_file(file, error.into()));
    }
    let checked = match File::options().append(true).open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            access(folder_of(file), Access::WRITE_OK).map_err(Into::into)
        }
        opened => opened.map(drop),
    };
    checked.map_err(|source| OutputError::of_file(file, source))
}

/// Writes the final text to a file for its owner only, or to standard output if it is `-`.
pub fn write_to(text: &str, file: &Path) -> Result<(), OutputError> {
    write_private(text, Some(file))
}

/// Replaces a file by a new one, once that is complete; `-` is standard output. A device or a pipe is written to, and
/// of a link the file that it names is replaced: root would otherwise turn /dev/null into a file.
pub fn replace(
    path: &Path,
    contents: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>,
) -> Result<(), OutputError> {
    if is_output(path) {
        let mut stdout = io::stdout();
        return match contents(&mut stdout).and_then(|()| stdout.flush()).map_err(answer_of_system) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|source| OutputError { path: None, source }),
        };
    }
    let written = if is_stream(path) {
        File::options().write(true).open(path).and_then(|mut file| contents(&mut file))
    } else {
        // The file that a link names may not exist yet.
        let of_link = |_| path.read_link().map(|named| folder_of(path).join(named));
        let named = path.canonicalize().or_else(of_link).unwrap_or_else(|_| path.to_owned());
        tempfile::NamedTempFile::new_in(folder_of(&named)).and_then(|mut file| {
            contents(file.as_file_mut())?;
            file.persist(&named)?;
            Ok(())
        })
    };
    written.map_err(|source| OutputError::of_file(path, answer_of_system(source)))
}

/// Whether this is a device, a pipe or a socket, which can be written to and not replaced.
fn is_stream(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// The system's answer, without the words of the library that writes tables.
fn answer_of_system(error: io::Error) -> io::Error {
    let mut causes = successors(Some(&error as &(dyn Error + 'static)), |&error| error.source());
    let code = causes.find_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error());
    code.map_or(error, io::Error::from_raw_os_error)
}

/// The mode of a new file that other users may read, less the umask: nothing about processes is in it, but root's agent
/// may be configured with it, so no umask lets others write.
const PUBLIC: u32 = 0o644;

/// Writes all of a text; without a file, or to `-`, to standard output. A reader that stops early (`| head`) is no error.
pub fn write(text: &str, file: Option<&Path>) -> Result<(), OutputError> {
    write_into(text, file, |path| File::options().write(true).create(true).truncate(true).mode(PUBLIC).open(path))
}

/// Like [`write()`], but a new file is for its owner only: for what is known of processes.
pub fn write_private(text: &str, file: Option<&Path>) -> Result<(), OutputError> {
    write_into(text, file, trace::create_private_file)
}

fn write_into(text: &str, file: Option<&Path>, create: fn(&Path) -> io::Result<File>) -> Result<(), OutputError> {
    let Some(path) = file.filter(|file| !is_output(file)) else { return write_more(text).map(|_| ()) };
    let is_new = path.symlink_metadata().is_err();
    let written = create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| {
        if is_new {
            // A part of the text, or none, would pass for the whole.
            let _ = fs::remove_file(path);
        }
        OutputError::of_file(path, source)
    })
}

/// Writes a text to standard output. Returns whether the reader is still there.
pub fn write_more(text: &str) -> Result<bool, OutputError> {
    let mut stdout = io::stdout().lock();
    printed(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Whether the reader of standard output is still there, after an attempt to print.
pub fn printed(printed: io::Result<()>) -> Result<bool, OutputError> {
    match printed {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(source) => Err(OutputError { path: None, source }),
    }
}
