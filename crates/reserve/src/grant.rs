//! What a program has been given.

use crate::facts::Facts;
use crate::request::{Memory, Request};
use machine::{CpuId, CpuSet, Hop, NodeId, NodeSet};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A grant's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GrantId(pub u32);

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A grant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// Its number.
    pub id: GrantId,
    /// The user who asked for it.
    pub owner: u32,
    /// When it was made, seconds since 1970.
    pub since_s: u64,
    /// When it ends by itself, seconds since 1970.
    pub until_s: Option<u64>,
    /// What was asked for.
    pub request: Request,
    /// Its cores, as indexes in [`crate::Facts::cores`].
    pub cores: Vec<usize>,
    /// The CPUs that its program runs on.
    pub cpus: CpuSet,
    /// CPUs of its cores that stay idle.
    pub idle_siblings: CpuSet,
    /// The node of its cores.
    pub node: NodeId,
    /// The last-level cache that it holds, whole or in part, as an index in [`crate::Facts::caches`].
    pub cache: Option<usize>,
    /// Its ways of that cache, as a mask; 0 if it has no ways of its own.
    pub ways: u64,
    /// The nodes of its memory.
    pub memory: NodeSet,
    /// The links that its accesses cross. Not read back: they follow from the machine's routes.
    #[serde(skip_deserializing)]
    pub links: Vec<Hop>,
}

impl Grant {
    /// Whether its lease is over, at a time in seconds since 1970. Times are cut to whole seconds, and a lease lasts at least
    /// as long as was asked for: it ends with the second of its end.
    pub fn is_over(&self, now_s: u64) -> bool {
        self.until_s.is_some_and(|until| until < now_s)
    }

    /// Its own name and number, for messages.
    pub fn title(&self) -> String {
        self.request
            .name
            .as_ref()
            .map_or_else(|| format!("grant {}", self.id), |name| format!("grant {} ({name})", self.id))
    }

    /// Whether a machine has its cores, cache and nodes. A grant may be recorded by another description of the machine.
    pub fn is_of(&self, facts: &Facts) -> bool {
        self.cores.iter().all(|&core| core < facts.cores.len())
            && self.cache.is_none_or(|cache| cache < facts.caches.len())
            && self.memory.iter().chain([self.node]).all(|node| facts.machine.node(node).is_some())
    }

    /// Whether a CPU is its own, used or idle.
    pub fn has_cpu(&self, cpu: CpuId) -> bool {
        self.cpus.contains(cpu) || self.idle_siblings.contains(cpu)
    }

    /// Whether its program may be moved to other cores: it isolates nothing and has named neither cores nor memory, and has
    /// the memory of one node, as it was granted.
    pub(crate) fn is_movable(&self) -> bool {
        use crate::request::{CacheIsolation, Cores};
        let isolate = self.request.isolate;
        let shares = !isolate.core && !isolate.controller && !isolate.route && isolate.cache == CacheIsolation::Shared;
        let is_anywhere =
            matches!(self.request.cores, Cores::Any(_)) && !matches!(self.request.memory, Memory::Node(_));
        shares && is_anywhere && self.memory.len() == 1 && self.request.more_memory.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Control;
    use crate::ledger::{Asker, Ledger, Rules};
    use crate::request::{CacheIsolation, Isolation};
    use std::sync::Arc;

    #[test]
    fn a_grant_of_a_larger_machine_is_none_of_a_smaller_one() {
        let facts = |preset: &str| Facts::new(machine::presets::find(preset).unwrap(), Control::default());
        let grant = |request: Request| {
            let ledger = Ledger::new(Arc::new(facts("magny-cours-4p")), Rules::default());
            ledger.admit(&[request], &Asker::default()).unwrap().grants.remove(0)
        };
        let on = |node: u32| Request { memory: Memory::Node(NodeId(node)), ..Request::default() };
        let small = facts("small-2x2");
        assert!(grant(on(0)).is_of(&facts("magny-cours-4p")) && grant(on(0)).is_of(&small));
        assert!(!grant(on(7)).is_of(&small), "it has two nodes");
        let isolate = Isolation { cache: CacheIsolation::Exclusive, ..Isolation::default() };
        let mut cached = grant(Request { isolate, ..on(0) });
        cached.cores.truncate(1);
        assert!(cached.is_of(&small));
        cached.cache = Some(7);
        assert!(!cached.is_of(&small), "it has two caches");
    }
}
