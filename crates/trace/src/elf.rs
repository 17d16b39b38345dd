//! Reads symbols and debugging information of a mapped file.
//!
//! addr2line does this with less to build than wholesym, which also talks to symbol servers and reads the formats of
//! Windows and macOS. blazesym would replace the few lines that call addr2line, but neither the check that a file is the
//! mapped one, nor its segments, sections and variables.

use crate::debug_lines::{DebugLines, TooLong};
use crate::demangle::demangled;
use crate::image::{CodeLine, Image, ImageState, MOST_EXPANDED_BYTES, MOST_EXPANSION, Named, Segment, containing};
use crate::memory_limit::{MemoryLimit, allocated};
use crate::table::hexadecimal;
use crate::{FileIdentity, catch_panic::catch_panic};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache, SegmentFlags, SymbolKind};
use rustix::fs::OFlags;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

const MAGIC: &[u8; 4] = b"\x7fELF";
/// Maximum size of a file that is read, since its symbols are loaded into memory.
const MAX_FILE_BYTES: u64 = 4 << 30;
/// Maximum total length of the names of functions and variables that are kept of a file, in bytes: many symbols may have
/// the same long name.
const MOST_NAME_BYTES: usize = 96 << 20;
/// Maximum number of functions at an address, with those that were inlined into each other.
const MOST_FRAMES: usize = 256;
/// Where distributions put separate debugging information.
const DEBUG_FOLDER: &str = "usr/lib/debug/.build-id";
const EXECUTABLE: u32 = 1;

pub(crate) type Parsed<'data> = object::File<'data, &'data ReadCache<&'data File>>;

/// An open file, checked to be the one that was mapped.
pub(crate) struct Elf {
    pub image: Image,
    functions: Vec<Named>,
    variables: Vec<Named>,
    /// Debugging information, from the file itself or from the separate file.
    lines: Option<DebugLines>,
    memory: Rc<MemoryLimit>,
}

impl Elf {
    /// Opens the file of an image. `began_unix_s` is when the recording began: a file without a build ID that was
    /// modified later counts as a different one.
    pub fn open(
        root: &Path,
        path: &Arc<str>,
        identity: &FileIdentity,
        began_unix_s: u64,
        memory: &Rc<MemoryLimit>,
    ) -> Result<Self, ImageState> {
        let file = open_elf(&below(root, path)).map_err(|error| {
            let missing = error.kind() == ErrorKind::NotFound;
            if missing { ImageState::Missing } else { ImageState::Unreadable }
        })?;
        memory.allow(&file);
        let opened = catch_panic(|| Self::read(root, &file, path, identity, began_unix_s, memory));
        opened.unwrap_or(Err(ImageState::Unreadable))
    }

