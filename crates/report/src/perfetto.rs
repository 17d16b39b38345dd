//! Exports a profile for the Perfetto UI: in Chrome's trace event format, which Perfetto documents and keeps
//! supporting, as JSON with one event per line.

use crate::escape::escape_name;
use crate::subsample::subsample;
use machine::NodeId;
use profile::{Access, ObjectId, ProcessId, Profile, ThreadId, View};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use trace::{AccessKind, Served};

/// Most accesses that are written: the UI stays responsive.
const MOST_ACCESSES: usize = 100_000;
/// Most objects whose lifetimes are written: the most expensive ones.
const MOST_OBJECTS: usize = 500;
/// Most nodes with counters: those with the most accesses.
const MOST_NODES: usize = 64;
/// Number of values per counter.
const PARTS: u64 = 200;
/// Size of a cache line, bytes.
const LINE_BYTES: f64 = machine::LINE_BYTES as f64;
/// Upper bound of PIDs.
const LAST_PID: u32 = 1 << 22;

/// A view as a trace for the Perfetto UI: a track per thread with accesses as slices whose length is their latency,
/// lifetimes of the most expensive objects, and counters of the local access ratio and of each node's latency and
/// bandwidth. Times are relative to the first access or object, in µs as the format requires. At most 100,000 accesses
/// are written, selected evenly; `otherData` says how much was left out.
pub fn profile_to_perfetto(view: &View) -> String {
    let objects: Vec<ObjectId> = view.objects().into_iter().map(|(object, _)| object).collect();
    let shown = objects.get(..MOST_OBJECTS).unwrap_or(&objects);
    let clock = Clock::new(view, shown);
    let (accesses, all) = accesses(view);
    let mut events = names(view, &accesses, shown);
    events.extend(slices(view.profile(), &accesses, &clock));
    events.extend(lives(view.profile(), shown, &clock));
    let (counters, left_out_nodes) = counters(view, &clock);
    events.extend(counters);
    let about = json!({
        "written_by": concat!("nearside ", env!("CARGO_PKG_VERSION")),
        "machine": escape_name(&view.profile().machine().name),
        "start_ns": clock.start_ns.to_string(),
        "accesses": all,
        "accesses_left_out": all - accesses.len(),
        "objects_left_out": objects.len() - shown.len(),
        "nodes_left_out": left_out_nodes,
    });
    let mut text = "{\"traceEvents\":[".to_owned();
    for (event, before) in events.iter().zip(std::iter::once("\n").chain(std::iter::repeat(",\n"))) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{before}{event}");
    }
    let _ = write!(text, "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{about}}}\n");
    text
}

/// Times relative to the first access or object.
struct Clock {
    start_ns: u64,
    /// Times of the first and last access.
    accesses_ns: (u64, u64),
}

impl Clock {
    fn new(view: &View, objects: &[ObjectId]) -> Self {
        let (mut first, mut last) = (None, 0);
        for access in view.accesses() {
            first = first.or(Some(access.time_ns));
            last = access.time_ns;
        }
        let first_ns = first.unwrap_or(0);
        let begun = objects.iter().filter_map(|id| Some(view.profile().objects().get(id.0 as usize)?.from_ns));
        Self { start_ns: begun.fold(first_ns, u64::min), accesses_ns: (first_ns, last) }
    }

