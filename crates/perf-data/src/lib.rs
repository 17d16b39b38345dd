//! Decodes what perf and processors write: perf.data files, the records of perf's rings, and the data of Arm's SPE.
//! Pure: it reads the bytes of a file or a slice and no other state of the system, and no bytes make it panic, loop or
//! allocate more than they hold. What it decodes are its own types; `trace` makes samples and events of them.
//!
//! 1. [`PerfData::open`] reads a file's header, events and features; [`PerfData::records`] reads its records.
//! 2. A [`Session`] has the events of a recording, which define the layout of its records: [`SampleFields`],
//!    [`Mapping`], [`Named`], [`Task`], [`Turn`] and [`AuxRecord`]. Live recordings have one as well.
//! 3. [`Observed`] is what a processor reports of an access: in perf's encoding, in AMD's registers ([`IbsOp`]), or in
//!    a record of Arm's [`spe`].
//!
//! The crate `linux-perf-data` is not used because it omits what matters most here (what served an access, its
//! weight, the layout of counter groups), and trusts the sizes in a file: it allocates that much memory, or panics.
//! `perf-event-data` 0.1 skips neither the weight in parts (`PERF_SAMPLE_WEIGHT_STRUCT`, which PEBS has today) nor
//! counters of branches, so that it misreads the fields after them.

pub mod attribute;
mod aux_record;
mod bytes;
mod cpu_core;
mod data_source;
mod error;
mod features;
mod file;
mod input;
pub mod kind;
mod record;
mod record_reader;
mod sample;
mod session;
pub mod spe;

pub use attribute::{Attribute, Sampler};
pub use aux_record::AuxRecord;
pub use bytes::Bytes;
pub use cpu_core::{Core, main_id};
pub use data_source::{AccessKind, IbsOp, Observed, Served};
pub use error::PerfDataError;
pub use features::{Features, Timer};
pub use file::{PerfData, is_perf_data};
pub use record::{Mapping, Named, Task, TaskChange, lost_count};
pub use record_reader::{FileEnd, RecordReader};
pub use sample::SampleFields;
pub use session::{Session, Turn};
