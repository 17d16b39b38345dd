//! The memory of nodes, processes and control groups as tables.

use crate::Table;
use crate::memory::{CgroupReport, MemoryReport, ProcessMemory, Use};
use machine::size;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;

/// Looks that a history shows.
const MOST_LOOKS: usize = 40;
/// From nothing to all of a node's memory.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The kernel's names in numastat, in its order.
const ALLOCATIONS: [&str; 6] = ["numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node", "other_node"];

/// What was seen at earlier looks: how much of each node's memory was in use.
#[derive(Clone, Debug, Default)]
pub struct History {
    looks: VecDeque<Vec<(u32, f64)>>,
}

impl History {
    /// Remembers a look.
    pub fn add(&mut self, report: &MemoryReport) {
        let used = |node: &crate::memory::NodeMemory| {
            let total = node.bytes("MemTotal");
            // A node without memory is not full.
            (total > 0).then(|| (node.node, 1.0 - node.bytes("MemFree") as f64 / total as f64))
        };
        self.looks.push_back(report.nodes.iter().filter_map(used).collect());
        if self.looks.len() > MOST_LOOKS {
            self.looks.pop_front();
        }
    }

    /// A bar for each look at a node.
    fn bars(&self, node: u32) -> String {
        let bar = |look: &Vec<(u32, f64)>| {
            let used = look.iter().find(|(other, _)| *other == node).map(|(_, used)| *used);
            used.map_or(' ', |used| BARS[((used.clamp(0.0, 1.0) * 8.0) as usize).min(7)])
        };
        self.looks.iter().map(bar).collect()
    }
}

/// A report for a terminal.
#[derive(Clone, Copy, Debug)]
pub struct MemoryText<'a> {
    /// What to tell.
    pub report: &'a MemoryReport,
    /// What was seen before.
    pub history: &'a History,
    /// Whether to tell all that the kernel tells of nodes.
    pub all: bool,
}

impl fmt::Display for MemoryText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report;
        report.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))?;
        for process in &report.processes {
            write!(f, "Memory of process {} ({})\n{}\n", process.pid, process.name, of_process(process))?;
        }
        for cgroup in &report.cgroups {
            write!(f, "Memory of control group {}\n{}\n", cgroup.cgroup, of_cgroup(cgroup))?;
        }
        write!(f, "Memory of nodes\n{}\n{}", self.memory(), self.allocations())?;
        let events = self.events();
        if !events.is_empty() {
            writeln!(f, "\n{}: {}", self.title("Balancing and migration, whole system"), events.join(", "))?;
        }
        if self.all {
            write!(f, "\nAll that the kernel tells of nodes\n{}", self.everything())?;
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
        let with_history = self.history.looks.len() > 1;
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
            row.extend(with_history.then(|| self.history.bars(node.node)));
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

    /// Those that ever happened.
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

fn of_process(process: &ProcessMemory) -> Table {
    let mut table = Table::new(["node"].into_iter().chain(Use::ALL.map(Use::word)).chain(["total"]));
    let line = |name: String, bytes: [u64; 6]| {
        let total = bytes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        [vec![name], bytes.map(size::rounded).to_vec(), vec![size::rounded(total)]].concat()
    };
    let mut totals = [0_u64; 6];
    for node in &process.nodes {
        let bytes = Use::ALL.map(|used| node.bytes.get(&used).copied().unwrap_or(0));
        totals.iter_mut().zip(bytes).for_each(|(total, bytes)| *total = total.saturating_add(bytes));
        table.row(line(node.node.to_string(), bytes));
    }
    table.row(line("all".to_owned(), totals));
    table
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
