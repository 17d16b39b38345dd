//! The machine for a terminal: aligned ASCII tables, about a page long.

use super::facts::{Alike, Facts};
use super::units;
use crate::columns;
use crate::escape::plain;
use machine::{CacheKind, Link, LinkDirection, Machine, NodeId, Sharing, Source};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;

/// Above this many nodes or links, those that look the same share one line, and tables of node pairs are summarized.
const MOST_ROWS: usize = 32;
/// Width at which the last column of a table wraps.
const LINE_WIDTH: usize = 100;
/// Maximum lines of one wrapped cell: sets that do not compress can be very long.
const MOST_WRAPPED: usize = 4;

pub(super) fn machine(machine: &Machine) -> String {
    let facts = Facts::new(machine);
    let mut text = plain(&machine.name);
    if !machine.description.is_empty() {
        append!(text, ": {}", plain(&machine.description));
    }
    append!(text, "\n{}\n", facts.summary());
    nodes(&mut text, &facts);
    caches(&mut text, machine);
    let distances = machine.distances.as_ref().map(|distances| &distances.matrix);
    pairs(
        &mut text,
        "Distances (firmware's, 10 is local; rows access, columns hold the memory)",
        machine,
        distances,
        u32::to_string,
    );
    let latency = facts.latency_ns();
    let show = |ns: &Option<f64>| ns.map(units::ns).unwrap_or_default();
    pairs(&mut text, "Latency (ns, idle; rows access, columns hold the memory)", machine, latency.as_ref(), show);
    links(&mut text, machine);
    text
}

fn nodes(text: &mut String, facts: &Facts) {
    let mut groups = facts.alike(facts.machine.nodes.len() <= MOST_ROWS);
    let left_out: usize = groups.iter().skip(MOST_ROWS).map(|group| group.nodes.len()).sum();
    groups.truncate(MOST_ROWS);
    *text += if groups.iter().any(|group| group.nodes.len() > 1) {
        "\nNodes (memory and bandwidth of each)\n"
    } else {
        "\nNodes\n"
    };
    let row = |group: &Alike| {
        let look = &group.look;
        let packages = set_text(&group.packages, 12);
        vec![
            set_text(&group.nodes, 24),
            packages,
            look.memory.clone(),
            look.bandwidth.clone(),
            group.cores.to_string(),
            group.cpus.to_string(),
        ]
    };
    let columns =
        [("node", false), ("package", false), ("memory", true), ("bandwidth", true), ("cores", true), ("CPUs", false)];
    table(text, &columns, &groups.iter().map(row).collect::<Vec<_>>());
    if left_out > 0 {
        append!(text, "  and {left_out} more nodes that look different\n");
    }
}

/// A set for a narrow column, truncated if it is too long.
fn set_text(set: &impl Display, width: usize) -> String {
    let set = set.to_string();
    if set.len() <= width { set } else { format!("{}...", set.get(..width - 3).unwrap_or_default()) }
}

