//! Types of records: those of the kernel from its `include/uapi/linux/perf_event.h`, those of perf, from 64 on, from
//! its `tools/lib/perf/include/perf/event.h`.

/// A file or memory was mapped; without the file's identity.
pub const MMAP: u32 = 1;
/// Records were lost because a ring was full.
pub const LOST: u32 = 2;
/// A thread changed its name.
pub const COMM: u32 = 3;
/// A thread ended.
pub const EXIT: u32 = 4;
/// The kernel throttled sampling.
pub const THROTTLE: u32 = 5;
/// A thread or process started.
pub const FORK: u32 = 7;
/// A sample.
pub const SAMPLE: u32 = 9;
/// A file or memory was mapped; with the file's identity.
pub const MMAP2: u32 = 10;
/// The processor has written data in its own format, since Linux 4.1.
pub const AUX: u32 = 11;
/// The processor starts to sample a thread.
pub const ITRACE_START: u32 = 12;
/// The processor lost samples.
pub const LOST_SAMPLES: u32 = 13;
/// A thread starts or stops running.
pub const SWITCH: u32 = 14;
/// The same of events of a whole CPU.
pub const SWITCH_CPU_WIDE: u32 = 15;

/// The attribute of an event, in the output of a pipe.
pub const HEADER_ATTR: u32 = 64;
pub(crate) const HEADER_EVENT_TYPE: u32 = 65;
pub(crate) const TRACING_DATA: u32 = 66;
/// A file's build ID.
pub const HEADER_BUILD_ID: u32 = 67;
/// The rings of all CPUs have been read once.
pub const FINISHED_ROUND: u32 = 68;
pub(crate) const ID_INDEX: u32 = 69;
pub(crate) const AUXTRACE_INFO: u32 = 70;
/// Data in a processor's own format follow this record.
pub const AUXTRACE: u32 = 71;
/// The conversion of the time counter.
pub const TIME_CONV: u32 = 79;
/// A feature section, in the output of a pipe.
pub const HEADER_FEATURE: u32 = 80;
pub(crate) const COMPRESSED: u32 = 81;
pub(crate) const COMPRESSED2: u32 = 83;