    /// µs, with ns precision.
    fn at(&self, time_ns: u64) -> f64 {
        micros(time_ns.saturating_sub(self.start_ns))
    }
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// The accesses to write, and the number of all.
fn accesses(view: &View) -> (Vec<Access>, usize) {
    let all = view.accesses().count();
    (subsample(view.accesses(), all, MOST_ACCESSES).collect(), all)
}

/// PID and TID of a thread.
fn numbers(profile: &Profile, thread: ThreadId) -> Option<(u32, u32)> {
    let summary = profile.thread_summary(thread)?;
    Some((summary.process.pid, summary.tid))
}

fn names(view: &View, accesses: &[Access], objects: &[ObjectId]) -> Vec<Value> {
    let profile = view.profile();
    let name = |what: &str, pid: u32, tid: u32, name: &str| {
        let args = json!({ "name": escape_name(name) });
        json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "args": args })
    };
    let threads: BTreeSet<ThreadId> = accesses.iter().map(|access| access.thread).collect();
    let owners = objects.iter().filter_map(|id| Some(profile.objects().get(id.0 as usize)?.process));
    let of_threads = threads.iter().filter_map(|id| Some(profile.threads().get(id.0 as usize)?.process));
    let processes: BTreeSet<ProcessId> = owners.chain(of_threads).collect();
    let mut events = vec![name("process_name", machine_pid(profile), machine_pid(profile), "memory of all nodes")];
    for summary in processes.iter().filter_map(|process| profile.process_summary(*process)) {
        let text = summary.application.as_deref().unwrap_or("process");
        events.push(name("process_name", summary.pid, summary.pid, text));
    }
    for summary in threads.iter().filter_map(|thread| profile.thread_summary(*thread)) {
        let text = summary.name.as_deref().unwrap_or("thread");
        events.push(name("thread_name", summary.process.pid, summary.tid, text));
    }
    events
}

/// The process under which counters of the machine are shown: a PID that cannot exist.
fn machine_pid(profile: &Profile) -> u32 {
    let taken: BTreeSet<u32> = profile.processes().iter().map(|process| process.pid.0).collect();
    (LAST_PID + 1..=u32::MAX).find(|pid| !taken.contains(pid)).unwrap_or(0)
}

/// One slice per access. It ends at the thread's next access at the latest: slices of a track must not overlap.
fn slices(profile: &Profile, accesses: &[Access], clock: &Clock) -> Vec<Value> {
    let mut next: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    let mut events = Vec::with_capacity(accesses.len());
    for access in accesses.iter().rev() {
        let Some((pid, tid)) = numbers(profile, access.thread) else { continue };
        let room = next.insert((pid, tid), access.time_ns).map_or(u64::MAX, |next| next - access.time_ns);
        let lasts = access.latency_ns.filter(|ns| ns.is_finite()).map_or(0, |ns| ns.max(0.0) as u64);
        let site = profile.site_of(access.object).map_or_else(String::new, |site| profile.site_label(site));
        let mut args = json!({
            "object": access.object.0,
            "object_label": escape_name(&site),
            "address": format!("{:#x}", access.address),
            "code": escape_name(&profile.code_label(access.code)),
            "cpu": access.cpu.0,
        });
        let mut add = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                args[name] = value;
            }
        };
        add("from_node", access.from.map(|node| json!(node.0)));
        add("to_node", access.to.map(|node| json!(node.0)));
        add("latency_ns", access.latency_ns.map(|ns| json!(ns)));
        add("served", access.served.map(|served| json!(served)));
        events.push(json!({
            "ph": "X", "cat": "access", "name": name_of(access), "pid": pid, "tid": tid,
            "ts": clock.at(access.time_ns), "dur": micros(lasts.min(room)), "args": args,
        }));
    }
    events.reverse();
    events
}

fn name_of(access: &Access) -> &'static str {
    let way = [
        ["cached load", "cached store", "cached access"],
        ["local load", "local store", "local access"],
        ["remote load", "remote store", "remote access"],
        ["load from another core", "store to another core's line", "access to another core's line"],
    ];
    let row = match access.served {
        Some(Served::Peer) => 3,
        _ if access.is_remote() => 2,
        _ => usize::from(access.is_local()),
    };
    let [load, store, unknown] = way[row];
    match access.kind {
        AccessKind::Load => load,
        AccessKind::Store => store,
        AccessKind::Unknown => unknown,
    }
}

