//! Makes perf.data files of any size, as `perf record` writes them.

use std::io::{self, Write};

/// Types of the records made here.
pub const MMAP2: u32 = 10;
pub const COMM: u32 = 3;
pub const FORK: u32 = 7;
pub const EXIT: u32 = 4;
pub const SAMPLE: u32 = 9;
pub const FINISHED_ROUND: u32 = 68;
pub const TIME_CONV: u32 = 79;

/// `PERF_SAMPLE_` bits of the samples made here: `IP`, `TID`, `TIME`, `ADDR`, `CPU`, `PERIOD`, `WEIGHT`, `DATA_SRC`,
/// `PHYS_ADDR`.
pub const SAMPLE_TYPE: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 7 | 1 << 8 | 1 << 14 | 1 << 15 | 1 << 19;
/// Data sources of loads from memory: local, and remote.
pub const LOCAL: u64 = 0x6810_1042;
pub const REMOTE: u64 = 0x6810_2042;

const SAMPLE_ID_ALL: u64 = 1 << 18;
const ATTRIBUTE_BYTES: u64 = 112;
const HEADER_BYTES: u64 = 104;

/// A memory sample.
#[derive(Clone, Copy, Debug)]
pub struct MemorySample {
    pub time: u64,
    pub pid: u32,
    pub tid: u32,
    pub cpu: u32,
    pub instruction: u64,
    pub address: u64,
    pub physical: u64,
    pub data_source: u64,
    pub cycles: u64,
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize((text.len() + 1).next_multiple_of(8), 0);
    bytes
}

/// A record with its header.
pub fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(body.len() + 8).expect("a record has at most 64 KiB");
    let mut record = kind.to_le_bytes().to_vec();
    record.extend(misc.to_le_bytes());
    record.extend(size.to_le_bytes());
    record.extend(body);
    record
}

/// The trailer of records other than samples: thread, time and CPU.
fn trailer(pid: u32, tid: u32, time: u64) -> Vec<u8> {
    words(&[pair(pid, tid), time, 0])
}

pub fn sample(sample: &MemorySample) -> Vec<u8> {
    let MemorySample { time, pid, tid, cpu, instruction, address, physical, data_source, cycles } = *sample;
    let fields = [instruction, pair(pid, tid), time, address, cpu.into(), 1000, cycles, data_source, physical];
    record(SAMPLE, 2, &words(&fields))
}

pub fn comm(time: u64, pid: u32, tid: u32, name: &str, exec: bool) -> Vec<u8> {
    let body = [words(&[pair(pid, tid)]), text(name), trailer(pid, tid, time)].concat();
    record(COMM, if exec { 1 << 13 } else { 0 }, &body)
}

pub fn fork(time: u64, pid: u32, parent: u32, tid: u32) -> Vec<u8> {
    let body = [words(&[pair(pid, parent), pair(tid, parent), time]), trailer(pid, tid, time)].concat();
    record(FORK, 0, &body)
}

pub fn exit(time: u64, pid: u32, tid: u32) -> Vec<u8> {
    let body = [words(&[pair(pid, pid), pair(tid, tid), time]), trailer(pid, tid, time)].concat();
    record(EXIT, 0, &body)
}

/// An executable mapping with the build ID `[7; 20]`.
pub fn mmap(time: u64, pid: u32, start: u64, bytes: u64, path: &str) -> Vec<u8> {
    let id = [vec![20, 0, 0, 0], vec![7; 20]].concat();
    let rest = [id, words(&[pair(5, 2)]), text(path), trailer(pid, pid, time)].concat();
    record(MMAP2, 2 | 1 << 14, &[words(&[pair(pid, pid), start, bytes, 0]), rest].concat())
}

/// Conversion of the time stamp counter to ns, for a rate in half cycles per ns.
pub fn time_conversion(half_cycles_per_ns: u64) -> Vec<u8> {
    record(TIME_CONV, 0, &words(&[32, (1 << 33) / half_cycles_per_ns, 0]))
}

