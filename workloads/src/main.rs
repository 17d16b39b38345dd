//! Small programs with known NUMA behaviour, for tests, demos and benchmarks: one verb for each.
//!
//! Every verb first fills its memory from one chosen CPU, then starts all threads at a barrier and times only their
//! work from there on, with the clock that an ordinary program sees (`CLOCK_MONOTONIC`).

mod allocate;
mod arithmetic;
mod barrier;
mod blackscholes;
mod calls;
mod canneal;
mod cg;
mod chase;
mod checksum;
mod crowd;
mod cure;
mod ep;
mod error;
mod facerec;
mod fluid;
mod ft;
mod graph;
mod hmake;
mod hold;
mod integer_sort;
mod kv;
mod levenshtein;
mod lu;
mod members;
mod memory;
mod mg;
mod mix;
mod move_pages;
mod object_visits;
mod objects;
mod options;
mod passes;
mod pipeline;
mod place;
mod processes;
mod psearchy;
mod random_access;
mod readers;
mod rivals;
mod skew;
mod slabs;
mod stream;
mod streamcluster;
mod team;
mod team_options;
mod ua;
mod waits;
mod webserver;

use allocate::AllocateOptions;
use clap::{Arg, Parser, Subcommand};
use error::Error;
use objects::ObjectsOptions;
use options::{
    CallsOptions, CannealOptions, CaseOptions, CgOptions, ChecksumOptions, ComparisonOptions, CrowdOptions,
    HoldOptions, JobOptions, MemberOptions, MixOptions, MoveOptions, Options, PassesOptions, PlaceOptions,
    RandomOptions, ReadersOptions, RivalsOptions, SlabsOptions, SortOptions, StoreOptions, StreamOptions,
    StreamclusterOptions, WaitsOptions, WebserverOptions,
};
use passes::Passes;
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
    /// Latency: dependent loads over one random cycle through all lines of an array; ns per load
    ///
    /// With several threads each walks the whole cycle, from starting points spread evenly over it.
    Chase(Options),
    /// Bandwidth: STREAM's copy, scale, add and triad, and a sequential read; MB/s of each, with bytes counted as in
    /// STREAM
    ///
    /// --size is the size of each of the three arrays. Each thread works on its own share of them.
    Stream(StreamOptions),
    /// Random independent accesses to one array: reads or writes of words; ns per access
    Random(RandomOptions),
    /// Bandwidth left by neighbours: one thread reads its own array, a word of each line, while rivals do the same
    /// elsewhere, without end; MB/s of that thread
    ///
    /// --size is the size of each array, which should exceed every cache. A first pass, in which all rivals start, is
    /// not counted.
    Rivals(RivalsOptions),
    /// One hot object: every thread reads all of an array that one CPU wrote; GB/s of all threads together
    ///
    /// With --file several processes share one object: the pages of the file. At the end the mapping is compared with
    /// the file.
    Readers(ReadersOptions),
    /// One hot object, read and written: points filled by one CPU, then compared by all threads with candidate centres
    ///
    /// --repeat is the number of candidate centres, one round each. Every page holds points of many threads. The
    /// checksum depends only on --size and --repeat. The cure: only the points are interleaved over all nodes.
    Streamcluster(StreamclusterOptions),
    /// One hot object that is written once: a matrix filled by one CPU, onto which all threads project pictures
    ///
    /// --size is the size of the matrix; --repeat is the number of pictures of each thread. The cure: a copy of the
    /// matrix on each node; each thread reads the nearest.
    Facerec(CaseOptions),
    /// Thread-private objects that share pages with others: tables of words, in blocks that all threads take from one
    /// heap in turn
    ///
    /// --size is the size of all tables; --repeat is the number of times that each thread looks up as many words as its
    /// table has. The cure: each block has its own pages, so that it is on its thread's node.
    Psearchy(CaseOptions),
    /// Objects shared by the threads of one process, with threads all over the machine: processes that each answer
    /// requests from their own pool
    ///
    /// --size is the size of each pool; --repeat is the number of times that the threads of a process together answer
    /// as many requests as its pool has lines. Threads are assigned to CPUs in turn, one of each process. The cure: all
    /// threads of a process run on the CPUs of one node, so the process's memory is there.
    Webserver(WebserverOptions),
    /// One process of webserver, started by it
    #[command(hide = true)]
    WebserverProcess(Options),
    /// Local rows of a sparse matrix and one vector that all threads read at random: conjugate gradients, as NAS's CG
    ///
    /// --size is the size of the matrix, rounded down to a power of two of rows; --class has the number of rows of NAS's
    /// classes instead, and --rows any number. --repeat is the number of systems to solve, in 25 steps each. Threads fill their own rows.
    #[command(mut_arg("size", default("32M")), mut_arg("repeat", default("1")))]
    Cg(CgOptions),
    /// A hot node that moves: keys are counted, copied into buckets, and ranked bucket by bucket by all threads, as in
    /// NAS's IS
    ///
    /// --size is the size of the keys, and of the buffer that they are copied into; --repeat is the number of
    /// iterations. The buffer has a part for each node with CPUs, and one part is processed at a time. Threads fill
    /// their own parts.
    #[command(mut_arg("size", default("32M")), mut_arg("repeat", default("1")))]
    Is(SortOptions),
    /// All-to-all exchange that is best left alone: transforms of a cube along its three dimensions, as NAS's FT
    ///
    /// --size is the size of each of two cubes, rounded down to a power of two of elements; --repeat is the number of
    /// times that the transformed cube is changed and transformed back. Threads fill their own planes.
    #[command(mut_arg("size", default("16M")), mut_arg("repeat", default("1")))]
    Ft(Options),
    /// Planes of grids of several resolutions, whose edges neighbours read: cycles over grids, as NAS's MG
    ///
    /// --size is the size of the finest grid's three arrays, rounded down to a power of two of cells along its edge;
    /// --repeat is the number of cycles. Threads fill their own planes.
    #[command(mut_arg("size", default("48M")), mut_arg("repeat", default("4")))]
    Mg(Options),
    /// A wavefront over a square of cells, of which each depends on those above and to the left, as NAS's LU
    ///
    /// --size is the size of the cells; --repeat is the number of sweeps. Threads fill their own strips of columns.
    #[command(mut_arg("size", default("32M")), mut_arg("repeat", default("5")))]
    Lu(Options),
    /// An irregular mesh whose elements change owners, as NAS's UA
    ///
    /// --size is the size of the mesh; --repeat is the number of times that it is dealt anew, with five steps each.
    /// Threads fill the elements that they have at first.
    #[command(mut_arg("size", default("32M")), mut_arg("repeat", default("4")))]
    Ua(Options),
    /// Nothing shared: pairs of normally distributed numbers from each thread's own memory, as NAS's EP. A control: no
    /// placement has an effect
    ///
    /// --size is the size of all random numbers; --repeat is the number of times that they are made and counted.
    #[command(mut_arg("size", default("1M")), mut_arg("repeat", default("10")))]
    Ep(Options),
    /// Parts of one array, each read by its own thread at random: huge pages are falsely shared where parts meet, and small
    /// ones exceed the TLB
    ///
    /// --size is the size of the array, in as many parts as threads, or --blocks times as many; --repeat is the number of times that each thread
    /// loads as many words as its part has lines. Threads fill their own parts, one after another.
    #[command(mut_arg("size", default("54M")), mut_arg("repeat", default("10")))]
    Slabs(SlabsOptions),
    /// Random reads and writes over a shared graph: page ranks, with atomic additions to those of neighbours
    ///
    /// --size is the size of the edges, rounded down to a power of two of vertices with four edges each; --repeat is
    /// the number of iterations. One CPU fills the edges, and threads their own ranks.
    #[command(mut_arg("size", default("64M")), mut_arg("repeat", default("1")))]
    Graph(Options),
    /// A hash table that all threads serve, with some keys much more frequent than others
    ///
    /// --size is the size of the items, rounded down to a power of two of items of 128 bytes; --repeat is the number of
    /// times that all threads together answer as many requests as there are items. One CPU fills the table.
    #[command(mut_arg("size", default("128M")), mut_arg("repeat", default("1")))]
    Kv(StoreOptions),
    /// Producers and consumers on different nodes: pictures that one thread fills and another processes
    ///
    /// --size is the size of all rings of four pictures, one for each pair of threads; --repeat is the number of times
    /// that they go round. The first half of the threads produces for the second half, and fills the rings first.
    #[command(mut_arg("size", default("32M")), mut_arg("repeat", default("4")))]
    Pipeline(Options),
    /// Next to nothing to gain: the distance of two strings, in columns of threads that follow each other
    ///
    /// --size is the size of a row of the matrix, four bytes for each letter of one string; --repeat is the number of
    /// comparisons. Threads fill their own parts of the row, and one CPU the rest.
    #[command(mut_arg("size", default("1M")), mut_arg("repeat", default("1")))]
    Levenshtein(ComparisonOptions),
    /// Bound by the latency of memory: random elements of a netlist change places, as PARSEC's canneal
    ///
    /// --size is the size of all netlists, one for each thread; --repeat is the number of passes, of a swap for each
    /// element. Threads make their own netlists.
    #[command(mut_arg("size", default("32M")), mut_arg("repeat", default("5")))]
    Canneal(CannealOptions),
    /// Planes of cells whose particles push those of neighbouring cells, as PARSEC's fluidanimate
    ///
    /// --size is the size of the cells, of 64 bytes and four particles; --repeat is the number of steps. Threads fill their
    /// own planes.
    #[command(mut_arg("size", default("8M")), mut_arg("repeat", default("5")))]
    Fluid(PassesOptions),
    /// Much computing for little memory: prices of options, as PARSEC's blackscholes. A control: neighbours slow it little
    ///
    /// --size is the size of the options; --repeat is the number of times that they are priced. Threads fill their own.
    #[command(mut_arg("size", default("8M")), mut_arg("repeat", default("5")))]
    Blackscholes(PassesOptions),
    /// Programs that go on and on: how long their passes take while all of them work
    ///
    /// As in Razavi's study of isolation (2011), section 7.3. Each begins when the one before has made its first pass. Those
    /// that have begun are stopped until all have.
    Crowd(CrowdOptions),
    /// A compilation as by make: short processes, which fill their own memory wherever they start
    ///
    /// --size is the size of the smallest jobs; --repeat is the number of programs, of five jobs each; --threads is the
    /// maximum number of concurrent jobs, as make's -j.
    #[command(mut_arg("size", default("1M")), mut_arg("repeat", default("4")))]
    Hmake(Options),
    /// One job of hmake, started by it
    #[command(hide = true)]
    HmakeJob(JobOptions),
    /// Several programs at once, each a process of one thread with its own memory; total time, and the time of each
    ///
    /// --size is the memory of each program, of which hmmer uses at most 128K; --repeat is the number of rounds of
    /// each. --threads is the number of processes [default: all of --members]; larger numbers start again with the
    /// first.
    #[command(mut_arg("size", default("8M")), mut_arg("repeat", default("2")))]
    Mix(MixOptions),
    /// One process of mix, started by it
    #[command(hide = true)]
    MixMember(MemberOptions),
    /// Detects lost writes: every thread adds to random words of its part; fails if the final sum is wrong
    Checksum(ChecksumOptions),
    /// Hold memory of a known kind until killed; prints its address
    Hold(HoldOptions),
    /// Hold memory in pages of known sizes on known nodes, by threads of known policies, until killed; prints its
    /// addresses
    ///
    /// Each part has its own thread, `place-0` and so on, which in the end is bound to the CPUs and the memory of the
    /// part's last node.
    Place(PlaceOptions),
    /// Try system calls on memory of this process, and one on another process; prints one line of JSON
    Calls(CallsOptions),
    /// How long threads wait for each other: hand-overs, timers, parallel regions, barriers, locks; us each
    ///
    /// --repeat is the number of waits, after as many that are not counted; --size has no effect.
    #[command(mut_arg("repeat", default("100")))]
    Waits(WaitsOptions),
    /// Pairs of malloc and free, in bursts; ns per pair
    Allocate(AllocateOptions),
    /// Objects as programs allocate them: time, locality or memory of an allocator; prints one line of JSON
    Objects(ObjectsOptions),
    /// Move small pages of a process by a bare loop of `move_pages`; prints one line of JSON
    MovePages(MoveOptions),
}

