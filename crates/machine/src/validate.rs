//! The rules for a description. They are pure: the same for a machine file, a discovered host and a machine of a test.

use crate::description::{CacheKind, Distances, Latency, Machine, Sharing};
use crate::numbers::tables;
use crate::routes::Routes;
use crate::set::{CpuSet, MAX_ID};
use crate::source::Source;
use crate::violation::{Violation, Violations};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of nodes. Linux stops at 1,024; tables of node pairs are affordable up to here.
pub const MAX_NODES: usize = 4096;

impl Machine {
    /// Every rule that this description breaks; empty if it is valid.
    pub fn validate(&self) -> Vec<Violation> {
        let mut found = self.node_id_violations();
        let nodes_in_order = found.is_empty();
        found.extend(self.memory_violations());
        found.extend(self.cpu_violations());
        found.extend(self.cache_violations());
        found.extend(self.tlb_violations());
        found.extend(self.core_violation());
        found.extend(self.coherence_violation());
        found.extend(self.control_violations());
        found.extend(self.number_violations());
        found.extend(self.source_violations());
        found.extend(self.distances.iter().flat_map(|distances| self.distance_violations(distances)));
        if nodes_in_order {
            match Routes::new(self) {
                Ok(routes) => found.extend(self.latency.iter().flat_map(|l| self.latency_violations(l, &routes))),
                Err(Violations(violations)) => found.extend(violations),
            }
        }
        found
    }

    /// Every number without a source. Presets must have none; users' own files may.
    pub fn missing_sources(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for table in tables(self) {
            for number in &table.numbers {
                let named = match table.source {
                    None => false,
                    Some(Source::All(_)) => true,
                    Some(Source::ByField(by)) => by.contains_key(number.field) || by.contains_key("*"),
                };
                if !named {
                    found.push(Violation::new(format!("{}.{}", table.path, number.field), "has no source"));
                }
            }
        }
        found
    }

