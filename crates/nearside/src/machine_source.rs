//! Where a machine's description comes from: this host, a saved one, firmware tables, a file or a preset.

use machine::acpi::AcpiError;
use machine::{HwlocError, Machine, MachineError, SysfsError, presets};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Longer than any description: hwloc XML of 8,192 CPUs has about 10 MB.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The sysfs tree shows none.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
    /// The firmware tables of a folder describe none.
    #[error("the firmware tables in {}: {source}", folder.display())]
    Acpi {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with them.
        source: AcpiError,
    },
    /// The hwloc XML describes none.
    #[error("{}: {source}", path.display())]
    Hwloc {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: HwlocError,
    },
    /// The machine file has mistakes.
    #[error(transparent)]
    File(#[from] MachineError),
    /// A file or folder is there but cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// A folder holds nothing that describes a machine.
    #[error(
        "the folder {} describes no machine: it has neither devices/system (a sysfs tree such as /sys), nor sys/devices/system \
         (the root of a saved system), nor SRAT (firmware tables, as in /sys/firmware/acpi/tables)",
        .0.display()
    )]
    Folder(PathBuf),
    /// A file that is no text.
    #[error(
        "{} is no text, so neither a machine file (TOML) nor hwloc XML; firmware tables are read from their folder, where they are named \
         SRAT, SLIT and HMAT",
        .0.display()
    )]
    Binary(PathBuf),
    /// A file too long to be a description.
    #[error("{} is longer than {} MiB: no description of a machine is", .0.display(), MAX_FILE_BYTES >> 20)]
    TooLong(PathBuf),
    /// The text names nothing.
    #[error(
        "`{text}` names no machine: it is no file, no folder and no preset{}; the presets are {}",
        nearest.map(|nearest| format!(", did you mean `{nearest}`?")).unwrap_or_default(), all.join(", ")
    )]
    Unknown {
        /// What was asked for.
        text: String,
        /// The preset whose name is most like it, if any is like it.
        nearest: Option<&'static str>,
        /// All presets.
        all: Vec<&'static str>,
    },
}

/// Reads the machine that `from` names, or this host. The name of a preset is that preset, even where a file has the
/// same name: `./name` is the file. What a file or folder holds is decided by its content.
pub fn read(from: Option<&str>) -> Result<Machine, SourceError> {
    let Some(from) = from else { return Ok(Machine::from_sysfs(Path::new("/sys"))?) };
    let unknown = match presets::find(from) {
        Err(MachineError::UnknownPreset { name, nearest, all }) => SourceError::Unknown { text: name, nearest, all },
        preset => return Ok(preset?),
    };
    let path = Path::new(from);
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => from_folder(path),
        Ok(_) => from_file(path),
        Err(source) if source.kind() != ErrorKind::NotFound => Err(SourceError::Read { path: path.to_owned(), source }),
        Err(_) => Err(unknown),
    }
}

/// The machine that this program runs on, and whether it is simulated: the lab says itself what its machine is like, which
/// its firmware's tables do not.
pub fn running() -> Result<(Machine, bool), SourceError> {
    let simulated = Path::new(model::pmu::MACHINE_FILE);
    if simulated.exists() { Ok((from_file(simulated)?, true)) } else { Ok((read(None)?, false)) }
}

fn from_folder(folder: &Path) -> Result<Machine, SourceError> {
    let saved = folder.join("sys");
    if folder.join("devices/system").is_dir() {
        Ok(Machine::from_sysfs(folder)?)
    } else if saved.join("devices/system").is_dir() {
        Ok(Machine::from_sysfs(&saved)?)
    } else if folder.join("SRAT").exists() {
        Machine::from_acpi_dir(folder).map_err(|source| SourceError::Acpi { folder: folder.to_owned(), source })
    } else {
        Err(SourceError::Folder(folder.to_owned()))
    }
}

fn from_file(path: &Path) -> Result<Machine, SourceError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|source| SourceError::Read { path: path.to_owned(), source })?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(SourceError::TooLong(path.to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|_| SourceError::Binary(path.to_owned()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    if text.contains('\0') {
        return Err(SourceError::Binary(path.to_owned()));
    }
    // TOML cannot begin with `<`, and XML must.
    if text.trim_start().starts_with('<') {
        Machine::from_hwloc_xml(text).map_err(|source| SourceError::Hwloc { path: path.to_owned(), source })
    } else {
        Ok(Machine::from_toml(text, path)?)
    }
}
