//! Options shared by all verbs.

use crate::hmake::Kind;
use crate::levenshtein::Memory;
use crate::members::Program;
use crate::mix::Members;
pub use crate::team_options::{Options, PassesOption, RivalsOptions};
use crate::team_options::{parse_count, parse_size};
use crate::waits::Wait;
use clap::{Args, ValueEnum};
use machine::HUGE_PAGE;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Options of `cg`.
#[derive(Args, Debug)]
pub struct CgOptions {
    #[command(flatten)]
    pub common: Options,
    /// Rows and entries about as in this class of NAS's CG, instead of --size; lab: class C's share of one of 64 threads,
    /// 6.75 MiB, for each thread
    #[arg(long, value_enum, conflicts_with = "size")]
    pub class: Option<crate::cg::Class>,
    /// This number of rows, with as many entries as in class C (240), instead of --size
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=1_000_000), conflicts_with_all = ["size", "class"])]
    pub rows: Option<u32>,
    /// Bytes from one element of each array to the next: from 64 on, no two are on a cache line. With --size and lab, there
    /// are fewer rows; NAS's classes take more memory
    #[arg(long, value_enum, default_value = "8", value_name = "BYTES")]
    pub spacing: crate::cg::Spacing,
}

/// Options of `slabs`.
#[derive(Args, Debug)]
pub struct SlabsOptions {
    #[command(flatten)]
    pub common: Options,
    /// Parts of each thread, dealt in turn
    #[arg(long, value_parser = parse_count, default_value = "1", value_name = "N")]
    pub blocks: usize,
    /// Each load waits for the one before, so that latencies count: of memory, and of page walks
    #[arg(long)]
    pub dependent: bool,
    /// After this number of measurements, each part is the next thread's, and so on [default: parts stay with their
    /// threads]
    #[arg(long, value_parser = parse_count, value_name = "N")]
    pub move_every: Option<usize>,
}

/// Options of the verbs whose passes are timed one by one.
#[derive(Args, Debug)]
pub struct PassesOptions {
    #[command(flatten)]
    pub common: Options,
    #[command(flatten)]
    pub passes: PassesOption,
}

/// Options of `canneal`.
#[derive(Args, Debug)]
pub struct CannealOptions {
    #[command(flatten)]
    pub common: PassesOptions,
    /// Swaps of each thread in a pass [default: as many as it has elements]
    #[arg(long, value_parser = parse_count)]
    pub swaps: Option<usize>,
}

/// Options of `streamcluster`.
#[derive(Args, Debug)]
pub struct StreamclusterOptions {
    #[command(flatten)]
    pub case: CaseOptions,
    #[command(flatten)]
    pub passes: PassesOption,
}

/// Options of `crowd`.
#[derive(Args, Debug)]
pub struct CrowdOptions {
    /// A program and its options, separated by spaces; gets `--passes FILE`, and goes on until it is killed
    #[arg(required = true, value_name = "COMMAND")]
    pub commands: Vec<String>,
    /// Programs, the first ones, whose times are also added up on their own
    #[arg(long, default_value = "1", value_parser = parse_count, value_name = "N")]
    pub watched: usize,
    /// Passes of each program that are counted at least, after two while all others run
    #[arg(long, default_value = "5", value_parser = parse_count, value_name = "N")]
    pub passes: usize,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of the verbs that have a flaw and its cure.
#[derive(Args, Debug)]
pub struct CaseOptions {
    #[command(flatten)]
    pub common: Options,
    /// Apply the cure
    #[arg(long)]
    pub cure: bool,
}

/// Options of `webserver`.
#[derive(Args, Debug)]
pub struct WebserverOptions {
    #[command(flatten)]
    pub case: CaseOptions,
    /// Processes, which divide the threads evenly
    #[arg(long, default_value = "4", value_parser = parse_count)]
    pub processes: usize,
}

/// Options of `readers`.
#[derive(Args, Debug)]
pub struct ReadersOptions {
    #[command(flatten)]
    pub common: Options,
    /// Read the first --size bytes of this file, which is mapped privately, one word per line
    #[arg(long)]
    pub file: Option<PathBuf>,
}

/// Options of `is`.
#[derive(Args, Debug)]
pub struct SortOptions {
    #[command(flatten)]
    pub common: Options,
    /// Maximum time that one node stays hot, in the program's own time: a number with us, ms or s
    #[arg(long, default_value = "1s", value_parser = parse_duration, value_name = "TIME")]
    pub period: Duration,
    /// Number of passes over each bucket in each iteration
    #[arg(long, default_value = "1", value_parser = parse_count)]
    pub sweeps: usize,
}

/// Options of `kv`.
#[derive(Args, Debug)]
pub struct StoreOptions {
    #[command(flatten)]
    pub common: Options,
    /// Requests that change their item, percent
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u8).range(0..=100), value_name = "PERCENT")]
    pub updates: u8,
}

