//! Random numbers of the kernel.

use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, ioctl};
use std::fs::File;
use std::io;

/// Makes the kernel use what was written to `/dev/urandom`, an open file here, for the numbers that it draws from now on: it
/// does so by itself after a minute only. Needs `CAP_SYS_ADMIN`; Linux 4.14 or newer.
pub fn use_added_entropy(random: &File) -> io::Result<()> {
    const RESEED: Opcode = linux_raw_sys::ioctl::RNDRESEEDCRNG as Opcode;
    // SAFETY: this operation takes no argument.
    let done = unsafe { ioctl(random, NoArg::<RESEED>::new()) };
    done.map_err(|error: Errno| error.into())
}