/// A verb's own default of an option.
fn default(value: &'static str) -> impl Fn(Arg) -> Arg {
    move |option| option.default_value(value)
}

/// The options of a verb.
#[derive(Serialize)]
struct Setup<'a> {
    size_bytes: u64,
    #[serde(flatten)]
    team: &'a Team,
    repeat: usize,
}

/// The result of a verb, with its options.
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
            eprintln!("nearside-workloads: {}", machine::chain(&error));
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
            measure("random", common, Some(1), |team, size, repeat| {
                random_access::run(team, size, repeat, *access, accesses.map(|count| count as usize))
            })
        }
        Verb::Rivals(options) => measure_beside_rivals(options),
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
        Verb::Objects(options) => objects::run(options),
        Verb::Streamcluster(options) => measure_streamcluster(options),
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
        Verb::Cg(options) => measure("cg", &options.common, None, |team, size, n| cg::run(team, options, size, n)),
        Verb::Mg(options) => measure("mg", options, None, mg::run),
        Verb::Lu(options) => measure("lu", options, None, lu::run),
        Verb::Ua(options) => measure("ua", options, None, ua::run),
        Verb::Ep(options) => measure("ep", options, None, ep::run),
        Verb::Slabs(options) => {
            measure("slabs", &options.common, None, |team, size, n| slabs::run(team, size, n, options))
        }
        Verb::Is(SortOptions { common, period, sweeps }) => {
            measure("is", common, None, |team, size, repeat| integer_sort::run(team, size, repeat, *period, *sweeps))
        }
        Verb::Ft(options) => measure("ft", options, None, ft::run),
        Verb::Graph(options) => measure("graph", options, None, graph::run),
        Verb::Kv(StoreOptions { common, updates }) => {
            measure("kv", common, None, |team, size, repeat| kv::run(team, size, repeat, *updates))
        }
        Verb::Pipeline(options) => measure("pipeline", options, None, pipeline::run),
        Verb::Levenshtein(ComparisonOptions { common, rows, memory: from }) => {
            measure("levenshtein", common, None, |team, size, n| levenshtein::run(team, size, n, *rows, *from))
        }
        Verb::Canneal(options) => measure_canneal(options),
        Verb::Fluid(options) => measure_passes("fluid", options, fluid::run),
        Verb::Blackscholes(options) => measure_passes("blackscholes", options, blackscholes::run),
        Verb::Crowd(options) => crowd::run(options),
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
        Verb::Waits(WaitsOptions { common, wait, bytes }) => {
            measure("waits", common, None, |team, _, repeat| waits::run(team, repeat, *wait, *bytes))
        }
        Verb::WebserverProcess(options) => measure("webserver-process", options, None, webserver::process),
    }
}

