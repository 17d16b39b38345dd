//! The memory of nodes, processes and control groups as tables.

use crate::Table;
use crate::layout::Layout;
use crate::memory::{CgroupReport, MemoryReport, NodeUses, ProcessMemory, Use};
use machine::{NodeId, size};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use strum::VariantArray;

/// Most readings in a history.
const MOST_LOOKS: usize = 40;
/// From none to all of a node's memory.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The kernel's names in numastat, in its order.
const ALLOCATIONS: [&str; 6] = ["numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node", "other_node"];

/// Earlier readings: the used part of each node's memory, and the distribution of each process's memory over nodes.
#[derive(Clone, Debug, Default)]
pub struct History {
    looks: VecDeque<BTreeMap<Of, f64>>,
}

/// The subject of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Node(u32),
    /// A process, by PID, on a node.
    Process(u32, NodeId),
}

impl History {
    /// Adds a reading.
    pub fn add(&mut self, report: &MemoryReport) {
        let used = |node: &crate::memory::NodeMemory| {
            let total = node.bytes("MemTotal");
            // A node without memory does not count as full.
            (total > 0).then(|| (Of::Node(node.node), 1.0 - node.bytes("MemFree") as f64 / total as f64))
        };
        let mut look: BTreeMap<Of, f64> = report.nodes.iter().filter_map(used).collect();
        for process in &report.processes {
            let total = process.nodes.iter().fold(0, |sum: u64, node| sum.saturating_add(node.total_bytes())).max(1);
            let part =
                |node: &NodeUses| (Of::Process(process.pid, node.node), node.total_bytes() as f64 / total as f64);
            look.extend(process.nodes.iter().map(part));
        }
        self.looks.push_back(look);
        if self.looks.len() > MOST_LOOKS {
            self.looks.pop_front();
        }
    }

    /// Whether there is more than one reading.
    fn is_worth_telling(&self) -> bool {
        self.looks.len() > 1
    }

    /// One bar per reading.
    fn bars(&self, of: Of) -> String {
        let bar = |look: &BTreeMap<Of, f64>| {
            look.get(&of).map_or(' ', |part| BARS[((part.clamp(0.0, 1.0) * 8.0) as usize).min(7)])
        };
        self.looks.iter().map(bar).collect()
    }
}

/// A report for a terminal.
#[derive(Clone, Copy, Debug)]
pub struct MemoryText<'a> {
    /// The current reading.
    pub report: &'a MemoryReport,
    /// Earlier readings.
    pub history: &'a History,
    /// Whether to show everything that the kernel reports about nodes.
    pub all: bool,
}

impl fmt::Display for MemoryText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (report, layout) = (self.report, Layout::of(f));
        report.notes.iter().try_for_each(|note| f.write_str(&layout.wrapped("note: ", note)))?;
        for process in &report.processes {
            f.write_str(&layout.wrapped("", &format!("Memory of process {} ({})", process.pid, process.name)))?;
            fmt::Display::fmt(&self.of_process(process), f)?;
            writeln!(f)?;
        }
        for cgroup in &report.cgroups {
            f.write_str(&layout.wrapped("", &format!("Memory of control group {}", cgroup.cgroup)))?;
            fmt::Display::fmt(&of_cgroup(cgroup), f)?;
            writeln!(f)?;
        }
        writeln!(f, "Memory of nodes")?;
        fmt::Display::fmt(&self.memory(), f)?;
        writeln!(f)?;
        fmt::Display::fmt(&self.allocations(), f)?;
        let events = self.events();
        if !events.is_empty() {
            let title = self.title("Balancing and migration, whole system");
            write!(f, "\n{}", layout.wrapped("", &format!("{title}: {}", events.join(", "))))?;
        }
        if self.all {
            writeln!(f, "\nAll node counters of the kernel")?;
            fmt::Display::fmt(&self.everything(), f)?;
        }
        Ok(())
    }
}