fn caches(text: &mut String, machine: &Machine) {
    if machine.caches.is_empty() {
        return;
    }
    *text += "\nCaches\n";
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
            units::bytes(cache.size_bytes),
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
    table(text, &columns, &caches.iter().map(row).collect::<Vec<_>>());
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
    text: &mut String,
    title: &str,
    machine: &Machine,
    matrix: Option<&Vec<Vec<T>>>,
    show: impl Fn(&T) -> String,
) {
    // A single node has no distances.
    let Some(matrix) = matrix.filter(|_| machine.nodes.len() > 1) else { return };
    append!(text, "\n{title}\n");
    let ids: Vec<String> = machine.nodes.iter().map(|node| node.id.to_string()).collect();
    if ids.len() <= MOST_ROWS {
        let columns: Vec<(&str, bool)> =
            std::iter::once(("node", true)).chain(ids.iter().map(|id| (id.as_str(), true))).collect();
        let cells = |(id, row): (&String, &Vec<T>)| std::iter::once(id.clone()).chain(row.iter().map(&show)).collect();
        let is_known = |row: &Vec<String>| row.iter().skip(1).any(|cell| !cell.is_empty());
        let rows = ids.iter().zip(matrix).map(cells).filter(is_known);
        table(text, &columns, &rows.collect::<Vec<_>>());
        return;
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
    table(text, &[("value", true), ("pairs", true), ("first pair", false)], &rows);
    if total > MOST_ROWS {
        append!(text, "  and {}\n", units::count(total - MOST_ROWS, "more value"));
    }
}

fn links(text: &mut String, machine: &Machine) {
    if machine.links.is_empty() {
        return;
    }
    let ends = |link: &Link| match link.direction {
        LinkDirection::Both => format!("{} - {}", link.nodes[0], link.nodes[1]),
        LinkDirection::Forward => format!("{} -> {}", link.nodes[0], link.nodes[1]),
    };
    let look = |link: &Link| {
        let way = if link.direction == LinkDirection::Both { "each way" } else { "one way" };
        let latency = link.latency_ns.map(|ns| format!("{} ns", units::ns(ns))).unwrap_or_default();
        [units::bandwidth(link.bandwidth_bytes_per_s), way.to_owned(), latency]
    };
    if machine.links.len() <= MOST_ROWS {
        *text += "\nLinks\n";
        let rows = machine.links.iter().map(|link| std::iter::once(ends(link)).chain(look(link)).collect());
        table(
            text,
            &[("nodes", false), ("bandwidth", true), ("", false), ("latency", true)],
            &rows.collect::<Vec<_>>(),
        );
        return;
    }
    append!(text, "\nLinks ({}, those alike together)\n", machine.links.len());
    let mut groups: BTreeMap<[String; 3], (usize, String)> = BTreeMap::new();
    for link in &machine.links {
        groups.entry(look(link)).or_insert_with(|| (0, ends(link))).0 += 1;
    }
    let row = |([bandwidth, way, latency], (count, first)): (&[String; 3], &(usize, String))| {
        vec![count.to_string(), bandwidth.clone(), way.clone(), latency.clone(), first.clone()]
    };
    let columns = [("count", true), ("bandwidth", true), ("", false), ("latency", true), ("first", false)];
    table(text, &columns, &groups.iter().take(MOST_ROWS).map(row).collect::<Vec<_>>());
}

pub(super) fn sources(machine: &Machine) -> String {
    let mut cited: BTreeMap<&str, BTreeMap<String, usize>> =
        machine.sources.keys().map(|key| (key.as_str(), BTreeMap::new())).collect();
    for (key, what) in citations(machine) {
        if let Some(uses) = cited.get_mut(key) {
            *uses.entry(what).or_default() += 1;
        }
    }
    let mut text = String::new();
    for ((key, uses), citation) in cited.iter().zip(machine.sources.values()) {
        let uses = uses.iter().map(|(what, times)| if *times > 1 { format!("{what} ({times})") } else { what.clone() });
        let uses = uses.collect::<Vec<_>>().join(", ");
        append!(text, "  {key}\n      {citation}\n      for {}\n", if uses.is_empty() { "nothing" } else { &uses });
    }
    if text.is_empty() { text } else { format!("\nSources\n{text}") }
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

/// Writes aligned columns (head, right-aligned). A column that is empty in every row is left out, a single empty cell
/// is `-`, and the last column wraps at commas.
fn table(text: &mut String, columns: &[(&str, bool)], rows: &[Vec<String>]) {
    let cell =
        |row: &Vec<String>, i: usize| row.get(i).filter(|cell| !cell.is_empty()).map_or("-".to_owned(), String::clone);
    let shown: Vec<usize> = (0..columns.len())
        .filter(|&i| rows.iter().any(|row| row.get(i).is_some_and(|cell| !cell.is_empty())))
        .collect();
    let heads = columns.iter().map(|(head, _)| (*head).to_owned()).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> =
        std::iter::once(shown.iter().map(|&i| heads.get(i).cloned().unwrap_or_default()).collect())
            .chain(rows.iter().map(|row| shown.iter().map(|&i| cell(row, i)).collect()))
            .collect();
    let Some((last, fronts)) = shown.split_last() else { return };
    let width = |index: usize| {
        lines.iter().filter_map(|line| line.get(index)).map(|cell| columns::width(cell)).max().unwrap_or(0)
    };
    let last_right = columns.get(*last).is_some_and(|column| column.1);
    for line in &lines {
        let mut front = String::from("  ");
        for (index, i) in fronts.iter().enumerate() {
            let (right, width) = (columns.get(*i).is_some_and(|column| column.1), width(index));
            let cell = line.get(index).map_or("", String::as_str);
            front += &if right { columns::right(cell, width) } else { columns::left(cell, width) };
            front += "  ";
        }
        let cell = line.last().map_or("", String::as_str);
        if last_right {
            *text += format!("{front}{}", columns::right(cell, width(fronts.len()))).trim_end();
        } else {
            let indent = format!("\n{:1$}", "", columns::width(&front));
            *text += format!("{front}{}", wrap(cell, LINE_WIDTH.saturating_sub(front.len())).join(&indent)).trim_end();
        }
        *text += "\n";
    }
}

/// Breaks a set's text after commas into at most [`MOST_WRAPPED`] lines.
fn wrap(cell: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in cell.split_inclusive(',') {
        match lines.last_mut().filter(|line| line.len() + part.len() <= width) {
            Some(line) => line.push_str(part),
            None => lines.push(part.to_owned()),
        }
    }
    if lines.len() > MOST_WRAPPED {
        lines.truncate(MOST_WRAPPED);
        lines.push("...".to_owned());
    }
    lines
}
