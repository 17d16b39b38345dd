//! Converts the objects of hwloc XML to a machine.

use super::bitmap::Bitmap;
use super::document::{self, Document, Initiator, Kind, Object, Shape};
use super::{HwlocError, MEBIBYTE};
use crate::description::{Cache, Distances, Latency, Machine, Node, Package, USUAL_LINE_BYTES};
use crate::ids::{CpuId, NodeId, PackageId};
use crate::numbers::{BANDWIDTH, Checked};
use crate::pairs::LatencyPairs;
use crate::set::{CpuSet, MAX_ID};
use crate::simple_sharing::SimpleSharing;
use crate::source::Source;
use crate::validate::MAX_NODES;
use crate::violation::{Violation, Violations};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// hwloc's kind for latency-like distances from the system: `HWLOC_DISTANCES_KIND_FROM_OS |
/// HWLOC_DISTANCES_KIND_MEANS_LATENCY`.
const FIRMWARE_DISTANCES: u64 = 1 | 4;

impl Machine {
    /// The machine that XML of hwloc 2 or 3 describes, and warnings about what was left out or is unknown.
    ///
    /// hwloc lets several nodes share CPUs (one of fast and one of large memory, say); here, as in Linux, a CPU belongs
    /// to one: that with the fewest CPUs, the lowest number among equals. Groups, dies and devices are ignored, and so
    /// are caches of unknown size. A CPU may be in a node that hwloc was not allowed to see: that node has no memory
    /// here. CPUs of no node are left out.
    pub fn from_saved_hwloc_xml(text: &str) -> Result<(Self, Vec<String>), HwlocError> {
        let document = Document::parse(text)?;
        let mut reading = Reading::new(text, &document)?;
        let machine = reading.machine()?;
        let (unknown, violations) = machine.validate().into_iter().partition::<Vec<_>, _>(Violation::is_unknown_memory);
        reading.warnings.extend(unknown.into_iter().map(|violation| violation.rule));
        if violations.is_empty() { Ok((machine, reading.warnings)) } else { Err(Violations(violations).into()) }
    }

    /// As [`Machine::from_saved_hwloc_xml`], without the warnings.
    pub fn from_hwloc_xml(text: &str) -> Result<Self, HwlocError> {
        Ok(Self::from_saved_hwloc_xml(text)?.0)
    }
}

/// The node of a CPU that has none yet.
const NO_NODE: usize = usize::MAX;

/// A document and what was derived from its objects.
struct Reading<'a> {
    text: &'a str,
    document: &'a Document,
    /// The CPUs in each object of the document: of packages, caches and cores.
    cpus_of: Vec<CpuSet>,
    /// Index in the document of each node's object, in ascending order of node; [`HIDDEN`] for a node that only CPUs name.
    nodes: Vec<(NodeId, usize)>,
    /// Index in `nodes` of each CPU's node.
    node_of: BTreeMap<CpuId, usize>,
    /// What was left out.
    warnings: Vec<String>,
}

/// The index of a node's object that the document does not have.
const HIDDEN: usize = usize::MAX;

impl<'a> Reading<'a> {
    fn new(text: &'a str, document: &'a Document) -> Result<Self, HwlocError> {
        let mut reading = Self {
            text,
            document,
            cpus_of: Vec::new(),
            nodes: Vec::new(),
            node_of: BTreeMap::new(),
            warnings: Vec::new(),
        };
        reading.find_cpus()?;
        reading.find_nodes()?;
        reading.assign_cpus()?;
        Ok(reading)
    }

    fn failed(&self, object: &Object, what: &str, rule: impl Into<String>) -> HwlocError {
        document::failed(self.text, object.at, what, rule)
    }

    fn os_index(&self, object: &Object, what: &str) -> Result<u32, HwlocError> {
        let index = object.os_index.filter(|&index| index <= MAX_ID);
        index.ok_or_else(|| self.failed(object, what, format!("has no os_index, or one above {MAX_ID}")))
    }

    /// Adds each PU to the objects that contain it.
    fn find_cpus(&mut self) -> Result<(), HwlocError> {
        let objects = &self.document.objects;
        self.cpus_of = vec![CpuSet::new(); objects.len()];
        let mut all = CpuSet::new();
        for pu in objects.iter().filter(|object| object.kind == Kind::Pu) {
            let cpu = CpuId(self.os_index(pu, "PU")?);
            if !all.insert(cpu) {
                return Err(self.failed(pu, "PU", format!("os_index {cpu} is another PU's already")));
            }
            let mut within = pu.parent;
            while let Some((index, object)) = within.and_then(|index| Some((index, objects.get(index)?))) {
                if let (Kind::Package | Kind::Cache(_) | Kind::Core, Some(cpus)) =
                    (&object.kind, self.cpus_of.get_mut(index))
                {
                    cpus.insert(cpu);
                }
                within = object.parent;
            }
        }
        self.node_of = all.iter().map(|cpu| (cpu, NO_NODE)).collect();
        Ok(())
    }

