//! A process: policy and affinity of its threads, and where its memory is.

use crate::Table;
use crate::layout::Layout;
use crate::profile::text::LONGEST_NAME;
use crate::residence::{Address, PagesOnNode, bytes_of, cells, node_headings, rights, shortened, size_name, sizes};
use linux::{Residence, Thread, Tid, policy_may_be_cut};
use machine::{CpuId, CpuSet, IdSet, NodeId, NodeSet, size};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Most characters of a mapping's name in a table.
const NAME_WIDTH: usize = 40;
/// Most characters of a list of threads in a table.
const LIST_WIDTH: usize = 32;

/// A process, for `nearside show`. Its JSON form is complete; the text leaves out mappings without resident pages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessReport {
    /// Its PID.
    pub pid: u32,
    /// The name of its program.
    pub name: String,
    /// Its control group of version 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// The group whose cpuset applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpuset: Option<CpusetReport>,
    /// Its threads, by TID.
    pub threads: Vec<ThreadReport>,
    /// The pages of all mappings, by node, kind and size.
    pub pages: Vec<PagesOnNode>,
    /// Memory on each node of the machine.
    pub nodes: Vec<NodeBytes>,
    /// Its mappings, by address.
    pub mappings: Vec<MappingReport>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// The cpuset of a control group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpusetReport {
    /// The group.
    pub cgroup: String,
    /// The CPUs.
    pub cpus: CpuSet,
    /// The nodes on which they may have memory.
    pub memory_nodes: NodeSet,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadReport {
    /// Its TID.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// The kernel's letter for its state.
    pub state: Option<char>,
    /// The CPUs it may run on.
    pub cpus: CpuSet,
    /// The CPU it runs on or last ran on.
    pub cpu: Option<CpuId>,
    /// The node of that CPU.
    pub node: Option<NodeId>,
    /// The nodes on which its cpuset allows memory.
    pub memory_nodes: NodeSet,
    /// Its memory policy, in the kernel's notation; none if the kernel does not show it.
    pub policy: Option<String>,
    /// Whether the policy's list of nodes may be truncated: the kernel writes 63 bytes of it.
    pub policy_may_be_cut: bool,
}

/// Memory of a process on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NodeBytes {
    /// The node.
    pub node: NodeId,
    /// Bytes.
    pub bytes: u64,
}

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MappingReport {
    /// Where it begins.
    pub start: Address,
    /// The address after it.
    pub end: Address,
    /// `rw-p` and the like: read, write, execute; private or shared.
    pub rights: String,
    /// The file, or a name in brackets.
    pub name: String,
    /// The policy in effect: its own, or the first thread's.
    pub policy: Option<String>,
    /// Whether the policy's list of nodes may be truncated: the kernel writes 63 bytes of it.
    pub policy_may_be_cut: bool,
    /// Its pages by node, kind and size.
    pub pages: Vec<PagesOnNode>,
    /// Whether `pages` distinguishes transparent huge pages from base pages.
    pub huge_pages_told: bool,
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Resident bytes in transparent huge pages.
    pub transparent_huge_bytes: u64,
    /// Resident bytes that other processes map too.
    pub shared_bytes: u64,
    /// Bytes that are swapped out.
    pub swapped_bytes: u64,
    /// The highest number of mappings of any of its pages.
    pub most_mappings: u64,
}

impl MappingReport {
    /// A mapping.
    pub fn new(residence: &Residence) -> Self {
        Self {
            start: Address(residence.mapping.range.start),
            end: Address(residence.mapping.range.end),
            rights: rights(&residence.mapping),
            name: residence.mapping.name.clone(),
            policy: residence.policy.clone(),
            policy_may_be_cut: residence.policy.as_deref().is_some_and(policy_may_be_cut),
            pages: residence.pages.iter().map(PagesOnNode::from).collect(),
            huge_pages_told: residence.huge_pages_told,
            resident_bytes: residence.bytes(),
            transparent_huge_bytes: residence.transparent_huge_bytes,
            shared_bytes: residence.shared_bytes,
            swapped_bytes: residence.swapped_bytes,
            most_mappings: residence.most_mappings,
        }
    }
}

