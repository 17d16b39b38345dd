//! Current memory accesses by process, thread and object: the lines of `nearside top`.

use crate::Table;
use crate::escape::escape_name;
use crate::layout::Layout;
use machine::number::{count, percent};
use machine::{NodeId, size};
use profile::{Access, Object, ObjectKind, ProcessId, Ranking, Tally, View};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use strum::VariantArray;
use trace::Source;

/// The heading of what the sources cannot see.
const CANNOT_SEE: &str = "cannot see: ";
/// Size of a cache line, bytes.
const LINE_BYTES: f64 = machine::LINE_BYTES as f64;

/// The accesses of one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TopReport {
    /// End of the interval, s since the start.
    pub at_s: f64,
    /// Length of the interval, s.
    pub interval_s: f64,
    /// The source of accesses; none if they cannot be observed.
    pub source: Option<Source>,
    /// Samples.
    pub samples: u64,
    /// The local share of accesses that reached memory.
    pub local_access_ratio: Option<f64>,
    /// The mean latency of accesses that reached memory, ns.
    pub latency_mean_ns: Option<f64>,
    /// Standard deviation of accesses to nodes with memory, over their mean.
    pub imbalance: Option<f64>,
    /// The memory of each node.
    pub nodes: Vec<TopNode>,
    /// Processes, threads and objects.
    pub rows: Vec<TopRow>,
    /// Notes for the user: what was lost, and which sources are not available, and why.
    pub notes: Vec<String>,
    /// What the sources cannot see, one sentence each.
    pub cannot_see: Vec<String>,
}

/// The memory of a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TopNode {
    /// The node.
    pub node: NodeId,
    /// Its memory, bytes.
    pub memory_bytes: u64,
    /// Free memory, bytes.
    pub free_bytes: u64,
    /// Accesses that its memory served, per second, as far as observed.
    pub accesses_per_s: Option<f64>,
    /// That as a share of all accesses that reached memory.
    pub share: Option<f64>,
    /// Its controller's bandwidth over the maximum, 0 to 1, if in the machine's description.
    pub load: Option<f64>,
    /// Pages allocated from it per second, by programs running on the node and elsewhere.
    pub taken_local_per_s: f64,
    /// See `taken_local_per_s`.
    pub taken_remote_per_s: f64,
}

/// The kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TopKind {
    /// A process.
    Process,
    /// A thread.
    Thread,
    /// An object.
    Object,
}

/// A process, a thread or an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TopRow {
    /// The kind.
    pub kind: TopKind,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: Option<u32>,
    /// Its name.
    pub name: String,
    /// For an object its size; for a process its memory, if accesses are not observed.
    pub memory_bytes: Option<u64>,
    /// Samples.
    pub samples: u64,
    /// Accesses per second that these stand for; none if not observed.
    pub accesses_per_s: Option<f64>,
    /// See [`TopReport`].
    pub local_access_ratio: Option<f64>,
    /// See [`TopReport`].
    pub latency_mean_ns: Option<f64>,
    /// Its remote memory time, as a share of the total memory time; without latencies, its share of all remote
    /// accesses.
    pub remote_cost: Option<f64>,
    /// Nodes of the accessed memory, as shares of its accesses that reached memory. If accesses are not observed, nodes
    /// of its own memory.
    pub memory_on: BTreeMap<NodeId, f64>,
}

/// The order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TopOrder {
    /// The cost of remote accesses, highest first.
    #[default]
    #[strum(serialize = "remote cost")]
    RemoteCost,
    /// Accesses, most first.
    #[strum(serialize = "accesses/s")]
    Accesses,
    /// The local access ratio, lowest first.
    #[strum(serialize = "local")]
    Locality,
    /// The mean latency, highest first.
    Latency,
    /// The name.
    Name,
}

