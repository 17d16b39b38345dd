//! perf.data files, as written by `perf record` and `perf mem record` to a file or a pipe, compressed or not.
//!
//! The crate `linux-perf-data` is not used because it omits what matters most here (what served an access, its
//! weight, the layout of counter groups), and trusts the sizes in a file: it allocates that much memory, or panics.
//! `perf-event-data` 0.1 skips neither the weight in parts (`PERF_SAMPLE_WEIGHT_STRUCT`, which PEBS has today) nor
//! counters of branches, so that it misreads the fields after them.

pub(crate) mod attribute;
mod aux_record;
mod bytes;
mod cpu_core;
mod data_source;
mod decoder;
mod features;
mod in_order;
mod input;
mod rounds;
mod sample;
mod spe_data;
mod stream;

use crate::error::ReadError;
use crate::metadata::FORMAT;
use crate::{About, Source, SourceNote};
use attribute::Attribute;
use input::Input;
use machine::{Machine, NodeId};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

pub(crate) use aux_record::{AUX, AuxRecord};
pub(crate) use bytes::Bytes;
pub(crate) use cpu_core::Core;
pub(crate) use data_source::Observed;
pub(crate) use decoder::{Decoder, LOST, LOST_BY_KERNEL, SAMPLE, has_symbols, lost_count};
pub(crate) use features::{Features, Timer};
pub(crate) use rounds::Starts;
pub(crate) use sample::SampleFields;
pub(crate) use stream::{PerfRecords, PerfRounds};

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
pub(crate) struct PerfData {
    path: PathBuf,
    /// Position and length of its records.
    start: u64,
    bytes: u64,
    /// Number of bytes missing at the end of the file, according to its header.
    cut_bytes: u64,
    attributes: Vec<Attribute>,
    features: Features,
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
pub(crate) fn is_perf_data(file: &File) -> bool {
    let mut magic = [0; 8];
    file.read_exact_at(&mut magic, 0).is_ok() && (magic == *MAGIC || magic == *MAGIC_OTHER_ORDER)
}

impl PerfData {
    /// Reads everything except the records.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let failed = |source| ReadError::Io { path: path.to_owned(), source };
        let wrong = |what: &'static str| ReadError::PerfData { path: path.to_owned(), what };
        let file = File::open(path).map_err(failed)?;
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
            attributes: Vec::new(),
            features: Features::default(),
        };
        perf.read_attributes(&file, attribute_bytes, attributes).map_err(failed)?;
        if complete {
            perf.read_features(&file, data, set).map_err(failed)?;
        }
        perf.checked()
    }

    /// Opens the output of a pipe, in which attributes and features are records at the start.
    fn open_pipe(path: &Path, bytes: u64) -> Result<Self, ReadError> {
        let mut perf = Self {
            path: path.to_owned(),
            start: PIPE_HEADER_BYTES,
            bytes,
            cut_bytes: 0,
            attributes: Vec::new(),
            features: Features::default(),
        };
        let decoder = perf.rounds()?.head()?;
        (perf.attributes, perf.features) = (decoder.attributes, decoder.features);
        perf.checked()
    }

    /// Checks that its samples can be used.
    fn checked(self) -> Result<Self, ReadError> {
        let timeless = self.attributes.iter().any(|attribute| !attribute.has(attribute::TIME));
        let what = match self.attributes.as_slice() {
            [] => "it names no event",
            _ if timeless => "its samples have no times (`perf record --timestamp` adds them)",
            _ => return Ok(self),
        };
        Err(ReadError::PerfData { path: self.path, what })
    }

    fn read_attributes(&mut self, file: &File, size: u64, section: Section) -> io::Result<()> {
        let section = read(file, section)?;
        let mut from = Bytes(&section);
        while let Some(mut event) = from.take(size).filter(|event| !event.0.is_empty()) {
            let Some((attribute, _)) = Attribute::parse(event) else { break };
            let ids = size.checked_sub(SECTION_BYTES).and_then(|length| {
                event.take(length)?;
                Section::parse(&mut event)
            });
            let ids = ids.map(|ids| read(file, ids)).transpose()?.unwrap_or_default();
            self.attributes.push(Attribute { ids: Bytes(&ids).u64s().collect(), ..attribute });
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
                self.features.read(feature, Bytes(&read(file, section)?));
            }
            offset = offset.saturating_add(SECTION_BYTES);
        }
        Ok(())
    }

    /// Its metadata, as those of a trace.
    pub fn about(&self) -> About {
        let features = &self.features;
        let clock = self.attributes.first().map_or(crate::Clock::Perf, Attribute::clock);
        let mut about = About::of_command(features.command.clone());
        about.format = FORMAT;
        about.written_by = ["perf", &features.version].join(" ").trim_end().into();
        about.complete = self.cut_bytes == 0;
        // The start of the recording is unknown. Programs modified after this file are not those that were recorded.
        let written = std::fs::metadata(&self.path).map_or(0, |metadata| metadata.mtime());
        about.began_unix_s = written.max(0).cast_unsigned();
        (about.host, about.kernel) = (features.host.clone(), features.kernel.clone());
        (about.architecture, about.clock) = (features.architecture.clone(), clock);
        let named = self.named();
        about.sources = named.attributes.iter().map(note).collect();
        about
    }

    /// The machine, as far as perf recorded it.
    pub fn machine(&self) -> Option<Machine> {
        self.features.machine()
    }

    /// The physical memory of each node, sorted by address.
    pub fn memory(&self) -> &[(Range<u64>, NodeId)] {
        self.features.memory()
    }

    /// Sets the core frequency, unless the file has it.
    pub fn assume_core_clock(&mut self, hz: f64) {
        self.features.cycles_per_ns.get_or_insert(hz / 1e9);
    }

    /// A decoder with the named events.
    fn named(&self) -> Decoder {
        let mut decoder = Decoder::default();
        decoder.features = self.features.clone();
        self.attributes.iter().cloned().for_each(|attribute| decoder.add_attribute(attribute));
        decoder.name_events();
        decoder
    }

    /// Its records, from the first one.
    pub fn records(&self) -> Result<PerfRecords, ReadError> {
        Ok(PerfRecords::new(self.rounds()?))
    }

    fn rounds(&self) -> Result<PerfRounds, ReadError> {
        let failed = |source| ReadError::Io { path: self.path.clone(), source };
        let mut file = File::open(&self.path).map_err(failed)?;
        file.seek(SeekFrom::Start(self.start)).map_err(failed)?;
        // A pipe repeats its events as records.
        let named = self.named();
        let has_spe = named.attributes.iter().any(|attribute| attribute.source == Source::Spe);
        let mut decoder = if self.start == PIPE_HEADER_BYTES { Decoder::default() } else { named };
        decoder.features.cycles_per_ns = self.features.cycles_per_ns;
        decoder.lose("bytes of records missing at the end of the file", self.cut_bytes);
        if has_spe {
            decoder.spe = spe_data::find(&self.path, self.start, self.bytes).map_err(failed)?;
        }
        Ok(PerfRounds::new(self.path.clone(), Input::new(file, self.bytes), decoder))
    }
}

