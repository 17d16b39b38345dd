//! The result of moving the pages of a process.

use crate::table::Table;
use linux::{Amount, PageRefusal, Tally, diagnose_pages};
use machine::number::{bandwidth, count};
use machine::{CpuSet, NodeId, NodeSet, size};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The output of `nearside migrate`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MigrateReport {
    /// The process.
    pub pid: u32,
    /// The name of its program.
    pub name: String,
    /// The source nodes; none for all.
    pub from: Option<NodeSet>,
    /// The target nodes.
    pub to: NodeSet,
    /// Duration, s.
    pub seconds: f64,
    /// Pages moved.
    pub moved: Count,
    /// Moved pages by target node.
    pub moved_to: Vec<NodeCount>,
    /// Pages that were already on their target node.
    pub already_there: Count,
    /// Pages on nodes that are not source nodes.
    pub on_other_nodes: Count,
    /// Pages that were freed or swapped out before they could be moved.
    pub gone: Count,
    /// Pages that could not be moved, by reason.
    pub stayed: Vec<StayedPages>,
    /// Requested addresses that are not mapped, bytes.
    pub unmapped_bytes: u64,
    /// The result of moving its threads, if requested.
    pub threads: Option<Threads>,
    /// Whether the process ended before everything was done.
    pub process_ended: bool,
    /// Whether the command was interrupted before everything was done.
    pub interrupted: bool,
}

/// Pages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Number of pages; a huge page counts as one.
    pub pages: u64,
    /// Their size.
    pub bytes: u64,
}

/// Pages by node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NodeCount {
    /// The node.
    pub node: NodeId,
    /// Its pages.
    #[serde(flatten)]
    pub count: Count,
}

/// Pages that were not moved for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StayedPages {
    /// The reason, as a word.
    pub reason: &'static str,
    /// The target node.
    pub node: NodeId,
    /// The pages.
    #[serde(flatten)]
    pub count: Count,
    /// The address of the first such page.
    pub first_address: String,
    /// The reason, as a sentence.
    pub why: String,
    /// What to do about it, if anything helps.
    pub what_to_do: Option<&'static str>,
}

/// The result of binding threads to a set of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Threads {
    /// The new CPUs.
    pub cpus: CpuSet,
    /// Number of threads that were bound.
    pub bound: u64,
    /// Number of threads that ended meanwhile.
    pub ended: u64,
    /// Threads that could not be bound.
    pub refused: Vec<RefusedThread>,
}

/// A thread that kept its CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedThread {
    /// The thread.
    pub tid: u32,
    /// Why.
    pub why: String,
}

impl From<Amount> for Count {
    fn from(amount: Amount) -> Self {
        Self { pages: amount.pages, bytes: amount.bytes }
    }
}

impl MigrateReport {
    /// From a process's tally and the free memory of each node (bytes), as far as known.
    pub fn new(pid: u32, name: String, to: NodeSet, tally: &Tally, free: &BTreeMap<NodeId, u64>) -> Self {
        let stayed = tally.stayed.iter().map(|(&(refusal, node), stayed)| {
            let (why, what_to_do) = diagnose_pages(refusal, node, free.get(&node).copied());
            StayedPages {
                reason: refusal.word(),
                node,
                count: stayed.amount.into(),
                first_address: format!("{:#x}", stayed.first),
                why,
                what_to_do,
            }
        });
        let mut moved_to: BTreeMap<NodeId, Amount> = BTreeMap::new();
        for (&(_, to), amount) in &tally.moved {
            *moved_to.entry(to).or_default() += *amount;
        }
        Self {
            pid,
            name,
            from: None,
            to,
            seconds: 0.0,
            moved: tally.moved().into(),
            moved_to: moved_to.into_iter().map(|(node, amount)| NodeCount { node, count: amount.into() }).collect(),
            already_there: tally.there.into(),
            on_other_nodes: tally.elsewhere.into(),
            gone: tally.gone.into(),
            stayed: stayed.collect(),
            unmapped_bytes: 0,
            threads: None,
            process_ended: tally.ended,
            interrupted: tally.interrupted,
        }
    }

