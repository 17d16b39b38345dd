//! A setting that grants change.

use super::lab_control::{LabControl, LabWord};
use linux::{Switch, SwitchError};
use std::io;
use std::path::{Path, PathBuf};

/// A setting with a text as its value, by its name.
#[derive(Clone, Debug)]
pub(crate) enum Setting {
    /// A file of the kernel's.
    File(Switch),
    /// A control word of the lab, by its name and what it is.
    Lab(PathBuf, LabWord),
}

impl Setting {
    /// That of a name.
    pub(crate) fn at(path: &Path) -> Self {
        match LabWord::named(path) {
            Some(word) => Self::Lab(path.to_owned(), word),
            None => Self::File(Switch::at(path)),
        }
    }

    /// Its value.
    pub(crate) fn value(&self) -> Result<String, SwitchError> {
        match self {
            Self::File(switch) => switch.value(),
            Self::Lab(path, word) => with_device(path, "read", |device| device.value(*word)),
        }
    }

    /// What it has before any grant. For a file that is what it has now: its owner chose it. Control words have owners only
    /// while there are grants.
    pub(crate) fn original(&self) -> Result<String, SwitchError> {
        match self {
            Self::File(switch) => switch.value(),
            Self::Lab(path, word) => with_device(path, "read", |device| device.original(*word)),
        }
    }

    /// Sets it permanently.
    pub(crate) fn set(&self, value: &str) -> Result<(), SwitchError> {
        match self {
            Self::File(switch) => switch.set(value),
            Self::Lab(path, word) => with_device(path, "set", |device| device.set(*word, value)),
        }
    }

    /// Whether it is still there.
    pub(crate) fn exists(&self) -> bool {
        match self {
            Self::File(switch) => switch.path().exists(),
            Self::Lab(..) => self.value().is_ok(),
        }
    }
}

fn with_device<T>(
    path: &Path,
    what: &'static str,
    act: impl FnOnce(&LabControl) -> io::Result<T>,
) -> Result<T, SwitchError> {
    let device = LabControl::find().and_then(|device| device.ok_or_else(|| io::ErrorKind::NotFound.into()));
    device.and_then(act).map_err(|source| SwitchError { what, path: path.to_owned(), source })
}
