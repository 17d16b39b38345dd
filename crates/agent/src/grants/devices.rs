//! The control hardware of this machine.

use super::control_word::Interface;
use super::lab_control::LabControl;
use super::offer::ControlDevice;
use super::resctrl_control::ResctrlControl;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

/// That of an interface, if this machine has it. The lab's needs root.
pub(crate) fn device(interface: Interface) -> io::Result<Option<&'static dyn ControlDevice>> {
    #[cfg(test)]
    if let Some(device) = tests::DEVICE.get().filter(|device| device.interface() == interface) {
        return Ok(Some(device));
    }
    match interface {
        Interface::Lab => {
            static FOUND: OnceLock<Option<LabControl>> = OnceLock::new();
            if FOUND.get().is_none() {
                let found = LabControl::open()?;
                let _ = FOUND.set(found);
            }
            Ok(FOUND.get().and_then(Option::as_ref).map(|device| device as &dyn ControlDevice))
        }
        Interface::Resctrl => {
            static FOUND: OnceLock<Option<ResctrlControl>> = OnceLock::new();
            let found = FOUND.get_or_init(|| ResctrlControl::find(Path::new("/")));
            Ok(found.as_ref().map(|device| device as &dyn ControlDevice))
        }
    }
}

/// Removes what nearside has made of the control hardware's classes and does not use.
pub(crate) fn tidy() -> io::Result<()> {
    [Interface::Lab, Interface::Resctrl].into_iter().try_for_each(|interface| match device(interface)? {
        Some(device) => device.tidy(),
        None => Ok(()),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Control hardware of a test's thread, instead of the machine's.
        pub(crate) static DEVICE: Cell<Option<&'static dyn ControlDevice>> = const { Cell::new(None) };
    }
}
