//! Sizes of pages, and which addresses are the kernel's: the same on x86-64 and, with its usual settings, on 64-bit ARM.

/// Size of a cache line, and so of an access to memory, bytes: that of every processor of the presets.
pub const LINE_BYTES: u64 = 64;
/// Bytes of a small page.
pub const SMALL_PAGE: u64 = 4 << 10;
/// Bytes of a huge page.
pub const HUGE_PAGE: u64 = 2 << 20;
/// The first address of the kernel's half of the address space.
const KERNEL_START: u64 = 1 << 63;

/// Whether an address is the kernel's; otherwise it is a program's.
pub const fn is_kernel_address(address: u64) -> bool {
    address >= KERNEL_START
}
