//! Converts a machine to hwloc XML.

use super::bitmap::Bitmap;
use super::{HwlocError, MEBIBYTE};
use crate::description::{Cache, CacheKind, Machine, Node};
use crate::ids::CpuId;
use crate::routes::Routes;
use crate::set::CpuSet;
use quick_xml::escape::escape;
use std::cmp::Reverse;
use std::collections::HashMap;

/// hwloc's `HWLOC_GROUP_KIND_MEMORY`: a group that exists because a node needs an object with its CPUs.
const GROUP_FOR_MEMORY: &str = r#" kind="1001" subkind="0""#;

/// An object with CPUs. A node with the same CPUs as an object is attached to that object.
struct Object {
    /// hwloc's type: objects of one type are never nested.
    kind: String,
    /// Attributes of its type, as written in the tag.
    attributes: String,
    cpus: CpuSet,
    parent: Option<usize>,
    children: Vec<usize>,
    /// Indexes in [`Machine::nodes`].
    nodes: Vec<usize>,
    /// Nodes that are attached to it, to an object around it or to one in it.
    nodeset: Bitmap,
}

/// The machine as hwloc's tree, the root first and each object before those in it.
struct Tree {
    objects: Vec<Object>,
    /// The innermost object so far around each CPU.
    innermost: HashMap<CpuId, usize>,
}

impl Machine {
    /// The machine as hwloc 2.x XML. Fails if it does not fit into a tree: two caches, packages or nodes overlap and
    /// neither has all CPUs of the other.
    ///
    /// hwloc gives every node the CPUs of the object that it is attached to. A node without CPUs is attached to the
    /// machine; this text gives it an empty set, but programs that read it will call it local to all CPUs, as they do
    /// for such a node of a real machine.
    pub fn to_hwloc_xml(&self) -> Result<String, HwlocError> {
        let deep = self.caches.iter().find(|cache| !(1..=most_levels(cache.kind)).contains(&cache.level));
        if let Some(Cache { level, kind, .. }) = deep {
            return Err(HwlocError::NoTree(format!("it has no level {level} caches of {kind:?} kind")));
        }
        let mut tree = Tree::root(self.cpus());
        for item in items(self) {
            tree.add(item)?;
        }
        tree.order_children();
        tree.spread_nodesets();
        Ok(Text { machine: self, tree: &tree, xml: String::new() }.write())
    }
}

/// hwloc's types go from `L1Cache` to `L5Cache` and from `L1iCache` to `L3iCache`.
fn most_levels(kind: CacheKind) -> u8 {
    match kind {
        CacheKind::Data | CacheKind::Unified => 5,
        CacheKind::Instruction => 3,
    }
}

/// An item for the tree.
enum Item<'a> {
    Object { kind: String, attributes: String, cpus: CpuSet },
    Node { index: usize, node: &'a Node },
}

impl Item<'_> {
    fn cpus(&self) -> &CpuSet {
        match self {
            Self::Object { cpus, .. } => cpus,
            Self::Node { node, .. } => &node.cpus,
        }
    }
}

/// Everything in the machine, larger items first, and among equals from the outside in: package, caches, core, then the
/// node, which looks for an object with its CPUs, then the PU.
fn items(machine: &Machine) -> Vec<Item<'_>> {
    let object =
        |kind: &str, attributes: String, cpus: CpuSet| Item::Object { kind: kind.to_owned(), attributes, cpus };
    let mut items: Vec<Item> = Vec::new();
    let packages = machine.packages.iter().filter(|package| !package.cpus.is_empty());
    items.extend(packages.map(|package| object("Package", os_index(package.id.0), package.cpus.clone())));
    let mut caches: Vec<_> = machine.caches.iter().collect();
    caches.sort_by_key(|cache| (Reverse(cache.level), cache.kind));
    for cache in caches {
        let (suffix, kind) = match cache.kind {
            CacheKind::Unified => ("", 0),
            CacheKind::Data => ("", 1),
            CacheKind::Instruction => ("i", 2),
        };
        let (size, depth, line, ways) = (cache.size_bytes, cache.level, cache.line_bytes, cache.ways);
        let attributes = format!(
            r#" cache_size="{size}" depth="{depth}" cache_linesize="{line}" cache_associativity="{ways}" cache_type="{kind}""#
        );
        let instances = machine.cache_instances(cache).into_iter().filter(|cpus| !cpus.is_empty());
        items.extend(instances.map(|cpus| object(&format!("L{depth}{suffix}Cache"), attributes.clone(), cpus)));
    }
    items.extend((0..).zip(machine.cores()).map(|(number, cpus)| object("Core", os_index(number), cpus)));
    items.extend(machine.nodes.iter().enumerate().map(|(index, node)| Item::Node { index, node }));
    items.extend(machine.cpus().iter().map(|cpu| object("PU", os_index(cpu.0), CpuSet::from_iter([cpu]))));
    // A stable sort: equal items keep the order above. Nodes without CPUs come last.
    items.sort_by_key(|item| Reverse(item.cpus().len()));
    items
}