/// One asynchronous slice per object.
fn lives(profile: &Profile, objects: &[ObjectId], clock: &Clock) -> Vec<Value> {
    let mut events = Vec::new();
    for summary in objects.iter().filter_map(|object| profile.object_summary(*object)) {
        let (id, name) = (format!("{:#x}", summary.object.0), escape_name(&summary.label));
        let mut event = |phase: &str, time_ns: u64, args: Value| {
            events.push(json!({
                "ph": phase, "cat": "object", "id": id, "name": name, "pid": summary.process.pid,
                "tid": summary.process.pid, "ts": clock.at(time_ns), "args": args,
            }));
        };
        let args = json!({
            "object": summary.object.0,
            "kind": summary.kind,
            "address": format!("{:#x}", summary.address),
            "bytes": summary.bytes.to_string(),
            "allocated_by_tid": summary.allocated_by_tid,
            "allocated_on_node": summary.allocated_on_node.map(|node| node.0),
        });
        event("b", summary.from_ns, args);
        event("e", summary.until_ns.unwrap_or(clock.accesses_ns.1).max(summary.from_ns), json!({}));
    }
    events
}

/// Sums over an interval.
#[derive(Clone, Copy, Default)]
struct Part {
    accesses: f64,
    local: f64,
    timed: f64,
    time_ns: f64,
}

impl Part {
    fn add(&mut self, access: &Access) {
        let weight = f64::from(access.weight);
        self.accesses += weight;
        self.local += if access.is_local() { weight } else { 0.0 };
        if let Some(ns) = access.latency_ns {
            self.timed += weight;
            self.time_ns += weight * f64::from(ns);
        }
    }
}

/// Counters over time, and the number of nodes without counters.
fn counters(view: &View, clock: &Clock) -> (Vec<Value>, usize) {
    let (first_ns, last_ns) = clock.accesses_ns;
    let length = (last_ns - first_ns) / PARTS + 1;
    let mut all: BTreeMap<u64, Part> = BTreeMap::new();
    let mut nodes: BTreeMap<NodeId, (f64, BTreeMap<u64, Part>)> = BTreeMap::new();
    for access in view.accesses().filter(Access::reaches_memory) {
        let part = (access.time_ns - first_ns) / length;
        all.entry(part).or_default().add(&access);
        if let Some(to) = access.to {
            let (sum, parts) = nodes.entry(to).or_default();
            *sum += f64::from(access.weight);
            parts.entry(part).or_default().add(&access);
        }
    }
    let mut ranked: Vec<_> = nodes.into_iter().collect();
    ranked.sort_by(|(a, (one, _)), (b, (other, _))| other.total_cmp(one).then(a.cmp(b)));
    let left_out = ranked.len().saturating_sub(MOST_NODES);
    ranked.truncate(MOST_NODES);
    ranked.sort_by_key(|(node, _)| *node);
    let pid = machine_pid(view.profile());
    let counter = |name: String, part: u64, unit: &str, value: f64| {
        let ts = clock.at(first_ns + part * length);
        json!({ "ph": "C", "name": name, "pid": pid, "tid": pid, "ts": ts, "args": { unit: value } })
    };
    let mut events = Vec::new();
    for (&part, sum) in &all {
        if sum.accesses > 0.0 {
            events.push(counter("local access ratio".to_owned(), part, "ratio", sum.local / sum.accesses));
        }
    }
    let parts = all.keys().next_back().map_or(0, |last| last + 1);
    for (node, (_, of_node)) in ranked {
        for part in 0..parts {
            let sum = of_node.get(&part).copied().unwrap_or_default();
            // Without accesses the bandwidth is 0, but the latency is unknown and keeps its last value.
            if view.profile().counts_accesses() {
                let bandwidth = sum.accesses * LINE_BYTES / (length as f64 / 1e9);
                events.push(counter(format!("node {node} bandwidth"), part, "bytes_per_s", bandwidth));
            }
            if sum.timed > 0.0 {
                events.push(counter(format!("node {node} latency"), part, "ns", sum.time_ns / sum.timed));
            }
        }
    }
    (events, left_out)
}
