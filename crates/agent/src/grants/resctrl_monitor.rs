//! What grants draw by resctrl's counters: each has a monitoring group for its CPUs. Not yet seen on hardware.
//!
//! The counters are of caches, and reads and writes together, which count as reads. What does not go to the cache's own node
//! goes to the other nodes of the grant's memory, or of the machine, in equal parts.

use super::memory_monitor::{Counted, Subject};
use super::resctrl_control::GROUP;
use linux::Resctrl;
use machine::{CpuSet, Machine, NodeId};
use reserve::{Grant, GrantId, ReadWrite};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// The monitors behind resctrl.
#[derive(Debug)]
pub(super) struct ResctrlMonitor(Resctrl);

/// The monitoring group of a grant.
#[derive(Debug)]
struct MonitoringGroup {
    name: String,
    /// Whether it is within a group that the rest of the machine has, too.
    is_of_rest: bool,
}

/// Bytes through a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Through {
    all: u64,
    /// Those of the cache's own node, where they are counted.
    local: Option<u64>,
}

impl ResctrlMonitor {
    /// Those of the system below `root`, if resctrl is mounted there and counts bytes.
    pub fn find(root: &Path) -> Option<Self> {
        Self::new(Resctrl::find(root)?)
    }

    fn new(resctrl: Resctrl) -> Option<Self> {
        resctrl.offer.counts_bytes.then_some(Self(resctrl))
    }

    /// Removes its monitoring groups, and those that a killed agent left. No other agent may run.
    pub fn remove_left(&self) {
        // A group that stays takes a counter, and nothing else.
        let _ = self.remove_groups(|_| true);
    }

    /// The counts as of now of grants with cores of their own, and of the rest. A grant for which the hardware has no
    /// further counter is left out, as are subjects with a cache whose counts are not available.
    pub fn count(&self, at_ns: u64, grants: &[&Grant], machine: &Machine) -> io::Result<Counted> {
        let groups = self.follow(grants)?;
        let mut counted = Counted { at_ns, ..Counted::default() };
        let mut unknown = BTreeSet::new();
        let all: Vec<NodeId> = machine.nodes.iter().filter(|node| node.memory_bytes > 0).map(|node| node.id).collect();
        let node_of = |cpus: &CpuSet| {
            let first = cpus.first()?;
            Some(machine.nodes.iter().find(|node| node.cpus.contains(first))?.id)
        };
        // Several caches of a node are one subject.
        let mut add = |subject: (Subject, NodeId), cpus: &CpuSet, bytes: Option<BTreeMap<NodeId, ReadWrite>>| {
            let (all_cpus, drawn) = counted.drawn.entry(subject).or_default();
            all_cpus.insert_all(cpus);
            match bytes {
                Some(bytes) => bytes.into_iter().for_each(|(to, more)| drawn.entry(to).or_default().read += more.read),
                None => drop(unknown.insert(subject)),
            }
        };
        for (&domain, cpus) in &self.0.offer.caches {
            let (mut rest, mut rest_cpus) = (self.of_rest(domain)?, cpus.clone());
            for grant in grants {
                let own = grant.cpus.intersection(cpus);
                let Some(from) = node_of(&own) else { continue };
                rest_cpus = rest_cpus.difference(&own);
                let through = groups.get(&grant.id).and_then(|group| self.through(&group.name, domain));
                let is_of_rest = groups.get(&grant.id).is_none_or(|group| group.is_of_rest);
                if is_of_rest {
                    rest = rest.zip(through).and_then(|(rest, own)| less(rest, own));
                }
                let nodes: Vec<NodeId> = grant.memory.iter().collect();
                add((Some(grant.id), from), &own, through.map(|through| by_node(through, from, &nodes, &all)));
            }
            if let Some(from) = node_of(&rest_cpus) {
                add((None, from), &rest_cpus, rest.map(|through| by_node(through, from, &all, &all)));
            }
        }
        counted.drawn.retain(|subject, _| !unknown.contains(subject));
        Ok(counted)
    }

