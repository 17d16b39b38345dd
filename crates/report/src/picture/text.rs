//! The machine for a terminal: aligned tables, about a page long.

use super::facts::{Alike, Facts};
use super::units;
use crate::Table;
use crate::devices::devices_table;
use crate::layout::Layout;
use machine::number::{bandwidth, counted};
use machine::{CacheKind, Link, LinkDirection, Machine, NodeId, PciDevice, Sharing, Source, size};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Display};

/// Above this many nodes or links, those that look the same share one line, and tables of node pairs are summarized.
const MOST_ROWS: usize = 32;
/// Most characters of a set of CPUs: those that do not compress can be very long.
const MOST_OF_SET: usize = 200;
/// Columns before the tables.
const INDENT: usize = 2;

/// A machine for a terminal: nodes, caches, distances, latencies, links, and what else was asked for, as aligned tables.
/// Machines with more than 32 nodes or links are summarized, so that the text is about a page long at any size.
#[derive(Clone, Copy, Debug)]
pub struct MachineText<'a> {
    machine: &'a Machine,
    simulated: bool,
    devices: &'a [PciDevice],
    sources: bool,
}

impl<'a> MachineText<'a> {
    /// The machine alone.
    pub fn new(machine: &'a Machine) -> Self {
        Self { machine, simulated: false, devices: &[], sources: false }
    }

    /// Says whether the machine is the lab's.
    #[must_use]
    pub fn simulated(self, simulated: bool) -> Self {
        Self { simulated, ..self }
    }

    /// Adds devices.
    #[must_use]
    pub fn with_devices(self, devices: &'a [PciDevice]) -> Self {
        Self { devices, ..self }
    }

    /// Adds where the numbers come from: each source with its citation and the tables that cite it.
    #[must_use]
    pub fn with_sources(self, sources: bool) -> Self {
        Self { sources, ..self }
    }
}

impl fmt::Display for MachineText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (machine, layout) = (self.machine, Layout::of(f));
        let facts = Facts::new(machine);
        let simulated = if self.simulated { " (simulated)" } else { "" };
        let colon = if machine.description.is_empty() { "" } else { ": " };
        let title = format!("{}{simulated}{colon}{}", machine.name, machine.description);
        f.write_str(&layout.wrapped("", &title))?;
        f.write_str(&layout.wrapped("", &facts.summary()))?;
        nodes(f, &facts)?;
        caches(f, machine)?;
        let distances = machine.distances.as_ref().map(|distances| &distances.matrix);
        let title = "Distances (firmware's, 10 is local; rows access, columns hold the memory)";
        pairs(f, title, machine, distances, u32::to_string)?;
        let latency = facts.latency_ns();
        let decimals = units::ns_decimals(latency.iter().flatten().flatten().flatten().copied());
        let show = |ns: &Option<f64>| ns.map(|ns| format!("{ns:.decimals$}")).unwrap_or_default();
        let title = "Latency (ns, idle; rows access, columns hold the memory)";
        pairs(f, title, machine, latency.as_ref(), show)?;
        links(f, machine)?;
        if !self.devices.is_empty() {
            writeln!(f, "\nDevices")?;
            devices_table(self.devices).indented(INDENT).fmt(f)?;
        }
        if self.sources { sources(f, machine) } else { Ok(()) }
    }
}

fn nodes(f: &mut fmt::Formatter<'_>, facts: &Facts) -> fmt::Result {
    let mut groups = facts.alike(facts.machine.nodes.len() <= MOST_ROWS);
    let left_out: usize = groups.iter().skip(MOST_ROWS).map(|group| group.nodes.len()).sum();
    groups.truncate(MOST_ROWS);
    let together = groups.iter().any(|group| group.nodes.len() > 1);
    writeln!(f, "\nNodes{}", if together { " (memory and bandwidth of each)" } else { "" })?;
    let row = |group: &Alike| {
        let look = &group.look;
        let packages = set_text(&group.packages, 12);
        vec![
            set_text(&group.nodes, 24),
            packages,
            look.memory.clone(),
            look.bandwidth.clone(),
            group.cores.to_string(),
            set_text(&group.cpus, MOST_OF_SET),
        ]
    };
    let columns =
        [("node", false), ("package", false), ("memory", true), ("bandwidth", true), ("cores", true), ("CPUs", false)];
    let rows: Vec<_> = groups.iter().map(row).collect();
    // Sets of CPUs are wrapped in pipes as well.
    let width = Layout::of(f).width();
    write!(f, "{:width$}", table(&columns, &rows, columns.len() - 1))?;
    if left_out > 0 { writeln!(f, "  and {left_out} more nodes that look different") } else { Ok(()) }
}

/// A set of limited length, truncated behind a comma if it is longer.
fn set_text(set: &impl Display, most: usize) -> String {
    let set = set.to_string();
    if set.len() <= most {
        return set;
    }
    let start = set.get(..most - 3).unwrap_or_default();
    format!("{}...", start.rfind(',').map_or(start, |comma| &start[..=comma]))
}

