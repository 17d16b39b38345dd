//! Samples of memory accesses, and the lifecycle events that say what was at each address at that time. All times are
//! `CLOCK_MONOTONIC` of the traced system, in ns.

mod address_space;
mod catch_panic;
mod checked_file;
mod count;
mod debug_lines;
mod demangle;
mod elf;
mod error;
mod event;
mod file_identities;
mod host_files;
mod image;
mod joined_sample;
mod memory_limit;
mod metadata;
mod parquet_file;
pub mod perf;
mod private;
mod reader;
mod rows;
mod sample;
#[cfg(feature = "sql")]
pub mod sql;
mod stack;
mod symbol_rows;
mod symbols;
mod table;
mod table_folder;
mod tables;
mod timestamped;
mod variable;
mod writer;

pub use address_space::{AddressSpaces, MappedFile};
pub use count::{Count, Counter};
pub use error::{Damage, ReadError, WriteError};
pub use event::{Event, FileIdentity, What};
pub use file_identities::FileIdentities;
pub use host_files::HostFiles;
pub use image::{CodeLine, Image, ImageState, MOST_EXPANDED_BYTES, MOST_EXPANSION, Named, Segment};
pub use joined_sample::{JoinedSample, write_joined_samples};
pub use metadata::{About, Clock, FORMAT, Loss, SourceNote};
pub use private::{create_private_file, create_private_folder};
pub use reader::{Record, Records, Trace};
pub use sample::{AccessKind, Sample, Served, Source};
pub use stack::{StackId, Stacks};
pub use symbols::Symbols;
pub use tables::TABLES;
pub use variable::FileVariable;
pub use writer::{Flush, Writer};
