//! Time and memory to build flows from a large recording.

use crate::host_time::processor_time;
use crate::target::{Row, Target, median};
use bench::{Error, nearside};
use linux::{Pid, Tid};
use machine::{CpuId, Machine, NodeId};
use profile::{Filter, NoSymbols, ObjectKind, Recording};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trace::{About, AccessKind, Event, Flush, Sample, Served, Source, StackId, Stacks, What, WriteError, Writer};

const MACHINE: &str = "opteron-6174x4";
const CPUS: u64 = 48;
const NODES: u64 = 8;
/// More than a real recording of one minute has.
const MUCH: Recorded = Recorded { samples: 10_000_000, object_ns: 1000 };
/// The longest recording that must fit into memory.
const LONG: Recorded = Recorded { samples: 50_000_000, object_ns: 1000 };
/// One minute, at the default of `nearside record`: 1,000 samples per second on each CPU.
const MINUTE: Recorded = Recorded { samples: 60 * 1000 * CPUS, object_ns: 60_000_000_000 / (OBJECTS - PLACES) };
/// Number of times that a recorder drains the buffers of all CPUs, one after another.
const ROUNDS: u64 = 100;
/// Allocated objects, and how many of them live at a time: addresses are reused.
const OBJECTS: u64 = 1_000_000;
const PLACES: u64 = 1 << 18;
const PLACE_BYTES: u64 = 256;
const SITES: u64 = 1000;
/// Long-lived objects, which get every other sample, and how many samples in a row a thread stays in one.
const LARGE: u64 = 64;
const STAY: u64 = 100;
const LARGE_BYTES: u64 = 64 << 20;
const LARGE_START: u64 = 0x7000_0000_0000;
const SMALL_START: u64 = 0x5500_0000_0000;
/// Number of objects whose flows are built, besides those of all threads.
const FLOWS: usize = 50;
const RUNS: usize = 3;

/// Size of a recording.
struct Recorded {
    samples: u64,
    /// Time from one allocation to the next, ns.
    object_ns: u64,
}

/// Measures time and memory.
pub fn measure() -> Result<Vec<Row>, Error> {
    let command = || "nearside-bench --only profile".to_owned();
    let (seconds, memory_gib) = with_peak(|| (0..RUNS).map(|_| flows(&MUCH)).collect::<Result<Vec<f64>, Error>>())?;
    eprintln!("flows of 50 M samples");
    let (long_s, long_gib) = with_peak(|| flows(&LONG))?;
    let row = |what: &str, most, measured, unit| Row {
        what: format!("profile: flows of {what}"),
        target: Target::AtMost(most),
        measured,
        unit,
        command: command(),
    };
    Ok(vec![
        row("10 M samples, 1 M objects", 3.0, median(seconds), "s"),
        row("10 M samples, 1 M objects, memory", 2.0, memory_gib, "GiB"),
        row("50 M samples, 1 M objects", 20.0, long_s, "s"),
        row("50 M samples, 1 M objects, memory", 4.0, long_gib, "GiB"),
        minute()?,
        huge_pages()?,
    ])
}

/// Verdicts on 10,000 huge pages, from a million samples.
fn huge_pages() -> Result<Row, Error> {
    const BLOCKS: u64 = 10_000;
    const SAMPLES: u64 = 1_000_000;
    let mut recording = Recording::new(machine::presets::find(MACHINE)?);
    recording.add_samples((0..SAMPLES).map(|number| {
        let (block, chance) = (number % BLOCKS, random(random(number)));
        let page = chance % 512;
        // Every other block is used by two nodes, in parts that meet within it; the rest by all nodes alike.
        let owner = (block / 2 + u64::from(page >= 188)) % NODES;
        let of_owner = owner * (CPUS / NODES) + chance / 512 % (CPUS / NODES);
        let cpu = if block.is_multiple_of(2) { of_owner } else { chance / 512 % CPUS };
        let address = LARGE_START + (block << 21) + (page << 12) + chance / 7 % 64 * 64;
        Sample { address, cpu: CpuId(cpu as u32), ..MUCH.sample(number, cpu) }
    }));
    let profile = recording.into_profile(&Stacks::new(), &NoSymbols);
    let flow = profile.view(&Filter::default()).flow();
    let mut seconds = Vec::new();
    for _ in 0..RUNS {
        let started = processor_time();
        let found = flow.huge_pages().iter().filter(|page| page.is_falsely_shared()).count() as u64;
        seconds.push(processor_time().saturating_sub(started).as_secs_f64());
        if found.abs_diff(BLOCKS / 2) > BLOCKS / 50 {
            let (figure, said) = ("half of the huge pages".to_owned(), format!("{found} of {BLOCKS}"));
            return Err(Error::NoFigure { command: "profile::Flow::huge_pages".into(), figure, said });
        }
    }
    Ok(Row {
        what: "profile: verdicts on 10,000 huge pages, 1 M samples".to_owned(),
        target: Target::AtMost(1.0),
        measured: median(seconds),
        unit: "s",
        command: "nearside-bench --only profile".to_owned(),
    })
}

