//! Small programs with known NUMA behaviour, for tests, demos and benchmarks: one verb each.
//!
//! Every verb first fills its memory from one chosen CPU, then starts all threads at a barrier and times only what
//! they do from there on, with the clock that an ordinary program sees (`CLOCK_MONOTONIC`).

mod allocate;
mod arithmetic;
mod calls;
mod chase;
mod checksum;
mod cure;
mod error;
mod facerec;
mod hold;
mod memory;
mod move_pages;
mod options;
mod place;
mod psearchy;
mod random_access;
mod readers;
mod rivals;
mod stream;
mod streamcluster;
mod team;
mod webserver;

use allocate::AllocateOptions;
use clap::{Parser, Subcommand};
use error::Error;
use options::{
    CallsOptions, CaseOptions, ChecksumOptions, HoldOptions, MoveOptions, Options, PlaceOptions, RandomOptions,
    RivalsOptions, StreamOptions, WebserverOptions,
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
    Readers(Options),
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
    /// --size is that of each pool; --repeat is the number of times that the threads of a process together answer as many
    /// requests as its pool has lines. Threads are dealt to CPUs in turn, one of each process. The cure: all threads of a
    /// process run on the CPUs of one node, and so the process's memory lies there.
    Webserver(WebserverOptions),
    /// One process of webserver, which starts it
    #[command(hide = true)]
    WebserverProcess(Options),
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
    /// Pairs of malloc and free, in bursts; ns a pair
    Allocate(AllocateOptions),
    /// Move small pages of a process by a bare loop of `move_pages`; prints one line of JSON
    MovePages(MoveOptions),
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
        Verb::Readers(options) => measure("readers", options, None, readers::run),
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