fn os_index(number: u32) -> String {
    format!(r#" os_index="{number}""#)
}

impl Tree {
    fn root(cpus: CpuSet) -> Self {
        let innermost = cpus.iter().map(|cpu| (cpu, 0)).collect();
        let root = Object::new("Machine".into(), os_index(0), cpus, None);
        Self { objects: vec![root], innermost }
    }

    fn add(&mut self, item: Item<'_>) -> Result<(), HwlocError> {
        match item {
            Item::Object { kind, attributes, cpus } => {
                self.add_object(kind, attributes, cpus)?;
            }
            Item::Node { index, node } => {
                let on = if node.cpus.is_empty() { 0 } else { self.find_or_group(&node.cpus)? };
                self.objects[on].nodes.push(index);
                self.objects[on].nodeset.insert(node.id.0);
            }
        }
        Ok(())
    }

    /// The outermost object with exactly these CPUs, created if there is none.
    fn find_or_group(&mut self, cpus: &CpuSet) -> Result<usize, HwlocError> {
        let around = self.around("NUMANode", cpus)?;
        let equal = |&object: &usize| self.objects[object].cpus == *cpus;
        let ancestors = std::iter::successors(Some(around), |&object| self.objects[object].parent);
        match ancestors.take_while(equal).last() {
            Some(object) => Ok(object),
            None => self.add_object("Group".into(), GROUP_FOR_MEMORY.into(), cpus.clone()),
        }
    }

    fn add_object(&mut self, kind: String, attributes: String, cpus: CpuSet) -> Result<usize, HwlocError> {
        let parent = self.around(&kind, &cpus)?;
        let index = self.objects.len();
        self.innermost.extend(cpus.iter().map(|cpu| (cpu, index)));
        self.objects.push(Object::new(kind, attributes, cpus, Some(parent)));
        self.objects[parent].children.push(index);
        Ok(index)
    }

    /// The innermost object so far that has all of these CPUs. As larger objects are added first, it has no CPU that an
    /// object inside of it has.
    fn around(&self, kind: &str, cpus: &CpuSet) -> Result<usize, HwlocError> {
        let first = cpus.first().and_then(|cpu| self.innermost.get(&cpu).copied()).unwrap_or(0);
        let inside = cpus.iter().all(|cpu| self.innermost.get(&cpu) == Some(&first));
        let ancestors = std::iter::successors(self.objects.get(first), |object| self.objects.get(object.parent?));
        let same = ancestors.into_iter().find(|object| object.kind == kind);
        match (inside, same) {
            (true, None) => Ok(first),
            (true, Some(same)) => Err(HwlocError::NoTree(format!(
                "the {kind} of CPUs {cpus} is inside another {kind}, of CPUs {}",
                same.cpus
            ))),
            (false, _) => Err(HwlocError::NoTree(format!(
                "the {kind} of CPUs {cpus} overlaps another object without one having all CPUs of the other"
            ))),
        }
    }

    /// hwloc requires objects in the order of their first CPU.
    fn order_children(&mut self) {
        for index in 0..self.objects.len() {
            let mut children = std::mem::take(&mut self.objects[index].children);
            children.sort_by_key(|&child| self.objects[child].cpus.first());
            self.objects[index].children = children;
        }
    }

    /// hwloc's rule: an object's nodeset has the nodes attached to it, to the objects around it and to those in it.
    fn spread_nodesets(&mut self) {
        let own: Vec<Bitmap> = self.objects.iter().map(|object| object.nodeset.clone()).collect();
        let mut inherited: Vec<Bitmap> = Vec::with_capacity(own.len());
        for (object, own) in self.objects.iter().zip(&own) {
            let mut nodes = object.parent.and_then(|parent| inherited.get(parent).cloned()).unwrap_or_default();
            nodes.extend(own);
            inherited.push(nodes);
        }
        for index in (1..self.objects.len()).rev() {
            let (before, from_index) = self.objects.split_at_mut(index);
            let object = &from_index[0];
            before[object.parent.unwrap_or(0)].nodeset.extend(&object.nodeset);
        }
        for (object, inherited) in self.objects.iter_mut().zip(&inherited) {
            object.nodeset.extend(inherited);
        }
    }
}

impl Object {
    fn new(kind: String, attributes: String, cpus: CpuSet, parent: Option<usize>) -> Self {
        Self { kind, attributes, cpus, parent, children: Vec::new(), nodes: Vec::new(), nodeset: Bitmap::default() }
    }
}

/// The text written so far.
struct Text<'a> {
    machine: &'a Machine,
    tree: &'a Tree,
    xml: String,
}