/// What `work` returns, and the peak memory of this process meanwhile, GiB.
fn with_peak<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<(T, f64), Error> {
    let refused = || Error::system("measure this process's memory");
    // Reset the peak size: earlier benchmarks may have raised it.
    fs::write("/proc/self/clear_refs", "5").map_err(refused())?;
    let done = work()?;
    let status = fs::read_to_string("/proc/self/status").map_err(refused())?;
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok((done, kib.map_or(f64::NAN, |kib| kib / f64::from(1 << 20))))
}

/// From a trace of one minute to its report: the time that a user waits.
fn minute() -> Result<Row, Error> {
    eprintln!("a trace of a minute, and its report");
    let scratch = tempfile::tempdir().map_err(Error::system("make a temporary folder"))?;
    let folder = scratch.path().join("trace");
    let machine = machine::presets::find(MACHINE)?;
    write_minute(&folder, &machine)
        .map_err(|why| Error::system("write a trace of a minute")(std::io::Error::other(why)))?;
    let nearside = nearside()?;
    let mut seconds = Vec::new();
    for _ in 0..RUNS {
        let mut command = Command::new(&nearside);
        command.arg("report").arg(&folder).stdin(Stdio::null());
        let started = Instant::now();
        let output = command.output().map_err(Error::system("run nearside report"))?;
        seconds.push(started.elapsed().as_secs_f64());
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::Failed { command: "nearside report".into(), status: output.status.to_string(), said });
        }
    }
    Ok(Row {
        what: format!(
            "report of a traced minute: {CPUS} CPUs, {:.2} M samples, 1 M objects; MemProf's flows of one, claim C70: 5 s",
            MINUTE.samples as f64 / 1e6
        ),
        target: Target::AtMost(5.0),
        measured: median(seconds),
        unit: "s",
        command: "nearside report TRACE".to_owned(),
    })
}

fn write_minute(folder: &Path, machine: &Machine) -> Result<(), WriteError> {
    let mut writer = Writer::create(folder, About::of_command(vec!["program".into()]), machine, Flush::default())?;
    let sites = sites(writer.stacks());
    for large in large(sites[0]) {
        writer.event(large)?;
    }
    let mut objects = (0..OBJECTS).flat_map(|object| MINUTE.lifetime(object, site_of(&sites, object))).peekable();
    for number in 0..MINUTE.samples {
        let sample = MINUTE.sample(number, number % CPUS);
        while let Some(event) = objects.next_if(|event| event.time_ns <= sample.time_ns) {
            writer.event(event)?;
        }
        writer.sample(sample)?;
    }
    writer.finish()?;
    Ok(())
}

