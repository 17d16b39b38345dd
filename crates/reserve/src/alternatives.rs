//! What would be granted instead of a request that is refused: it itself with one thing changed.

use crate::admission;
use crate::facts::Core;
use crate::grant::GrantId;
use crate::ledger::{Asker, Ledger};
use crate::refusal::{Alternative, Obstacle};
use crate::request::{CacheIsolation, Cores, Memory, Request};

/// The first changed request that would be granted, from the least change to the largest.
pub(crate) fn nearest(
    ledger: &Ledger,
    id: GrantId,
    request: &Request,
    asker: &Asker,
    obstacles: &[Obstacle],
) -> Option<Alternative> {
    changed(ledger, request, obstacles).into_iter().find_map(|(change, request)| {
        let grant = admission::find(ledger, id, &request, asker).ok()?.grant;
        let node = grant.memory.first()?;
        let change = if change == ANY_NODE { format!("--node {node}") } else { change };
        let latency_ns = ledger.facts.latency_ns(grant.node, node);
        Some(Alternative { change, grant, latency_ns })
    })
}

/// Stands for `--node` with the node that is found.
const ANY_NODE: &str = "--node";

fn changed(ledger: &Ledger, request: &Request, obstacles: &[Obstacle]) -> Vec<(String, Request)> {
    let mut proposals = Vec::new();
    let mut change = |words: &str, change: &dyn Fn(&mut Request)| {
        let mut other = request.clone();
        change(&mut other);
        proposals.push((words.to_owned(), other));
    };
    if matches!(request.memory, Memory::Node(_)) && request.more_memory.is_empty() {
        change(ANY_NODE, &|request| request.memory = Memory::Any);
    }
    if let Cores::These(cpus) = &request.cores {
        let is_wanted = |core: &&Core| !core.cpus.intersection(cpus).is_empty();
        let count = ledger.facts.cores.iter().filter(is_wanted).count() as u32;
        change(&format!("--cores {count} instead of --cpus"), &|request| request.cores = Cores::Any(count));
    }
    let isolate = request.isolate;
    if let (CacheIsolation::Exclusive, Some(ways)) = (isolate.cache, ledger.facts.control.ways) {
        let half = (ways.all / 2).max(ways.least);
        let words = format!("--cache-ways {half} instead of --isolate cache");
        change(&words, &|request| request.isolate.cache = CacheIsolation::Ways(half));
    }
    let needed = obstacles.iter().filter_map(|obstacle| match obstacle {
        Obstacle::Slowed { who: None, by, .. } => Some(100.0 * by),
        _ => None,
    });
    if let Some(percent) = needed.reduce(f64::min).map(f64::ceil).filter(|percent| *percent <= 100.0) {
        change(&format!("--most-slowdown {percent}"), &|request| request.most_slowdown = percent / 100.0);
    }
    if isolate.cache != CacheIsolation::Shared {
        change("with a shared cache", &|request| request.isolate.cache = CacheIsolation::Shared);
    }
    if isolate.route {
        change("with a shared route", &|request| request.isolate.route = false);
    }
    if isolate.controller {
        change("with an unguarded controller", &|request| request.isolate.controller = false);
    }
    if let Cores::Any(count) = request.cores {
        let free = obstacles.iter().filter_map(|obstacle| match obstacle {
            Obstacle::Cores { free, .. } => Some(*free as u32),
            _ => None,
        });
        if let Some(free) = free.max().filter(|free| (1..count).contains(free)) {
            change(&format!("--cores {free}"), &|request| request.cores = Cores::Any(free));
        }
    }
    if isolate.core {
        change("with shared cores and caches", &|request| {
            (request.isolate.core, request.isolate.cache) = (false, CacheIsolation::Shared);
        });
    }
    proposals
}
