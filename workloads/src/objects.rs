//! Objects as programs allocate them, to compare allocators: run it with another one in `LD_PRELOAD`.

use crate::arithmetic::mix;
use crate::cure::nodes;
use crate::error::Error;
use crate::object_visits::visits;
use clap::{Args, ValueEnum};
use linux::{PageBatch, Pid, Tid, affinity, set_affinity};
use machine::{NodeId, SMALL_PAGE, size};
use serde::Serialize;
use std::hint::black_box;
use std::io::{self, Write};
use std::sync::Barrier;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Instant;

/// What is allocated and freed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Shape {
    /// Objects of 16 to 512 bytes; each thread replaces a random one of 256; ns per pair
    Pairs,
    /// A thread on the first node allocates what one on the last node frees; share that is local to the first
    Exchange,
    /// Sizes of 16 to 512 bytes and random lifetimes; memory over live bytes at the peak
    Server,
    /// Phases with sizes of their own, at whose ends all but one of 16 objects are freed; likewise
    Phases,
    /// Sizes from 16 bytes to 256 KiB, most of them small, with random lifetimes; likewise
    Mixed,
    /// A thread on each CPU reads and writes the objects that it allocated; time for one, and how much threads differ
    Local,
    /// Likewise, of the objects that threads on other nodes allocated
    Remote,
}

/// Options of `objects`.
#[derive(Args, Clone, Copy)]
pub struct ObjectsOptions {
    /// What is allocated
    #[arg(value_enum)]
    shape: Shape,
    /// Threads of `pairs`
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Size of an object of `local` and `remote`
    #[arg(long, default_value = "8K", value_parser = size::parse)]
    bytes: u64,
    /// Allocations of each thread; with `local` and `remote`, visits of each thread
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Figures {
    Pairs { shape: Shape, seconds: f64, ns_per_pair: f64 },
    Exchange { shape: Shape, objects: usize, local_share: f64 },
    Visits { shape: Shape, bytes: u64, seconds: f64, us_per_object: f64, deviation_percent: f64 },
    Memory { shape: Shape, live_bytes: u64, memory_bytes: u64, memory_over_live: f64 },
}

/// Runs a shape and prints one line of JSON.
pub fn run(options: &ObjectsOptions) -> Result<(), Error> {
    let ObjectsOptions { shape, count, .. } = *options;
    let result = match shape {
        Shape::Pairs => {
            let ns_per_pair = pairs(options.threads, count);
            Figures::Pairs { shape, seconds: ns_per_pair * count as f64 / 1e9, ns_per_pair }
        }
        Shape::Local | Shape::Remote => {
            let bytes = options.bytes;
            let (us_per_object, deviation) = visits(bytes as usize, shape == Shape::Remote, count)?;
            let (seconds, deviation_percent) = (us_per_object * count as f64 / 1e6, 100.0 * deviation);
            Figures::Visits { shape, bytes, seconds, us_per_object, deviation_percent }
        }
        Shape::Exchange => {
            let (objects, local_share) = exchange(count)?;
            Figures::Exchange { shape, objects, local_share }
        }
        Shape::Server | Shape::Phases | Shape::Mixed => {
            let (live_bytes, memory_bytes) = memory(shape, count)?;
            let memory_over_live = memory_bytes as f64 / live_bytes as f64;
            Figures::Memory { shape, live_bytes, memory_bytes, memory_over_live }
        }
    };
    let mut output = io::stdout().lock();
    serde_json::to_writer(&mut output, &result).map_err(io::Error::from).map_err(Error::System)?;
    writeln!(output).map_err(Error::System)
}

/// A random number below `below`, of this step.
fn random(step: u64, below: u64) -> u64 {
    ((u128::from(mix(step, 4)) * u128::from(below)) >> 64) as u64
}

fn small(step: u64) -> usize {
    16 + random(step, 497) as usize
}

/// Mean time of an allocation and a free, ns.
fn pairs(threads: u16, count: u64) -> f64 {
    let barrier = Barrier::new(threads.into());
    let one = |thread: u64| {
        let mut kept: Vec<Vec<u8>> = (0..256).map(|step| Vec::with_capacity(small(step))).collect();
        // Beforehand, as random numbers take longer than allocations.
        let steps: Vec<(u8, u16)> =
            (0..1 << 16).map(|step| (random(step ^ thread << 32, 256) as u8, small(!step) as u16)).collect();
        barrier.wait();
        let begin = Instant::now();
        for (place, bytes) in steps.iter().cycle().take(count as usize) {
            kept[usize::from(*place)] = black_box(Vec::with_capacity((*bytes).into()));
        }
        begin.elapsed().as_secs_f64() * 1e9 / count as f64
    };
    thread::scope(|scope| {
        let one = &one;
        let running: Vec<_> = (0..threads.into()).map(|thread| scope.spawn(move || one(thread))).collect();
        // A thread that panics has printed its message.
        running.into_iter().filter_map(|thread| thread.join().ok()).sum::<f64>() / f64::from(threads)
    })
}

/// Number of objects of the second half of the exchange, and the share of them that are on the producer's node.
fn exchange(count: u64) -> Result<(usize, f64), Error> {
    const LIVE: usize = 4096;
    let nodes = nodes(&affinity(Tid::CALLER).map_err(Error::System)?)?;
    let [(home, first), .., (_, last)] = &nodes[..] else {
        return Err(Error::System(io::Error::other("this machine has one node: run it in `nearside lab run`")));
    };
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<Vec<Vec<u8>>>(4);
        let consumer = scope.spawn(move || {
            set_affinity(Tid::CALLER, last)?;
            let mut freed = 0;
            for objects in receiver {
                // The consumer allocates, too: an allocator that gives freed memory to its freer mixes nodes here.
                let own: Vec<Vec<u8>> = (0..objects.len() as u64 / 2).map(|step| vec![1; small(step)]).collect();
                freed += objects.len() + black_box(own).len();
            }
            Ok(freed)
        });
        let producer = scope.spawn(move || {
            set_affinity(Tid::CALLER, first)?;
            let (mut all, mut local) = (0, 0);
            for batch in 0..count / LIVE as u64 + 2 {
                let objects: Vec<Vec<u8>> = (0..LIVE as u64).map(|step| vec![1; small(batch << 32 | step)]).collect();
                if batch > count / LIVE as u64 / 2 {
                    all += objects.len();
                    local += local_objects(&objects, *home)?;
                }
                if sender.send(objects).is_err() {
                    break; // The consumer has failed, and says why.
                }
            }
            Ok((all, local))
        });
        let panicked = |_| Err(io::Error::other("a thread panicked"));
        let (all, local) = producer.join().unwrap_or_else(panicked).map_err(Error::System)?;
        let _: usize =
            consumer.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))).map_err(Error::System)?;
        Ok((all, local as f64 / all as f64))
    })
}