    fn read(
        root: &Path,
        file: &File,
        path: &Arc<str>,
        identity: &FileIdentity,
        began_unix_s: u64,
        memory: &Rc<MemoryLimit>,
    ) -> Result<Self, ImageState> {
        let unreadable = |_| ImageState::Unreadable;
        let metadata = file.metadata().map_err(|_| ImageState::Unreadable)?;
        let parts = ReadCache::new(file);
        let elf = object::File::parse(&parts).map_err(unreadable)?;
        let found = elf.build_id().map_err(unreadable)?;
        let same = match &identity.build_id {
            Some(id) => found == Some(&**id),
            None => metadata.ino() == identity.inode && metadata.mtime().cast_unsigned() < began_unix_s,
        };
        if !same {
            return Err(ImageState::Changed);
        }
        let mut image = Image::new(path.clone(), identity.clone(), ImageState::Read);
        image.segments = elf.segments().map(|segment| of_segment(&segment)).collect();
        image.sections = ranges(elf.sections().filter(|section| section.address() > 0).map(|section| Named {
            name: section.name().unwrap_or_default().into(),
            address: section.address(),
            bytes: section.size(),
        }));
        // Separate debugging information has the same build ID as the program.
        let stripped = found.and_then(|id| open_elf(&debug_path(root, id)?).ok());
        let stripped_parts = stripped.as_ref().map(ReadCache::new);
        let debug = stripped_parts.as_ref().and_then(|parts| object::File::parse(parts).ok());
        let debug = debug.filter(|elf| elf.build_id() == Ok(found));
        let name_bytes = Cell::new(0);
        let symbols = |kinds: &[SymbolKind]| {
            let of = |elf: &Parsed<'_>| -> Vec<Named> {
                let all = elf.symbols().chain(elf.dynamic_symbols());
                all.filter(|symbol| kinds.contains(&symbol.kind()) && symbol.size() > 0)
                    .filter_map(|s| of_symbol(&s))
                    .take_while(|named| {
                        name_bytes.set(name_bytes.get() + named.name.len());
                        name_bytes.get() <= MOST_NAME_BYTES
                    })
                    .collect()
            };
            ranges(debug.iter().flat_map(of).chain(of(&elf)))
        };
        let (functions, variables) = (symbols(&[SymbolKind::Text]), symbols(&[SymbolKind::Data]));
        let (of_lines, with_lines) = match (&debug, &stripped) {
            (Some(debug), Some(stripped)) => (debug, stripped),
            _ => (&elf, file),
        };
        if let Some(stripped) = stripped.as_ref().filter(|_| debug.is_some()) {
            memory.allow(stripped);
        }
        let lines = DebugLines::open(of_lines, with_lines, root, memory).unwrap_or_else(|TooLong| {
            image.state = ImageState::TooCompressed;
            None
        });
        Ok(Self { image, functions, variables, lines, memory: memory.clone() })
    }

    /// Whether it could be read, and was small enough.
    pub fn state(&self) -> ImageState {
        if self.lines.is_some() && self.memory.is_exceeded() { ImageState::TooCompressed } else { self.image.state }
    }

    /// The code at an address, innermost inlined function first.
    pub fn code(&self, probe: u64) -> Vec<CodeLine> {
        let mut code = self.lines.as_ref().and_then(|lines| catch_panic(|| frames(lines, probe))).unwrap_or_default();
        let symbol = containing(&self.functions, probe);
        match code.last_mut() {
            Some(outermost) if outermost.function.is_none() => {
                outermost.function = symbol.map(|symbol| symbol.name.clone());
            }
            Some(_) => {}
            None => code
                .extend(symbol.map(|symbol| CodeLine { function: Some(symbol.name.clone()), ..CodeLine::default() })),
        }
        for line in &mut code {
            line.begins = symbol.map(|symbol| symbol.address);
        }
        code
    }

    /// The variable at an address.
    pub fn variable(&self, address: u64) -> Option<&Named> {
        containing(&self.variables, address)
    }

    /// Keeps the code at an instruction, or at the call before a return address.
    pub fn keep_code(&mut self, address: u64, returns: bool) {
        let probe = address.saturating_sub(u64::from(returns));
        let code = self.code(probe);
        if !code.is_empty() {
            self.image.code.insert(probe, code);
        }
    }

    /// Keeps the variables at these addresses.
    pub fn keep_variables(&mut self, addresses: impl Iterator<Item = u64>) {
        let at = |address: u64| self.variable(address).map(|variable| variable.address);
        let kept: BTreeSet<u64> = addresses.filter_map(at).collect();
        let variables = self.variables.iter().filter(|variable| kept.contains(&variable.address));
        self.image.variables = variables.cloned().collect();
    }
}

/// Opens a regular file, without blocking on a pipe.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(ErrorKind::InvalidInput.into()) }
}

/// Opens a file for [`is_elf`].
pub(crate) fn open_elf(path: &Path) -> io::Result<File> {
    let file = open_regular(path)?;
    if is_elf(&file)? { Ok(file) } else { Err(ErrorKind::InvalidData.into()) }
}

/// Whether a file starts with the ELF magic, and is short enough to be loaded: one that mostly consists of holes is not.
pub(crate) fn is_elf(file: &File) -> io::Result<bool> {
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, 0)?;
    let length = file.metadata()?.len();
    let stored = MOST_EXPANDED_BYTES.max(allocated(file).saturating_mul(MOST_EXPANSION));
    Ok(magic == *MAGIC && length <= stored.min(MAX_FILE_BYTES))
}

pub(crate) fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

pub(crate) fn of_segment<'data>(segment: &impl ObjectSegment<'data>) -> Segment {
    let (offset, file_bytes) = segment.file_range();
    let executable = matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & EXECUTABLE != 0);
    Segment { offset, file_bytes, address: segment.address(), memory_bytes: segment.size(), executable }
}

pub(crate) fn of_symbol<'data>(symbol: &impl ObjectSymbol<'data>) -> Option<Named> {
    Some(Named { name: demangled(symbol.name().ok()?), address: symbol.address(), bytes: symbol.size() })
}

/// Sorts the ranges, and keeps the longest at each address: the others are parts or aliases of it.
fn ranges(all: impl Iterator<Item = Named>) -> Vec<Named> {
    let mut all: Vec<Named> = all.collect();
    all.sort_by(|a, b| (a.address, b.bytes).cmp(&(b.address, a.bytes)));
    all.dedup_by_key(|range| range.address);
    all
}

/// Path of the separate debugging information for this build ID.
fn debug_path(root: &Path, id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first()?;
    let name = format!("{}.debug", hexadecimal(rest));
    Some(root.join(DEBUG_FOLDER).join(&*hexadecimal(&[*first])).join(name))
}

/// The frames at an address, innermost first.
fn frames(lines: &DebugLines, address: u64) -> Vec<CodeLine> {
    let Some(mut frames) = lines.frames(address) else { return Vec::new() };
    let mut code = Vec::new();
    while let Ok(Some(frame)) = frames.next()
        && code.len() < MOST_FRAMES
    {
        let function = frame.function.and_then(|function| function.raw_name().ok().map(|name| demangled(&name)));
        let (source, line) =
            frame.location.map_or((None, None), |location| (location.file.map(Arc::from), location.line));
        code.push(CodeLine { function, source, line, begins: None });
    }
    code
}
