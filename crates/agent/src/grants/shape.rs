//! What the control groups of a grant have.

use super::idle_cpus;
use linux::Partition;
use machine::{CpuSet, NodeSet};
use reserve::{Facts, Grant, Ledger};

/// What the control groups of a grant have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    /// The CPUs of its programs; none for those of the rest of the machine.
    pub cpus: Option<CpuSet>,
    /// How these are kept from others.
    pub partition: Option<Partition>,
    /// CPUs that no program may have.
    pub idle: CpuSet,
    /// The nodes of its memory.
    pub nodes: NodeSet,
    /// The limit of its memory.
    pub most_bytes: Option<u64>,
}

impl Shape {
    /// That of a grant of a ledger. Without memory of its own it has the nodes that no grant has, if there are such.
    pub fn of(grant: &Grant, ledger: &Ledger) -> Self {
        let mut shape = Self::of_memory(grant, ledger);
        // Further cores on its cache are another grant's.
        let others = || ledger.grants().filter(|other| other.id != grant.id);
        shape.idle = shape.idle.iter().filter(|&cpu| !others().any(|other| other.has_cpu(cpu))).collect();
        shape
    }

    /// The CPUs that are its programs' or idle.
    pub fn all_cpus(&self) -> CpuSet {
        self.cpus.iter().flat_map(CpuSet::iter).chain(self.idle.iter()).collect()
    }

    fn of_memory(grant: &Grant, ledger: &Ledger) -> Self {
        if !grant.memory.is_empty() {
            return Self::new(grant, &ledger.facts);
        }
        let all = || ledger.facts.memory_nodes();
        let is_free = |node| !ledger.grants().any(|grant| grant.memory.contains(node));
        let free: NodeSet = all().filter(|&node| is_free(node)).collect();
        let nodes = if free.is_empty() { all().collect() } else { free };
        Self::with_memory(grant, &ledger.facts, nodes, None)
    }

    /// That of a new grant, which has memory.
    pub fn new(grant: &Grant, facts: &Facts) -> Self {
        Self::with_memory(grant, facts, grant.memory.clone(), grant.request.bytes)
    }

    fn with_memory(grant: &Grant, facts: &Facts, nodes: NodeSet, most_bytes: Option<u64>) -> Self {
        // Load is balanced within a partition of several CPUs only if it is not isolated.
        let kind = if grant.cpus.len() == 1 { Partition::Isolated } else { Partition::Root };
        let has_cores = !grant.cpus.is_empty();
        Self {
            cpus: has_cores.then(|| grant.cpus.clone()),
            partition: (has_cores && grant.request.isolate.core).then_some(kind),
            idle: idle_cpus(grant, facts),
            nodes,
            most_bytes,
        }
    }

    /// The same without CPUs of its own.
    pub fn without_cores(&self) -> Self {
        Self { cpus: None, partition: None, idle: CpuSet::new(), ..self.clone() }
    }

    /// The text of `memory.max`, as the kernel reports it back.
    pub fn memory_max(&self) -> String {
        let page = rustix::param::page_size() as u64;
        self.most_bytes.map_or_else(|| "max".to_owned(), |bytes| (bytes / page * page).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{NodeId, presets};
    use reserve::{Action, Asker, CacheIsolation, Control, Cores, Isolation, Memory, Request, Rules, Share};
    use std::sync::Arc;

    #[test]
    fn cores_on_a_cache_are_idle_until_its_holder_asks_for_them() {
        let facts = Facts::new(presets::find("small-4x2").unwrap(), Control::default());
        let ledger = Ledger::new(Arc::new(facts), Rules::default());
        let isolate = Isolation { cache: CacheIsolation::Exclusive, ..Isolation::default() };
        let admit = |ledger: &Ledger, request| ledger.admit(&[request], &Asker::default()).unwrap();
        let holder = admit(&ledger, Request { isolate, ..Request::default() });
        let idle = |ledger: &Ledger| Shape::of(ledger.grant(holder.grants[0].id).unwrap(), ledger).idle.to_string();
        let cores = Cores::OnCacheOf(holder.grants[0].id, 1);
        let joined = admit(&holder.after, Request { cores, ..Request::default() });
        assert_eq!((idle(&holder.after).as_str(), idle(&joined.after).as_str()), ("1", ""));
        let shape = Shape::of(&joined.grants[0], &joined.after);
        assert_eq!((shape.cpus.unwrap().to_string().as_str(), shape.partition), ("1", Some(Partition::Isolated)));
    }

    #[test]
    fn what_is_given_back_is_that_of_the_rest() {
        let facts = Facts::new(presets::find("small-4x2").unwrap(), Control::default());
        let ledger = Ledger::new(Arc::new(facts), Rules::default());
        let isolate = Isolation { core: true, ..Isolation::default() };
        let request = Request { isolate, memory: Memory::Node(NodeId(1)), bytes: Some(5000), ..Request::default() };
        let admitted = ledger.admit(&[request], &Asker::default()).unwrap();
        let (id, after) = (admitted.grants[0].id, admitted.after);
        let whole = Shape::of(after.grant(id).unwrap(), &after);
        assert_eq!((whole.partition, whole.nodes.to_string()), (Some(Partition::Isolated), "1".to_owned()));
        assert_eq!(
            (whole.memory_max().as_str(), &whole),
            ("4096", &Shape::new(after.grant(id).unwrap(), &after.facts))
        );
        let give = |share| after.apply(&[Action::Release(id, share)], &Asker::default()).unwrap().after;
        let cores = give(Share::Cores);
        assert_eq!(Shape::of(cores.grant(id).unwrap(), &cores), whole.without_cores());
        let memory = give(Share::Memory);
        let shape = Shape::of(memory.grant(id).unwrap(), &memory);
        assert_eq!((shape.nodes.to_string().as_str(), shape.memory_max().as_str()), ("0-3", "max"));
        assert_eq!((shape.cpus, shape.partition), (whole.cpus, whole.partition));
    }
}