/// Options of `levenshtein`.
#[derive(Args, Debug)]
pub struct ComparisonOptions {
    #[command(flatten)]
    pub common: Options,
    /// Length of the other string
    #[arg(long, default_value = "100", value_parser = parse_count)]
    pub rows: usize,
    /// Where the rows of the matrix come from
    #[arg(long, value_enum, default_value = "malloc")]
    pub memory: Memory,
}

/// Options of one job of `hmake`.
#[derive(Args, Debug)]
pub struct JobOptions {
    #[command(flatten)]
    pub common: Options,
    /// The job
    #[arg(long, value_enum)]
    pub kind: Kind,
    /// The program of the job
    #[arg(long)]
    pub program: usize,
    /// The combined results of the jobs before it
    #[arg(long)]
    pub input: u64,
}

/// Options of `mix`.
#[derive(Args, Debug)]
pub struct MixOptions {
    #[command(flatten)]
    pub common: Options,
    /// Programs, each with its number of processes: libquantum, omnetpp, triad or hmmer
    #[arg(long, value_delimiter = ',', default_value = "libquantum:3,omnetpp:3,triad:6", value_name = "NAME:N,...")]
    pub members: Vec<Members>,
}

/// Options of one process of `mix`.
#[derive(Args, Debug)]
pub struct MemberOptions {
    #[command(flatten)]
    pub common: Options,
    /// The program
    #[arg(long, value_enum)]
    pub program: Program,
}

/// Options of `stream`.
#[derive(Args, Debug)]
pub struct StreamOptions {
    #[command(flatten)]
    pub common: Options,
    /// Only this kernel [default: all, in this order]
    #[arg(long, value_enum)]
    pub kernel: Option<Kernel>,
}

/// A loop over arrays: STREAM's, in its order, and a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Kernel {
    Copy,
    Scale,
    Add,
    Triad,
    Read,
}

/// Options of `random`.
#[derive(Args, Debug)]
pub struct RandomOptions {
    #[command(flatten)]
    pub common: Options,
    /// The access at each position
    #[arg(long, value_enum, default_value_t = Access::Read)]
    pub access: Access,
    /// Accesses per thread and round [default: one for each 64 bytes of --size]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub accesses: Option<u32>,
}

/// Options of `checksum`.
#[derive(Args, Debug)]
pub struct ChecksumOptions {
    #[command(flatten)]
    pub common: Options,
    /// Writes per thread and round
    #[arg(long, default_value = "1000000", value_parser = clap::value_parser!(u32).range(1..))]
    pub writes: u32,
}

/// Options of `hold`.
#[derive(Args, Debug)]
pub struct HoldOptions {
    /// Size: bytes, or a number with K, M, G or T
    #[arg(long, default_value = "64M", value_parser = parse_size)]
    pub size: u64,
    /// Ask for huge pages, where the system setting is `madvise`
    #[arg(long, conflicts_with = "file")]
    pub huge: bool,
    /// Map this file, shared, and extend it to the size: on tmpfs it is shared memory, on hugetlbfs it has hugetlb
    /// pages
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,
    /// Keep its first pages, up to 1 MiB, in use by the kernel: they wait in a pipe
    #[arg(long, requires = "file")]
    pub pinned: bool,
}