impl TopOrder {
    /// All orders, in the sequence in which keys select them.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Its name in headings.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

impl TopReport {
    /// Adds the accesses of an interval.
    pub fn add(&mut self, view: &View) {
        let (profile, all) = (view.profile(), *view.tally());
        let seconds = self.interval_s.max(1e-9);
        self.samples = all.samples;
        (self.local_access_ratio, self.latency_mean_ns) = (all.local_access_ratio(), all.latency_mean_ns());
        let mut of_nodes: BTreeMap<NodeId, f64> = BTreeMap::new();
        let mut of_processes: BTreeMap<ProcessId, BTreeMap<NodeId, f64>> = BTreeMap::new();
        let mut of_threads: BTreeMap<_, BTreeMap<NodeId, f64>> = BTreeMap::new();
        let mut of_objects: BTreeMap<_, BTreeMap<NodeId, f64>> = BTreeMap::new();
        for access in view.accesses().filter(Access::reaches_memory) {
            let (Some(node), Some(thread)) = (access.to, profile.threads().get(access.thread.0 as usize)) else {
                continue;
            };
            let weight = f64::from(access.weight);
            let of = [
                of_processes.entry(thread.process).or_default(),
                of_threads.entry(access.thread).or_default(),
                of_objects.entry(access.object).or_default(),
            ];
            for nodes in of.into_iter().chain([&mut of_nodes]) {
                *nodes.entry(node).or_default() += weight;
            }
        }
        let row_of = |kind, (pid, tid, name): (u32, Option<u32>, String), tally: &Tally, nodes: Option<_>| {
            let counts = tally.counts(&all);
            TopRow {
                kind,
                pid,
                tid,
                name,
                memory_bytes: None,
                samples: tally.samples,
                accesses_per_s: Some(tally.accesses / seconds),
                local_access_ratio: tally.local_access_ratio(),
                latency_mean_ns: tally.latency_mean_ns(),
                remote_cost: counts.remote_time_share.or((all.remote_accesses > 0.0).then_some(counts.remote_share)),
                memory_on: nodes.map(shares).unwrap_or_default(),
            }
        };
        for (process, tally) in view.processes() as Ranking<_> {
            if let Some(summary) = profile.process_summary(process) {
                let name = summary.application.unwrap_or_default();
                self.rows.push(row_of(TopKind::Process, (summary.pid, None, name), &tally, of_processes.get(&process)));
            }
        }
        for (thread, tally) in view.threads() {
            if let Some(summary) = profile.thread_summary(thread) {
                let name = summary.name.unwrap_or_default();
                let who = (summary.process.pid, Some(summary.tid), name);
                self.rows.push(row_of(TopKind::Thread, who, &tally, of_threads.get(&thread)));
            }
        }
        for (object, tally) in view.objects() {
            if let Some(summary) = profile.object_summary(object) {
                let named = profile.objects().get(object.0 as usize).and_then(memory_name);
                let who = (summary.process.pid, None, named.map_or(summary.label, str::to_owned));
                let memory_bytes = (summary.bytes > 0).then_some(summary.bytes);
                let row = row_of(TopKind::Object, who, &tally, of_objects.get(&object));
                self.rows.push(TopRow { memory_bytes, ..row });
            }
        }
        let reached: f64 = of_nodes.values().sum();
        for node in &mut self.nodes {
            let accesses = of_nodes.get(&node.node).copied().unwrap_or(0.0);
            node.accesses_per_s = Some(accesses / seconds);
            node.share = (reached > 0.0).then(|| accesses / reached);
            let most = profile.machine().node(node.node).and_then(|node| node.bandwidth_bytes_per_s);
            let counted = view.measured().controllers.get(&node.node).copied();
            let most = most.filter(|_| profile.counts_accesses());
            node.load = counted.or_else(|| most.map(|most| accesses * LINE_BYTES / seconds / most));
        }
        let with_memory = self.nodes.iter().filter(|node| node.memory_bytes > 0);
        self.imbalance = machine::imbalance(with_memory.map(|node| of_nodes.get(&node.node).copied().unwrap_or(0.0)));
    }

