//! The shared memory between the library in a profiled program and its recorder: its layout and the records. Plain
//! numbers only, without system calls or allocation, because the library uses it where nothing else is allowed.
//!
//! The recorder creates a folder with a file [`SETTINGS_FILE`], and names the folder in the environment variable
//! [`FOLDER_VARIABLE`]. Each program that runs creates a file of its own there, of length [`process_file`]: a page of
//! [`process`] words, then the rings, each with a page of [`ring`] words and its records. A ring is written by one
//! thread at a time, and read by the recorder.

mod advice;
mod record;
mod settings;
mod small_parts;

pub use advice::{ADVICE_BYTES, ADVICE_VARIABLE, AdviceRequest, AdvisedTo};
pub use record::{Head, Kind, NO_CPU, RECORD_BYTES, RECORD_WORDS, mapped_flags, payload_records};
pub use settings::{Clock, MalformedSettings, Settings};
pub use small_parts::{
    CountedFrom, HEADER_WORDS, ObjectKey, RULE_WORDS, SMALL_PARTS_MAGIC, SMALL_PARTS_VARIABLE, SmallPart,
    TOO_MANY_MARKS, around_border, is_aligned_as, small_part, small_parts_file,
};

/// The environment variable with the folder.
pub const FOLDER_VARIABLE: &str = "NEARSIDE_RINGS";
/// The settings file in the folder.
pub const SETTINGS_FILE: &str = "settings";
/// Bytes before the first ring, and in each ring before its records.
pub const PAGE: usize = 4096;
/// Identifies these files. Written last.
pub const MAGIC: u64 = u64::from_le_bytes(*b"nearside");
/// Version of the layout.
pub const VERSION: u64 = 3;
/// Number of call chains that a ring holds at a time. The last slot is not reused: it is for chains that cannot be
/// stored.
pub const SLOTS: usize = 128;
/// Maximum length of a region's name, in bytes.
pub const MOST_NAME: usize = 255;
/// Maximum length of a call chain, in frames.
pub const MOST_FRAMES: usize = 48;

/// Indices of words in the first page of a file.
pub mod process {
    /// [`crate::MAGIC`], once the other words are written.
    pub const MAGIC: usize = 0;
    /// [`crate::VERSION`].
    pub const VERSION: usize = 1;
    /// Process ID.
    pub const PID: usize = 2;
    /// Parent process ID of a fork; 0 for a process that executed a program.
    pub const PARENT: usize = 3;
    /// When the library was loaded, in ticks.
    pub const STARTED: usize = 4;
    /// ID of the thread that loaded it.
    pub const TID: usize = 5;
    /// Name of the process: 16 bytes, padded with zeros.
    pub const NAME: usize = 6;
    /// Number of rings that are or were in use.
    pub const RINGS: usize = 8;
    /// Written by the recorder: not 0 once it has stopped reading.
    pub const OVER: usize = 9;
    /// Written by the recorder: number of losses it has seen.
    pub const LOST_SEEN: usize = 10;
    /// Events for which there was no ring, and those of signal handlers that interrupted another event: the words of
    /// [`crate::loss`].
    pub const LOST: usize = 16;
    /// Number of its forks that could not create a file, and report nothing.
    pub const SILENT: usize = 24;
    /// Process ID and start, in ticks, of each of these forks, as far as there is room; ID 0 for a fork that does not
    /// know its ID.
    pub const SILENT_FORKS: usize = 32;
    /// Maximum number of entries in [`SILENT_FORKS`].
    pub const MOST_SILENT_FORKS: usize = 64;
}

/// Indices of words in the first page of a ring. Words written by different sides are in different cache lines.
pub mod ring {
    /// Words of records written so far.
    pub const WRITTEN: usize = 0;
    /// Events lost because the ring was full: the words of [`crate::loss`].
    pub const LOST: usize = 1;
    /// Written by the recorder: words of records read so far.
    pub const READ: usize = 8;
    /// Written by the recorder: number of losses it has seen.
    pub const LOST_SEEN: usize = 9;
    /// Small objects by slot of the call chain: their number since the slot got its chain, and their bytes.
    pub const SMALL: usize = 64;
}

/// Offsets of words about lost events, from the first.
pub mod loss {
    /// Number of events.
    pub const COUNT: usize = 0;
    /// Time of the first loss that the recorder has not seen, in ticks.
    pub const FIRST: usize = 1;
    /// Time of the last loss.
    pub const LAST: usize = 2;
    /// Lowest address that these events concern.
    pub const LOW: usize = 3;
    /// End of the highest address; not above the lowest address if there are none.
    pub const END: usize = 4;
}

/// Length of a file, in bytes, with `rings` rings of `ring_bytes` bytes each.
pub const fn process_file(rings: usize, ring_bytes: usize) -> usize {
    PAGE + rings * ring_stride(ring_bytes)
}

/// Distance from one ring to the next, in bytes.
pub const fn ring_stride(ring_bytes: usize) -> usize {
    PAGE + ring_bytes
}
