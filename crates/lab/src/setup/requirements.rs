//! What the lab needs: versions, disk space, and the variables that name what the user has.

use super::Version;

/// Names the QEMU to use instead of the one on `PATH` or the one that setup fetches.
pub const QEMU_VARIABLE: &str = "NEARSIDE_QEMU";

/// The first release with version 7 of the plugin interface, which the lab's plugin uses.
pub const QEMU_MINIMUM: Version = Version::series(11, 1);

/// Names a folder with kernels in the layout of unpacked packages, used instead of fetched ones.
pub const KERNEL_FOLDER_VARIABLE: &str = "NEARSIDE_KERNEL_DIR";

/// The long-term series that the lab is built against: it has weighted interleave, and keeps the running task where the
/// plugin looks for it.
pub const KERNEL_MINIMUM: Version = Version::series(6, 12);

/// Disk space for a setup, in MiB: package lists, archives and unpacked packages took 371 on a Debian 12 that had most
/// libraries; the rest is for hosts with few libraries and for later releases.
pub const NEEDED_MIB: u64 = 550;