    /// The rows of one kind whose names or numbers contain `part`, in order.
    pub fn chosen(&self, kind: TopKind, order: TopOrder, part: &str) -> Vec<&TopRow> {
        let has = |row: &&TopRow| {
            let number = row.tid.unwrap_or(row.pid).to_string();
            row.kind == kind && (row.name.contains(part) || number.contains(part))
        };
        let mut rows: Vec<&TopRow> = self.rows.iter().filter(has).collect();
        let key = |row: &TopRow| match order {
            TopOrder::RemoteCost => row.remote_cost,
            TopOrder::Accesses => row.accesses_per_s,
            TopOrder::Locality => row.local_access_ratio.map(|ratio| 1.0 - ratio),
            TopOrder::Latency => row.latency_mean_ns,
            TopOrder::Name => None,
        };
        let descending = |row: &TopRow| key(row).unwrap_or(-1.0);
        let busier = |row: &TopRow| row.accesses_per_s.or(row.memory_bytes.map(|bytes| bytes as f64)).unwrap_or(0.0);
        rows.sort_by(|a, b| {
            let by_key = descending(b).total_cmp(&descending(a));
            let by_name = if order == TopOrder::Name { a.name.cmp(&b.name) } else { std::cmp::Ordering::Equal };
            by_key.then(by_name).then_with(|| busier(b).total_cmp(&busier(a)))
        });
        rows
    }

