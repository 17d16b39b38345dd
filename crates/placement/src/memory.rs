//! Memory placement by policies that decide once: initial memory policies, and what to do with memory that already
//! exists.

use crate::action::Step;
use crate::batches::{Candidate, Limits, Operation, Telling, steps};
use crate::costs::Costs;
use crate::name::MemoryPlacement;
use crate::observation::{Observation, Page, Process};
use crate::outcome::PageOf;
use crate::reason::{Reason, Rule};
use crate::settings::Settings;
use machine::{MemoryMode, MemoryPolicy, NodeId, NodeSet, NodeWeight, Pid};
use rustc_hash::{FxHashMap, FxHashSet};

/// The policy and its inputs.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'a> {
    pub policy: &'a MemoryPlacement,
    /// The nodes in the policy's name.
    pub nodes: &'a NodeSet,
    pub costs: &'a Costs,
    pub settings: &'a Settings,
}

impl Rules<'_> {
    /// The initial memory policy of a process or thread. `home` is the node of its CPUs, if they are on one. None if
    /// the program's own choice stands.
    pub fn start(self, process: &Process, home: Option<NodeId>) -> Option<MemoryPolicy> {
        if process.memory_policy.is_some() && self.settings.respect_owner {
            return None;
        }
        let nodes = self.costs.memory_nodes().intersection(&process.nodes);
        let among = self.nodes.intersection(&nodes);
        let on = |mode: MemoryMode, nodes: NodeSet| (!nodes.is_empty()).then(|| MemoryPolicy::new(mode, nodes));
        let one = |node: Option<NodeId>| on(MemoryMode::Preferred, node.into_iter().collect());
        match self.policy {
            MemoryPlacement::Default
            | MemoryPlacement::Carrefour
            | MemoryPlacement::CarrefourPublished
            | MemoryPlacement::Predict => None,
            MemoryPlacement::FirstTouch => Some(MemoryPolicy::plain(MemoryMode::Local)),
            MemoryPlacement::Local => match home {
                Some(home) => one(self.costs.nearest(home, &nodes)),
                None => Some(MemoryPolicy::plain(MemoryMode::Local)),
            },
            MemoryPlacement::Remote => one(self.costs.farthest(home?, &nodes)),
            MemoryPlacement::Interleave(_) => on(MemoryMode::Interleave, among),
            MemoryPlacement::WeightedInterleave(_) => {
                let weights = self.costs.weights(&among).into_iter();
                let weights = weights.map(|(node, weight)| NodeWeight { node, weight }).collect();
                on(MemoryMode::WeightedInterleave, among).map(|policy| MemoryPolicy { weights, ..policy })
            }
            MemoryPlacement::Bind(_) => on(MemoryMode::Bind, among),
        }
    }

    /// Moves observed pages of processes that ran before to where the policy would have placed them, except those for
    /// which `stays` is true.
    pub fn settle(
        self,
        observation: &Observation,
        home: impl Fn(Pid) -> Option<NodeId>,
        stays: impl Fn(PageOf) -> bool,
    ) -> Vec<Step> {
        let adopted = observation.processes.iter().filter(|process| process.adopted);
        let policies: FxHashMap<Pid, MemoryPolicy> =
            adopted.filter_map(|process| Some((process.pid, self.start(process, home(process.pid))?))).collect();
        if policies.is_empty() {
            return Vec::new();
        }
        let mut frames = FxHashSet::default();
        let mut candidates: Vec<Candidate> = Vec::new();
        for page in observation.pages.iter().filter(|page| !(page.is_bound && self.settings.respect_owner)) {
            let to = policies.get(&page.pid).and_then(|policy| target(policy, page));
            // A page that several processes map has no single home, and is moved once.
            let is_first = page.frame.is_none_or(|frame| frames.insert(frame));
            let Some(to) = to.filter(|to| *to != page.node && is_first) else { continue };
            if stays(PageOf { pid: page.pid, address: page.address }) {
                continue;
            }
            candidates.push(Candidate {
                pid: page.pid,
                address: page.address,
                bytes: page.page_bytes,
                from: page.node,
                to: Some(to),
                samples: page.samples(),
                operation: Operation::Move,
            });
        }
        let thresholds = &self.settings.thresholds;
        Limits::new(observation, self.costs, thresholds, thresholds.page_cap).keep(&mut candidates, self.costs);
        let telling = Telling {
            batch_pages: thresholds.batch_pages,
            weights: &|_| Vec::new(),
            readers: &|_| NodeSet::new(),
            reason: &|_| Reason::new(Rule::PolicyOfStart),
        };
        steps(&candidates, &telling)
    }
}

/// The policy's node for a page; none if it may stay anywhere.
fn target(policy: &MemoryPolicy, page: &Page) -> Option<NodeId> {
    // The frame number is the same for all processes that map the page.
    let number = page.frame.unwrap_or(page.address / page.page_bytes.max(1));
    let dealt = |count: usize| usize::try_from(number % count as u64).unwrap_or(0);
    match policy.mode {
        MemoryMode::Default | MemoryMode::Local => None,
        MemoryMode::Preferred | MemoryMode::PreferredMany => policy.nodes.first().filter(|_| page.frame.is_none()),
        MemoryMode::Bind if policy.nodes.contains(page.node) => None,
        MemoryMode::Bind | MemoryMode::Interleave => policy.nodes.iter().nth(dealt(policy.nodes.len())),
        MemoryMode::WeightedInterleave => {
            let all: u64 = policy.weights.iter().map(|node| u64::from(node.weight)).sum();
            let mut position = number % all.max(1);
            policy.weights.iter().find_map(|node| {
                let weight = u64::from(node.weight);
                let is_here = position < weight;
                position = position.saturating_sub(weight);
                is_here.then_some(node.node)
            })
        }
    }
}
