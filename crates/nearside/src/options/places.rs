//! Nodes and CPUs from the command line, checked against the machine and the cpuset.

use crate::options::usage_error::UsageError;
use linux::{Attempt, Cause, Diagnosis, SystemState, cpus_in_the_way, diagnose, nodes_in_the_way};
use machine::{CpuId, CpuSet, Machine, Named, NodeId, NodeSet, Objects, Part, Selection};
use std::error::Error;
use std::path::Path;

/// Nodes in numactl's syntax, for the `--help` of every option that takes them.
pub type Nodes = Selection<NodeId>;
/// CPUs in numactl's syntax.
pub type Cpus = Selection<CpuId>;

/// The allowed nodes and CPUs of a process, and the last set that its options named.
#[derive(Debug)]
pub struct Places {
    /// State of the system.
    pub situation: SystemState,
    allowed_nodes: NodeSet,
    /// CPUs that may be named: those of the cpuset, or of an inherited affinity.
    allowed_cpus: CpuSet,
    /// CPUs of nodes that are named: as with numactl, these lift an inherited affinity.
    allowed_by_cpuset: CpuSet,
    /// Whether to take the whole machine as the base set, and let the kernel enforce the cpuset.
    all: bool,
    /// Whether the allowed CPUs are those of an inherited affinity.
    inherits: bool,
    /// The nodes of the preceding option, which `same` refers to.
    before: Option<NodeSet>,
}

impl Places {
    /// For a program that the caller becomes: CPUs that are named are among the affinity that the caller inherited, as
    /// launchers and batch systems set it, unless `all` asks for the whole machine.
    pub fn of_caller(situation: SystemState, all: bool) -> Self {
        let mut places = Self::new(situation, all);
        if !all {
            places.allowed_cpus = places.allowed_cpus.intersection(&places.situation.status().cpus);
            places.inherits = true;
        }
        places
    }

    /// For the process that the situation describes; with `all`, for the whole machine.
    pub fn new(situation: SystemState, all: bool) -> Self {
        let online = &situation.nodes.online;
        let status = situation.status();
        let cpus = situation.nodes.cpus_of(online);
        let cpuset = situation.cpusets.first().filter(|_| !all);
        // Where no cpuset can be read, the kernel decides.
        let allowed_by_cpuset = cpuset.map_or(cpus.clone(), |cpuset| cpuset.cpus.intersection(&cpus));
        let (allowed_nodes, allowed_cpus) = if all {
            (online.clone(), cpus)
        } else {
            let inside = cpuset.map_or(&status.cpus, |cpuset| &cpuset.cpus);
            (online.intersection(&status.nodes), inside.intersection(&cpus))
        };
        Self { situation, allowed_nodes, allowed_cpus, allowed_by_cpuset, all, inherits: false, before: None }
    }

    /// Nodes to allocate memory on.
    pub fn memory(&mut self, nodes: &Nodes) -> Result<NodeSet, Box<dyn Error>> {
        let with_memory = self.allowed_nodes.intersection(&self.situation.nodes.with_memory);
        let set = self.resolve(nodes, &with_memory)?;
        match nodes_in_the_way(&set, &self.situation) {
            Some(Diagnosis { cause: Cause::NodeOutsideCpuset { .. }, .. }) if self.all => Ok(set),
            Some(diagnosis) => Err(refused(nodes, &diagnosis)),
            None => Ok(set),
        }
    }

    /// Nodes whose memory is to go elsewhere: any that are online, as it may have been placed under another cpuset.
    pub fn sources(&mut self, nodes: &Nodes) -> Result<NodeSet, Box<dyn Error>> {
        let online = self.situation.nodes.online.clone();
        let set = self.resolve(nodes, &online)?;
        let missing: NodeSet = set.iter().filter(|node| !online.contains(*node)).collect();
        if missing.is_empty() {
            return Ok(set);
        }
        Err(refused(nodes, &Cause::NoSuchNode { missing, online }.into()))
    }