    /// The notes in lines of a terminal, with what cannot be seen under its heading.
    pub fn footnotes(&self, layout: Layout) -> Vec<String> {
        let notes = self.notes.iter().map(|note| layout.wrapped("", note));
        let heading = |place: usize| if place == 0 { CANNOT_SEE.to_owned() } else { " ".repeat(CANNOT_SEE.len()) };
        let unseen = self.cannot_see.iter().enumerate();
        let unseen = unseen.map(|(place, sentence)| layout.wrapped(&heading(place), sentence));
        notes.chain(unseen).flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    /// The first line, about the whole interval.
    pub fn summary(&self) -> String {
        match self.source {
            Some(_) => format!(
                "{} samples in {:.1} s, {} local, {} on average, imbalance {}",
                count(self.samples),
                self.interval_s,
                self.local_access_ratio.map_or_else(|| "-".to_owned(), percent),
                latency(self.latency_mean_ns),
                self.imbalance.map_or_else(|| "-".to_owned(), |imbalance| format!("{imbalance:.2}")),
            ),
            None => "accesses are not observed: where memory is, not who uses it".to_owned(),
        }
    }
}

impl TopNode {
    /// The headings of [`cells`](Self::cells).
    pub const HEADING: [&'static str; 7] =
        ["memory of", "free", "accesses/s", "of all", "load", "pages taken/s", "from elsewhere/s"];

    /// The row of a table.
    pub fn cells(&self) -> [String; 7] {
        let per_second = |value: f64| count(value.round() as u64);
        [
            format!("node {}", self.node),
            format!("{} of {}", size::rounded(self.free_bytes), size::rounded(self.memory_bytes)),
            self.accesses_per_s.map_or_else(none, per_second),
            self.share.map_or_else(none, percent),
            self.load.map_or_else(none, percent),
            per_second(self.taken_local_per_s + self.taken_remote_per_s),
            per_second(self.taken_remote_per_s),
        ]
    }
}

impl TopRow {
    /// The headings of [`cells`](Self::cells).
    pub const HEADING: [&'static str; 8] =
        ["name", "number", "remote cost", "accesses/s", "local", "latency", "memory", "on nodes"];

    /// The row of a table.
    pub fn cells(&self) -> [String; 8] {
        [
            escape_name(&self.name),
            self.tid.unwrap_or(self.pid).to_string(),
            self.remote_cost.map_or_else(none, percent),
            self.accesses_per_s.map_or_else(none, |accesses| count(accesses.round() as u64)),
            self.local_access_ratio.map_or_else(none, percent),
            latency(self.latency_mean_ns),
            self.memory_bytes.map_or_else(none, size::rounded),
            nodes(&self.memory_on),
        ]
    }
}

impl fmt::Display for TopReport {
    /// The first ten of each kind.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = Layout::of(f);
        writeln!(f, "{}", layout.wrapped("", &self.summary()))?;
        let nodes: Vec<_> = self.nodes.iter().map(TopNode::cells).collect();
        fmt::Display::fmt(&table(TopNode::HEADING, nodes, &[6, 5, 4]), f)?;
        for (kind, heading) in [(TopKind::Process, "process"), (TopKind::Thread, "thread"), (TopKind::Object, "object")]
        {
            let rows = self.chosen(kind, TopOrder::default(), "");
            if rows.is_empty() {
                continue;
            }
            let mut headings = TopRow::HEADING;
            headings[0] = heading;
            let rows: Vec<_> = rows.iter().take(10).map(|row| row.cells()).collect();
            writeln!(f)?;
            fmt::Display::fmt(&table(headings, rows, &[7, 6]), f)?;
        }
        let footnotes = self.footnotes(layout);
        let gap = if footnotes.is_empty() { "" } else { "\n" };
        f.write_str(gap)?;
        footnotes.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// A table that leaves out columns without a value first, and then some of the others.
fn table<const N: usize>(heading: [&str; N], rows: Vec<[String; N]>, then: &[usize]) -> Table {
    let is_empty = |&column: &usize| rows.iter().all(|row| row[column] == NONE);
    let optional: Vec<usize> = (1..N).filter(is_empty).chain(then.iter().copied()).collect();
    let mut table = Table::new(heading).optional(&optional);
    for row in rows {
        table.row(row);
    }
    table
}

/// The mapping of memory without a known object: for `top`, objects are usually not recorded. None if no mapping is
/// known.
fn memory_name(object: &Object) -> Option<&str> {
    // perf names anonymous mappings like this.
    let named = object.name.as_deref().filter(|name| !name.is_empty() && !name.starts_with("//anon"));
    let anonymous = (object.bytes > 0).then_some("anonymous mapping");
    if object.kind == ObjectKind::Unknown { named.or(anonymous) } else { None }
}

/// What stands for an unknown value.
const NONE: &str = "-";

fn none() -> String {
    NONE.to_owned()
}

fn latency(latency_ns: Option<f64>) -> String {
    latency_ns.map_or_else(none, |ns| format!("{ns:.0} ns"))
}

/// The three nodes with the highest shares.
fn nodes(shares: &BTreeMap<NodeId, f64>) -> String {
    let mut nodes: Vec<(&NodeId, &f64)> = shares.iter().collect();
    nodes.sort_by(|a, b| b.1.total_cmp(a.1));
    let first = nodes.iter().take(3).map(|(node, share)| format!("{node}: {:.0} %", **share * 100.0));
    if nodes.is_empty() { none() } else { first.collect::<Vec<_>>().join(", ") }
}

fn shares(parts: &BTreeMap<NodeId, f64>) -> BTreeMap<NodeId, f64> {
    let all: f64 = parts.values().sum();
    parts.iter().map(|(node, part)| (*node, part / all.max(f64::MIN_POSITIVE))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::{Pid, Tid};
    use machine::CpuId;
    use profile::{Filter, NoSymbols, Recording};
    use trace::{AccessKind, Event, Sample, Served, Stacks, What};

    #[test]
    fn memory_of_no_known_object_has_the_name_of_its_mapping() {
        let mapped = |(start, name): (u64, &str)| {
            let what =
                What::Mapped { start, bytes: 0x1000, offset: 0, name: name.into(), file: None, executable: false };
            Event { time_ns: 1, pid: Pid(7), tid: Tid(7), cpu: None, what }
        };
        let access = |address| Sample {
            time_ns: 2,
            cpu: CpuId(0),
            pid: Pid(7),
            tid: Tid(7),
            instruction: 0,
            address,
            physical: None,
            kind: AccessKind::Load,
            served: Some(Served::Dram),
            node: Some(NodeId(0)),
            latency_ns: None,
            kernel: false,
            stack: None,
            weight: 1.0,
            source: Source::Lab,
        };
        let mut recording = Recording::new(machine::presets::find("small-2x2").unwrap());
        let mappings = [(0x1000, ""), (0x3000, "//anon"), (0x5000, "[heap]"), (0x7000, "[stack]"), (0x9000, "/file")];
        recording.add_events(mappings.map(mapped));
        let addresses = [0x1000, 0x3000, 0x5000, 0x7000, 0x9000, 0xb000, 1 << 63];
        recording.add_samples(addresses.map(access));
        let profile = recording.into_profile(&Stacks::new(), &NoSymbols);
        let mut report = TopReport::default();
        report.add(&profile.view(&Filter::default()));
        let mut names: Vec<&str> =
            report.chosen(TopKind::Object, TopOrder::Name, "").iter().map(|row| &*row.name).collect();
        names.dedup();
        assert_eq!(names, ["/file", "[heap]", "[kernel]", "[stacks]", "anonymous mapping", "unknown"]);
    }

    fn report() -> TopReport {
        let node = |id| TopNode {
            node: NodeId(id),
            memory_bytes: 1 << 40,
            free_bytes: 1 << 39,
            accesses_per_s: Some(5e8),
            share: Some(0.5),
            load: Some(0.25),
            taken_local_per_s: 1e6,
            taken_remote_per_s: 5e5,
        };
        let row = |kind, name: &str| TopRow {
            kind,
            pid: 4_000_000,
            tid: None,
            name: name.to_owned(),
            memory_bytes: Some(1 << 30),
            samples: 10,
            accesses_per_s: Some(1e6),
            local_access_ratio: Some(0.25),
            latency_mean_ns: Some(180.0),
            remote_cost: Some(0.5),
            memory_on: (0..3).map(|node| (NodeId(node), 0.33)).collect(),
        };
        TopReport {
            interval_s: 2.0,
            source: Some(Source::Lab),
            nodes: (0..4).map(node).collect(),
            rows: vec![row(TopKind::Process, "program"), row(TopKind::Object, &"/usr/lib/a-long-path".repeat(5))],
            notes: vec![
                "no PMU".into(),
                "lost: 7 samples that the kernel dropped, as they were not read in time".into(),
            ],
            cannot_see: vec!["hits of the first-level cache".into(), "what the model leaves out".into()],
            ..TopReport::default()
        }
    }

    #[test]
    fn what_cannot_be_seen_has_its_heading_and_no_gaps() {
        let text = report().to_string();
        let notes = "\n\nno PMU\nlost: 7 samples that the kernel dropped, as they were not read in time\n\
                     cannot see: hits of the first-level cache\n            what the model leaves out\n";
        assert!(text.ends_with(notes), "{text}");
        let none = TopReport { notes: Vec::new(), cannot_see: Vec::new(), ..report() };
        assert!(!none.to_string().ends_with("\n\n") && !none.to_string().contains("cannot see"));
    }

    #[test]
    fn an_interval_fits_the_terminal() {
        for width in [60, 80, 120] {
            let text = format!("{:width$}", report());
            assert!(text.lines().all(|line| crate::columns::width(line) <= width), "{width}:\n{text}");
            // Names are whole.
            let name = report().rows[1].name.clone();
            assert!(text.replace('\n', "").contains(&name), "{text}");
        }
        // If accesses are not observed, the nodes of the memory remain.
        let row = |row: TopRow| TopRow {
            accesses_per_s: None,
            local_access_ratio: None,
            latency_mean_ns: None,
            remote_cost: None,
            ..row
        };
        let unseen = TopReport { rows: report().rows.into_iter().take(1).map(row).collect(), ..report() };
        assert!(format!("{unseen:60}").contains("1 GiB  0: 33 %, 1: 33 %, 2: 33 %\n"), "{unseen:60}");
        // Without a width, every column is there.
        assert!(report().to_string().contains("0: 33 %, 1: 33 %, 2: 33 %\n"));
    }
}