/// How many of these objects are on the node.
fn local_objects(objects: &[Vec<u8>], node: NodeId) -> io::Result<usize> {
    let mut pages = PageBatch::with_capacity(objects.len());
    for object in objects {
        pages.push(object.as_ptr() as u64 / SMALL_PAGE * SMALL_PAGE, None);
    }
    pages.locate(Pid(std::process::id()))?;
    Ok(pages.statuses().filter(|(_, status)| status.node() == Ok(node)).count())
}

/// The largest number of live bytes, and of bytes of memory beyond those before the first object.
fn memory(shape: Shape, count: u64) -> Result<(u64, u64), Error> {
    let slots = if shape == Shape::Mixed { 20_000 } else { 200_000 };
    let mut kept: Vec<Vec<u8>> = vec![Vec::new(); slots];
    let before = resident("VmRSS:")?;
    let (mut live, mut most) = (0, 0);
    for step in 0..count {
        let slot = random(step, slots as u64) as usize;
        let phase = step * 8 / count;
        if shape == Shape::Phases && phase != step.saturating_sub(1) * 8 / count {
            for (_, object) in kept.iter_mut().enumerate().filter(|(index, _)| index % 16 != 0) {
                live -= object.len() as u64;
                *object = Vec::new();
            }
        }
        let bytes = match shape {
            Shape::Phases => 16 + random(!step, 64) as usize + 100 * phase as usize,
            // One of 16 is large: up to 256 KiB, small ones more often.
            Shape::Mixed if step % 16 == 0 => 512 << random(!step, 10),
            _ => small(!step),
        };
        live -= kept[slot].len() as u64;
        kept[slot] = Vec::new();
        kept[slot] = vec![1; bytes];
        live += bytes as u64;
        most = most.max(live);
    }
    black_box(&kept);
    Ok((most, resident("VmHWM:")?.saturating_sub(before)))
}

/// A size in `/proc/self/status`, in bytes.
fn resident(name: &str) -> Result<u64, Error> {
    let text = std::fs::read_to_string("/proc/self/status").map_err(Error::System)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| Error::System(io::Error::other("/proc/self/status has no memory sizes")))
}