    /// Whether part of the request was not carried out. Pages that other processes map too are left alone unless
    /// requested.
    pub fn is_partial(&self) -> bool {
        let failed = self.stayed.iter().any(|stayed| stayed.reason != PageRefusal::Shared.word());
        let refused = self.threads.as_ref().is_some_and(|threads| !threads.refused.is_empty());
        failed || self.interrupted || self.unmapped_bytes > 0 || refused
    }
}

impl fmt::Display for MigrateReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.moved.bytes as f64 / self.seconds.max(f64::MIN_POSITIVE);
        let (pid, name, moved) = (self.pid, &self.name, size::rounded(self.moved.bytes));
        write!(f, "process {pid} ({name}): moved {moved} in {:.3} s", self.seconds)?;
        if self.moved.pages > 0 {
            write!(f, ", {}", bandwidth(rate))?;
        }
        writeln!(f, "\n")?;
        let mut table = Table::new(["", "pages", "size"]);
        let mut row = |what: String, pages: Count| {
            table.row([what, count(pages.pages), size::rounded(pages.bytes)]);
        };
        for moved in &self.moved_to {
            row(format!("moved to node {}", moved.node), moved.count);
        }
        for (what, pages) in [
            ("already there", self.already_there),
            ("on other nodes, not asked for", self.on_other_nodes),
            ("gone meanwhile", self.gone),
        ] {
            if pages.pages > 0 {
                row(what.to_owned(), pages);
            }
        }
        for stayed in &self.stayed {
            row(format!("not moved to node {}: {}", stayed.node, stayed.reason), stayed.count);
        }
        write!(f, "{table}")?;
        for stayed in &self.stayed {
            write!(
                f,
                "\n{} (node {}, the first at {}): {}",
                stayed.reason, stayed.node, stayed.first_address, stayed.why
            )?;
            stayed.what_to_do.iter().try_for_each(|remedy| write!(f, "; {remedy}"))?;
            writeln!(f)?;
        }
        if let Some(threads) = &self.threads {
            writeln!(f, "\n{threads}")?;
        }
        if self.unmapped_bytes > 0 {
            writeln!(f, "\n{} of the requested range is not mapped", size::rounded(self.unmapped_bytes))?;
        }
        if self.process_ended {
            writeln!(f, "\nthe process has ended meanwhile")?;
        }
        if self.interrupted {
            writeln!(f, "\nit was interrupted: the remaining pages stay where they are")?;
        }
        Ok(())
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = if self.bound == 1 { "thread runs" } else { "threads run" };
        write!(f, "{} {threads} on CPUs {}", self.bound, self.cpus)?;
        for refused in &self.refused {
            write!(f, "\nthread {} keeps its CPUs: {}", refused.tid, refused.why)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::Stayed;

    fn report() -> MigrateReport {
        let mut tally = Tally::default();
        tally.moved.insert((NodeId(0), NodeId(1)), Amount { pages: 262_144, bytes: 1 << 30 });
        tally.there = Amount { pages: 3, bytes: 3 << 21 };
        tally.stayed.insert(
            (PageRefusal::Shared, NodeId(1)),
            Stayed { amount: Amount { pages: 2, bytes: 8192 }, first: 0x7f00_1234_5000 },
        );
        let to = [NodeId(1)].into_iter().collect();
        let report = MigrateReport::new(4711, "postgres".into(), to, &tally, &BTreeMap::new());
        MigrateReport { seconds: 0.5, ..report }
    }

    #[test]
    fn a_report_says_what_moved_what_stayed_and_why() {
        insta::assert_snapshot!(report());
    }

    #[test]
    fn what_stayed_makes_it_partial() {
        assert!(!report().is_partial());
        let mut report = report();
        report.stayed[0].reason = PageRefusal::Busy.word();
        assert!(report.is_partial());
    }
}