    fn find_nodes(&mut self) -> Result<(), HwlocError> {
        for (index, object) in
            self.document.objects.iter().enumerate().filter(|(_, object)| object.kind == Kind::NumaNode)
        {
            if self.nodes.len() >= MAX_NODES {
                return Err(self.failed(
                    object,
                    "NUMANode",
                    format!("is one more than the {MAX_NODES} nodes a machine may have"),
                ));
            }
            self.nodes.push((NodeId(self.os_index(object, "NUMANode")?), index));
        }
        self.add_hidden_nodes();
        self.nodes.sort_unstable();
        Ok(())
    }

    /// Adds the nodes of CPUs that are in no visible node: a control group or administrator hides them from hwloc.
    fn add_hidden_nodes(&mut self) {
        let visible = self.document.objects.iter().filter_map(|object| object.cpuset.as_ref());
        let seen: CpuSet = visible.flat_map(|set| self.cpus_in(set).map(|(cpu, _)| cpu)).collect();
        let pus = self.document.objects.iter().filter(|object| object.kind == Kind::Pu);
        let homeless = pus.filter(|pu| pu.os_index.is_some_and(|cpu| !seen.contains(CpuId(cpu))));
        let named = homeless.filter_map(|pu| NodeId::from(pu.nodeset.as_ref()?.ids().next()?).into());
        let hidden: BTreeSet<NodeId> = named.filter(|id| self.nodes.iter().all(|(known, _)| known != id)).collect();
        let room = MAX_NODES - self.nodes.len();
        self.nodes.extend(hidden.into_iter().take(room).map(|id| (id, HIDDEN)));
    }

    /// Assigns each CPU to the node with the fewest CPUs that has it.
    fn assign_cpus(&mut self) -> Result<(), HwlocError> {
        let mut by_size = Vec::new();
        for (node, &(_, index)) in self.nodes.iter().enumerate() {
            if let Some(object) = self.document.objects.get(index) {
                let cpus = object.cpuset.as_ref().ok_or_else(|| self.failed(object, "NUMANode", "has no cpuset"))?;
                by_size.push((cpus.len(), node, cpus));
            }
        }
        by_size.sort_by_key(|&(size, node, _)| (size, node));
        for (_, node, cpus) in by_size {
            let cpus: Vec<CpuId> =
                self.cpus_in(cpus).filter(|&(_, owner)| owner == NO_NODE).map(|(cpu, _)| cpu).collect();
            self.node_of.extend(cpus.into_iter().map(|cpu| (cpu, node)));
        }
        let position: BTreeMap<NodeId, usize> =
            self.nodes.iter().enumerate().map(|(node, &(id, _))| (id, node)).collect();
        for pu in self.document.objects.iter().filter(|object| object.kind == Kind::Pu) {
            let node = pu.nodeset.as_ref().and_then(|set| set.ids().find_map(|id| position.get(&NodeId(id))));
            if let (Some(cpu), Some(&node)) = (pu.os_index, node)
                && let Some(owner) = self.node_of.get_mut(&CpuId(cpu)).filter(|owner| **owner == NO_NODE)
            {
                *owner = node;
            }
        }
        let homeless: CpuSet = self.node_of.iter().filter(|(_, node)| **node == NO_NODE).map(|(&cpu, _)| cpu).collect();
        if !homeless.is_empty() {
            self.warnings.push(format!("CPU {homeless} is left out: no NUMANode's cpuset has it"));
            self.node_of.retain(|_, node| *node != NO_NODE);
            for cpus in &mut self.cpus_of {
                *cpus = cpus.iter().filter(|&cpu| !homeless.contains(cpu)).collect();
            }
        }
        Ok(())
    }

    /// The existing CPUs of a set, with the index in `nodes` of their nodes.
    fn cpus_in(&self, set: &Bitmap) -> impl Iterator<Item = (CpuId, usize)> {
        let listed = set.ids().filter_map(|cpu| self.node_of.get_key_value(&CpuId(cpu)));
        let endless = set.endless_from().into_iter().flat_map(|first| self.node_of.range(CpuId(first)..));
        listed.chain(endless).map(|(&cpu, &node)| (cpu, node))
    }

