//! Reads a machine's description from this host, a saved system, firmware tables, a file, a preset or a line.

use crate::options::policy::note;
use machine::acpi::AcpiError;
use machine::{
    Archive, HwlocError, Machine, MachineError, Mistake, PciDevice, SyntheticError, SysfsError, bounded, did_you_mean,
    is_synthetic, presets,
};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Files of a trace: what it says of itself, and its machine.
const TRACE: &str = "trace.toml";
const MACHINE: &str = "machine.toml";
/// How the files of perf begin (its `PERF_MAGIC2`).
const PERF_DATA: &[u8] = b"PERFILE2";

/// Why no machine could be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The sysfs tree describes none.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
    /// The firmware tables in a folder describe none.
    #[error("the firmware tables in {}", folder.display())]
    Acpi {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with them.
        source: AcpiError,
    },
    /// The hwloc XML describes none.
    #[error("{}", path.display())]
    Hwloc {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: HwlocError,
    },
    /// The machine file has mistakes.
    #[error(transparent)]
    File(#[from] MachineError),
    /// A line of types and counts describes none.
    #[error(transparent)]
    Synthetic(#[from] SyntheticError),
    /// A file or folder exists but cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A folder has nothing that describes a machine.
    #[error(
        "the folder {} describes no machine: it has neither devices/system (a sysfs tree such as /sys), nor sys/devices/system \
         (the root of a saved system), nor SRAT (firmware tables, as in /sys/firmware/acpi/tables)",
        .0.display()
    )]
    Folder(PathBuf),
    /// A file that is neither text nor an archive.
    #[error(
        "{} is neither text (a machine file or hwloc XML) nor an archive of a saved system (tar, tar.gz, tar.bz2, tar.xz); firmware tables are read \
         from their folder, where they are named SRAT, SLIT and HMAT",
        .0.display()
    )]
    Binary(PathBuf),
    /// A trace, which has a machine's description.
    #[error(
        "{path} is a trace: `nearside report {path}` shows it, and `nearside topology --from {path}/{machine}` its machine",
        path = .0.display(), machine = MACHINE
    )]
    Trace(PathBuf),
    /// A recording of perf, which has none.
    #[error(
        "{path} is a recording of perf: `nearside report {path}` shows it; it names nodes and CPUs, but describes no machine",
        path = .0.display()
    )]
    PerfData(PathBuf),
    /// A text of another kind.
    #[error("{} is neither a machine file (TOML) nor hwloc XML: line {line}: {why}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The line that is not TOML, counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The text names no machine.
    #[error(
        "`{text}` names no machine: it is no file, no folder and no preset{}{}",
        did_you_mean(*.nearest), presets::list(all)
    )]
    Unknown {
        /// The name or path given.
        text: String,
        /// The preset with the most similar name, if any is similar.
        nearest: Option<&'static str>,
        /// All presets.
        all: Vec<&'static str>,
    },
}

/// Reads the machine that `from` names, or this host. A preset's name means the preset even if a file has the same
/// name: use `./name` for the file. The contents of a file or folder decide its kind.
pub fn read(from: Option<&str>) -> Result<Machine, SourceError> {
    let Some(from) = from else { return Ok(with_notes(Machine::from_saved_sysfs(Path::new("/sys"))?)) };
    let unknown = match presets::find(from) {
        Err(MachineError::UnknownPreset { name, nearest, all }) => SourceError::Unknown { text: name, nearest, all },
        preset => return Ok(preset?),
    };
    let path = Path::new(from);
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => from_folder(path),
        Ok(_) => from_file(path),
        Err(source) if source.kind() != ErrorKind::NotFound => Err(SourceError::Read { path: path.to_owned(), source }),
        Err(_) if is_synthetic(from) => Ok(Machine::from_synthetic(from)?),
        Err(_) => Err(unknown),
    }
}

/// The devices of a machine that [`read`] reads from a sysfs tree; none of any other.
pub fn devices(from: Option<&str>) -> Vec<PciDevice> {
    let Some(from) = from else { return PciDevice::all_of_sysfs(Path::new("/sys")) };
    let path = Path::new(from);
    if presets::find(from).is_ok() {
        return Vec::new();
    }
    match [path.to_owned(), path.join("sys")].into_iter().find(|root| root.join("devices/system").is_dir()) {
        Some(root) => PciDevice::all_of_sysfs(&root),
        // A pipe can be read once only.
        None if path.is_file() => {
            let bytes = bounded::bytes(path, bounded::MOST_BYTES).unwrap_or_default();
            if Archive::is_one(&bytes) { PciDevice::all_of_archive(&bytes) } else { Vec::new() }
        }
        None => Vec::new(),
    }
}

/// The machine that this program runs on, and whether it is simulated: the lab describes its own machine, with facts
/// that its firmware tables lack.
pub fn running() -> Result<(Machine, bool), SourceError> {
    let simulated = Path::new(model::pmu::MACHINE_FILE);
    if simulated.exists() { Ok((from_file(simulated)?, true)) } else { Ok((read(None)?, false)) }
}

fn from_folder(folder: &Path) -> Result<Machine, SourceError> {
    let saved = folder.join("sys");
    if folder.join("devices/system").is_dir() {
        Ok(with_notes(Machine::from_saved_sysfs(folder)?))
    } else if saved.join("devices/system").is_dir() {
        Ok(with_notes(Machine::from_saved_sysfs(&saved)?))
    } else if folder.join("SRAT").exists() {
        let read = Machine::from_acpi_dir(folder).map(with_notes);
        read.map_err(|source| SourceError::Acpi { folder: folder.to_owned(), source })
    } else if folder.join(TRACE).exists() {
        Err(SourceError::Trace(folder.to_owned()))
    } else {
        Err(SourceError::Folder(folder.to_owned()))
    }
}

/// Prints what was left out of a machine.
fn with_notes((machine, warnings): (Machine, Vec<String>)) -> Machine {
    for warning in &warnings {
        note(warning);
    }
    machine
}

fn from_file(path: &Path) -> Result<Machine, SourceError> {
    let read = bounded::bytes(path, bounded::MOST_BYTES);
    let bytes = read.map_err(|source| SourceError::Read { path: path.to_owned(), source })?;
    if Archive::is_one(&bytes) {
        return Ok(with_notes(Machine::from_archive(&bytes, path)?));
    }
    if bytes.starts_with(PERF_DATA) {
        return Err(SourceError::PerfData(path.to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|_| SourceError::Binary(path.to_owned()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    if text.contains('\0') {
        return Err(SourceError::Binary(path.to_owned()));
    }
    // TOML cannot begin with `<`; XML must.
    if text.trim_start().starts_with('<') {
        let read = Machine::from_saved_hwloc_xml(text);
        read.map(with_notes).map_err(|source| SourceError::Hwloc { path: path.to_owned(), source })
    } else {
        let is_named_toml = path.extension().is_some_and(|extension| extension == "toml");
        let is_no_toml = |mistake: &Mistake| mistake.field.is_empty();
        Machine::from_toml(text, path).map_err(|error| match error {
            MachineError::Mistakes(mistakes) if !is_named_toml && mistakes.iter().any(is_no_toml) => {
                let Mistake { file, line, rule, .. } = mistakes[0].clone();
                SourceError::Foreign { path: file, line, why: rule }
            }
            error => error.into(),
        })
    }
}
