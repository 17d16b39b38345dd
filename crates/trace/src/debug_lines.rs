//! Source lines from the debugging information of a file, in bounded memory.
//!
//! The file may be made to exhaust memory, in ways that its length does not show: compressed sections, units that share
//! one long table, lists that many functions refer to. Therefore all of it is read through [`Bytes`], which looks at this
//! process's memory now and then. addr2line's own loader would map the file, so that its owner could end this process by
//! cutting it off, and would open whatever files it names, also pipes.

use crate::elf::{Parsed, below, open_elf};
use crate::image::MOST_EXPANDED_BYTES;
use crate::memory_limit::MemoryLimit;
use addr2line::gimli::{self, ReaderOffsetId, RunTimeEndian, SectionId};
use addr2line::{Context, FrameIter, LookupContinuation, LookupResult};
use object::{CompressedData, Object, ObjectSection, ReadCache};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// Debugging information of one file.
pub(crate) struct DebugLines {
    context: Context<Bytes>,
    memory: Rc<MemoryLimit>,
    root: PathBuf,
}

/// The sections of a file are longer than [`MOST_EXPANDED_BYTES`] and the allowed multiple of its length, or what is made
/// of them takes too much memory.
#[derive(Debug)]
pub(crate) struct TooLong;

impl DebugLines {
    /// Reads what all lookups need. `None` if there is no debugging information, or it is damaged.
    pub fn open(elf: &Parsed<'_>, file: &File, root: &Path, memory: &Rc<MemoryLimit>) -> Result<Option<Self>, TooLong> {
        let Some(dwarf) = load(elf, file, memory, |id| Some(id.name()))? else { return Ok(None) };
        let context = Context::from_dwarf(dwarf).ok();
        if context.is_none() && memory.is_exceeded() {
            return Err(TooLong);
        }
        Ok(context.map(|context| Self { context, memory: memory.clone(), root: root.to_owned() }))
    }

    /// The frames at an address, innermost first.
    pub fn frames(&self, address: u64) -> Option<FrameIter<'_, Bytes>> {
        let mut found = self.context.find_frames(address);
        loop {
            match found {
                LookupResult::Output(frames) => return frames.ok(),
                LookupResult::Load { load, continuation } => {
                    let names = [load.comp_dir.as_ref(), load.path.as_ref()];
                    let split = names[1].and_then(|_| self.split(&path_of(names)?, load.dwo_id, &load.parent));
                    found = continuation.resume(split);
                }
            }
        }
    }

    /// The part of a unit in a file of split DWARF.
    #[expect(clippy::arc_with_non_send_sync, reason = "addr2line's interface asks for an `Arc`, and one thread has it")]
    fn split(&self, path: &str, id: gimli::DwoId, parent: &gimli::Dwarf<Bytes>) -> Option<Arc<gimli::Dwarf<Bytes>>> {
        let file = open_elf(&below(&self.root, path)).ok()?;
        let parts = ReadCache::new(&file);
        let elf = object::File::parse(&parts).ok()?;
        let mut dwarf = load(&elf, &file, &self.memory, SectionId::dwo_name).ok()??;
        let header = dwarf.units().next().ok()??;
        if dwarf.unit(header).ok()?.dwo_id != Some(id) {
            return None;
        }
        dwarf.make_dwo(parent);
        Some(Arc::new(dwarf))
    }
}

/// The path of the folder and name that are there.
fn path_of(parts: [Option<&Bytes>; 2]) -> Option<String> {
    let mut path = PathBuf::new();
    parts.into_iter().flatten().for_each(|part| path.push(OsStr::from_bytes(part.slice())));
    path.into_os_string().into_string().ok()
}

/// Loads the sections of these names.
fn load(
    elf: &Parsed<'_>,
    file: &File,
    memory: &Rc<MemoryLimit>,
    name: impl Fn(SectionId) -> Option<&'static str>,
) -> Result<Option<gimli::Dwarf<Bytes>>, TooLong> {
    let endian = if elf.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let ranges = elf.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".debug_")));
    let ranges = ranges.filter_map(|section| section.compressed_file_range().ok());
    let bytes = ranges.fold(0_u64, |sum, range| sum.saturating_add(range.uncompressed_size));
    if bytes > MOST_EXPANDED_BYTES.max(memory.lengths()) {
        return Err(TooLong);
    }
    let section = |id| -> Result<Bytes, ()> {
        let found = name(id).and_then(|name| elf.section_by_name(name));
        let bytes = found.map_or(Ok(Vec::new()), |section| contents(&section, file).ok_or(()))?;
        Ok(Bytes { range: 0..bytes.len(), section: Rc::new(Section { bytes, endian, memory: memory.clone() }) })
    };
    let Ok(mut dwarf) = gimli::Dwarf::load(section) else { return Ok(None) };
    dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
    Ok(Some(dwarf))
}

