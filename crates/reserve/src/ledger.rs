//! All grants of a machine, and what is done with them. Every change is made on a copy: a list of requests is granted
//! as a whole or not at all.

use crate::admission;
use crate::facts::Facts;
use crate::forecast::{Forecast, Forecaster};
use crate::grant::{Grant, GrantId};
use crate::quota::Quota;
use crate::refusal::Refusal;
use crate::request::{Cores, ReadWrite, Request};
use crate::service_level::ServiceLevel;
use crate::zone::Zone;
use machine::{CpuSet, NodeId, NodeSet};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The grants of a machine.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// The machine.
    pub facts: Arc<Facts>,
    /// By which rules grants are made.
    pub rules: Rules,
    /// What was seen to be drawn from memory. A grant counts with what it was promised, or more if more was seen; one
    /// without a promise that was not seen, with all that its cores can draw.
    pub usage: Vec<Flow>,
    /// The loops of grants whose holders say how they do: what they let the rest of the machine have.
    pub levels: BTreeMap<GrantId, ServiceLevel>,
    grants: BTreeMap<GrantId, Grant>,
    next: u32,
}

/// By which rules grants are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Where.
    pub zone: Zone,
    /// The test of guarded controllers.
    pub rule: Rule,
    /// Whether programs without isolation stay where they are, also in the way of a request.
    pub keep_tenants: bool,
    /// Whether controllers and routes are also guarded on machines without a cache directory, where probes of all nodes
    /// slow them.
    pub without_directory: bool,
}

/// The test that a guarded controller must pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, strum::EnumString)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Rule {
    /// No guarded grant is forecast to be slowed by more than its bound.
    #[default]
    Forecast,
    /// That of the study: what is drawn, and as much again as the hungriest core draws, fits the capacity.
    Seed,
}

/// Traffic from a node's CPUs to a node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// The grant; `None` for the rest of the machine.
    pub of: Option<GrantId>,
    /// The node of the CPUs.
    pub from: NodeId,
    /// The node of the memory.
    pub to: NodeId,
    /// Bytes per second.
    pub load: ReadWrite,
    /// Cores that it comes from.
    pub cores: u32,
}

/// Who asks, and when.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asker {
    /// The user.
    pub uid: u32,
    /// The time, seconds since 1970.
    pub now_s: u64,
    /// What the user may have; `None` for no limit.
    pub quota: Option<Quota>,
}

/// Part of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// Its cores, with what belongs to them: cache and links.
    Cores,
    /// Its memory.
    Memory,
    /// All.
    All,
}

/// What is asked of a ledger.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A grant, or more memory for one.
    Request(Request),
    /// The controllers of a grant are guarded, or no longer.
    Guard(GrantId, bool),
    /// A grant is given back, whole or in part.
    Release(GrantId, Share),
}

impl Action {
    /// The grant that must exist for it.
    pub fn grant(&self) -> Option<GrantId> {
        match self {
            Self::Request(Request { cores: Cores::Of(id) | Cores::OnCacheOf(id, _), .. })
            | Self::Guard(id, _)
            | Self::Release(id, _) => Some(*id),
            Self::Request(_) => None,
        }
    }
}

/// A granted transaction.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// The ledger with it.
    pub after: Ledger,
    /// New and changed grants, in the order of the requests; without those that ended.
    pub grants: Vec<Grant>,
    /// Programs that have to move for it.
    pub moved: Vec<Moved>,
    /// What it does to all grants that it touches.
    pub forecast: Forecast,
}

/// A grant whose program has to move.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moved {
    /// The grant.
    pub id: GrantId,
    /// Its CPUs before.
    pub from: CpuSet,
    /// Its CPUs after.
    pub to: CpuSet,
    /// The nodes of its memory after.
    pub memory: NodeSet,
}

impl Ledger {
    /// A machine without grants.
    pub fn new(facts: Arc<Facts>, rules: Rules) -> Self {
        Self { facts, rules, usage: Vec::new(), levels: BTreeMap::new(), grants: BTreeMap::new(), next: 1 }
    }

    /// The grants, by number.
    pub fn grants(&self) -> impl ExactSizeIterator<Item = &Grant> {
        self.grants.values()
    }

    /// One grant.
    pub fn grant(&self, id: GrantId) -> Option<&Grant> {
        self.grants.get(&id)
    }

    /// The grant with this name.
    pub fn named(&self, name: &str) -> Option<&Grant> {
        self.grants().find(|grant| grant.request.name.as_deref() == Some(name))
    }

    /// Takes a grant over that exists already, with its number: as recorded before a restart.
    pub fn adopt(&mut self, mut grant: Grant) {
        if grant.links.is_empty() && !grant.cores.is_empty() {
            let links = grant.memory.iter().filter_map(|to| self.facts.route(grant.node, to)).flatten();
            grant.links = links.collect();
        }
        self.next = self.next.max(grant.id.0.saturating_add(1));
        self.grants.insert(grant.id, grant);
    }