    pub(crate) fn node_id_violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        if self.nodes.is_empty() {
            found.push(Violation::new("node", "a machine has at least one node"));
        }
        if self.nodes.len() > MAX_NODES {
            found.push(Violation::new(
                "node",
                format!("a machine has at most {MAX_NODES} nodes, this one {}", self.nodes.len()),
            ));
        }
        for (index, node) in self.nodes.iter().enumerate() {
            if node.id.0 > MAX_ID {
                let rule = format!("a node's id is at most {MAX_ID}, this one is {}", node.id);
                found.push(Violation::new(format!("node[{index}].id"), rule));
            }
        }
        for (index, pair) in self.nodes.windows(2).enumerate() {
            if let [before, after] = pair
                && before.id >= after.id
            {
                let rule = format!("ids ascend and differ, but {} follows {}", after.id, before.id);
                found.push(Violation::new(format!("node[{}].id", index + 1), rule));
            }
        }
        found
    }

    fn memory_violations(&self) -> Option<Violation> {
        let nowhere = !self.nodes.is_empty() && self.nodes.iter().all(|node| node.memory_bytes == 0);
        nowhere.then(Violation::unknown_memory)
    }

    /// Each CPU is in one node, and at most one core and one package; only CPUs of nodes are named.
    fn cpu_violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut seen = CpuSet::new();
        for (index, node) in self.nodes.iter().enumerate() {
            found.extend(twice(&mut seen, &node.cpus, format!("node[{index}].cpus"), "a node"));
        }
        let existing = seen;
        let mut seen = CpuSet::new();
        for (index, core) in self.smt_cores.iter().enumerate() {
            let field = format!("smt_cores[{index}]");
            if core.is_empty() {
                found.push(Violation::new(&field, "a core has at least one CPU"));
            }
            found.extend(unknown(&existing, core, &field));
            found.extend(twice(&mut seen, core, field, "a core"));
        }
        let mut seen = CpuSet::new();
        for (index, package) in self.packages.iter().enumerate() {
            let field = format!("package[{index}].cpus");
            if package.cpus.is_empty() {
                found.push(Violation::new(&field, "a package has at least one CPU"));
            }
            found.extend(unknown(&existing, &package.cpus, &field));
            found.extend(twice(&mut seen, &package.cpus, field, "a package"));
        }
        for (index, pair) in self.packages.windows(2).enumerate() {
            if let [before, after] = pair
                && before.id >= after.id
            {
                let rule = format!("ids ascend and differ, but {} follows {}", after.id, before.id);
                found.push(Violation::new(format!("package[{}].id", index + 1), rule));
            }
        }
        found
    }

    fn cache_violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let existing = self.cpus();
        let mut seen: BTreeMap<_, CpuSet> = BTreeMap::new();
        for (index, cache) in self.caches.iter().enumerate() {
            let path = format!("cache[{index}]");
            if !cache.line_bytes.is_power_of_two() {
                let rule = format!("a line is a power of two, not {}", cache.line_bytes);
                found.push(Violation::new(format!("{path}.line_bytes"), rule));
            }
            let set_bytes = u64::from(cache.ways) * u64::from(cache.line_bytes);
            if set_bytes > 0 && !cache.size_bytes.is_multiple_of(set_bytes) {
                let rule = format!(
                    "a size is sets x ways x line, but {} is not a multiple of {} x {}",
                    cache.size_bytes, cache.ways, cache.line_bytes
                );
                found.push(Violation::new(format!("{path}.size_bytes"), rule));
            }
            let field = format!("{path}.shared_by");
            let kind = match cache.kind {
                CacheKind::Data => "data",
                CacheKind::Instruction => "instruction",
                CacheKind::Unified => "unified",
            };
            let what = format!("a level {} {kind} cache", cache.level);
            let seen = seen.entry((cache.level, cache.kind)).or_default();
            if matches!(cache.shared_by, Sharing::Package) && self.packages.is_empty() {
                found.push(Violation::new(&field, "is \"package\", but the machine names no package"));
            }
            if let Sharing::Cpus(sets) = &cache.shared_by {
                for (instance, cpus) in sets.iter().enumerate() {
                    let field = format!("{field}[{instance}]");
                    if cpus.is_empty() {
                        found.push(Violation::new(&field, "a cache belongs to at least one CPU"));
                    }
                    found.extend(unknown(&existing, cpus, &field));
                    found.extend(twice(seen, cpus, field, &what));
                }
            } else {
                // Errors in cores, nodes and packages are reported separately.
                let mut cpus = CpuSet::new();
                self.cache_instances(cache).iter().for_each(|instance| cpus.insert_all(instance));
                found.extend(twice(seen, &cpus, field, &what));
            }
        }
        found
    }

    fn tlb_violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        for (index, tlb) in self.tlbs.iter().enumerate() {
            if tlb.ways > 0 && !tlb.entries.is_multiple_of(tlb.ways) {
                let rule = format!("are sets x ways, but {} is not a multiple of {}", tlb.entries, tlb.ways);
                found.push(Violation::new(format!("tlb[{index}].entries"), rule));
            }
            let field = format!("tlb[{index}].pages");
            if tlb.pages.is_empty() {
                found.push(Violation::new(&field, "at least one size of pages is in it"));
            }
            for &page in &tlb.pages {
                if !seen.insert((tlb.level, page)) {
                    let rule = format!("pages of a size are in one buffer of level {} only", tlb.level);
                    found.push(Violation::new(&field, rule));
                }
            }
        }
        found
    }

    fn core_violation(&self) -> Option<Violation> {
        let core = self.core.as_ref()?;
        let overlaps = core.load_lines.is_some() && core.reorder_instructions.is_none();
        let rule = "loads are under way while later instructions run: give reorder_instructions as well";
        overlaps.then(|| Violation::new("core.load_lines", rule))
    }

    fn coherence_violation(&self) -> Option<Violation> {
        let coherence = self.coherence.as_ref()?;
        let both = coherence.directory_ns.is_some() && coherence.probes.is_some();
        both.then(|| Violation::new("coherence.probes", "a machine has a directory (directory_ns) or probes, not both"))
    }

    /// Numbers out of their bounds: of a list or matrix the first ones, as it may have millions.
    fn number_violations(&self) -> Vec<Violation> {
        /// Fewer than a message has lines, so that it says how many there are.
        const MOST_OF_A_FIELD: usize = 10;
        let mut found = Vec::new();
        for table in tables(self) {
            for number in &table.numbers {
                let field = format!("{}.{}", table.path, number.field);
                let mut wrong = 0;
                number.values.for_each(|place, value| {
                    if !number.bounds.holds(value) {
                        wrong += 1;
                        if wrong <= MOST_OF_A_FIELD {
                            let rule = format!("must be {}, is {value}", number.bounds);
                            found.push(Violation::new(format!("{field}{place}"), rule));
                        }
                    }
                });
                if wrong > MOST_OF_A_FIELD {
                    let more = wrong - MOST_OF_A_FIELD;
                    found.push(Violation::new(field, format!("{more} more of its values must be {}", number.bounds)));
                }
            }
        }
        found
    }

    fn source_violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for table in tables(self) {
            let path = format!("{}.source", table.path);
            let keys: Vec<&String> = match table.source {
                None => Vec::new(),
                Some(Source::All(key)) => vec![key],
                Some(Source::ByField(by)) => {
                    let known = |field: &str| field == "*" || table.fields.contains(&field);
                    for field in by.keys().filter(|field| !known(field)) {
                        let rule =
                            format!("`{field}` is not a number of this table; {} are, and *", table.fields.join(", "));
                        found.push(Violation::new(&path, rule));
                    }
                    by.values().collect()
                }
            };
            for key in keys.into_iter().filter(|key| !self.sources.contains_key(*key)) {
                found.push(Violation::new(&path, format!("`{key}` is not declared in [sources]")));
            }
        }
        found
    }

    fn distance_violations(&self, distances: &Distances) -> Vec<Violation> {
        let mut found = not_square(&distances.matrix, self.nodes.len(), "distances.matrix");
        for (index, row) in distances.matrix.iter().enumerate() {
            if let Some(local) = row.get(index)
                && *local != 10
            {
                let rule = format!("the distance of a node to itself is 10, not {local}");
                found.push(Violation::new(format!("distances.matrix[{index}][{index}]"), rule));
            }
        }
        found
    }

    fn latency_violations(&self, latency: &Latency, routes: &Routes) -> Vec<Violation> {
        match (latency.by_hops_ns.len(), latency.matrix_ns.len()) {
            (0, 0) => vec![Violation::new("latency", "one of by_hops_ns and matrix_ns is given")],
            (0, _) => not_square(&latency.matrix_ns, self.nodes.len(), "latency.matrix_ns"),
            (given, 0) => {
                let links_tell = !self.links.is_empty() && self.links.iter().all(|link| link.latency_ns.is_some());
                let needed = routes.longest() + 1;
                let short = given < needed && !links_tell;
                let rule = format!(
                    "the longest route has {} hops, so {needed} latencies are needed (or every link's latency_ns), not {given}",
                    routes.longest()
                );
                short.then(|| Violation::new("latency.by_hops_ns", rule)).into_iter().collect()
            }
            (_, _) => vec![Violation::new("latency", "only one of by_hops_ns and matrix_ns is given")],
        }
    }
}

/// Adds CPUs to those seen; a violation if some were there already.
fn twice(seen: &mut CpuSet, cpus: &CpuSet, field: String, what: &str) -> Option<Violation> {
    let again = seen.intersection(cpus);
    seen.insert_all(cpus);
    (!again.is_empty())
        .then(|| Violation::new(field, format!("{what} already has CPU {again}: each CPU is in one only")))
}

fn unknown(existing: &CpuSet, cpus: &CpuSet, field: &str) -> Option<Violation> {
    let missing = cpus.difference(existing);
    (!missing.is_empty()).then(|| Violation::new(field, format!("no node has CPU {missing}")))
}

fn not_square<T>(matrix: &[Vec<T>], nodes: usize, field: &str) -> Vec<Violation> {
    if matrix.len() != nodes {
        return vec![Violation::new(field, format!("has a row for each of the {nodes} nodes, not {}", matrix.len()))];
    }
    let wrong = matrix.iter().enumerate().filter(|(_, row)| row.len() != nodes);
    wrong
        .map(|(index, row)| {
            let rule = format!("has a column for each of the {nodes} nodes, not {}", row.len());
            Violation::new(format!("{field}[{index}]"), rule)
        })
        .collect()
}
