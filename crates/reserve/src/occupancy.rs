//! Who has which core, cache, link and memory: derived from the grants, so that there is nothing to keep in step.

use crate::grant::GrantId;
use crate::ledger::Ledger;
use crate::refusal::Holder;
use crate::request::CacheIsolation;
use machine::NodeId;
use std::collections::BTreeMap;

/// The use of a machine by its grants.
pub(crate) struct Occupancy {
    /// The grants on each core.
    pub tenants: Vec<Vec<GrantId>>,
    /// The grant that has a core for itself.
    pub core_holder: Vec<Option<GrantId>>,
    /// The grant that has a cache for itself.
    pub cache_holder: Vec<Option<GrantId>>,
    /// Ways of each cache that are taken, by grant.
    pub ways: Vec<Vec<(GrantId, u64)>>,
    /// The grants that cross a directed link, and whether one has it for itself.
    pub links: BTreeMap<usize, Vec<(GrantId, bool)>>,
    /// Memory of each node that grants are promised, bytes.
    pub bytes: BTreeMap<NodeId, u64>,
    /// Classes of service in use, besides the default one.
    pub classes: u32,
}

impl Occupancy {
    pub fn new(ledger: &Ledger) -> Self {
        let (cores, caches) = (ledger.facts.cores.len(), ledger.facts.caches.len());
        let mut occupancy = Self {
            tenants: vec![Vec::new(); cores],
            core_holder: vec![None; cores],
            cache_holder: vec![None; caches],
            ways: vec![Vec::new(); caches],
            links: BTreeMap::new(),
            bytes: BTreeMap::new(),
            classes: 0,
        };
        for grant in ledger.grants() {
            for &core in &grant.cores {
                occupancy.tenants[core].push(grant.id);
                if grant.request.isolate.core {
                    occupancy.core_holder[core] = Some(grant.id);
                }
            }
            if let Some(cache) = grant.cache {
                if grant.request.isolate.cache == CacheIsolation::Exclusive {
                    occupancy.cache_holder[cache] = Some(grant.id);
                }
                if grant.ways != 0 {
                    occupancy.ways[cache].push((grant.id, grant.ways));
                    occupancy.classes += 1;
                }
            }
            for hop in &grant.links {
                let users = occupancy.links.entry(hop.directed_link()).or_default();
                users.push((grant.id, grant.request.isolate.route));
            }
            for node in grant.memory.iter() {
                let bytes = grant.request.bytes.map_or(0, |bytes| bytes.div_ceil(grant.memory.len() as u64));
                let promised = occupancy.bytes.entry(node).or_default();
                *promised = promised.saturating_add(bytes);
            }
        }
        occupancy
    }
}

/// Grants as messages name them, each once.
pub(crate) fn holders(ledger: &Ledger, ids: impl IntoIterator<Item = GrantId>, now_s: u64) -> Vec<Holder> {
    let mut ids: Vec<GrantId> = ids.into_iter().collect();
    ids.sort_unstable();
    ids.dedup();
    let holder = |id| {
        let grant = ledger.grant(id)?;
        Some(Holder { id, name: grant.request.name.clone(), age_s: now_s.saturating_sub(grant.since_s) })
    };
    ids.into_iter().filter_map(holder).collect()
}
