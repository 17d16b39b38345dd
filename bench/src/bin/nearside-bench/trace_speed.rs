//! Speed of reading and reporting perf.data files, compared with perf; and of writing and reading a trace.

#[path = "../../../../crates/trace/tests/perf_file/mod.rs"]
#[allow(dead_code, reason = "shared with tests that need more of it")]
mod perf_file;

use crate::host_time::{Cycles, processor_time};
use crate::target::{Row, Target, median};
use bench::{Error, nearside};
use perf_file::{FINISHED_ROUND, LOCAL, MemorySample, REMOTE, SAMPLE_TYPE, begin, comm, mmap, record, sample};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;
use trace::{About, Flush, Record, Trace, Writer};

/// Number of records of the perf.data file.
const FILE_BYTES: u64 = 1 << 30;
/// perf reads only a part, extrapolated to the whole: the whole takes minutes.
const PERF_PART: u64 = 8;
/// Number of samples of the written trace.
const SAMPLES: u64 = 2_000_000;
const PROCESSES: u64 = 4;
const CPUS: u64 = 8;
const ROUND: u64 = 20_000;
const START: u64 = 1_000_000_000;
/// Number of measurements.
const RUNS: usize = 3;

/// Runs all benchmarks.
pub fn measure() -> Result<Vec<Row>, Error> {
    let scratch = tempfile::tempdir().map_err(Error::system("make a temporary folder"))?;
    let (mut rows, decoded_ns) = perf_data(&scratch)?;
    let (rows_of_trace, written_ns) = kept(&scratch)?;
    rows.extend(rows_of_trace);
    rows.extend(a_sample(decoded_ns, written_ns));
    Ok(rows)
}

/// CPU time from perf's record of a sample to a row of a trace, compared with the published profiler's handler, which
/// ran in the kernel. Neither includes the time of the processor and the kernel to produce the record.
fn a_sample(decoded_ns: f64, written_ns: f64) -> [Row; 2] {
    let cycles = Cycles::of_host();
    let row = |what: &str, most, ns| Row {
        what: format!("a sample {what}"),
        target: Target::AtMost(most),
        measured: cycles.of_ns(ns),
        unit: "cycles",
        command: "nearside-bench --only trace".to_owned(),
    };
    [
        row("decoded; discarded by MemProf, claim C69: 700", 700.0, decoded_ns),
        row("decoded and written; stored by MemProf, claim C69: 2,700", 2700.0, decoded_ns + written_ns),
    ]
}

/// Also returns the CPU time to decode a sample, ns.
fn perf_data(scratch: &TempDir) -> Result<(Vec<Row>, f64), Error> {
    let (whole, part) = (scratch.path().join("perf.data"), scratch.path().join("part.data"));
    eprintln!("a perf.data file of 1 GiB, and perf");
    let count = generate(&whole, FILE_BYTES)
        .and_then(|count| generate(&part, FILE_BYTES / PERF_PART).map(|_| count))
        .map_err(Error::system("write perf.data"))?;
    let before = processor_time();
    let read = timed(|| read(&whole).map(|_| ()))?;
    let decoded_ns = processor_time().saturating_sub(before).as_secs_f64() * 1e9 / (count * RUNS as u64) as f64;
    let nearside = nearside()?;
    let report = timed(|| run(Command::new(&nearside).arg("report").arg(&whole)))?;
    let started = Instant::now();
    run(Command::new("perf").args(["script", "--force", "-i"]).arg(&part))?;
    let theirs = started.elapsed().as_secs_f64() * PERF_PART as f64;
    let row = |what: &str, ours: f64| Row {
        what: what.to_owned(),
        target: Target::AtLeast(10.0),
        measured: theirs / ours,
        unit: "times",
        command: "perf script --force -i FILE (of an eighth of it)".to_owned(),
    };
    let rows = vec![
        row("perf.data of 1 GiB: all samples, of perf script's speed", read),
        row("nearside report of it, of perf script's speed", report),
    ];
    Ok((rows, decoded_ns))
}

/// The median time, s.
fn timed(run: impl Fn() -> Result<(), Error>) -> Result<f64, Error> {
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let started = Instant::now();
        run()?;
        times.push(started.elapsed().as_secs_f64());
    }
    Ok(median(times))
}

