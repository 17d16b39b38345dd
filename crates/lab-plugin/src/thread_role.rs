//! The role of the calling thread in QEMU: the interposed C library functions depend on it.

use crate::host;
use std::cell::Cell;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Executes the code of a virtual CPU.
    Cpu(usize),
    /// Runs timers and devices.
    MainLoop,
    /// A file worker thread.
    Worker,
    /// Anything else.
    Other,
}

thread_local! {
    static ROLE: Cell<Option<Role>> = const { Cell::new(None) };
}

/// The role of the calling thread.
pub(crate) fn own() -> Role {
    ROLE.get().unwrap_or_else(|| {
        // QEMU's main loop runs in the process's first thread.
        let role = if host::thread_id() == std::process::id() { Role::MainLoop } else { Role::Other };
        set(role);
        role
    })
}

/// Sets the role of the calling thread.
pub(crate) fn set(role: Role) {
    ROLE.set(Some(role));
}
