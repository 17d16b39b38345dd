//! What the grants of a user may have together.

use crate::facts::Facts;
use crate::grant::Grant;
use crate::ledger::{Asker, Ledger};
use crate::refusal::Refusal;
use crate::request::{CacheIsolation, optional_size};
use machine::NodeSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The most that a user's grants may have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Grants.
    pub grants: u32,
    /// Cores. An exclusive cache counts with all cores that share it.
    pub cores: u32,
    /// Memory. A grant without a limit of its own counts with all memory of its nodes. `None` for no limit.
    #[serde(default, deserialize_with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Guarded controllers, for which others draw less. `None` for no limit.
    #[serde(default)]
    pub controllers: Option<u32>,
}

impl Quota {
    /// By which of two quotas is the larger: no limit is more than any.
    pub fn order(&self) -> impl Ord + use<> {
        (self.grants, self.cores, self.bytes.unwrap_or(u64::MAX), self.controllers.unwrap_or(u32::MAX))
    }
}

impl Ledger {
    /// Cores that no other user can have for these grants of a user, one of them new: all that share an exclusive cache, and
    /// those of grants elsewhere.
    pub(crate) fn taken(&self, uid: u32, new: Option<&Grant>) -> u32 {
        let grants = || self.grants().chain(new).filter(|grant| grant.owner == uid);
        let is_whole = |grant: &&Grant| grant.request.isolate.cache == CacheIsolation::Exclusive;
        let caches: BTreeSet<usize> = grants().filter(is_whole).filter_map(|grant| grant.cache).collect();
        let is_elsewhere = |core: &&usize| self.facts.cores[**core].cache.is_none_or(|cache| !caches.contains(&cache));
        let in_caches: usize = caches.iter().map(|&cache| self.facts.sharers[cache].len()).sum();
        let elsewhere = grants().flat_map(|grant| &grant.cores).filter(is_elsewhere).count();
        u32::try_from(in_caches + elsewhere).unwrap_or(u32::MAX)
    }

    /// Whether a user may have a further grant. `all` has the cores of the user's grants with it.
    pub(crate) fn check_cores(&self, all: u32, asker: &Asker) -> Result<(), Refusal> {
        let Some(quota) = asker.quota else { return Ok(()) };
        let grants = self.grants().filter(|grant| grant.owner == asker.uid).count() as u64;
        check("grants", quota.grants, grants, grants + 1)?;
        check("cores", quota.cores, self.taken(asker.uid, None), all)
    }

    /// Whether a user may have a grant as it is new or changed: its memory, and the controllers that it guards.
    pub(crate) fn check_shares(&self, changed: &Grant, asker: &Asker) -> Result<(), Refusal> {
        let Some(quota) = asker.quota else { return Ok(()) };
        let of_user = |grant: &&Grant| grant.owner == changed.owner;
        let had: Vec<&Grant> = self.grants().filter(of_user).collect();
        let all: Vec<&Grant> = had.iter().copied().filter(|grant| grant.id != changed.id).chain([changed]).collect();
        if let Some(most) = quota.bytes {
            check("bytes", most, bytes(&had, &self.facts), bytes(&all, &self.facts))?;
        }
        quota.controllers.map_or(Ok(()), |most| check("controllers", most, guarded(&had), guarded(&all)))
    }
}

/// What has grown beyond the limit is refused: a limit may be less than what was granted before.
fn check(what: &'static str, most: impl Into<u64>, had: impl Into<u64>, all: impl Into<u64>) -> Result<(), Refusal> {
    let (most, had, all) = (most.into(), had.into(), all.into());
    if all > most && all > had { Err(Refusal::Quota { what, most, had, wanted: all - had }) } else { Ok(()) }
}

/// The memory that grants may fill.
fn bytes(grants: &[&Grant], facts: &Facts) -> u64 {
    let of_node = |node| facts.machine.node(node).map_or(0, |node| node.memory_bytes);
    let of_grant = |grant: &&Grant| {
        let all = grant.memory.iter().map(of_node).sum();
        grant.request.bytes.map_or(all, |most| most.min(all))
    };
    grants.iter().map(of_grant).fold(0, u64::saturating_add)
}

