//! What the lab needs from a distribution: QEMU, its libraries and firmware, and a kernel with its modules.