fn measure_beside_rivals(options: &RivalsOptions) -> Result<(), Error> {
    let passes = Passes::create(options.passes.passes.as_deref())?;
    measure("rivals", &options.common, Some(1), |team, size, repeat| {
        let rivals = Team::of_rivals(options, team::allowed_cpus()?)?;
        rivals::run(team, rivals.as_ref(), size, repeat, passes)
    })
}

fn measure_canneal(options: &CannealOptions) -> Result<(), Error> {
    let CannealOptions { common, swaps } = options;
    measure_passes("canneal", common, |team, size, repeat, passes| canneal::run(team, size, repeat, *swaps, passes))
}

fn measure_streamcluster(options: &StreamclusterOptions) -> Result<(), Error> {
    let passes = Passes::create(options.passes.passes.as_deref())?;
    let CaseOptions { common, cure } = &options.case;
    measure("streamcluster", common, None, |team, size, repeat| streamcluster::run(team, size, repeat, *cure, passes))
}

/// Measures a verb that writes the time of each pass.
fn measure_passes<M: Serialize + fmt::Display>(
    verb: &'static str,
    options: &PassesOptions,
    run: impl FnOnce(&Team, usize, usize, Passes) -> Result<M, Error>,
) -> Result<(), Error> {
    let passes = Passes::create(options.passes.passes.as_deref())?;
    measure(verb, &options.common, None, |team, size, repeat| run(team, size, repeat, passes))
}

fn measure<M: Serialize + fmt::Display>(
    verb: &'static str,
    options: &Options,
    default_threads: Option<usize>,
    run: impl FnOnce(&Team, usize, usize) -> Result<M, Error>,
) -> Result<(), Error> {
    let environment = team::Environment::read(|name| std::env::var(name).ok())?;
    let team = Team::new(options, &environment, default_threads, team::allowed_cpus()?)?;
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
