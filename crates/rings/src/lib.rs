//! What the library in a profiled program and its recorder tell each other through shared memory: where things are in
//! it, and the records. Plain numbers only, no system calls, no memory of its own: the library uses it where nothing
//! else is allowed.
//!
//! The recorder makes a folder with a file [`SETTINGS_FILE`] and names it in the environment as [`FOLDER_VARIABLE`]. Each
//! program that runs makes a file of its own there, [`process_file`] long: a page of [`process`] words, then rings, each
//! a page of [`ring`] words and its records. A ring is written by one thread at a time and read by the recorder.

mod record;
mod settings;

pub use record::{Head, Kind, NO_CPU, RECORD_BYTES, RECORD_WORDS, mapped_flags, payload_records};
pub use settings::{Clock, MalformedSettings, Settings};

/// The environment variable with the folder.
pub const FOLDER_VARIABLE: &str = "NEARSIDE_RINGS";
/// The file of the settings, in the folder.
pub const SETTINGS_FILE: &str = "settings";
/// Bytes before the first ring, and of each ring before its records.
pub const PAGE: usize = 4096;
/// Says that a file is one of these. Written last.
pub const MAGIC: u64 = u64::from_le_bytes(*b"nearside");
/// Of all that is said here.
pub const VERSION: u64 = 2;
/// Call chains that a ring knows at a time. The last is never kept: it is of chains that cannot be.
pub const SLOTS: usize = 128;
/// The longest call chain, frames.
pub const MOST_FRAMES: usize = 48;

/// Where words of a program are, in its first page.
pub mod process {
    /// [`crate::MAGIC`], once the others are written.
    pub const MAGIC: usize = 0;
    /// [`crate::VERSION`].
    pub const VERSION: usize = 1;
    /// Its process id.
    pub const PID: usize = 2;
    /// Whose fork it is; 0 for one that executed a program.
    pub const PARENT: usize = 3;
    /// When the library came to it, in ticks.
    pub const STARTED: usize = 4;
    /// The thread that it came to.
    pub const TID: usize = 5;
    /// Its name, 16 bytes with zeroes at the end.
    pub const NAME: usize = 6;
    /// Rings that are or were in use.
    pub const RINGS: usize = 8;
    /// The recorder's: not 0 once it reads no more.
    pub const OVER: usize = 9;
    /// The recorder's: how many losses it has seen.
    pub const LOST_SEEN: usize = 10;
    /// Events that no ring had room for, and those of signal handlers that came in the middle of another: the words of
    /// [`crate::loss`].
    pub const LOST: usize = 16;
    /// Forks of it that could make no file, so that they tell nothing.
    pub const SILENT: usize = 24;
    /// The process id and the beginning, in ticks, of each of those that there is room for; 0 is of one that does not know
    /// its id.
    pub const SILENT_FORKS: usize = 32;
    /// So many there is room for.
    pub const MOST_SILENT_FORKS: usize = 64;
}

/// Where words of a ring are, in its first page. Those that different sides write are in different cache lines.
pub mod ring {
    /// Words of records written so far.
    pub const WRITTEN: usize = 0;
    /// Events that were lost as the ring was full: the words of [`crate::loss`].
    pub const LOST: usize = 1;
    /// Words of records read so far: the recorder's.
    pub const READ: usize = 8;
    /// The recorder's: how many losses it has seen.
    pub const LOST_SEEN: usize = 9;
    /// Small objects by the call chain's slot: how many since the slot has its chain, and their bytes.
    pub const SMALL: usize = 64;
}

/// Where words of what is lost are, from the first.
pub mod loss {
    /// How many events.
    pub const COUNT: usize = 0;
    /// When the first was lost that the recorder has not seen, in ticks.
    pub const FIRST: usize = 1;
    /// When the last was lost.
    pub const LAST: usize = 2;
    /// The lowest address that one of these was about.
    pub const LOW: usize = 3;
    /// The end of the highest; not above the lowest where there are none.
    pub const END: usize = 4;
}

/// How long a file is with so many rings of so many bytes.
pub const fn process_file(rings: usize, ring_bytes: usize) -> usize {
    PAGE + rings * ring_stride(ring_bytes)
}

/// From one ring to the next, bytes.
pub const fn ring_stride(ring_bytes: usize) -> usize {
    PAGE + ring_bytes
}
