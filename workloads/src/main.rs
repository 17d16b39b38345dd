//! Small programs with known NUMA behaviour, for tests, demos and benchmarks: one verb each.
//!
//! Every verb first fills its memory from one chosen CPU, then starts all threads at a barrier and times only what
//! they do from there on, with the clock that an ordinary program sees (`CLOCK_MONOTONIC`).

mod allocate;
mod arithmetic;
mod barrier;
mod calls;
mod cg;
mod chase;
mod checksum;
mod cure;
mod error;
mod facerec;
mod ft;
mod graph;
mod hmake;
mod hold;
mod integer_sort;
mod kv;
mod levenshtein;
mod members;
mod memory;
mod mix;
mod move_pages;
mod options;
mod pipeline;
mod place;
mod processes;
mod psearchy;
mod random_access;
mod readers;
mod rivals;
mod skew;
mod stream;
mod streamcluster;
mod team;
mod waits;
mod webserver;

use allocate::AllocateOptions;
use clap::{Arg, Parser, Subcommand};
use error::Error;
use options::{
    CallsOptions, CaseOptions, ChecksumOptions, ComparisonOptions, HoldOptions, JobOptions, MemberOptions, MixOptions,
    MoveOptions, Options, PlaceOptions, RandomOptions, ReadersOptions, RivalsOptions, SortOptions, StoreOptions,
    StreamOptions, WaitsOptions, WebserverOptions,
};
use serde::Serialize;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use team::Team;

