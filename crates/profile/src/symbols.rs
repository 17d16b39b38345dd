//! What names the insides of mapped files.

use std::sync::Arc;
use trace::FileIdentity;

/// A file that processes map.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct File {
    /// Its path, or the kernel's name such as `[vdso]`; [`File::KERNEL`] for the kernel's own code.
    pub name: Arc<str>,
    /// What tells it from others of the same name.
    pub identity: Option<FileIdentity>,
}

impl File {
    /// The name of the file that stands for the kernel. Offsets in it are the kernel's addresses.
    pub const KERNEL: &'static str = "[kernel]";
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name, demangled.
    pub name: Arc<str>,
    /// Where in the file its code begins, bytes.
    pub start: u64,
    /// The line of the code that was asked for.
    pub line: Option<SourceLine>,
}

/// A line of source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The path that the compiler wrote down.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: u32,
}

/// Data of a binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// Its name: `counters`, `.plt`.
    pub name: Arc<str>,
    /// Whether it is a variable; otherwise it is a section.
    pub variable: bool,
    /// Where in the file it begins, bytes.
    pub start: u64,
    /// How long it is, bytes.
    pub bytes: u64,
}

/// What names the insides of mapped files.
///
/// Offsets are those of the file's bytes. Data that have no bytes in the file (`.bss`) are asked for by the offset that
/// they would have if the mapping of the segment before them went on.
pub trait Symbols {
    /// The function with the instruction at this offset, after those that are inlined there, the innermost first.
    fn functions(&self, file: &File, offset: u64) -> Vec<Function>;

    /// The variable at this offset or, where there is none, the section.
    fn data(&self, file: &File, offset: u64) -> Option<Data>;
}

/// Knows nothing: functions have no names, and binaries are one section each.
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