impl ThreadReport {
    /// A thread, and the node of its CPU.
    pub fn new(thread: &Thread, node_of: &BTreeMap<CpuId, NodeId>) -> Self {
        let Thread { tid, status, cpu, policy } = thread;
        Self {
            tid: tid.0,
            name: status.name.clone(),
            state: status.state,
            cpus: status.cpus.clone(),
            cpu: *cpu,
            node: cpu.and_then(|cpu| node_of.get(&cpu)).copied(),
            memory_nodes: status.nodes.clone(),
            policy: policy.clone(),
            policy_may_be_cut: policy.as_deref().is_some_and(policy_may_be_cut),
        }
    }
}

impl fmt::Display for ProcessReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = Layout::of(f);
        let cgroup = self.cgroup.as_ref().map_or_else(String::new, |cgroup| format!(", control group {cgroup}"));
        f.write_str(&layout.wrapped("", &format!("process {} ({}){cgroup}", self.pid, self.name)))?;
        if let Some(CpusetReport { cgroup, cpus, memory_nodes }) = &self.cpuset {
            let cpuset = format!("cpuset of {cgroup}: CPUs {cpus}, memory of nodes {memory_nodes}");
            f.write_str(&layout.wrapped("", &cpuset))?;
        }
        self.notes.iter().try_for_each(|note| f.write_str(&layout.wrapped("note: ", note)))?;
        if self.mappings.iter().any(|mapping| mapping.policy_may_be_cut)
            || self.threads.iter().any(|thread| thread.policy_may_be_cut)
        {
            let cut = "policies that end in … may go on: the kernel writes 63 characters of each";
            f.write_str(&layout.wrapped("note: ", cut))?;
        }
        // Other programs look for names in what goes into a pipe.
        let name_width = if layout == Layout::PIPED { LONGEST_NAME } else { NAME_WIDTH };
        for table in [self.thread_table(), self.node_table(), self.mapping_table(name_width)] {
            writeln!(f)?;
            fmt::Display::fmt(&table, f)?;
        }
        Ok(())
    }
}

impl ProcessReport {
    /// Threads with equal placement settings share a line.
    fn thread_table(&self) -> Table {
        type Alike<'a> = (&'a CpuSet, &'a NodeSet, Option<&'a str>, &'a str);
        let mut groups: BTreeMap<Alike, Vec<&ThreadReport>> = BTreeMap::new();
        for thread in &self.threads {
            let alike = (&thread.cpus, &thread.memory_nodes, thread.policy.as_deref(), thread.name.as_str());
            groups.entry(alike).or_default().push(thread);
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(_, threads)| threads.first().map(|thread| thread.tid));
        let mut table =
            Table::new(["thread", "", "may run on CPUs", "is on CPU", "of node", "policy", "memory of nodes"]);
        for ((cpus, memory_nodes, policy, name), threads) in groups {
            let tids: IdSet<Tid> = threads.iter().map(|thread| Tid(thread.tid)).collect();
            let on: CpuSet = threads.iter().filter_map(|thread| thread.cpu).collect();
            let nodes: NodeSet = threads.iter().filter_map(|thread| thread.node).collect();
            let count = if threads.len() > 1 { format!("{} threads", threads.len()) } else { String::new() };
            table.row([
                format!("{} {name}", beginning(&tids.to_string(), LIST_WIDTH)),
                count,
                beginning(&cpus.to_string(), LIST_WIDTH),
                beginning(&on.to_string(), LIST_WIDTH),
                beginning(&nodes.to_string(), LIST_WIDTH),
                policy.map_or_else(|| "not shown".to_owned(), whole),
                beginning(&memory_nodes.to_string(), LIST_WIDTH),
            ]);
        }
        table
    }

