//! What perf and processors recorded, as samples and events: of perf.data files, and of events that are open.

mod decoder;
mod in_order;
mod rounds;
mod spe_samples;
mod stream;

use crate::error::ReadError;
use crate::metadata::FORMAT;
use crate::{About, AccessKind, Clock, Served, Source, SourceNote};
use perf_data::{Attribute, PerfData, PerfDataError, Sampler};
use std::os::unix::fs::MetadataExt;

pub use decoder::{Decoder, LOST_BY_KERNEL};
pub(crate) use rounds::RoundPart;
pub use rounds::Starts;
pub(crate) use stream::PerfRecords;

/// The metadata of a file, as those of a trace.
pub(crate) fn about(file: &PerfData) -> About {
    let session = file.session();
    let features = &session.features;
    let is_monotonic = session.attributes().first().is_none_or(Attribute::is_monotonic);
    let mut about = About::of_command(features.command.clone());
    about.format = FORMAT;
    about.written_by = ["perf", &features.version].join(" ").trim_end().into();
    about.complete = file.cut_bytes() == 0;
    // The start of the recording is unknown. Programs modified after this file are not those that were recorded.
    let written = std::fs::metadata(file.path()).map_or(0, |metadata| metadata.mtime());
    about.began_unix_s = written.max(0).cast_unsigned();
    (about.host, about.kernel) = (features.host.clone(), features.kernel.clone());
    let clock = if is_monotonic { Clock::Monotonic } else { Clock::Perf };
    (about.architecture, about.clock) = (features.architecture.clone(), clock);
    about.sources = session.attributes().iter().map(note).collect();
    about
}

/// Limits of the levels reported by Arm's SPE.
pub const SPE_SERVED: &str = "For stores, and for loads on processors whose data sources nearside does not \
                                     know, what served them is inferred from the misses of the caches near the core.";

/// The source of an event's samples, with what it cannot see.
pub fn note(attribute: &Attribute) -> SourceNote {
    let cannot_see: &[&str] = match attribute.sampler {
        Sampler::Ibs => &["For stores that miss, it is unknown what served them."],
        Sampler::Pebs => &[
            "Loads that are faster than the event's threshold are not sampled.",
            "Latencies are counted in core cycles, and converted at the base frequency.",
        ],
        Sampler::Spe => &[
            "Latencies are counted in core cycles, and reported only if the machine description has the core frequency.",
            SPE_SERVED,
        ],
        Sampler::Other => {
            &["Samples of this event lack the latency of an access and what served it, unless perf was asked for them."]
        }
    };
    let cannot_see = cannot_see.iter().map(|sentence| (*sentence).to_owned()).collect();
    // The names of events are at the end of a file, which may be missing.
    let name = Some(attribute.name.as_str()).filter(|name| !name.is_empty());
    let event = name.unwrap_or("an unnamed event").to_owned();
    SourceNote { source: attribute.sampler.into(), event, cannot_see }
}

impl From<PerfDataError> for ReadError {
    fn from(error: PerfDataError) -> Self {
        match error {
            PerfDataError::Io { path, source } => Self::Io { path, source },
            PerfDataError::Malformed { path, what } => Self::PerfData { path, what },
        }
    }
}

impl From<Sampler> for Source {
    fn from(sampler: Sampler) -> Self {
        match sampler {
            Sampler::Ibs => Self::Ibs,
            Sampler::Pebs => Self::Pebs,
            Sampler::Spe => Self::Spe,
            Sampler::Other => Self::Perf,
        }
    }
}

impl From<perf_data::AccessKind> for AccessKind {
    fn from(kind: perf_data::AccessKind) -> Self {
        match kind {
            perf_data::AccessKind::Load => Self::Load,
            perf_data::AccessKind::Store => Self::Store,
            perf_data::AccessKind::Unknown => Self::Unknown,
        }
    }
}

impl From<perf_data::Served> for Served {
    fn from(served: perf_data::Served) -> Self {
        match served {
            perf_data::Served::L1 => Self::L1,
            perf_data::Served::L2 => Self::L2,
            perf_data::Served::L3 => Self::L3,
            perf_data::Served::Peer => Self::Peer,
            perf_data::Served::Dram => Self::Dram,
        }
    }
}