impl MemoryText<'_> {
    fn title(&self, what: &str) -> String {
        let of = if self.report.elapsed_s.is_some() { "a second" } else { "since boot" };
        format!("{what}, {of}")
    }

    fn memory(&self) -> Table {
        const NAMES: [(&str, &str); 8] = [
            ("MemTotal", "total"),
            ("MemFree", "free"),
            ("AnonPages", "anonymous"),
            ("FilePages", "files"),
            ("Shmem", "of them shared"),
            ("Slab", "kernel slabs"),
            ("PageTables", "page tables"),
            ("AnonHugePages", "THP"),
        ];
        let with_history = self.history.is_worth_telling();
        let mut headings = vec!["node"];
        headings.extend(NAMES.map(|(_, heading)| heading));
        headings.push("hugetlb");
        headings.extend(with_history.then_some("in use, look by look"));
        let mut table = Table::new(headings);
        for node in &self.report.nodes {
            let mut row = vec![node.node.to_string()];
            row.extend(NAMES.map(|(name, _)| size::rounded(node.bytes(name))));
            let hugetlb = node.hugetlb.iter().map(|pool| pool.pages.saturating_mul(pool.page_bytes));
            row.push(size::rounded(hugetlb.fold(0, u64::saturating_add)));
            row.extend(with_history.then(|| self.history.bars(Of::Node(node.node))));
            table.row(row);
        }
        table
    }

    fn allocations(&self) -> Table {
        let title = self.title("pages taken");
        let mut table = Table::new(std::iter::once(title.as_str()).chain(ALLOCATIONS));
        for node in &self.report.nodes {
            let value = |name: &str| match self.report.elapsed_s {
                None => node.allocated_pages.get(name).map(ToString::to_string),
                Some(_) => node.allocated_pages_per_s.get(name).map(|rate| format!("{rate:.0}")),
            };
            let values = ALLOCATIONS.map(|name| value(name).unwrap_or_else(|| "-".to_owned()));
            table.row([vec![node.node.to_string()], values.to_vec()].concat());
        }
        table
    }

    fn of_process(&self, process: &ProcessMemory) -> Table {
        let with_history = self.history.is_worth_telling();
        let headings = ["node"].into_iter().chain(Use::VARIANTS.iter().map(|used| used.word())).chain(["total"]);
        let of_history = ["a second", "its share, look by look"];
        let mut table = Table::new(headings.chain(of_history.into_iter().filter(|_| with_history)));
        let line = |name: String, bytes: &[u64]| {
            let total = bytes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
            let cells = bytes.iter().chain([&total]).map(|bytes| size::rounded(*bytes));
            std::iter::once(name).chain(cells).collect::<Vec<_>>()
        };
        let mut totals = vec![0_u64; Use::VARIANTS.len()];
        for node in &process.nodes {
            let bytes: Vec<u64> = Use::VARIANTS.iter().map(|used| node.bytes.get(used).copied().unwrap_or(0)).collect();
            totals.iter_mut().zip(&bytes).for_each(|(total, bytes)| *total = total.saturating_add(*bytes));
            let mut row = line(node.node.to_string(), &bytes);
            if with_history {
                row.push(node.grown_bytes_per_s.map_or_else(|| "-".to_owned(), growth));
                row.push(self.history.bars(Of::Process(process.pid, node.node)));
            }
            table.row(row);
        }
        table.row(line("all".to_owned(), &totals));
        table
    }

    /// Events with non-zero counts.
    fn events(&self) -> Vec<String> {
        let happened = self.report.events.iter().filter(|(_, count)| **count > 0);
        let value = |(name, count): (&String, &u64)| match self.report.elapsed_s {
            None => format!("{name} {count}"),
            Some(_) => format!("{name} {:.0}", self.report.events_per_s.get(name).copied().unwrap_or(0.0)),
        };
        happened.map(value).collect()
    }

    fn everything(&self) -> Table {
        let nodes = &self.report.nodes;
        let mut table =
            Table::new(std::iter::once(String::new()).chain(nodes.iter().map(|node| format!("node {}", node.node))));
        let names = |of: fn(&crate::memory::NodeMemory) -> &linux::Counters| -> BTreeSet<&String> {
            nodes.iter().flat_map(|node| of(node).keys()).collect()
        };
        for name in names(|node| &node.memory_bytes) {
            table.row(std::iter::once(name.clone()).chain(nodes.iter().map(|node| size::rounded(node.bytes(name)))));
        }
        for name in names(|node| &node.events) {
            let cell = |node: &crate::memory::NodeMemory| node.events.get(name).map_or("-".into(), ToString::to_string);
            table.row(std::iter::once(name.clone()).chain(nodes.iter().map(cell)));
        }
        table
    }
}

/// Growth, with its sign.
fn growth(bytes_per_s: i64) -> String {
    let sign = if bytes_per_s < 0 { "-" } else { "+" };
    if bytes_per_s == 0 { "0".to_owned() } else { format!("{sign}{}", size::rounded(bytes_per_s.unsigned_abs())) }
}

fn of_cgroup(cgroup: &CgroupReport) -> Table {
    const NAMES: [&str; 7] =
        ["anon", "anon_thp", "file", "file_mapped", "shmem", "slab_reclaimable", "slab_unreclaimable"];
    let mut table = Table::new(["node"].into_iter().chain(NAMES));
    for (node, kinds) in &cgroup.nodes {
        let value = |name: &str| kinds.get(name).map_or_else(|| "-".to_owned(), |bytes| size::rounded(*bytes));
        table.row([vec![node.to_string()], NAMES.map(value).to_vec()].concat());
    }
    table
}