    fn machine(&mut self) -> Result<Machine, HwlocError> {
        let cores: Vec<CpuSet> = self.sets(&Kind::Core).collect();
        let source = || Some(Source::All("hwloc".into()));
        let bandwidth = self.bandwidth();
        let mut cpus: Vec<CpuSet> = vec![CpuSet::new(); self.nodes.len()];
        for (&cpu, &node) in &self.node_of {
            if let Some(cpus) = cpus.get_mut(node) {
                cpus.insert(cpu);
            }
        }
        let memory = |index: usize| self.document.objects.get(index).map_or(0, |object| object.local_memory);
        let nodes = self.nodes.iter().zip(cpus).enumerate().map(|(node, (&(id, index), cpus))| Node {
            id,
            cpus,
            memory_bytes: memory(index),
            bandwidth_bytes_per_s: bandwidth.get(&node).copied(),
            write_cost: None,
            source: source(),
        });
        let nodes: Vec<Node> = nodes.collect();
        let distances = self.checked_distances()?;
        let latency = self.latency(&nodes);
        let mut machine = Machine {
            name: self.document.name.clone().unwrap_or_else(|| "hwloc".into()),
            description: "as hwloc describes it".into(),
            sources: [("hwloc".to_owned(), "hwloc XML".to_owned())].into(),
            smt_cores: cores.into_iter().filter(|cpus| cpus.len() > 1).collect(),
            core: None,
            coherence: None,
            control: None,
            disk: None,
            tlbs: Vec::new(),
            latency,
            distances,
            packages: self.packages(),
            nodes,
            caches: Vec::new(),
            links: Vec::new(),
            routes: Vec::new(),
        };
        machine.caches = self.caches(&machine);
        Ok(machine)
    }

    /// The CPUs of each object of a kind that has any.
    fn sets(&self, kind: &Kind) -> impl Iterator<Item = CpuSet> {
        let objects = self.document.objects.iter().zip(&self.cpus_of);
        objects.filter(move |(object, cpus)| object.kind == *kind && !cpus.is_empty()).map(|(_, cpus)| cpus.clone())
    }

    /// Packages in ascending order of ID. If one has no number, or two have the same, all are numbered in the order of
    /// the text.
    fn packages(&self) -> Vec<Package> {
        let objects = self.document.objects.iter().zip(&self.cpus_of);
        let found: Vec<(&Object, &CpuSet)> =
            objects.filter(|(object, cpus)| object.kind == Kind::Package && !cpus.is_empty()).collect();
        let ids: BTreeSet<u32> = found.iter().filter_map(|(object, _)| object.os_index).collect();
        let numbered = ids.len() == found.len();
        let package = |(number, (object, cpus)): (u32, (&Object, &CpuSet))| Package {
            id: PackageId(object.os_index.filter(|_| numbered).unwrap_or(number)),
            cpus: cpus.clone(),
        };
        let mut packages: Vec<Package> = (0..).zip(found).map(package).collect();
        packages.sort_by_key(|package| package.id);
        packages
    }

    fn caches(&self, machine: &Machine) -> Vec<Cache> {
        let mut by_shape: BTreeMap<Shape, Vec<CpuSet>> = BTreeMap::new();
        for (object, cpus) in self.document.objects.iter().zip(&self.cpus_of) {
            if let Kind::Cache(shape) = object.kind
                && shape.size_bytes > 0
                && !cpus.is_empty()
            {
                by_shape.entry(shape).or_default().push(cpus.clone());
            }
        }
        let simple = SimpleSharing::of(machine);
        let cache = |(shape, sets): (Shape, Vec<CpuSet>)| {
            let line_bytes = if shape.line_bytes == 0 { USUAL_LINE_BYTES } else { shape.line_bytes };
            let lines = shape.size_bytes / u64::from(line_bytes);
            let ways =
                if shape.ways < 0 { u32::try_from(lines).unwrap_or(0) } else { u32::try_from(shape.ways).unwrap_or(0) };
            // Part of a cache may be reserved: its size lacks it, its ways do not.
            let set_bytes = u64::from(ways) * u64::from(line_bytes);
            let ways = if set_bytes > 0 && shape.size_bytes.is_multiple_of(set_bytes) { ways } else { 0 };
            Cache {
                level: shape.level,
                kind: shape.kind,
                size_bytes: shape.size_bytes,
                ways,
                line_bytes,
                latency_ns: None,
                shared_by: simple.simplest(sets),
                source: Some(Source::All("hwloc".into())),
            }
        };
        by_shape.into_iter().map(cache).collect()
    }

    /// The distances, if they can be those of firmware.
    fn checked_distances(&mut self) -> Result<Option<Distances>, HwlocError> {
        let Some(distances) = self.distances()? else { return Ok(None) };
        let nodes = self.nodes.len();
        let wrong = distances.matrix.iter().enumerate().find(|(node, row)| !Distances::is_row(row, *node, nodes));
        let Some((node, row)) = wrong else { return Ok(Some(distances)) };
        let row: Vec<String> = row.iter().take(16).map(u32::to_string).collect();
        let id = self.nodes.get(node).map_or(NodeId(0), |&(id, _)| id);
        self.warnings.push(format!("the distances are left out: those of node {id} are `{}`", row.join(" ")));
        Ok(None)
    }