/// From a trace's samples and events to the flows of the top objects and of all threads: CPU time of all threads, s.
fn flows(recorded: &Recorded) -> Result<f64, Error> {
    let mut recording = Recording::new(machine::presets::find(MACHINE)?);
    let mut stacks = Stacks::new();
    let sites = sites(&mut stacks);
    let mut taken = Duration::ZERO;
    // Generating the input takes time and memory that reading it from a trace takes too, and is not measured here.
    for round in 0..ROUNDS {
        for cpu in 0..CPUS {
            let a_round = recorded.samples / ROUNDS;
            let numbers = (round * a_round + cpu..(round + 1) * a_round).step_by(CPUS as usize);
            let samples: Vec<Sample> = numbers.map(|number| recorded.sample(number, cpu)).collect();
            let started = processor_time();
            recording.add_samples(samples);
            taken += processor_time().saturating_sub(started);
        }
    }
    recording.add_events(large(sites[0]));
    recording.add_events((0..OBJECTS).flat_map(|object| recorded.lifetime(object, site_of(&sites, object))));
    let started = processor_time();
    let profile = recording.into_profile(&stacks, &NoSymbols);
    let view = profile.view(&Filter::default());
    let objects: Vec<_> = view.objects().into_iter().take(FLOWS).map(|(object, _)| object).collect();
    let threads: Vec<_> = view.threads().into_iter().map(|(thread, _)| thread).collect();
    let of_objects: usize = view.flows_of_objects(&objects).iter().map(profile::Flow::len).sum();
    let of_threads: usize = view.flows_of_threads(&threads).iter().map(profile::Flow::len).sum();
    taken += processor_time().saturating_sub(started);
    let known = profile
        .accesses()
        .filter(|access| profile.objects()[access.object.0 as usize].kind == ObjectKind::Heap)
        .count();
    if (of_threads, known, of_objects > 0) != (recorded.samples as usize, recorded.samples as usize, true) {
        let said = format!("{of_threads} samples of threads, {known} of objects");
        let figure = "flow for each sample".to_owned();
        return Err(Error::NoFigure { command: "profile::Recording::into_profile".into(), figure, said });
    }
    Ok(taken.as_secs_f64())
}

/// One step of Knuth's MMIX generator; only its high bits are random.
fn random(number: u64) -> u64 {
    number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 20
}

fn address_of(object: u64) -> u64 {
    // Neighbours in time are not neighbours in memory.
    SMALL_START + object.wrapping_mul(0x9e37_79b1) % PLACES * PLACE_BYTES
}

fn sites(stacks: &mut Stacks) -> Vec<StackId> {
    (0..SITES).map(|site| stacks.id(&[0x40_0000 + 16 * site, 0x40_8000])).collect()
}

fn site_of(sites: &[StackId], object: u64) -> StackId {
    sites[(object % SITES) as usize]
}

fn large(site: StackId) -> impl Iterator<Item = Event> {
    (0..LARGE).map(move |object| allocated(0, LARGE_START + object * LARGE_BYTES, LARGE_BYTES, site))
}

impl Recorded {
    fn sample(&self, number: u64, cpu: u64) -> Sample {
        // All addresses are in use at the first sample, and objects are allocated until the last.
        let Self { samples, object_ns } = self;
        let time_ns = object_ns * PLACES + number * object_ns * (OBJECTS - PLACES) / samples;
        let chance = random(random(number));
        let address = if (number / CPUS).is_multiple_of(2) {
            let object = random(number / CPUS / STAY * CPUS + cpu) % LARGE;
            LARGE_START + object * LARGE_BYTES + chance % LARGE_BYTES
        } else {
            // A live object: the newest, or one of its predecessors.
            address_of(time_ns / object_ns - chance % (PLACES - 1)) + chance % PLACE_BYTES
        };
        Sample {
            time_ns,
            cpu: CpuId(cpu as u32),
            pid: Pid(1000),
            tid: Tid(1000 + cpu as u32),
            instruction: 0x40_0000 + chance % 997 * 4,
            address,
            physical: Some(address & 0xffff_ffff),
            kind: if chance.is_multiple_of(4) { AccessKind::Store } else { AccessKind::Load },
            served: Some(Served::Dram),
            node: Some(NodeId((chance % 8) as u32)),
            latency_ns: Some(100.0 + (chance % 100) as f32),
            kernel: false,
            stack: Some(StackId((chance % SITES) as u32)),
            weight: 1000.0,
            source: Source::Ibs,
        }
    }

    /// Allocates an object at the address of one that is freed right before.
    fn lifetime(&self, object: u64, site: StackId) -> impl Iterator<Item = Event> + use<> {
        let (begins, address) = (object * self.object_ns, address_of(object));
        let ends = (object >= PLACES).then(|| event(begins - 1, What::Freed { address }));
        ends.into_iter().chain([allocated(begins, address, PLACE_BYTES, site)])
    }
}

fn allocated(time_ns: u64, address: u64, bytes: u64, stack: StackId) -> Event {
    event(time_ns, What::Allocated { address, bytes, stack })
}

fn event(time_ns: u64, what: What) -> Event {
    Event { time_ns, pid: Pid(1000), tid: Tid(1000), cpu: Some(CpuId(0)), what }
}