/// Small programs with known NUMA behaviour
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Latency: loads that each wait for the one before, over one random cycle through all lines of an array; ns a load
    ///
    /// With several threads each walks the whole cycle, from starting points spread evenly over it.
    Chase(Options),
    /// Bandwidth: STREAM's copy, scale, add and triad, and a sequential read; MB/s of each, bytes counted as STREAM
    /// does
    ///
    /// --size is that of each of the three arrays. Each thread works on its own share of them.
    Stream(StreamOptions),
    /// Random accesses to one array, none of which waits for the one before: reads or writes of words; ns an access
    Random(RandomOptions),
    /// Bandwidth that neighbours leave: one thread reads an array of its own, a word of each line, while rivals do the
    /// same elsewhere, without end; MB/s of the one
    ///
    /// --size is that of each array, which is to be larger than any cache. A first pass, in which all rivals start,
    /// does not count.
    Rivals(RivalsOptions),
    /// One hot object: every thread reads the whole of one array that one CPU wrote; GB/s of all threads together
    ///
    /// With --file several processes share one: the pages of the file. In the end what is mapped is compared with it.
    Readers(ReadersOptions),
    /// One hot object, read and written: points filled by one CPU, then compared by all threads with candidate centres
    ///
    /// --repeat is the number of candidate centres, one round each. Every page holds points of many threads. The
    /// checksum depends on --size and --repeat only. The cure: the points are interleaved over all nodes, and nothing
    /// else.
    Streamcluster(CaseOptions),
    /// One hot object that is written once: a matrix filled by one CPU, onto which all threads project pictures
    ///
    /// --size is that of the matrix; --repeat is the number of pictures of each thread. The cure: a copy of the matrix
    /// on each node, of which each thread reads the nearest.
    Facerec(CaseOptions),
    /// Objects of their own thread that share pages with others: tables of words, in blocks that all threads take from
    /// one heap in turn
    ///
    /// --size is that of all tables; --repeat is the number of times that each thread looks up as many words as its
    /// table has. The cure: each block has pages of its own, so that it lies on its thread's node.
    Psearchy(CaseOptions),
    /// Objects that the threads of one process share, with threads all over the machine: processes that each answer
    /// requests from a pool of their own
    ///
    /// --size is that of each pool; --repeat is the number of times that the threads of a process together answer as
    /// many requests as its pool has lines. Threads are dealt to CPUs in turn, one of each process. The cure: all
    /// threads of a process run on the CPUs of one node, and so the process's memory lies there.
    Webserver(WebserverOptions),
    /// One process of webserver, which starts it
    #[command(hide = true)]
    WebserverProcess(Options),
    /// Local rows of a sparse matrix and one vector that all threads read anywhere: conjugate gradients, as NAS's CG
    ///
    /// --size is that of the matrix, rounded down to a power of two of rows; --repeat is the number of systems that are
    /// solved, in 25 steps each. Threads fill their own rows.
    #[command(mut_arg("size", default("32M")), mut_arg("repeat", default("1")))]
    Cg(Options),
    /// A hot node that moves: keys are counted, copied into buckets, and ranked bucket by bucket by all threads, as in
    /// NAS's IS
    ///
    /// --size is that of the keys, and of the buffer that they are copied into; --repeat is the number of iterations.
    /// The buffer has a part for each node with CPUs, and one part is worked on at a time. Threads fill their own
    /// parts.
    #[command(mut_arg("size", default("32M")), mut_arg("repeat", default("1")))]
    Is(SortOptions),
    /// All-to-all exchange that is best left alone: transforms of a cube along its three dimensions, as NAS's FT
    ///
    /// --size is that of each of two cubes, rounded down to a power of two of elements; --repeat is the number of times
    /// that the transformed cube is changed and transformed back. Threads fill their own planes.
    #[command(mut_arg("size", default("16M")), mut_arg("repeat", default("1")))]
    Ft(Options),
    /// Random reads and writes over a shared graph: ranks of pages, with atomic additions to those of neighbours
    ///
    /// --size is that of the edges, rounded down to a power of two of vertices with four edges each; --repeat is the
    /// number of iterations. One CPU fills the edges, and threads their own ranks.
    #[command(mut_arg("size", default("64M")), mut_arg("repeat", default("1")))]
    Graph(Options),
    /// A hash table that all threads serve, with keys of which some are much more frequent
    ///
    /// --size is that of the items, rounded down to a power of two of items of 128 bytes; --repeat is the number of
    /// times that all threads together answer as many requests as there are items. One CPU fills the table.
    #[command(mut_arg("size", default("128M")), mut_arg("repeat", default("1")))]
    Kv(StoreOptions),
    /// Producers and consumers on different nodes: pictures that are filled by one thread and gone through by another
    ///
    /// --size is that of all rings of four pictures, one for each pair of threads; --repeat is the number of times that
    /// they go round. The first half of the threads produces for the second half, and fills the rings first.
    #[command(mut_arg("size", default("32M")), mut_arg("repeat", default("4")))]
    Pipeline(Options),
    /// Next to nothing to gain: the distance of two strings, in columns of threads that follow each other
    ///
    /// --size is that of a row of the matrix, four bytes for each letter of one string; --repeat is the number of
    /// comparisons. Threads fill their own parts of the row, and one CPU the rest.
    #[command(mut_arg("size", default("1M")), mut_arg("repeat", default("1")))]
    Levenshtein(ComparisonOptions),
    /// A compilation as make runs it: short processes, which fill memory of their own wherever they start
    ///
    /// --size is that of the smallest jobs; --repeat is the number of programs, of five jobs each; --threads is the
    /// number of jobs that may run at once, as make's -j.
    #[command(mut_arg("size", default("1M")), mut_arg("repeat", default("4")))]
    Hmake(Options),
    /// One job of hmake, which starts it
    #[command(hide = true)]
    HmakeJob(JobOptions),
    /// Several programs at once, each a process of one thread with memory of its own; what all took, and what each took
    ///
    /// --size is that of each program's memory, but for hmmer, of which at most 128K count; --repeat is the number of
    /// rounds of each. --threads is the number of processes [default: all of --members]; more begin with the first
    /// again.
    #[command(mut_arg("size", default("8M")), mut_arg("repeat", default("2")))]
    Mix(MixOptions),
    /// One process of mix, which starts it
    #[command(hide = true)]
    MixMember(MemberOptions),
    /// Writes that would be missed: every thread adds to random words of its part; fails if the sum is wrong in the end
    Checksum(ChecksumOptions),
    /// Hold memory of a known kind until killed; prints where it is
    Hold(HoldOptions),
    /// Hold memory in pages of known sizes on known nodes, by threads of known policies, until killed; prints where
    ///
    /// Each part has a thread of its own, `place-0` and so on, which in the end is bound to the CPUs and the memory of the
    /// part's last node.
    Place(PlaceOptions),
    /// Try the kernel's calls on memory of its own, and one on another process; prints one line of JSON
    Calls(CallsOptions),
    /// What threads take to wait for each other: hand-overs, timers, parallel regions, barriers, locks; us each
    ///
    /// --repeat is how often, after as many that do not count; --size counts for nothing.
    #[command(mut_arg("repeat", default("100")))]
    Waits(WaitsOptions),
    /// Pairs of malloc and free, in bursts; ns a pair
    Allocate(AllocateOptions),
    /// Move small pages of a process by a bare loop of `move_pages`; prints one line of JSON
    MovePages(MoveOptions),
}

/// Another default than that of other verbs.
fn default(value: &'static str) -> impl Fn(Arg) -> Arg {
    move |option| option.default_value(value)
}

/// What a verb was asked to do.
#[derive(Serialize)]
struct Setup<'a> {
    size_bytes: u64,
    #[serde(flatten)]
    team: &'a Team,
    repeat: usize,
}

/// What a verb measured, with what it was asked to do.
#[derive(Serialize)]
struct Report<'a, M> {
    verb: &'static str,
    #[serde(flatten)]
    setup: Setup<'a>,
    #[serde(flatten)]
    measured: M,
}