    /// The CPUs of the first node that has any that this process may run on.
    pub fn cpus_of_first_node(&self) -> CpuSet {
        let state = &self.situation.nodes;
        let first: NodeSet = state.nodes_of(&self.allowed_cpus).iter().take(1).collect();
        state.cpus_of(&first).intersection(&self.allowed_cpus)
    }

    /// CPUs of the given nodes that the cpuset allows. Nodes with CPUs and without memory are allowed.
    pub fn cpus_of(&mut self, nodes: &Nodes) -> Result<CpuSet, Box<dyn Error>> {
        let state = &self.situation.nodes;
        let with_cpus = self.allowed_nodes.iter().chain(state.nodes_of(&self.allowed_by_cpuset).iter()).collect();
        let set = self.resolve(nodes, &with_cpus)?;
        let state = &self.situation.nodes;
        let missing: NodeSet = set.iter().filter(|node| !state.online.contains(*node)).collect();
        if !missing.is_empty() {
            let diagnosis = Cause::NoSuchNode { missing, online: state.online.clone() }.into();
            return Err(refused(nodes, &diagnosis));
        }
        let cpus = state.cpus_of(&set);
        if cpus.is_empty() {
            return Err(UsageError::boxed(format!("node {set} has no CPUs to run on")));
        }
        let usable = cpus.intersection(&self.allowed_by_cpuset);
        if usable.is_empty() {
            let diagnosis = cpus_in_the_way(&cpus, &self.situation);
            let diagnosis = diagnosis.unwrap_or_else(|| diagnose(Attempt::Run(&cpus), 22, &self.situation));
            return Err(refused(nodes, &diagnosis));
        }
        Ok(usable)
    }

    /// CPUs to run on.
    pub fn cpus(&mut self, cpus: &Cpus) -> Result<CpuSet, Box<dyn Error>> {
        let find = |named: &Named| match named {
            Named::Device(_) => Err("a device has a node, and no CPU of its own".to_owned()),
            Named::Objects(objects) => match part(objects)?.cpus {
                none if none.is_empty() => Err(format!("{objects} has no CPUs")),
                cpus => Ok(cpus),
            },
        };
        let named = cpus.resolve(&self.allowed_cpus, None, find).map_err(UsageError::boxed)?;
        // As with a node: the CPUs of an object that may be used.
        let usable = named.intersection(&self.allowed_cpus);
        let set = if cpus.names_objects() && !usable.is_empty() { usable } else { named };
        if let Some(diagnosis) = cpus_in_the_way(&set, &self.situation) {
            return Err(refused(cpus, &diagnosis));
        }
        if self.inherits && !set.is_subset(&self.allowed_cpus) {
            let allowed = &self.allowed_cpus;
            let why = format!(
                "cannot use {cpus}: this process may only run on CPUs {allowed} (an affinity that it inherited, from taskset or a batch \
                 system): --all goes beyond it"
            );
            return Err(why.into());
        }
        Ok(set)
    }

    fn resolve(&mut self, nodes: &Nodes, allowed: &NodeSet) -> Result<NodeSet, Box<dyn Error>> {
        let find = |named: &Named| match named {
            Named::Device(device) => linux::device_nodes(Path::new("/sys"), device),
            Named::Objects(objects) => part(objects).map(|part| part.nodes),
        };
        let set = nodes.resolve(allowed, self.before.as_ref(), find).map_err(UsageError::boxed)?;
        self.before = Some(set.clone());
        Ok(set)
    }
}

/// The part of this machine that objects name.
fn part(objects: &Objects) -> Result<Part, String> {
    let machine = Machine::from_sysfs(Path::new("/sys")).map_err(|error| machine::chain(&error))?;
    objects.part(&machine).map_err(|error| error.to_string())
}

/// Nodes and CPUs that do not exist are a wrong request; those that exist but are not allowed are refused by the
/// system.
fn refused(asked: &impl ToString, diagnosis: &Diagnosis) -> Box<dyn Error> {
    let message = format!("cannot use {}: {diagnosis}", asked.to_string());
    match diagnosis.cause {
        Cause::NoSuchNode { .. } | Cause::NoSuchCpu { .. } => UsageError::boxed(message),
        _ => message.into(),
    }
}
