//! Decisions about grants: what was given or why not, and what it does to others.

use crate::table::Table;
use machine::NodeId;
use machine::number::significant;
use reserve::{
    Admitted, Course, Facts, Forecast, Grant, GrantId, Moved, Refusal, Resource, ServiceLevel, Throttle, hop_ends,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The output of `nearside reserve check` and its relatives.
#[derive(Clone, Debug, Serialize)]
pub struct ReserveReport {
    /// The machine's name.
    pub machine: String,
    /// Whether all requests are granted.
    pub granted: bool,
    /// The grants.
    pub grants: Vec<GrantReport>,
    /// Grants whose programs have to move for them.
    pub moved: Vec<Moved>,
    /// What they do to grants, themselves included.
    pub forecast: Option<Forecast>,
    /// Why not.
    pub refusal: Option<Refusal>,
    /// What keeps the rest of the machine within its limits.
    pub throttle: Throttle,
    /// Whether the machine's latencies and bandwidths are known.
    pub measured: bool,
}

/// A grant with the machine's numbers.
#[derive(Clone, Debug, Serialize)]
pub struct GrantReport {
    #[serde(flatten)]
    grant: Grant,
    /// Idle latency of its memory, ns; the highest if it has several nodes.
    latency_ns: Option<f64>,
    /// How many pairs of nodes have less latency, and how many pairs there are.
    nearer_pairs: usize,
    pairs: usize,
    /// The links that its accesses cross, as pairs of nodes.
    crosses: Vec<(NodeId, NodeId)>,
    /// What its controllers carry, bytes/s.
    capacity_bytes_per_s: Vec<(NodeId, f64)>,
}

impl GrantReport {
    /// Of a grant on a machine.
    pub fn new(grant: &Grant, facts: &Facts) -> Self {
        let ids = || facts.machine.nodes.iter().map(|node| node.id);
        let latency = |from| grant.memory.iter().filter_map(move |to| facts.latency_ns(from, to));
        let latency_ns = latency(grant.node).reduce(f64::max);
        let all = ids().filter(|&from| facts.cores.iter().any(|core| core.node == from));
        let all: Vec<f64> =
            all.flat_map(|from| facts.memory_nodes().filter_map(move |to| facts.latency_ns(from, to))).collect();
        let capacity = |node| Some((node, facts.capacity(Resource::Controller(node))?.read));
        Self {
            latency_ns,
            nearer_pairs: all.iter().filter(|ns| latency_ns.is_some_and(|own| **ns < own)).count(),
            pairs: all.len(),
            crosses: grant.links.iter().filter_map(|hop| hop_ends(&facts.machine, *hop)).collect(),
            capacity_bytes_per_s: grant.memory.iter().filter_map(capacity).collect(),
            grant: grant.clone(),
        }
    }

    /// What the rest of the machine may draw from its guarded controllers: a line each.
    pub fn limits_text(&self, limits: &BTreeMap<NodeId, f64>) -> String {
        limits.iter().map(|(node, limit)| limit_line(*node, *limit, self.capacity(*node))).collect()
    }

    /// What a controller carries, bytes/s, if its memory is the grant's.
    fn capacity(&self, node: NodeId) -> Option<f64> {
        self.capacity_bytes_per_s.iter().find(|(other, _)| *other == node).map(|(_, capacity)| *capacity)
    }
}

impl ReserveReport {
    /// The answer to requests on a machine.
    pub fn new(facts: &Facts, answer: &Result<Admitted, Refusal>) -> Self {
        let admitted = answer.as_ref().ok();
        let grants = admitted.map(|admitted| admitted.grants.iter().map(|grant| GrantReport::new(grant, facts)));
        Self {
            machine: facts.machine.name.clone(),
            granted: answer.is_ok(),
            grants: grants.into_iter().flatten().collect(),
            moved: admitted.map(|admitted| admitted.moved.clone()).unwrap_or_default(),
            forecast: admitted.map(|admitted| admitted.forecast.clone()),
            refusal: answer.as_ref().err().cloned(),
            throttle: facts.control.throttle,
            measured: facts.is_measured(),
        }
    }

    fn is_new(&self, id: GrantId) -> bool {
        self.grants.iter().any(|report| report.grant.id == id)
    }
}

impl fmt::Display for GrantReport {
    /// One line, without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Grant { cpus, idle_siblings, memory, request, ways, .. } = &self.grant;
        write!(f, "{}: ", self.grant.title())?;
        match cpus.len() {
            0 => write!(f, "no CPUs of its own")?,
            1 => write!(f, "CPU {cpus}")?,
            _ => write!(f, "CPUs {cpus}")?,
        }
        if !idle_siblings.is_empty() {
            write!(f, " (SMT siblings {idle_siblings} idle)")?;
        }
        if memory.is_empty() {
            write!(f, ", no memory of its own")?;
        } else {
            write!(f, ", memory of node {memory}")?;
        }
        if let Some(ns) = self.latency_ns {
            let rank = self.nearer_pairs + 1;
            let rank = if rank == 1 { "the nearest".to_owned() } else { format!("number {rank}") };
            write!(f, " ({ns:.1} ns, {rank} of {} pairs of nodes)", self.pairs)?;
        }
        if *ways != 0 {
            write!(f, ", {} ways of its cache ({ways:#x})", ways.count_ones())?;
        } else if self.grant.cache.is_some() {
            write!(f, ", its last-level cache for itself")?;
        }
        for (from, to) in &self.crosses {
            write!(f, ", over the link {from}-{to}")?;
        }
        if request.isolate.controller {
            write!(f, ", controller {memory} guarded")?;
        }
        Ok(())
    }
}