    fn node_table(&self) -> Table {
        let nodes: Vec<NodeId> = self.nodes.iter().map(|node| node.node).collect();
        let mut table = Table::new(row("memory".into(), node_headings(&nodes), "total".into()));
        for of in sizes(&self.pages) {
            let cells = cells(&self.pages, of, &nodes, |pages| size::rounded(pages.bytes));
            table.row(row(format!("in pages of {}", size_name(of)), cells, size::rounded(bytes_of(&self.pages, of))));
        }
        let total = self.nodes.iter().fold(0, |sum: u64, node| sum.saturating_add(node.bytes));
        let totals = if node_headings(&nodes).len() == nodes.len() {
            self.nodes.iter().map(|node| size::rounded(node.bytes)).collect()
        } else {
            let there = self.nodes.iter().filter(|node| node.bytes > 0);
            vec![there.map(|node| format!("{}:{}", node.node, size::rounded(node.bytes))).collect::<Vec<_>>().join(" ")]
        };
        table.row(row("all".into(), totals, size::rounded(total)));
        table
    }

    /// A line for each page size of each mapping.
    fn mapping_table(&self, name_width: usize) -> Table {
        let nodes: BTreeSet<NodeId> = self.pages.iter().map(|pages| pages.node).collect();
        let nodes: Vec<NodeId> = nodes.into_iter().collect();
        let mut headings = vec!["mapping".to_owned(), "policy".to_owned(), "pages of".to_owned()];
        headings.extend(node_headings(&nodes));
        headings.extend(["total", "shared", "swapped"].map(str::to_owned));
        let last = headings.len() - 1;
        let mut table = Table::new(headings).optional(&[last, last - 1]);
        for mapping in self.mappings.iter().filter(|mapping| mapping.resident_bytes.max(mapping.swapped_bytes) > 0) {
            let mut first = true;
            for of in sizes(&mapping.pages) {
                let mut cells = cells(&mapping.pages, of, &nodes, |pages| pages.pages.to_string());
                cells.push(size::rounded(bytes_of(&mapping.pages, of)));
                table.row(mapping.line(first, name_width, Some(size_name(of)), cells));
                first = false;
            }
            if first {
                let none = vec!["-".to_owned(); node_headings(&nodes).len() + 1];
                table.row(mapping.line(first, name_width, None, none));
            }
        }
        table
    }
}

impl MappingReport {
    /// Values of the whole mapping are shown in its first line.
    fn line(&self, first: bool, name_width: usize, size: Option<String>, cells: Vec<String>) -> Vec<String> {
        let Address(start) = self.start;
        let Address(end) = self.end;
        let of_all = |text: String| if first { text } else { String::new() };
        let bytes = |bytes| if bytes == 0 { "-".to_owned() } else { size::rounded(bytes) };
        let name = shortened(&self.name, name_width);
        let mut line = vec![of_all(format!("{start:x}-{end:x} {} {name}", self.rights))];
        line.push(of_all(self.policy.as_deref().map_or_else(|| "changed".to_owned(), whole)));
        line.push(size.unwrap_or_else(|| "-".to_owned()));
        line.extend(cells);
        line.push(of_all(bytes(self.shared_bytes)));
        line.push(of_all(bytes(self.swapped_bytes)));
        line
    }
}

fn row(first: String, cells: Vec<String>, last: String) -> Vec<String> {
    std::iter::once(first).chain(cells).chain([last]).collect()
}

/// A policy, marked if it may be truncated.
fn whole(policy: &str) -> String {
    format!("{policy}{}", if policy_may_be_cut(policy) { "…" } else { "" })
}