    /// Decides requests as one transaction. Changes nothing: the answer has the ledger with them.
    pub fn admit(&self, requests: &[Request], asker: &Asker) -> Result<Admitted, Refusal> {
        let actions: Vec<Action> = requests.iter().cloned().map(Action::Request).collect();
        self.apply(&actions, asker)
    }

    /// Decides actions as one transaction. Changes nothing: the answer has the ledger with them.
    pub fn apply(&self, actions: &[Action], asker: &Asker) -> Result<Admitted, Refusal> {
        let (mut after, mut changed, mut moved) = (self.clone(), Vec::new(), Vec::new());
        for action in actions {
            match action {
                Action::Request(request) => changed.push(after.place(request, asker, &mut moved)?),
                Action::Guard(id, guarded) => changed.push(after.guard(*id, *guarded, asker)?),
                Action::Release(id, share) => {
                    after.give_back(*id, *share, asker)?;
                    changed.push(*id);
                }
            }
        }
        // A later action may have changed the same grant again.
        let mut seen = BTreeSet::new();
        changed.retain(|id| seen.insert(*id));
        let grants: Vec<Grant> = changed.iter().filter_map(|id| after.grant(*id)).cloned().collect();
        let forecast = Forecaster::new(&after).forecast(&grants);
        Ok(Admitted { after, grants, moved, forecast })
    }

    /// Ends a grant. Returns it, unless there is none.
    pub fn release(&mut self, id: GrantId) -> Option<Grant> {
        self.usage.retain(|flow| flow.of != Some(id));
        self.levels.remove(&id);
        self.grants.remove(&id)
    }

    /// What all grants are forecast to suffer.
    pub fn forecast(&self) -> Forecast {
        let all: Vec<Grant> = self.grants().cloned().collect();
        Forecaster::new(self).forecast(&all)
    }

    /// Without a grant, for decisions in which its own share is free.
    pub(crate) fn without(&self, ids: &[GrantId]) -> Self {
        let mut without = self.clone();
        without.grants.retain(|id, _| !ids.contains(id));
        without
    }

    /// A grant that a user may change.
    fn own(&self, id: GrantId, asker: &Asker) -> Result<&Grant, Refusal> {
        let grant = self.grant(id).ok_or(Refusal::UnknownGrant(id))?;
        if asker.uid == 0 || asker.uid == grant.owner { Ok(grant) } else { Err(Refusal::NotYours(id)) }
    }

    fn place(&mut self, request: &Request, asker: &Asker, moved: &mut Vec<Moved>) -> Result<GrantId, Refusal> {
        let request = request.clone().complete();
        let mut asker = asker.clone();
        if let Cores::Of(id) | Cores::OnCacheOf(id, _) = request.cores {
            // Root may ask for a user, whose grant it then is.
            asker.uid = self.own(id, &asker)?.owner;
        }
        let asker = &asker;
        if let Cores::Of(id) = request.cores {
            let grown = admission::more_memory(self, id, &request, asker)?;
            self.check_shares(&grown, asker)?;
            self.adopt(grown);
            return Ok(id);
        }
        self.check_name(&request)?;
        // At least these cores, before a place is searched.
        let least = if let Cores::Any(count) = request.cores { count } else { 0 };
        self.check_cores(self.taken(asker.uid, None).saturating_add(least), asker)?;
        let id = GrantId(self.next);
        let placed = admission::place(self, id, &request, asker)?;
        self.check_cores(self.taken(asker.uid, Some(&placed.grant)), asker)?;
        self.check_shares(&placed.grant, asker)?;
        for tenant in placed.moved.iter().filter_map(|moved| placed.ledger.grant(moved.id)) {
            self.grants.insert(tenant.id, tenant.clone());
        }
        moved.extend(placed.moved);
        self.adopt(placed.grant);
        Ok(id)
    }

    fn guard(&mut self, id: GrantId, guarded: bool, asker: &Asker) -> Result<GrantId, Refusal> {
        let mut grant = self.own(id, asker)?.clone();
        grant.request.isolate.controller = guarded;
        if guarded {
            admission::check_in_place(&self.without(&[id]), &grant, asker)?;
            self.check_shares(&grant, asker)?;
        } else {
            self.levels.remove(&id);
        }
        self.adopt(grant);
        Ok(id)
    }

    fn give_back(&mut self, id: GrantId, share: Share, asker: &Asker) -> Result<(), Refusal> {
        let mut grant = self.own(id, asker)?.clone();
        if share != Share::Memory {
            grant.cores.clear();
            (grant.cpus, grant.idle_siblings, grant.links) = (CpuSet::new(), CpuSet::new(), Vec::new());
            (grant.cache, grant.ways) = (None, 0);
        }
        if share != Share::Cores {
            (grant.memory, grant.links) = (NodeSet::new(), Vec::new());
        }
        if grant.cores.is_empty() && grant.memory.is_empty() {
            self.release(id);
        } else {
            self.adopt(grant);
        }
        Ok(())
    }

    fn check_name(&self, request: &Request) -> Result<(), Refusal> {
        let taken = request.name.as_deref().and_then(|name| self.named(name));
        taken.map_or(Ok(()), |grant| Err(Refusal::NameTaken(grant.title())))
    }
}