impl Text<'_> {
    fn write(mut self) -> String {
        self.line(0, r#"<?xml version="1.0" encoding="UTF-8"?>"#);
        self.line(0, r#"<!DOCTYPE topology SYSTEM "hwloc2.dtd">"#);
        self.line(0, r#"<topology version="2.0">"#);
        self.object(0, 1);
        self.distances();
        self.bandwidth();
        self.latency();
        self.line(0, "</topology>");
        self.xml
    }

    fn line(&mut self, depth: usize, line: &str) {
        self.xml.extend(std::iter::repeat_n("  ", depth));
        self.xml.push_str(line);
        self.xml.push('\n');
    }

    /// Objects are never deeper than hwloc has types, as objects of one type are never nested.
    fn object(&mut self, index: usize, depth: usize) {
        let object = &self.tree.objects[index];
        let (kind, attributes, gp) = (&object.kind, &object.attributes, index + 1);
        let (cpus, nodes) = (Bitmap::from_set(&object.cpus), &object.nodeset);
        let more = if index == 0 {
            // A name may contain characters that XML cannot represent.
            let name = self.machine.name.replace(char::is_control, " ");
            format!(r#" allowed_cpuset="{cpus}" allowed_nodeset="{nodes}" name="{}""#, escape(name))
        } else {
            String::new()
        };
        let end = if object.children.is_empty() && object.nodes.is_empty() { "/" } else { "" };
        let sets = format!(r#"cpuset="{cpus}" complete_cpuset="{cpus}" nodeset="{nodes}" complete_nodeset="{nodes}""#);
        self.line(depth, &format!(r#"<object type="{kind}"{attributes} {sets}{more} gp_index="{gp}"{end}>"#));
        for &node in &object.nodes {
            self.node(node, depth + 1);
        }
        for &child in &object.children {
            self.object(child, depth + 1);
        }
        if end.is_empty() {
            self.line(depth, "</object>");
        }
    }

    fn node(&mut self, index: usize, depth: usize) {
        let Node { id, cpus, memory_bytes, .. } = &self.machine.nodes[index];
        let cpus = Bitmap::from_set(cpus);
        let mut nodes = Bitmap::default();
        nodes.insert(id.0);
        let sets = format!(r#"cpuset="{cpus}" complete_cpuset="{cpus}" nodeset="{nodes}" complete_nodeset="{nodes}""#);
        let gp = self.node_gp_index(index);
        let line = format!(
            r#"<object type="NUMANode" os_index="{id}" {sets} gp_index="{gp}" local_memory="{memory_bytes}"/>"#
        );
        self.line(depth, &line);
    }

    /// hwloc's own number of a node: those of the other objects come first.
    fn node_gp_index(&self, index: usize) -> usize {
        self.tree.objects.len() + 1 + index
    }

    /// hwloc has no distances of a single object.
    fn distances(&mut self) {
        let Some(distances) = &self.machine.distances else { return };
        let count = self.machine.nodes.len();
        if count < 2 {
            return;
        }
        let start =
            format!(r#"<distances2 type="NUMANode" nbobjs="{count}" kind="5" name="NUMALatency" indexing="os">"#);
        self.line(1, &start);
        self.numbers("indexes", self.machine.nodes.iter().map(|node| node.id.0));
        for row in &distances.matrix {
            self.numbers("u64values", row.iter().copied());
        }
        self.line(1, "</distances2>");
    }

    /// hwloc requires the length of the content.
    fn numbers(&mut self, element: &str, numbers: impl Iterator<Item = u32>) {
        let content = numbers.fold(String::new(), |content, number| content + &number.to_string() + " ");
        self.line(2, &format!(r#"<{element} length="{}">{content}</{element}>"#, content.len()));
    }

    /// For each node as seen by its own CPUs, and for a node without CPUs by all CPUs, as hwloc requires an initiator.
    fn bandwidth(&mut self) {
        let nodes = self.machine.nodes.iter().enumerate();
        let known: Vec<_> =
            nodes.filter_map(|(index, node)| Some((index, node, node.bandwidth_bytes_per_s?))).collect();
        if known.is_empty() {
            return;
        }
        self.line(1, r#"<memattr name="Bandwidth" flags="5">"#);
        for (index, node, bandwidth) in known {
            let from = if node.cpus.is_empty() { &self.machine.cpus() } else { &node.cpus };
            self.value(from, index, bandwidth / MEBIBYTE);
        }
        self.line(1, "</memattr>");
    }

    fn latency(&mut self) {
        let machine = self.machine;
        let Some(routes) = machine.latency.as_ref().and_then(|_| Routes::new(machine).ok()) else { return };
        self.line(1, r#"<memattr name="Latency" flags="6">"#);
        for from in machine.nodes.iter().filter(|node| !node.cpus.is_empty()) {
            for (index, to) in machine.nodes.iter().enumerate() {
                if let Some(latency_ns) = routes.latency_ns(machine, from.id, to.id) {
                    self.value(&from.cpus, index, latency_ns);
                }
            }
        }
        self.line(1, "</memattr>");
    }

    /// The value of a memory attribute of a node as seen from some CPUs.
    fn value(&mut self, from: &CpuSet, to: usize, value: f64) {
        let cpus = Bitmap::from_set(from);
        let target = format!(r#"target_obj_type="NUMANode" target_obj_gp_index="{}""#, self.node_gp_index(to));
        let value = format!(r#"<memattr_value {target} value="{value:.0}" initiator_cpuset="{cpus}"/>"#);
        self.line(2, &value);
    }
}