/// Limits of the levels reported by Arm's SPE.
pub(crate) const SPE_SERVED: &str = "For stores, and for loads on processors whose data sources nearside does not \
                                     know, what served them is inferred from the misses of the caches near the core.";

pub(crate) fn note(attribute: &Attribute) -> SourceNote {
    let cannot_see: &[&str] = match attribute.source {
        Source::Ibs => &["For stores that miss, it is unknown what served them."],
        Source::Pebs => &[
            "Loads that are faster than the event's threshold are not sampled.",
            "Latencies are counted in core cycles, and converted at the base frequency.",
        ],
        Source::Spe => &[
            "Latencies are counted in core cycles, and reported only if the machine description has the core frequency.",
            SPE_SERVED,
        ],
        _ => {
            &["Samples of this event lack the latency of an access and what served it, unless perf was asked for them."]
        }
    };
    let cannot_see = cannot_see.iter().map(|sentence| (*sentence).to_owned()).collect();
    // The names of events are at the end of a file, which may be missing.
    let name = Some(attribute.name.as_str()).filter(|name| !name.is_empty());
    let event = name.unwrap_or("an unnamed event").to_owned();
    SourceNote { source: attribute.source, event, cannot_see }
}

/// Reads the part of a section that exists.
fn read(file: &File, section: Section) -> io::Result<Vec<u8>> {
    let there = file.metadata()?.len().saturating_sub(section.offset).min(section.bytes);
    let mut bytes = vec![0; usize::try_from(there.min(MAX_SECTION_BYTES)).unwrap_or(0)];
    file.read_exact_at(&mut bytes, section.offset)?;
    Ok(bytes)
}