/// Options of `place`.
#[derive(Args, Debug)]
pub struct PlaceOptions {
    /// NODES:PAGES:SIZE, with pieces of 2 MiB interleaved over the nodes, such as 0,1:huge:8M. PAGES is base (4 KiB),
    /// huge (transparent), hugetlb (of the pool of 2 MiB) or mixed (every second piece huge, or all if huge pages are
    /// always on)
    #[arg(required = true, value_name = "PART")]
    pub parts: Vec<Part>,
}

/// A part of `place`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Nodes of the pieces, in turn; not empty.
    pub nodes: Vec<u32>,
    /// Kind of pages.
    pub kind: PagesKind,
    /// Size, a multiple of 2 MiB.
    pub bytes: u64,
}

/// Kinds of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PagesKind {
    /// 4 KiB.
    Base,
    /// Transparent huge pages.
    Huge,
    /// Every second piece a transparent huge page, the others 4 KiB.
    Mixed,
    /// Hugetlb pages of 2 MiB.
    Hugetlb,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let &[nodes, kind, bytes] = &text.split(':').collect::<Vec<_>>()[..] else {
            return Err("write NODES:PAGES:SIZE, such as 0,1:huge:8M".to_owned());
        };
        let nodes: Result<Vec<u32>, _> = nodes.split(',').map(str::parse).collect();
        let nodes = nodes.map_err(|_| format!("`{text}` has no nodes such as 0 or 0,1"))?;
        let kind = PagesKind::from_str(kind, false)?;
        match parse_size(bytes)? {
            bytes if bytes > 0 && bytes.is_multiple_of(HUGE_PAGE) => Ok(Self { nodes, kind, bytes }),
            _ => Err(format!("`{text}` is not of a multiple of 2M")),
        }
    }
}

/// Options of `calls`.
#[derive(Args, Debug)]
pub struct CallsOptions {
    /// Two nodes with CPUs and memory
    #[arg(long, value_delimiter = ',', default_value = "0,1")]
    pub nodes: Vec<u32>,
    /// Another process
    #[arg(long, requires = "start")]
    pub pid: Option<u32>,
    /// 2 MiB of its small pages, in hexadecimal
    #[arg(long, requires = "pid", value_parser = |text: &str| u64::from_str_radix(text, 16))]
    pub start: Option<u64>,
}

/// Options of `move-pages`.
#[derive(Args, Debug)]
pub struct MoveOptions {
    /// The process
    pub pid: u32,
    /// Its first page, in hexadecimal
    #[arg(value_parser = |text: &str| u64::from_str_radix(text, 16))]
    pub start: u64,
    /// Number of pages of 4 KiB
    pub pages: usize,
    /// The node to move them to
    pub node: u32,
    /// Pages per call
    #[arg(long, default_value = "32768")]
    pub batch: usize,
}

/// The access to a word of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Access {
    Read,
    Write,
}

/// Options of `waits`.
#[derive(Args, Debug)]
pub struct WaitsOptions {
    #[command(flatten)]
    pub common: Options,
    /// The kind of wait
    #[arg(long, value_enum, default_value = "futex")]
    pub wait: Wait,
    /// Bytes that go through each pipe
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=65535))]
    pub bytes: u16,
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let unit = text.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let ns = match unit {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err("a whole number with us, ms or s, such as 10ms".to_owned()),
    };
    match text[..text.len() - unit.len()].parse().ok().and_then(|number: u64| number.checked_mul(ns)) {
        Some(ns @ 1..) => Ok(Duration::from_nanos(ns)),
        _ => Err("a time from 1us to 584 years".to_owned()),
    }
}
