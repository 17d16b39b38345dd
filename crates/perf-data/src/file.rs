//! perf.data files, as written by `perf record` and `perf mem record` to a file or a pipe, compressed or not.

use crate::attribute::{self, Attribute, Sampler};
use crate::bytes::Bytes;
use crate::error::PerfDataError;
use crate::features::Features;
use crate::input::Input;
use crate::record_reader::RecordReader;
use crate::session::Session;
use crate::spe::{self, SpeQueues};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// `PERFILE2` on a little-endian machine.
const MAGIC: &[u8; 8] = b"PERFILE2";
const MAGIC_OTHER_ORDER: &[u8; 8] = b"2ELIFREP";
/// Sizes of the header of a file, and of a pipe.
const FILE_HEADER_BYTES: u64 = 104;
const PIPE_HEADER_BYTES: u64 = 16;
/// After the attribute of an event: position and length of its counters' IDs.
const SECTION_BYTES: u64 = 16;
/// Maximum size of a section that is read. The sections used here are lists of short texts.
const MAX_SECTION_BYTES: u64 = 64 << 20;

/// A perf.data file.
#[derive(Debug)]
pub struct PerfData {
    path: PathBuf,
    /// Position and length of its records.
    start: u64,
    bytes: u64,
    cut_bytes: u64,
    session: Session,
}

/// A part of a file.
#[derive(Clone, Copy, Debug)]
struct Section {
    offset: u64,
    bytes: u64,
}

impl Section {
    fn parse(from: &mut Bytes<'_>) -> Option<Self> {
        Some(Self { offset: from.u64()?, bytes: from.u64()? })
    }
}

/// Whether a file starts with the magic of perf.data.
pub fn is_perf_data(file: &File) -> bool {
    let mut magic = [0; 8];
    file.read_exact_at(&mut magic, 0).is_ok() && (magic == *MAGIC || magic == *MAGIC_OTHER_ORDER)
}

impl PerfData {
    /// Reads everything except the records.
    pub fn open(path: &Path) -> Result<Self, PerfDataError> {
        let failed = |source| PerfDataError::Io { path: path.to_owned(), source };
        let wrong = |what: &'static str| PerfDataError::Malformed { path: path.to_owned(), what };
        let file = machine::bounded::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let head = read(&file, Section { offset: 0, bytes: length.min(FILE_HEADER_BYTES) }).map_err(failed)?;
        let mut from = Bytes(&head);
        let magic = from.take(8).map(|magic| magic.0);
        if magic == Some(MAGIC_OTHER_ORDER) {
            return Err(wrong("it was recorded on a big-endian machine, which nearside does not support"));
        }
        let size = from.u64().filter(|_| magic == Some(MAGIC)).ok_or_else(|| wrong("its header is incomplete"))?;
        if size == PIPE_HEADER_BYTES {
            return Self::open_pipe(path, length - PIPE_HEADER_BYTES);
        }
        let sections = || {
            let attribute_bytes = from.u64()?;
            let (attributes, data) = (Section::parse(&mut from)?, Section::parse(&mut from)?);
            let _event_types = Section::parse(&mut from)?;
            Some((attribute_bytes, attributes, data, from))
        };
        let (attribute_bytes, attributes, data, set) = { sections }().ok_or_else(|| wrong("its header ends early"))?;
        // perf writes the size at the end of a recording. Without it, records extend to the end of the file, with no
        // sections after them.
        let complete = data.bytes > 0;
        let there = length.saturating_sub(data.offset);
        let mut perf = Self {
            path: path.to_owned(),
            start: data.offset,
            bytes: if complete { data.bytes.min(there) } else { there },
            cut_bytes: data.bytes.saturating_sub(there),
            session: Session::default(),
        };
        perf.read_attributes(&file, attribute_bytes, attributes).map_err(failed)?;
        if complete {
            perf.read_features(&file, data, set).map_err(failed)?;
        }
        perf.session.name_events();
        perf.checked()
    }

    /// Opens the output of a pipe, in which attributes and features are records at the start.
    fn open_pipe(path: &Path, bytes: u64) -> Result<Self, PerfDataError> {
        let mut perf =
            Self { path: path.to_owned(), start: PIPE_HEADER_BYTES, bytes, cut_bytes: 0, session: Session::default() };
        perf.read_descriptions().map_err(|source| PerfDataError::Io { path: path.to_owned(), source })?;
        perf.session.name_events();
        perf.checked()
    }