/// The decompressed contents of a section. It is read past the cache of `object`, which would keep a second copy.
fn contents<'data>(section: &impl ObjectSection<'data>, file: &File) -> Option<Vec<u8>> {
    let range = section.compressed_file_range().ok()?;
    if range.offset.checked_add(range.compressed_size)? > file.metadata().ok()?.len() {
        return None;
    }
    let mut data = vec![0; usize::try_from(range.compressed_size).ok()?];
    file.read_exact_at(&mut data, range.offset).ok()?;
    match (CompressedData { format: range.format, data: &data, uncompressed_size: range.uncompressed_size })
        .decompress()
    {
        Ok(Cow::Owned(decompressed)) => Some(decompressed),
        Ok(Cow::Borrowed(_)) => Some(data),
        Err(_) => None,
    }
}

/// A section, and how much memory its file may take.
#[derive(Debug)]
struct Section {
    bytes: Vec<u8>,
    endian: RunTimeEndian,
    memory: Rc<MemoryLimit>,
}

/// A part of a section, which fails to be read where the file takes too much memory.
#[derive(Clone, Debug)]
pub(crate) struct Bytes {
    section: Rc<Section>,
    range: Range<usize>,
}

impl Bytes {
    fn slice(&self) -> &[u8] {
        &self.section.bytes[self.range.clone()]
    }

    fn end<T>(&self) -> gimli::Result<T> {
        Err(gimli::Error::UnexpectedEof(gimli::Reader::offset_id(self)))
    }

    /// Takes this much from the front, and counts it.
    fn take(&mut self, len: usize) -> gimli::Result<Range<usize>> {
        if len > self.range.len() || !self.section.memory.may_read(len) {
            return self.end();
        }
        let taken = self.range.start..self.range.start + len;
        self.range.start = taken.end;
        Ok(taken)
    }
}

impl gimli::Reader for Bytes {
    type Endian = RunTimeEndian;
    type Offset = usize;

    fn endian(&self) -> RunTimeEndian {
        self.section.endian
    }

    fn len(&self) -> usize {
        self.range.len()
    }

    fn empty(&mut self) {
        self.range.start = self.range.end;
    }

    fn truncate(&mut self, len: usize) -> gimli::Result<()> {
        if len > self.range.len() {
            return self.end();
        }
        self.range.end = self.range.start + len;
        Ok(())
    }

    fn offset_from(&self, base: &Self) -> usize {
        self.range.start - base.range.start
    }

    fn offset_id(&self) -> ReaderOffsetId {
        ReaderOffsetId(self.slice().as_ptr() as u64)
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        let offset = usize::try_from(id.0.checked_sub(self.offset_id().0)?).ok()?;
        (offset <= self.range.len()).then_some(offset)
    }

    fn find(&self, byte: u8) -> gimli::Result<usize> {
        match self.slice().iter().position(|&other| other == byte) {
            Some(found) if self.section.memory.may_read(found) => Ok(found),
            _ => self.end(),
        }
    }

    fn skip(&mut self, len: usize) -> gimli::Result<()> {
        if len > self.range.len() {
            return self.end();
        }
        self.range.start += len;
        Ok(())
    }

    fn split(&mut self, len: usize) -> gimli::Result<Self> {
        let mut front = self.clone();
        front.truncate(len)?;
        self.skip(len)?;
        Ok(front)
    }

    fn to_slice(&self) -> gimli::Result<Cow<'_, [u8]>> {
        Ok(self.slice().into())
    }

    fn to_string(&self) -> gimli::Result<Cow<'_, str>> {
        str::from_utf8(self.slice()).map(Cow::from).map_err(|_| gimli::Error::BadUtf8)
    }

    fn to_string_lossy(&self) -> gimli::Result<Cow<'_, str>> {
        Ok(String::from_utf8_lossy(self.slice()))
    }

    fn read_slice(&mut self, buffer: &mut [u8]) -> gimli::Result<()> {
        let taken = self.take(buffer.len())?;
        buffer.copy_from_slice(&self.section.bytes[taken]);
        Ok(())
    }
}