/// The beginning of a text, at most `most` characters.
fn beginning(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/a-library-with-a-long-name.so.6";

    fn thread(tid: u32, cpus: &str, cpu: u32) -> ThreadReport {
        ThreadReport {
            tid,
            name: "server".into(),
            state: Some('S'),
            cpus: cpus.parse().unwrap(),
            cpu: Some(CpuId(cpu)),
            node: Some(NodeId(cpu / 2)),
            memory_nodes: "0-1".parse().unwrap(),
            policy: (tid > 7).then(|| "bind:1".into()),
            policy_may_be_cut: false,
        }
    }

    fn on(node: u32, kind: Kind, page_bytes: u64, pages: u64) -> PagesOnNode {
        PagesOnNode { node: NodeId(node), kind, page_bytes, pages, bytes: pages * page_bytes }
    }

    fn mapping(start: u64, name: &str, pages: Vec<PagesOnNode>) -> MappingReport {
        MappingReport {
            start: Address(start),
            end: Address(start + (4 << 20)),
            rights: "rw-p".into(),
            name: name.into(),
            policy: Some("default".into()),
            policy_may_be_cut: false,
            resident_bytes: pages.iter().map(|pages| pages.bytes).sum(),
            pages,
            huge_pages_told: true,
            transparent_huge_bytes: 0,
            shared_bytes: 8192,
            swapped_bytes: 0,
            most_mappings: 1,
        }
    }

    #[test]
    fn a_process_is_shown_by_thread_node_and_mapping() {
        let huge = on(1, Kind::TransparentHuge, 2 << 20, 1);
        let mut swapped = mapping(0x3000_0000, "", Vec::new());
        swapped.swapped_bytes = 12 << 10;
        let report = ProcessReport {
            pid: 7,
            name: "server".into(),
            cgroup: Some("/system.slice/server".into()),
            cpuset: Some(CpusetReport {
                cgroup: "/".into(),
                cpus: "0-3".parse().unwrap(),
                memory_nodes: "0-1".parse().unwrap(),
            }),
            threads: vec![thread(7, "0-3", 0), thread(8, "2", 2), thread(9, "2", 2), thread(11, "2", 3)],
            pages: vec![on(0, Kind::Base, 4096, 3), on(1, Kind::Base, 4096, 8), huge, on(1, Kind::Hugetlb, 1 << 30, 2)],
            nodes: vec![
                NodeBytes { node: NodeId(0), bytes: 12 << 10 },
                NodeBytes { node: NodeId(1), bytes: (2 << 30) + (2 << 20) + (32 << 10) },
            ],
            mappings: vec![
                mapping(0x1000_0000, LIBRARY, vec![on(0, Kind::Base, 4096, 3), on(1, Kind::Base, 4096, 8), huge]),
                mapping(0x2000_0000, "/anon_hugepage (deleted)", vec![on(1, Kind::Hugetlb, 1 << 30, 2)]),
                swapped,
                mapping(0x4000_0000, "[not there]", Vec::new()),
            ],
            notes: vec!["one".into()],
        };
        insta::assert_snapshot!(report);
    }

    #[test]
    fn a_thousand_nodes_fit() {
        let report = ProcessReport {
            pid: 7,
            name: String::new(),
            cgroup: None,
            cpuset: None,
            threads: Vec::new(),
            pages: vec![on(3, Kind::Base, 4096, 2), on(1023, Kind::Base, 4096, 1)],
            nodes: (0..1024).map(|node| NodeBytes { node: NodeId(node), bytes: u64::from(node == 3) * 8192 }).collect(),
            mappings: (0..9).map(|node| mapping(node << 24, "", vec![on(node as u32, Kind::Base, 4096, 7)])).collect(),
            notes: Vec::new(),
        };
        let mut report = report;
        for width in [60, 80, 120] {
            let text = format!("{report:width$}");
            assert!(text.lines().all(|line| crate::columns::width(line) <= width), "{width}:\n{text}");
        }
        let text = report.to_string();
        assert!(text.lines().all(|line| line.chars().count() < 200), "{text}");
        assert!(!text.contains('…'), "{text}");
        let long = format!("bind:{}", "0,2,".repeat(15));
        report.mappings[0].policy = Some(long[..63].into());
        report.mappings[0].policy_may_be_cut = true;
        let cut = report.to_string();
        assert!(cut.contains("0,… ") && cut.contains("note: policies that end in …"), "{cut}");
        assert!(text.contains("3:8 KiB 1023:4 KiB"), "{text}");
    }
}
