//! Counters of what grants and the rest of the machine draw from memory.

use super::resctrl_monitor::ResctrlMonitor;
use linux::monotonic_ns;
use machine::{CpuId, CpuSet, LINE_BYTES, Machine, NodeId};
use model::MeasuredCpu;
use observe::{LabCounters, LabPmuError};
use reserve::{Grant, GrantId, Ledger, ReadWrite};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Whose traffic it is: that of a grant with CPUs of its own, or of all other CPUs of the machine.
pub(crate) type Subject = Option<GrantId>;

/// A count of what was drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    /// When, ns.
    pub at_ns: u64,
    /// By subject and node of its CPUs: these CPUs, and bytes since any time by the memory's node.
    pub drawn: BTreeMap<(Subject, NodeId), (CpuSet, BTreeMap<NodeId, ReadWrite>)>,
}

/// Counters of memory traffic.
#[derive(Debug)]
pub struct MemoryMonitor(Source);

#[derive(Debug)]
enum Source {
    /// By CPU and node.
    Lab(LabCounters),
    /// By group and cache.
    Resctrl(ResctrlMonitor),
}

impl MemoryMonitor {
    /// The counters of this machine: those of resctrl, where it is mounted, or those of the lab's machines. None without
    /// either. Needs root.
    pub fn find() -> Result<Option<Self>, LabPmuError> {
        match ResctrlMonitor::find(Path::new("/")) {
            Some(monitor) => Ok(Some(Self(Source::Resctrl(monitor)))),
            None => Ok(LabCounters::find()?.map(|counters| Self(Source::Lab(counters)))),
        }
    }

    /// Removes what it has made, and what a killed process has left of it.
    pub(crate) fn remove_left(&self) {
        if let Source::Resctrl(monitor) = &self.0 {
            monitor.remove_left();
        }
    }

    /// What was drawn until now, or until the last publication of the counters, which may be a period old. None without a
    /// new count.
    pub(crate) fn count(&mut self, ledger: &Ledger) -> io::Result<Option<Counted>> {
        let has_own = |grant: &&Grant| grant.request.isolate.core && !grant.cpus.is_empty();
        let grants: Vec<&Grant> = ledger.grants().filter(has_own).collect();
        let machine = &ledger.facts.machine;
        match &mut self.0 {
            Source::Lab(counters) => Ok(counters
                .news()
                .and_then(|news| Some(counted(news.time_ns, &news.measured()?.per_cpu, &grants, machine)))),
            Source::Resctrl(monitor) => monitor.count(monotonic_ns(), &grants, machine).map(Some),
        }
    }
}

/// The counts of each CPU by grant, which all have cores of their own.
fn counted(at_ns: u64, per_cpu: &[MeasuredCpu], grants: &[&Grant], machine: &Machine) -> Counted {
    let mut counted = Counted { at_ns, ..Counted::default() };
    let nodes: BTreeMap<CpuId, NodeId> =
        machine.nodes.iter().flat_map(|node| node.cpus.iter().map(|cpu| (cpu, node.id))).collect();
    let owners: BTreeMap<CpuId, GrantId> =
        grants.iter().flat_map(|grant| grant.cpus.iter().map(|cpu| (cpu, grant.id))).collect();
    for (cpu, of) in machine.cpus().iter().zip(per_cpu) {
        let Some(&from) = nodes.get(&cpu) else { continue };
        let (cpus, drawn) = counted.drawn.entry((owners.get(&cpu).copied(), from)).or_default();
        cpus.insert(cpu);
        let (read, written) = (&of.counters.dram_accesses_by_node, &of.counters.write_backs_by_node);
        for (index, node) in machine.nodes.iter().enumerate() {
            let bytes = |lines: &[u64]| (lines.get(index).copied().unwrap_or(0) * LINE_BYTES) as f64;
            let sum = drawn.entry(node.id).or_default();
            *sum = ReadWrite { read: sum.read + bytes(read), write: sum.write + bytes(written) };
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;
    use model::CpuCounters;
    use reserve::{Asker, Control, Facts, Isolation, Request, Rules};
    use std::sync::Arc;

    #[test]
    fn cpus_of_grants_are_counted_apart_from_the_rest() {
        let machine = presets::find("small-4x2").unwrap();
        let ledger = Ledger::new(Arc::new(Facts::new(machine.clone(), Control::default())), Rules::default());
        let isolated = Request { isolate: Isolation { core: true, ..Isolation::default() }, ..Request::default() };
        let admitted = ledger.admit(&[isolated, Request::default()], &Asker::default()).unwrap();
        let grants: Vec<&Grant> = admitted.grants.iter().filter(|grant| grant.request.isolate.core).collect();
        let own = grants[0].cpus.first().unwrap();
        let of_cpu = |cpu: u64| MeasuredCpu {
            instructions: 0,
            cpu_time_s: 0.0,
            memory_wait_s: 0.0,
            counters: CpuCounters {
                dram_accesses_by_node: vec![cpu, 0, 100, 0],
                write_backs_by_node: vec![1],
                ..CpuCounters::default()
            },
        };
        let per_cpu: Vec<MeasuredCpu> = (0..8).map(of_cpu).collect();
        let counted = counted(7, &per_cpu, &grants, &machine);
        assert_eq!((counted.at_ns, counted.drawn.len()), (7, 5), "four nodes, and the grant's CPU of one of them");
        let (cpus, drawn) = &counted.drawn[&(Some(grants[0].id), grants[0].node)];
        assert_eq!(cpus.iter().collect::<Vec<_>>(), [own]);
        assert_eq!(drawn[&NodeId(0)], ReadWrite { read: f64::from(own.0) * 64.0, write: 64.0 });
        assert_eq!(drawn[&NodeId(2)], ReadWrite { read: 6400.0, write: 0.0 });
        let all: usize = counted.drawn.values().map(|(cpus, _)| cpus.len()).sum();
        assert_eq!(all, 8);
    }
}