/// The controllers that grants have guarded: those of their memory.
fn guarded(grants: &[&Grant]) -> u64 {
    let guarded = grants.iter().filter(|grant| grant.request.isolate.controller);
    guarded.flat_map(|grant| grant.memory.iter()).collect::<NodeSet>().len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, Control, Cores, Isolation, Memory, Request, Rules, Share};
    use machine::NodeId;
    use std::sync::Arc;

    const GIB: u64 = 1 << 30;

    fn ledger() -> Ledger {
        let mut machine = machine::presets::find("magny-cours-4p").unwrap();
        machine.nodes.iter_mut().for_each(|node| node.memory_bytes = 8 * GIB);
        Ledger::new(Arc::new(Facts::new(machine, Control::default())), Rules::default())
    }

    fn asker(bytes: Option<u64>, controllers: Option<u32>) -> Asker {
        let quota = Quota { grants: 9, cores: 9, bytes, controllers };
        Asker { uid: 1000, now_s: 0, quota: Some(quota) }
    }

    fn on_node(node: u32, bytes: Option<u64>, controller: bool) -> Action {
        let isolate = Isolation { core: controller, controller, ..Isolation::default() };
        let memory = Memory::Node(NodeId(node));
        Action::Request(Request { memory, bytes, isolate, ..Request::default() })
    }

    fn refused(ledger: &Ledger, action: Action, asker: &Asker) -> String {
        ledger.apply(&[action], asker).unwrap_err().to_string()
    }

    #[test]
    fn memory_is_limited_also_when_it_is_added() {
        let asker = asker(Some(10 * GIB), None);
        let said = refused(&ledger(), on_node(0, Some(16 * GIB), false), &asker);
        assert!(said.contains("node 0"), "{said}");
        // Without a limit of its own a grant may fill its node.
        let after = ledger().apply(&[on_node(0, None, false)], &asker).unwrap().after;
        let id = after.grants().next().unwrap().id;
        let further =
            || Action::Request(Request { cores: Cores::Of(id), memory: Memory::Node(NodeId(1)), ..Request::default() });
        assert_eq!(
            refused(&after, further(), &asker),
            "the user may have 10 GiB of memory in all, has 8 GiB and asks for 8 GiB"
        );
        let root = Asker::default();
        assert!(after.apply(&[further()], &root).is_ok());
        let after = after.apply(&[on_node(2, Some(2 * GIB), false)], &asker).unwrap().after;
        assert!(refused(&after, on_node(2, Some(1), false), &asker).contains("has 10 GiB and asks for 1 B"));
        // With a limit, a further node makes it no more.
        let small = after.grants().last().unwrap().id;
        let more = Request { cores: Cores::Of(small), memory: Memory::Node(NodeId(3)), ..Request::default() };
        assert!(after.apply(&[Action::Request(more)], &asker).is_ok());
    }

    #[test]
    fn guarded_controllers_are_limited_also_when_a_grant_is_upgraded() {
        let none = asker(None, Some(0));
        let said = "the user may have 0 guarded controllers in all, has 0 and asks for 1";
        assert_eq!(refused(&ledger(), on_node(0, None, true), &none), said);
        let after = ledger().apply(&[on_node(0, None, false)], &none).unwrap().after;
        let id = after.grants().next().unwrap().id;
        assert_eq!(refused(&after, Action::Guard(id, true), &none), said);
        // Another grant on the same controller is not counted again, and what is guarded already stays.
        let one = asker(None, Some(1));
        let after = after.apply(&[Action::Guard(id, true), on_node(0, None, true)], &one).unwrap().after;
        assert!(refused(&after, on_node(1, None, true), &one).contains("has 1 and asks for 1"));
        assert!(after.apply(&[Action::Guard(id, true)], &none).is_ok());
        assert!(after.apply(&[Action::Release(id, Share::Memory)], &none).is_ok());
    }
}