fn caches(f: &mut fmt::Formatter<'_>, machine: &Machine) -> fmt::Result {
    if machine.caches.is_empty() {
        return Ok(());
    }
    writeln!(f, "\nCaches")?;
    let mut caches: Vec<_> = machine.caches.iter().collect();
    caches.sort_by_key(|cache| (cache.level, cache.kind));
    let row = |cache: &&machine::Cache| {
        let instances = machine.cache_instances(cache);
        let shared_by = match &cache.shared_by {
            Sharing::Core => "core".to_owned(),
            Sharing::Node => "node".to_owned(),
            Sharing::Package => "package".to_owned(),
            Sharing::Cpus(sets) => {
                let sizes: BTreeSet<usize> = sets.iter().map(machine::CpuSet::len).collect();
                match (sizes.first(), sizes.last()) {
                    (Some(1), Some(1)) => "1 CPU".to_owned(),
                    (Some(least), Some(most)) if least == most => format!("{most} CPUs"),
                    (Some(least), Some(most)) => format!("{least} to {most} CPUs"),
                    _ => String::new(),
                }
            }
        };
        let known = |number: u32, unit: &str| if number == 0 { String::new() } else { format!("{number}{unit}") };
        vec![
            format!("L{}{}", cache.level, letter(cache.kind)),
            size::rounded(cache.size_bytes),
            known(cache.ways, ""),
            known(cache.line_bytes, " B"),
            cache.latency_ns.map(|ns| format!("{} ns", units::ns(ns))).unwrap_or_default(),
            instances.len().to_string(),
            shared_by,
        ]
    };
    let columns = [
        ("cache", false),
        ("size", true),
        ("ways", true),
        ("line", true),
        ("latency", true),
        ("count", true),
        ("one per", false),
    ];
    table(&columns, &caches.iter().map(row).collect::<Vec<_>>(), columns.len()).fmt(f)
}

/// `d` for data, `i` for instructions, nothing for both, as in lstopo.
pub(super) fn letter(kind: CacheKind) -> &'static str {
    match kind {
        CacheKind::Data => "d",
        CacheKind::Instruction => "i",
        CacheKind::Unified => "",
    }
}

/// A table of node pairs or, for too many nodes, the number of pairs with each value.
fn pairs<T>(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    machine: &Machine,
    matrix: Option<&Vec<Vec<T>>>,
    show: impl Fn(&T) -> String,
) -> fmt::Result {
    // A single node has no distances.
    let Some(matrix) = matrix.filter(|_| machine.nodes.len() > 1) else { return Ok(()) };
    write!(f, "\n{}", Layout::of(f).wrapped("", title))?;
    let ids: Vec<String> = machine.nodes.iter().map(|node| node.id.to_string()).collect();
    if ids.len() <= MOST_ROWS {
        let columns: Vec<(&str, bool)> =
            std::iter::once(("node", true)).chain(ids.iter().map(|id| (id.as_str(), true))).collect();
        let cells = |(id, row): (&String, &Vec<T>)| std::iter::once(id.clone()).chain(row.iter().map(&show)).collect();
        let is_known = |row: &Vec<String>| row.iter().skip(1).any(|cell| !cell.is_empty());
        let rows: Vec<_> = ids.iter().zip(matrix).map(cells).filter(is_known).collect();
        return table(&columns, &rows, columns.len()).fmt(f);
    }
    let mut values: HashMap<String, (usize, NodeId, NodeId)> = HashMap::new();
    for (from, row) in machine.nodes.iter().zip(matrix) {
        for (to, value) in machine.nodes.iter().zip(row) {
            values.entry(show(value)).or_insert((0, from.id, to.id)).0 += 1;
        }
    }
    let mut values: Vec<_> = values.into_iter().collect();
    // Unknown values, which are not numbers, come last.
    let number = |text: &str| text.parse().unwrap_or(f64::INFINITY);
    values.sort_by(|(a, _), (b, _)| number(a).total_cmp(&number(b)));
    let total = values.len();
    let row = |(value, (count, from, to)): (String, (usize, NodeId, NodeId))| {
        vec![value, count.to_string(), format!("{from} to {to}")]
    };
    let rows: Vec<_> = values.into_iter().take(MOST_ROWS).map(row).collect();
    table(&[("value", true), ("pairs", true), ("first pair", false)], &rows, 3).fmt(f)?;
    if total > MOST_ROWS {
        writeln!(f, "  and {}", counted(total - MOST_ROWS, "more value"))?;
    }
    Ok(())
}