    /// Checks that its samples can be used.
    fn checked(self) -> Result<Self, PerfDataError> {
        let attributes = self.session.attributes();
        let timeless = attributes.iter().any(|attribute| !attribute.has(attribute::TIME));
        let what = match attributes {
            [] => "it names no event",
            _ if timeless => "its samples have no times (`perf record --timestamp` adds them)",
            _ => return Ok(self),
        };
        Err(PerfDataError::Malformed { path: self.path, what })
    }

    fn read_attributes(&mut self, file: &File, size: u64, section: Section) -> io::Result<()> {
        let section = read(file, section)?;
        let mut from = Bytes(&section);
        // Several attributes may name the same part of the file.
        let mut left = file.metadata()?.len();
        while let Some(mut event) = from.take(size).filter(|event| !event.0.is_empty()) {
            let Some((attribute, _)) = Attribute::parse(event) else { break };
            let ids = size.checked_sub(SECTION_BYTES).and_then(|length| {
                event.take(length)?;
                Section::parse(&mut event)
            });
            let ids = ids.filter(|ids| ids.bytes <= left).map(|ids| read(file, ids)).transpose()?.unwrap_or_default();
            left -= ids.len() as u64;
            self.session.add_attribute(Attribute { ids: Bytes(&ids).u64s().collect(), ..attribute });
        }
        Ok(())
    }

    /// Feature sections follow the records, in the order of the bits of `set`.
    fn read_features(&mut self, file: &File, data: Section, set: Bytes<'_>) -> io::Result<()> {
        let bits = set
            .u64s()
            .zip(0_u32..)
            .flat_map(|(word, at)| (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit));
        let mut offset = data.offset.saturating_add(data.bytes);
        for feature in bits {
            let place = read(file, Section { offset, bytes: SECTION_BYTES })?;
            let Some(section) = Section::parse(&mut Bytes(&place)) else { break };
            if Features::knows(feature) {
                self.session.features.read(feature, Bytes(&read(file, section)?));
            }
            offset = offset.saturating_add(SECTION_BYTES);
        }
        Ok(())
    }

    /// The records before the first one from the kernel describe the recording.
    fn read_descriptions(&mut self) -> io::Result<()> {
        let mut input = self.input()?;
        while let Some((header, record)) = input.next()? {
            if !Session::is_description(header.kind) {
                break;
            }
            self.session.describe(header.kind, header.misc, header.body(record).unwrap_or(Bytes(&[])));
        }
        Ok(())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its events, and what describes the machine and the recording.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The session before the first record: a pipe repeats its events as records.
    pub fn first_session(&self) -> Session {
        let is_pipe = self.start == PIPE_HEADER_BYTES;
        let mut session = if is_pipe { Session::default() } else { self.session.clone() };
        session.features.cycles_per_ns = self.session.features.cycles_per_ns;
        session
    }

    /// Number of bytes missing at the end of the file, according to its header.
    pub fn cut_bytes(&self) -> u64 {
        self.cut_bytes
    }

    /// Sets the core frequency, unless the file has it.
    pub fn assume_core_clock(&mut self, hz: f64) {
        self.session.features.cycles_per_ns.get_or_insert(hz / 1e9);
    }

    /// Its records, from the first one.
    pub fn records(&self) -> Result<RecordReader, PerfDataError> {
        let input = self.input().map_err(|source| PerfDataError::Io { path: self.path.clone(), source })?;
        Ok(RecordReader::new(self.path.clone(), input))
    }

    /// The data of Arm's SPE among its records, if any.
    pub fn spe(&self) -> Result<Option<SpeQueues>, PerfDataError> {
        if !self.session.attributes().iter().any(|attribute| attribute.sampler == Sampler::Spe) {
            return Ok(None);
        }
        let found = spe::find(&self.path, self.start, self.bytes);
        found.map_err(|source| PerfDataError::Io { path: self.path.clone(), source })
    }

    fn input(&self) -> io::Result<Input> {
        let mut file = machine::bounded::open(&self.path)?;
        file.seek(SeekFrom::Start(self.start))?;
        Ok(Input::new(file, self.bytes))
    }
}

/// Reads the part of a section that exists.
fn read(file: &File, section: Section) -> io::Result<Vec<u8>> {
    let there = file.metadata()?.len().saturating_sub(section.offset).min(section.bytes);
    let mut bytes = vec![0; usize::try_from(there.min(MAX_SECTION_BYTES)).unwrap_or(0)];
    file.read_exact_at(&mut bytes, section.offset)?;
    Ok(bytes)
}