/// Runs a command with its output discarded.
fn run(command: &mut Command) -> Result<(), Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status =
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().map_err(Error::system("run what is measured"))?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Failed { command: name, status: status.to_string(), said: String::new() })
}

/// Writes a file like one of `perf mem record -a`: processes, their mappings, then samples of every CPU in turn.
fn generate(path: &Path, bytes: u64) -> io::Result<u64> {
    let mut starting = Vec::new();
    for pid in (100..).take(PROCESSES as usize) {
        starting.push(comm(0, pid, pid, "program", true));
        starting.push(mmap(0, pid, 0x40_0000, 0x10_0000, "/usr/bin/program"));
    }
    let starting = starting.concat();
    let one = |number: u64| {
        // A simple generator suffices to spread addresses.
        let random = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 20;
        let (cpu, remote) = (number / 64 % CPUS, random.is_multiple_of(3));
        sample(&MemorySample {
            // Each CPU's samples are in order, and CPUs alternate.
            time: START + number / 512 * 64_000 + number % 64 * 1000 + cpu,
            pid: 100 + (cpu % PROCESSES) as u32,
            tid: 100 + (cpu % PROCESSES) as u32,
            cpu: cpu as u32,
            instruction: 0x40_0000 + random % 512 * 16,
            address: 0x7f00_0000_0000 + random % (1 << 30),
            physical: random % (2 << 30),
            data_source: if remote { REMOTE } else { LOCAL },
            cycles: 200 + random % 300,
        })
    };
    let round = record(FINISHED_ROUND, 0, &[]);
    let count = bytes.saturating_sub(starting.len() as u64) / one(0).len() as u64;
    let rounds = count / ROUND * round.len() as u64;
    let records = starting.len() as u64 + count * one(0).len() as u64 + rounds;
    let mut file = BufWriter::new(File::create(path)?);
    let end = begin(&mut file, "cpu/mem-loads,ldlat=30/P", SAMPLE_TYPE, records)?;
    file.write_all(&starting)?;
    for number in 0..count {
        file.write_all(&one(number))?;
        if number % ROUND == ROUND - 1 {
            file.write_all(&round)?;
        }
    }
    file.write_all(&end)?;
    file.flush()?;
    Ok(count)
}

fn failed(why: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::System { what: "keep a trace".to_owned(), why: io::Error::other(why) }
}

/// Reads all records; returns their number.
fn read(path: &Path) -> Result<u64, Error> {
    let mut count = 0;
    for record in Trace::open(path).and_then(|trace| trace.records()).map_err(failed)? {
        record.map_err(failed)?;
        count += 1;
    }
    Ok(count)
}

/// Writes and reads a trace of the samples of a perf.data file; also returns the time to write a sample, ns.
fn kept(scratch: &TempDir) -> Result<([Row; 2], f64), Error> {
    eprintln!("a trace of {SAMPLES} samples");
    let (perf, folder) = (scratch.path().join("perf.data"), scratch.path().join("trace"));
    let records = Trace::open(&perf).and_then(|trace| trace.records()).map_err(failed)?;
    let samples = records.filter_map(|record| match record {
        Ok(Record::Sample(sample)) => Some(sample),
        _ => None,
    });
    let samples: Vec<_> = samples.take(SAMPLES as usize).collect();
    let machine = machine::presets::find("small-4x2")?;
    let mut writer =
        Writer::create(&folder, About::of_command(Vec::new()), &machine, Flush::default()).map_err(failed)?;
    let started = Instant::now();
    for sample in &samples {
        writer.sample(*sample).map_err(failed)?;
    }
    let written = started.elapsed().as_secs_f64();
    writer.finish().map_err(failed)?;
    let started = Instant::now();
    let count = read(&folder)?;
    let taken = started.elapsed().as_secs_f64();
    let row = |what: &str, target, samples: u64, seconds: f64| Row {
        what: what.to_owned(),
        target,
        measured: samples as f64 / seconds / 1e6,
        unit: "M/s",
        command: format!("{samples} samples, one thread"),
    };
    // Five times the rate that a recorder has to sustain.
    let rows = [
        row("a trace: samples written", Target::AtLeast(1.0), samples.len() as u64, written),
        row("a trace: samples read", Target::None, count, taken),
    ];
    Ok((rows, written * 1e9 / samples.len() as f64))
}