fn links(f: &mut fmt::Formatter<'_>, machine: &Machine) -> fmt::Result {
    if machine.links.is_empty() {
        return Ok(());
    }
    let ends = |link: &Link| match link.direction {
        LinkDirection::Both => format!("{} - {}", link.nodes[0], link.nodes[1]),
        LinkDirection::Forward => format!("{} -> {}", link.nodes[0], link.nodes[1]),
    };
    let look = |link: &Link| {
        let way = if link.direction == LinkDirection::Both { "each way" } else { "one way" };
        let latency = link.latency_ns.map(|ns| format!("{} ns", units::ns(ns))).unwrap_or_default();
        [bandwidth(link.bandwidth_bytes_per_s), way.to_owned(), latency]
    };
    if machine.links.len() <= MOST_ROWS {
        writeln!(f, "\nLinks")?;
        let rows = machine.links.iter().map(|link| std::iter::once(ends(link)).chain(look(link)).collect());
        let columns = [("nodes", false), ("bandwidth", true), ("", false), ("latency", true)];
        return table(&columns, &rows.collect::<Vec<_>>(), columns.len()).fmt(f);
    }
    writeln!(f, "\nLinks ({}, those alike together)", machine.links.len())?;
    let mut groups: BTreeMap<[String; 3], (usize, String)> = BTreeMap::new();
    for link in &machine.links {
        groups.entry(look(link)).or_insert_with(|| (0, ends(link))).0 += 1;
    }
    let row = |([bandwidth, way, latency], (count, first)): (&[String; 3], &(usize, String))| {
        vec![count.to_string(), bandwidth.clone(), way.clone(), latency.clone(), first.clone()]
    };
    let columns = [("count", true), ("bandwidth", true), ("", false), ("latency", true), ("first", false)];
    table(&columns, &groups.iter().take(MOST_ROWS).map(row).collect::<Vec<_>>(), columns.len()).fmt(f)
}

fn sources(f: &mut fmt::Formatter<'_>, machine: &Machine) -> fmt::Result {
    if machine.sources.is_empty() {
        return Ok(());
    }
    writeln!(f, "\nSources")?;
    let layout = Layout::of(f);
    let mut cited: BTreeMap<&str, BTreeMap<String, usize>> =
        machine.sources.keys().map(|key| (key.as_str(), BTreeMap::new())).collect();
    for (key, what) in citations(machine) {
        if let Some(uses) = cited.get_mut(key) {
            *uses.entry(what).or_default() += 1;
        }
    }
    for ((key, uses), citation) in cited.iter().zip(machine.sources.values()) {
        let uses = uses.iter().map(|(what, times)| if *times > 1 { format!("{what} ({times})") } else { what.clone() });
        let uses = uses.collect::<Vec<_>>().join(", ");
        f.write_str(&layout.wrapped("  ", key))?;
        f.write_str(&layout.wrapped("      ", citation))?;
        f.write_str(&layout.wrapped("      for ", if uses.is_empty() { "nothing" } else { &uses }))?;
    }
    Ok(())
}

/// Each use of a source's key, with the table or field that it is for.
fn citations(machine: &Machine) -> Vec<(&str, String)> {
    let nodes = machine.nodes.iter().map(|node| ("node", &node.source));
    let caches = machine.caches.iter().map(|cache| ("cache", &cache.source));
    let links = machine.links.iter().map(|link| ("link", &link.source));
    let core = machine.core.iter().map(|core| ("core", &core.source));
    let latency = machine.latency.iter().map(|latency| ("latency", &latency.source));
    let distances = machine.distances.iter().map(|distances| ("distances", &distances.source));
    let mut citations = Vec::new();
    for (what, source) in core.chain(latency).chain(distances).chain(nodes).chain(caches).chain(links) {
        match source {
            Some(Source::All(key)) => citations.push((key.as_str(), what.to_owned())),
            Some(Source::ByField(fields)) => citations.extend(fields.iter().map(|(field, key)| {
                let what = if field == "*" { what.to_owned() } else { format!("{what}.{field}") };
                (key.as_str(), what)
            })),
            None => {}
        }
    }
    citations
}

/// A table of columns (head, right-aligned), of which those from `notes` on are wrapped beside or below the others. A
/// column that is empty in every row is left out, and a single empty cell is `-`.
fn table(columns: &[(&str, bool)], rows: &[Vec<String>], notes: usize) -> Table {
    let cell = |row: &Vec<String>, i: usize| row.get(i).filter(|cell| !cell.is_empty()).cloned();
    let is_shown = |&i: &usize| rows.iter().any(|row| cell(row, i).is_some());
    let (cells, notes): (Vec<usize>, Vec<usize>) = (0..columns.len()).filter(is_shown).partition(|&i| i < notes);
    if cells.is_empty() {
        return Table::default();
    }
    let left: Vec<usize> = (0..cells.len()).filter(|&at| !columns[cells[at]].1).collect();
    let mut table = Table::default().left(&left).indented(INDENT);
    let heads: Vec<String> = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
    table.noted(cells.iter().map(|&i| heads[i].clone()), notes.iter().map(|&i| heads[i].clone()).collect::<String>());
    let text = |row: &Vec<String>, i: usize| cell(row, i).unwrap_or_else(|| "-".to_owned());
    for row in rows {
        table.noted(cells.iter().map(|&i| text(row, i)), notes.iter().map(|&i| text(row, i)).collect::<String>());
    }
    table
}