fn main() -> ExitCode {
    match run(&Arguments::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nearside-workloads: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: &Verb) -> Result<(), Error> {
    match verb {
        Verb::Chase(options) => measure("chase", options, Some(1), chase::run),
        Verb::Stream(StreamOptions { common, kernel }) => {
            measure("stream", common, None, |team, size, repeat| stream::run(team, size, repeat, *kernel))
        }
        Verb::Random(RandomOptions { common, access, accesses }) => {
            let accesses = accesses.map(|accesses| accesses as usize);
            measure("random", common, Some(1), |team, size, repeat| {
                random_access::run(team, size, repeat, *access, accesses)
            })
        }
        Verb::Rivals(options) => measure("rivals", &options.common, Some(1), |team, size, repeat| {
            let rivals = Team::of_rivals(options, team::allowed_cpus()?)?;
            rivals::run(team, rivals.as_ref(), size, repeat)
        }),
        Verb::Readers(ReadersOptions { common, file }) => {
            measure("readers", common, None, |team, size, repeat| match file {
                Some(file) => readers::of_file(team, file, size, repeat),
                None => readers::run(team, size, repeat),
            })
        }
        Verb::Checksum(ChecksumOptions { common, writes }) => {
            measure("checksum", common, None, |team, size, repeat| checksum::run(team, size, repeat, *writes as usize))
        }
        Verb::Hold(options) => hold::run(options),
        Verb::Place(options) => place::run(options),
        Verb::Calls(options) => calls::run(options),
        Verb::MovePages(options) => move_pages::run(options),
        Verb::Allocate(options) => allocate::run(options),
        Verb::Streamcluster(CaseOptions { common, cure }) => {
            measure("streamcluster", common, None, |team, size, repeat| streamcluster::run(team, size, repeat, *cure))
        }
        Verb::Facerec(CaseOptions { common, cure }) => {
            measure("facerec", common, None, |team, size, repeat| facerec::run(team, size, repeat, *cure))
        }
        Verb::Psearchy(CaseOptions { common, cure }) => {
            measure("psearchy", common, None, |team, size, repeat| psearchy::run(team, size, repeat, *cure))
        }
        Verb::Webserver(WebserverOptions { case: CaseOptions { common, cure }, processes }) => {
            measure("webserver", common, None, |team, size, repeat| {
                webserver::run(team, size, repeat, *processes, *cure)
            })
        }
        Verb::Cg(options) => measure("cg", options, None, cg::run),
        Verb::Is(SortOptions { common, period, sweeps }) => {
            measure("is", common, None, |team, size, repeat| integer_sort::run(team, size, repeat, *period, *sweeps))
        }
        Verb::Ft(options) => measure("ft", options, None, ft::run),
        Verb::Graph(options) => measure("graph", options, None, graph::run),
        Verb::Kv(StoreOptions { common, updates }) => {
            measure("kv", common, None, |team, size, repeat| kv::run(team, size, repeat, *updates))
        }
        Verb::Pipeline(options) => measure("pipeline", options, None, pipeline::run),
        Verb::Levenshtein(ComparisonOptions { common, rows }) => {
            measure("levenshtein", common, None, |team, size, repeat| levenshtein::run(team, size, repeat, *rows))
        }
        Verb::Hmake(options) => measure("hmake", options, None, hmake::run),
        Verb::HmakeJob(JobOptions { common, kind, program, input }) => {
            measure("hmake-job", common, None, |team, size, _| hmake::job(team, size, *kind, *program, *input))
        }
        Verb::Mix(MixOptions { common, members }) => {
            measure("mix", common, Some(mix::count(members)), |team, size, repeat| {
                mix::run(team, size, repeat, members)
            })
        }
        Verb::MixMember(MemberOptions { common, program }) => {
            measure("mix-member", common, Some(1), |team, size, repeat| members::run(team, size, repeat, *program))
        }
        Verb::Waits(WaitsOptions { common, wait }) => {
            measure("waits", common, None, |team, _, repeat| waits::run(team, repeat, *wait))
        }
        Verb::WebserverProcess(options) => measure("webserver-process", options, None, webserver::process),
    }
}

fn measure<M: Serialize + fmt::Display>(
    verb: &'static str,
    options: &Options,
    default_threads: Option<usize>,
    run: impl FnOnce(&Team, usize, usize) -> Result<M, Error>,
) -> Result<(), Error> {
    let team = Team::new(options, default_threads, team::allowed_cpus()?)?;
    let size = usize::try_from(options.size).map_err(|_| Error::Memory { bytes: options.size })?;
    let measured = run(&team, size, options.repeat)?;
    let mut output = io::stdout().lock();
    if options.json {
        let setup = Setup { size_bytes: options.size, team: &team, repeat: options.repeat };
        serde_json::to_writer(&mut output, &Report { verb, setup, measured }).map_err(io::Error::from)?;
        writeln!(output)?;
    } else {
        writeln!(output, "{verb}: {measured}")?;
    }
    Ok(())
}