fn counted(name: &str) -> Vec<u8> {
    let text = text(name);
    [u32::try_from(text.len()).expect("short").to_le_bytes().to_vec(), text].concat()
}

fn attribute(sample_type: u64) -> Vec<u8> {
    let mut fields = vec![pair(4, ATTRIBUTE_BYTES as u32), 0, 1000, sample_type, 0, SAMPLE_ID_ALL];
    fields.resize(ATTRIBUTE_BYTES as usize / 8, 0);
    words(&fields)
}

/// Nodes with `cpus` CPUs and 1 GiB each.
fn numa_topology(nodes: u32, cpus: u32) -> Vec<u8> {
    let node = |node: u32| {
        let memory = [node.to_le_bytes().to_vec(), words(&[1 << 20, 1 << 20])].concat();
        [memory, counted(&format!("{}-{}", node * cpus, (node + 1) * cpus - 1))].concat()
    };
    [nodes.to_le_bytes().to_vec(), (0..nodes).flat_map(node).collect()].concat()
}

/// Each node has 1 GiB, one after the other, in blocks of 128 MiB.
fn memory_topology(nodes: u32) -> Vec<u8> {
    let node = |node: u32| words(&[node.into(), 8, 8 * u64::from(node + 1), 0xff << (8 * node)]);
    [words(&[1, 128 << 20, nodes.into()]), (0..nodes).flat_map(node).collect()].concat()
}

/// Writes the start of a file with one event, on a machine of 2 nodes with 4 CPUs each. Returns what follows the
/// records.
pub fn begin(to: &mut impl Write, name: &str, sample_type: u64, record_bytes: u64) -> io::Result<Vec<u8>> {
    let attribute = attribute(sample_type);
    let event = [words(&[pair(1, ATTRIBUTE_BYTES as u32)]), attribute.clone(), vec![0; 4], counted(name)].concat();
    let command = [2_u32.to_le_bytes().to_vec(), counted("perf"), counted("mem")].concat();
    let (architecture, processor) =
        if name.starts_with("arm_spe") { ("aarch64", "0x00000000413fd0c1") } else { ("x86_64", "GenuineIntel-6-4F-1") };
    // Feature numbers: host, architecture, processor, command, events, nodes, memory.
    let features = [
        (3_u32, counted("server")),
        (6, counted(architecture)),
        (9, counted(processor)),
        (11, command),
        (12, event),
        (14, numa_topology(2, 4)),
        (22, memory_topology(2)),
    ];
    let set: u64 = features.iter().map(|(number, _)| 1 << number).sum();
    let data = HEADER_BYTES + ATTRIBUTE_BYTES + 16;
    let attributes = [HEADER_BYTES, ATTRIBUTE_BYTES + 16];
    let magic = u64::from_le_bytes(*b"PERFILE2");
    let header =
        [magic, HEADER_BYTES, ATTRIBUTE_BYTES + 16, attributes[0], attributes[1], data, record_bytes, 0, 0, set];
    to.write_all(&words(&header))?;
    to.write_all(&[0; 24])?;
    to.write_all(&attribute)?;
    // The event's counters have no IDs.
    to.write_all(&[0; 16])?;
    let mut end = Vec::new();
    let mut offset = data + record_bytes + 16 * features.len() as u64;
    for (_, section) in &features {
        end.extend(words(&[offset, section.len() as u64]));
        offset += section.len() as u64;
    }
    for (_, section) in &features {
        end.extend(section);
    }
    Ok(end)
}

/// A whole file with these records.
pub fn file(event: &str, sample_type: u64, records: &[Vec<u8>]) -> Vec<u8> {
    let records = records.concat();
    let mut bytes = Vec::new();
    let end = begin(&mut bytes, event, sample_type, records.len() as u64).expect("memory takes everything");
    bytes.extend(records);
    bytes.extend(end);
    bytes
}