impl fmt::Display for ReserveReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(refusal) = &self.refusal {
            return writeln!(f, "refused: {refusal}");
        }
        self.grants.iter().try_for_each(|grant| writeln!(f, "{grant}"))?;
        let forecast = self.forecast.as_ref();
        for (node, limit) in forecast.iter().flat_map(|forecast| &forecast.rest_limit) {
            let capacity = self.grants.iter().find_map(|grant| grant.capacity(*node));
            f.write_str(&limit_line(*node, *limit, capacity))?;
        }
        for (id, by) in forecast.iter().flat_map(|forecast| &forecast.slowdown) {
            let who = if self.is_new(*id) { format!("grant {id}, new") } else { format!("grant {id}") };
            writeln!(f, "  {who}: forecast +{:.1} % at worst", 100.0 * by)?;
        }
        for Moved { id, from, to, memory } in &self.moved {
            writeln!(f, "  grant {id} moves from CPUs {from} to CPUs {to}, memory of node {memory}")?;
        }
        let is_limited = forecast.is_some_and(|forecast| !forecast.rest_limit.is_empty());
        limited_text(self.throttle).filter(|_| is_limited).map_or(Ok(()), |text| writeln!(f, "  {text}"))?;
        if self.measured { Ok(()) } else { writeln!(f, "  {NOT_MEASURED}") }
    }
}

/// The most that the rest may draw from a controller, bytes/s, with its capacity if that is known.
fn limit_line(node: NodeId, limit: f64, capacity: Option<f64>) -> String {
    let of = capacity.map_or_else(String::new, |capacity| format!(" of {}", significant(capacity / 1e9)));
    format!("  controller {node}: the rest may draw {}{of} GB/s\n", significant(limit / 1e9))
}

/// How a grant's program does by its holder's figure, and what follows for the rest of the machine.
pub fn service_text(level: &ServiceLevel, now_s: u64) -> String {
    let course = match level.course() {
        Course::Holding => "holding",
        Course::Tightening => "tightening",
        Course::Relaxing => "relaxing",
        Course::AtLimit => "at its limit",
    };
    let (said, age_s) = (level.said(), now_s.saturating_sub(level.said_s()));
    let [latency, target, part] = [said.latency_ms, said.target_ms, 100.0 * level.part()].map(significant);
    format!(
        "its holder says {latency} ms ({age_s} s ago), target {target} ms: {course}, the rest has {part} % of its limit"
    )
}

/// How the rest of the machine is kept within its limits.
pub fn limited_text(throttle: Throttle) -> Option<&'static str> {
    match throttle {
        Throttle::None => None,
        Throttle::Duty => Some("the rest is limited by shares of CPU time: on average, not at each moment"),
        Throttle::Hardware => Some(
            "other CPUs of guarded nodes are limited by the hardware: at each moment; CPUs of other nodes are not limited",
        ),
    }
}

/// What follows where `nearside measure` has not been run.
const NOT_MEASURED: &str = "the machine is not measured (`nearside measure`): no slow-down is forecast, and nodes are chosen by the firmware's distances";

/// What `reserve` knows of a machine, as a table by node.
pub fn facts_to_text(facts: &Facts) -> String {
    let heading = ["node", "cores", "local ns", "most ns", "core GB/s", "controller GB/s"];
    let mut table = Table::new(heading);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), significant);
    let giga = |value: Option<f64>| number(value.map(|value| value / 1e9));
    for node in &facts.machine.nodes {
        let cores = facts.cores.iter().filter(|core| core.node == node.id).count();
        let farthest = facts.memory_nodes().filter_map(|to| facts.latency_ns(node.id, to)).reduce(f64::max);
        let capacity = facts.capacity(Resource::Controller(node.id)).map(|capacity| capacity.read);
        table.row([
            node.id.to_string(),
            cores.to_string(),
            number(facts.latency_ns(node.id, node.id)),
            number(farthest),
            giga(facts.value(reserve::Table::Read, node.id, node.id)),
            giga(capacity),
        ]);
    }
    let directory = if facts.lacks_directory() { "no cache directory: controllers cannot be guarded\n" } else { "" };
    let measured = if facts.is_measured() { String::new() } else { format!("{NOT_MEASURED}\n") };
    format!("{table}{directory}{measured}")
}