    /// Gives each grant a monitoring group within the group that has its CPUs, and removes those of other grants.
    fn follow(&self, grants: &[&Grant]) -> io::Result<BTreeMap<GrantId, MonitoringGroup>> {
        let mut wanted = BTreeMap::new();
        let with_cpus = |group: String| -> io::Result<(String, CpuSet)> {
            let cpus = self.0.cpus(&group)?;
            Ok((group, cpus))
        };
        let classes: Vec<(String, CpuSet)> = self.0.groups()?.into_iter().map(with_cpus).collect::<io::Result<_>>()?;
        // A CPU is in one monitoring group: those of other tools keep theirs.
        let foreign = self.cpus_of_others(&classes)?;
        for grant in grants.iter().filter(|grant| grant.cpus.intersection(&foreign).is_empty()) {
            let class = classes.iter().find(|(_, cpus)| grant.cpus.is_subset(cpus)).map_or("", |(class, _)| class);
            let name = Resctrl::monitoring_group(class, &format!("{GROUP}{}", grant.id));
            wanted.insert(grant.id, MonitoringGroup { name, is_of_rest: !class.starts_with(GROUP) });
        }
        self.remove_groups(|name| !wanted.values().any(|group| group.name == name))?;
        let has = |grant: &Grant| {
            let Some(MonitoringGroup { name: group, .. }) = wanted.get(&grant.id) else { return false };
            // No further counter, or a class that has the CPUs no more: it is not counted.
            let made = self.0.make_group(group);
            let is_there = made.is_ok() || made.is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists);
            let is_set = || self.0.cpus(group).is_ok_and(|cpus| cpus == grant.cpus);
            is_there && (is_set() || self.0.set_cpus(group, &grant.cpus).is_ok() && is_set())
        };
        let counted: BTreeSet<GrantId> = grants.iter().filter(|grant| has(grant)).map(|grant| grant.id).collect();
        wanted.retain(|id, _| counted.contains(id));
        Ok(wanted)
    }

    /// The CPUs of other tools' monitoring groups.
    fn cpus_of_others(&self, classes: &[(String, CpuSet)]) -> io::Result<CpuSet> {
        let mut cpus = CpuSet::new();
        for class in classes.iter().map(|(class, _)| class.as_str()).chain([""]) {
            for name in self.0.monitoring_groups(class)?.iter().filter(|name| !name.starts_with(GROUP)) {
                cpus.insert_all(&self.0.cpus(&Resctrl::monitoring_group(class, name))?);
            }
        }
        Ok(cpus)
    }

    /// What all CPUs draw that are in no class of grants, with the monitoring groups there.
    fn of_rest(&self, domain: u32) -> io::Result<Option<Through>> {
        let mut rest = self.through("", domain);
        for group in self.0.groups()?.iter().filter(|group| !group.starts_with(GROUP)) {
            let more = self.through(group, domain);
            rest = rest.zip(more).map(|(rest, more)| Through {
                all: rest.all.saturating_add(more.all),
                local: rest.local.zip(more.local).map(|(one, other)| one.saturating_add(other)),
            });
        }
        Ok(rest)
    }

    fn through(&self, group: &str, domain: u32) -> Option<Through> {
        Some(Through { all: self.0.total_bytes(group, domain)?, local: self.0.local_bytes(group, domain) })
    }

    fn remove_groups(&self, is_over: impl Fn(&str) -> bool) -> io::Result<()> {
        for class in self.0.groups()?.iter().map(String::as_str).chain([""]) {
            for name in self.0.monitoring_groups(class)?.iter().filter(|name| name.starts_with(GROUP)) {
                let group = Resctrl::monitoring_group(class, name);
                if is_over(&group) {
                    self.0.remove_group(&group)?;
                }
            }
        }
        Ok(())
    }
}

