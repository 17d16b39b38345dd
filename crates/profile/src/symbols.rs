//! Symbols of mapped files.

use std::sync::Arc;
use trace::FileIdentity;

/// A file that processes map.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct File {
    /// Its path, or the kernel's name such as `[vdso]`; [`File::KERNEL`] for the kernel's own code.
    pub name: Arc<str>,
    /// Distinguishes it from others of the same name.
    pub identity: Option<FileIdentity>,
}

impl File {
    /// The name of the file that represents the kernel. Offsets in it are kernel addresses.
    pub const KERNEL: &'static str = "[kernel]";
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name, demangled.
    pub name: Arc<str>,
    /// Offset of its code in the file, bytes.
    pub start: u64,
    /// The source line of the looked-up code.
    pub line: Option<SourceLine>,
}

/// A line of source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The path recorded by the compiler.
    pub file: Arc<str>,
    /// The line number, from 1.
    pub line: u32,
}

/// Data of a binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// Its name: `counters`, `.plt`.
    pub name: Arc<str>,
    /// Whether it is a variable rather than a section.
    pub variable: bool,
    /// Its offset in the file, bytes.
    pub start: u64,
    /// Its size, bytes.
    pub bytes: u64,
}

/// Symbols of mapped files.
///
/// Offsets are file offsets. Data without bytes in the file (`.bss`) has the offset that it would have if the preceding
/// segment's mapping continued.
pub trait Symbols {
    /// The function that contains the instruction at this offset, preceded by those inlined there, innermost first.
    fn functions(&self, file: &File, offset: u64) -> Vec<Function>;

    /// The variable at this offset, or else the section.
    fn data(&self, file: &File, offset: u64) -> Option<Data>;
}

/// Has no symbols: functions have no names, and binaries are one section each.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSymbols;

impl Symbols for NoSymbols {
    fn functions(&self, _: &File, _: u64) -> Vec<Function> {
        Vec::new()
    }

    fn data(&self, _: &File, _: u64) -> Option<Data> {
        None
    }
}
