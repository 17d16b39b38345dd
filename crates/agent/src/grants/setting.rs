//! A setting that grants change.

use super::control_word::{ControlWord, Interface};
use super::devices::device;
use super::offer::ControlDevice;
use linux::{Switch, SwitchError};
use std::io;
use std::path::{Path, PathBuf};

/// A setting with a text as its value, by its name.
#[derive(Clone, Debug)]
pub(crate) enum Setting {
    /// A file of the kernel's.
    File(Switch),
    /// A control word, by its name and what it is.
    Word(PathBuf, Interface, ControlWord),
}

impl Setting {
    /// That of a name.
    pub(crate) fn at(path: &Path) -> Self {
        match ControlWord::named(path) {
            Some((interface, word)) => Self::Word(path.to_owned(), interface, word),
            None => Self::File(Switch::at(path)),
        }
    }

    /// Its value.
    pub(crate) fn value(&self) -> Result<String, SwitchError> {
        match self {
            Self::File(switch) => switch.value(),
            Self::Word(path, interface, word) => with_device(path, *interface, "read", |device| device.value(*word)),
        }
    }

    /// What it has before any grant. For a file that is what it has now: its owner chose it. Control words have owners only
    /// while there are grants.
    pub(crate) fn original(&self) -> Result<String, SwitchError> {
        match self {
            Self::File(switch) => switch.value(),
            Self::Word(path, interface, word) => with_device(path, *interface, "read", |device| {
                word.at_start(device.offer()).ok_or_else(|| io::ErrorKind::NotFound.into())
            }),
        }
    }

    /// Sets it permanently.
    pub(crate) fn set(&self, value: &str) -> Result<(), SwitchError> {
        match self {
            Self::File(switch) => switch.set(value),
            Self::Word(path, interface, word) => {
                with_device(path, *interface, "set", |device| device.set(*word, value))
            }
        }
    }

    /// Whether it is still there.
    pub(crate) fn exists(&self) -> bool {
        match self {
            Self::File(switch) => switch.path().exists(),
            Self::Word(..) => self.value().is_ok(),
        }
    }
}

fn with_device<T>(
    path: &Path,
    interface: Interface,
    what: &'static str,
    act: impl FnOnce(&dyn ControlDevice) -> io::Result<T>,
) -> Result<T, SwitchError> {
    let device = device(interface).and_then(|device| device.ok_or_else(|| io::ErrorKind::NotFound.into()));
    device.and_then(act).map_err(|source| SwitchError { what, path: path.to_owned(), source })
}