fn less(from: Through, less: Through) -> Option<Through> {
    let local = from.local.zip(less.local).map(|(from, less)| from.saturating_sub(less));
    Some(Through { all: from.all.checked_sub(less.all)?, local })
}

/// Bytes by node: those that are not of the cache's own node are of the other `nodes`, or else of all others, in equal
/// parts. Where local ones are not counted, all are of `nodes`.
fn by_node(through: Through, from: NodeId, nodes: &[NodeId], all: &[NodeId]) -> BTreeMap<NodeId, ReadWrite> {
    let local = through.local.map(|local| local.min(through.all));
    let others =
        |of: &[NodeId]| -> Vec<NodeId> { of.iter().copied().filter(|node| local.is_none() || *node != from).collect() };
    let named = others(nodes);
    let remote = if named.is_empty() { others(all) } else { named };
    let mut drawn: BTreeMap<NodeId, ReadWrite> = BTreeMap::new();
    let mut add = |node, read: f64| drawn.entry(node).or_default().read += read;
    add(from, local.unwrap_or(0) as f64);
    let each = (through.all - local.unwrap_or(0)) as f64 / remote.len().max(1) as f64;
    for node in remote {
        add(node, each);
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::resctrl_kernel::{Kernel, machine};
    use machine::presets;
    use reserve::{Asker, Control, Facts, Isolation, Ledger, Memory, Request, Rules};
    use std::sync::Arc;

    const INFO: [(&str, &str); 6] = [
        ("L3/cbm_mask", "7ff"),
        ("L3/min_cbm_bits", "1"),
        ("L3/num_closids", "16"),
        ("L3/shareable_bits", "0"),
        ("L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes"),
        ("L3_MON/num_rmids", "32"),
    ];

    /// Two packages of two CPUs whose kernel obeys.
    fn kernel() -> Kernel {
        let caches = [(0, "0-1"), (1, "2-3")];
        Kernel::of(machine("vendor_id\t: GenuineIntel", &INFO, "L3:0=7ff;1=7ff\n", &caches), 8, true)
    }

    /// Grants of the CPUs 0 and 2, the second one with memory of node 0.
    fn grants() -> (Machine, Vec<Grant>) {
        let machine = presets::find("small-2x2").unwrap();
        let ledger = Ledger::new(Arc::new(Facts::new(machine.clone(), Control::default())), Rules::default());
        let isolate = Isolation { core: true, ..Isolation::default() };
        let of = |cpu: &str| Request {
            cores: reserve::Cores::These(cpu.parse().unwrap()),
            memory: Memory::Node(NodeId(0)),
            isolate,
            ..Request::default()
        };
        (machine, ledger.admit(&[of("0"), of("2")], &Asker::default()).unwrap().grants)
    }

    fn put(kernel: &Kernel, group: &str, domain: u32, total: &str, local: &str) {
        for (file, text) in [("mbm_total_bytes", total), ("mbm_local_bytes", local)] {
            kernel.put(&format!("{group}mon_data/mon_L3_{domain:02}/{file}"), &format!("{text}\n"));
        }
    }

    fn reads(counted: &Counted, of: Option<u32>, from: u32) -> Option<Vec<f64>> {
        let (_, drawn) = counted.drawn.get(&(of.map(GrantId), NodeId(from)))?;
        Some([0, 1].map(|to| drawn.get(&NodeId(to)).map_or(0.0, |of| of.read)).to_vec())
    }

    #[test]
    fn each_grant_has_a_monitoring_group_where_its_cpus_are() {
        let (kernel, (machine, grants)) = (kernel(), grants());
        let monitor = ResctrlMonitor::new(kernel.resctrl()).unwrap();
        // The first grant has a class, and the second one none.
        kernel.put("nearside-1/cpus_list", "0\n");
        kernel.put("nearside-1/tasks", "");
        let grants: Vec<&Grant> = grants.iter().collect();
        monitor.count(1, &grants, &machine).unwrap();
        for (group, domain, total, local) in [
            ("", 0, "5000", "4000"),
            ("", 1, "900", "500"),
            ("nearside-1/mon_groups/nearside-1/", 0, "70", "50"),
            ("nearside-1/mon_groups/nearside-1/", 1, "0", "0"),
            ("mon_groups/nearside-2/", 0, "0", "0"),
            ("mon_groups/nearside-2/", 1, "300", "100"),
        ] {
            put(&kernel, group, domain, total, local);
        }
        let counted = monitor.count(2, &grants, &machine).unwrap();
        // 20 bytes went to the other node, although the grant has only memory of its own: of files, perhaps.
        assert_eq!(reads(&counted, Some(1), 0), Some(vec![50.0, 20.0]));
        assert_eq!(reads(&counted, Some(2), 1), Some(vec![200.0, 100.0]));
        // The rest of the second package is what its topmost group has without the grant's.
        assert_eq!(reads(&counted, None, 0), Some(vec![4000.0, 1000.0]));
        assert_eq!(reads(&counted, None, 1), Some(vec![200.0, 400.0]));
        assert_eq!(counted.drawn[&(None, NodeId(1))].0.to_string(), "3");
        // What has no counter at present is left out, and so is the rest that it is part of.
        put(&kernel, "mon_groups/nearside-2/", 1, "Unavailable", "Unavailable");
        let counted = monitor.count(3, &grants, &machine).unwrap();
        assert_eq!((reads(&counted, Some(2), 1), reads(&counted, None, 1)), (None, None));
        assert!(reads(&counted, Some(1), 0).is_some() && reads(&counted, None, 0).is_some());
        // Arm's counters do not tell local bytes apart: all are of the grant's memory.
        put(&kernel, "mon_groups/nearside-2/", 1, "300", "");
        assert_eq!(reads(&monitor.count(4, &grants, &machine).unwrap(), Some(2), 1), Some(vec![300.0, 0.0]));
        // A grant that has ended has no group any more, and neither has any at the end.
        monitor.count(5, &grants[..1], &machine).unwrap();
        monitor.remove_left();
        let log = kernel.log.lock().unwrap().clone();
        let (one, other) = ("nearside-1/mon_groups/nearside-1", "mon_groups/nearside-2");
        for line in [format!("mkdir {one}"), format!("{one}/cpus_list 0"), format!("mkdir {other}")] {
            assert!(log.contains(&line), "{line}: {log:?}");
        }
        assert_eq!(log[log.len() - 2..], [format!("rmdir {other}"), format!("rmdir {one}")]);
    }

    #[test]
    fn without_counters_there_is_no_monitor_and_what_was_left_is_removed() {
        let info: Vec<_> = INFO.into_iter().filter(|(file, _)| !file.starts_with("L3_MON")).collect();
        let none = machine("vendor_id\t: GenuineIntel", &info, "L3:0=7ff\n", &[(0, "0-1")]);
        assert!(ResctrlMonitor::new(Kernel::of(none, 8, true).resctrl()).is_none());
        let kernel = kernel();
        kernel.put("mon_groups/nearside-7/cpus_list", "1\n");
        kernel.put("mon_groups/theirs/cpus_list", "2\n");
        let monitor = ResctrlMonitor::new(kernel.resctrl()).unwrap();
        monitor.remove_left();
        assert_eq!(*kernel.log.lock().unwrap(), ["rmdir mon_groups/nearside-7"]);
        // The second grant's CPU is in another tool's monitoring group, which keeps it.
        let (machine, grants) = grants();
        let counted = monitor.count(1, &grants.iter().collect::<Vec<_>>(), &machine).unwrap();
        assert!(!counted.drawn.contains_key(&(Some(GrantId(2)), NodeId(1))), "{counted:?}");
        assert!(!kernel.log.lock().unwrap().iter().any(|line| line.contains("nearside-2")));
    }
}