    fn distances(&self) -> Result<Option<Distances>, HwlocError> {
        let firmware = |d: &&document::Distances| {
            d.object_type == "NUMANode"
                && d.kind == FIRMWARE_DISTANCES
                && d.name.as_deref().is_none_or(|name| name == "NUMALatency")
        };
        let Some(found) = self.document.distances.iter().find(firmware) else { return Ok(None) };
        let failed = |rule: String| document::failed(self.text, found.at, "distances2", rule);
        let count = found.indexes.len();
        if found.count != count || count.checked_mul(count) != Some(found.values.len()) {
            let (objects, values) = (found.count, found.values.len());
            return Err(failed(format!("is of {objects} nodes, but has {count} indexes and {values} values")));
        }
        let by_gp = self.by_gp_index();
        let position: HashMap<u64, usize> =
            (0..).zip(&found.indexes).map(|(position, &index)| (index, position)).collect();
        let position_of = |(id, index): &(NodeId, usize)| {
            let gp = self.document.objects.get(*index).and_then(|object| object.gp_index);
            let name = if found.by_gp_index { gp.filter(|gp| by_gp.contains_key(gp)) } else { Some(u64::from(id.0)) };
            name.and_then(|name| position.get(&name).copied())
        };
        // hwloc may have the distances of some nodes only; such a part is not a matrix of the machine.
        let Some(positions) = self.nodes.iter().map(position_of).collect::<Option<Vec<usize>>>() else {
            return Ok(None);
        };
        let cell = |from: usize, to: usize| {
            let value = found.values.get(from * count + to).copied().unwrap_or(0);
            u32::try_from(value).map_err(|_| failed(format!("{value} is not a distance")))
        };
        let row = |&from: &usize| positions.iter().map(|&to| cell(from, to)).collect::<Result<Vec<u32>, _>>();
        let matrix = positions.iter().map(row).collect::<Result<_, _>>()?;
        Ok(Some(Distances { matrix, source: Some(Source::All("hwloc".into())) }))
    }

    /// Index in `nodes` of the node with each of hwloc's own indexes.
    fn by_gp_index(&self) -> HashMap<u64, usize> {
        let gp =
            |(node, &(_, index)): (usize, &(NodeId, usize))| Some((self.document.objects.get(index)?.gp_index?, node));
        self.nodes.iter().enumerate().filter_map(gp).collect()
    }

    /// The largest bandwidth from any initiator to each node's memory, bytes/s.
    fn bandwidth(&mut self) -> HashMap<usize, f64> {
        let by_gp = self.by_gp_index();
        let mut largest: HashMap<usize, f64> = HashMap::new();
        let mut checked = Checked::new("bandwidths", BANDWIDTH);
        for attribute in self.document.memory_attributes.iter().filter(|a| a.name == "Bandwidth") {
            if let Some(&node) = by_gp.get(&attribute.target_gp_index)
                && let Some(bandwidth) = checked.take(attribute.value as f64 * MEBIBYTE)
            {
                let known = largest.entry(node).or_default();
                *known = known.max(bandwidth);
            }
        }
        self.warnings.extend(checked.warning());
        largest
    }

    /// Latencies by pair of nodes: a value counts for every node that has a CPU among its initiators.
    fn latency(&mut self, nodes: &[Node]) -> Option<Latency> {
        let by_gp = self.by_gp_index();
        let objects = self.document.objects.iter().zip(&self.cpus_of);
        let object_cpus: HashMap<u64, &CpuSet> =
            objects.filter_map(|(object, cpus)| Some((object.gp_index?, cpus))).collect();
        let mut pairs = LatencyPairs::new(nodes.len());
        for attribute in self.document.memory_attributes.iter().filter(|a| a.name == "Latency") {
            let Some(&to) = by_gp.get(&attribute.target_gp_index) else { continue };
            let mut set = |from: usize| pairs.set(from, to, attribute.value as f64);
            match &attribute.initiator {
                Some(Initiator::Cpus(cpus)) => self.cpus_in(cpus).for_each(|(_, node)| set(node)),
                Some(Initiator::Object(gp)) => {
                    let cpus = object_cpus.get(gp).into_iter().flat_map(|cpus| cpus.iter());
                    cpus.filter_map(|cpu| self.node_of.get(&cpu)).for_each(|&node| set(node));
                }
                None => {}
            }
        }
        self.warnings.extend(pairs.warning());
        pairs.into_latency(nodes, Some(Source::All("hwloc".into())))
    }
}
