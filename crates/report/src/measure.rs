//! The result of `nearside measure`, for terminals and as a picture.

use crate::Table;
use crate::layout::Layout;
use crate::picture::{HeatMap, MEMORY, heat_maps_to_svg};
use ::measure::{Bandwidth, Caches, Firmware, LinkSharing, LoadedCurve, Matrix, Missing, Number, Results};
use machine::{NodeId, quantile, size};
use std::fmt;

type Show = fn(f64) -> String;

/// Most nodes for which a table fits a terminal.
const MOST_COLUMNS: usize = 32;
/// Most lines of lists whose length is the number of pairs of nodes; the JSON output has all.
const MOST_LINES: usize = 12;

/// The tables of a measurement; its JSON has the same and more.
#[derive(Clone, Copy, Debug)]
pub struct MeasureText<'a>(pub &'a Results);

impl fmt::Display for MeasureText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let results = self.0;
        let layout = Layout::of(f);
        f.write_str(&layout.wrapped("", &how(results)))?;
        results.notes.iter().try_for_each(|note| f.write_str(&layout.wrapped("note: ", note)))?;
        if let Some(latency) = &results.latency_ns {
            matrix(f, "Latency (ns, idle; rows access, columns hold the memory)", &results.nodes, latency, ns)?;
        }
        if let Some(of) = &results.bandwidth_bytes_per_s {
            bandwidth(f, &results.nodes, of)?;
        }
        results.loaded_latency.iter().flatten().try_for_each(|curve| loaded(f, curve))?;
        if let Some(transfers) = &results.cache_to_cache_ns {
            let rows = "ns; rows read, columns have the lines in a cache; on the diagonal two cores of one node";
            matrix(f, &format!("Cache to cache, clean lines ({rows})"), &results.nodes, &transfers.clean, ns)?;
            matrix(f, &format!("Cache to cache, modified lines ({rows})"), &results.nodes, &transfers.modified, ns)?;
        }
        if let Some(sharing) = &results.link_sharing {
            links(f, sharing)?;
        }
        if let Some(of) = &results.caches {
            caches(f, of)?;
        }
        if let Some(of) = &results.firmware {
            firmware(f, of)?;
        }
        if !results.missing.is_empty() {
            writeln!(f, "\nMissing")?;
            reasons(f, &results.missing)?;
        }
        Ok(())
    }
}

/// Each reason once, with what it concerns.
fn reasons(f: &mut fmt::Formatter<'_>, missing: &[Missing]) -> fmt::Result {
    let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for Missing { what, why } in missing {
        match by_reason.iter_mut().find(|(reason, _)| reason == why) {
            Some((_, parts)) => parts.push(what),
            None => by_reason.push((why, vec![what])),
        }
    }
    for (why, parts) in by_reason {
        match parts.as_slice() {
            [part] => f.write_str(&Layout::of(f).wrapped("  ", &format!("{part}: {why}")))?,
            parts => {
                f.write_str(&Layout::of(f).wrapped("  ", &format!("{} parts: {why}", parts.len())))?;
                few(f, "    ", parts.iter().map(|part| (*part).to_owned()))?;
            }
        }
    }
    Ok(())
}

fn how(results: &Results) -> String {
    let Results { version, date, machine, simulated, settings, partial, .. } = results;
    let medians = match settings.repeats {
        1 => "single measurements".to_owned(),
        repeats => format!("medians of {repeats} or more"),
    };
    let quick = if settings.quick { ", quick" } else { "" };
    let partial = if *partial { ", PARTIAL" } else { "" };
    let size = size::format(settings.size_bytes);
    let simulated = if *simulated { " (simulated)" } else { "" };
    format!(
        "{machine}{simulated}, measured by nearside {version} on {date}: {medians}, arrays of {size}{quick}{partial}"
    )
}

/// Heat maps of everything measured per pair of nodes.
pub fn measure_svg(results: &Results) -> String {
    let map_of = |columns, title, matrix: &Matrix, show, more_is_better| HeatMap {
        title,
        columns,
        nodes: &results.nodes,
        values: matrix.iter().map(|row| row.iter().map(|number| (*number)?.value).collect()).collect(),
        more_is_better,
        scale: None,
        show,
    };
    let map = |title, matrix, show, more_is_better| map_of(MEMORY, title, matrix, show, more_is_better);
    let mut maps = Vec::new();
    maps.extend(results.latency_ns.as_ref().map(|latency| map("Idle memory latency, ns", latency, ns as Show, false)));
    if let Some(of) = &results.bandwidth_bytes_per_s {
        for (title, matrix) in [
            ("Read bandwidth of one core, GB/s", &of.one_core.read),
            ("Read bandwidth of all cores, GB/s", &of.all_cores.read),
            ("Write bandwidth of one core, GB/s", &of.one_core.write),
            ("Write bandwidth of all cores, GB/s", &of.all_cores.write),
            ("Copy bandwidth of one core, GB/s", &of.one_core.copy),
            ("Copy bandwidth of all cores, GB/s", &of.all_cores.copy),
        ] {
            maps.push(map(title, matrix, gb_per_s as Show, true));
        }
    }
    if let Some(transfers) = &results.cache_to_cache_ns {
        let map = |title, matrix| map_of("a cache of node", title, matrix, ns as Show, false);
        maps.push(map("Clean lines from another cache, ns", &transfers.clean));
        maps.push(map("Modified lines from another cache, ns", &transfers.modified));
    }
    heat_maps_to_svg(&results.machine, &how(results), maps)
}

/// At most [`MOST_LINES`] of these, each after some spaces.
fn few(f: &mut fmt::Formatter<'_>, indent: &str, lines: impl ExactSizeIterator<Item = String>) -> fmt::Result {
    let more = lines.len().saturating_sub(MOST_LINES);
    for line in lines.take(MOST_LINES) {
        f.write_str(&Layout::of(f).wrapped(indent, &line))?;
    }
    if more > 0 { writeln!(f, "  and {more} more; --json has all") } else { Ok(()) }
}

fn ns(value: f64) -> String {
    format!("{value:.1}")
}

fn gb_per_s(value: f64) -> String {
    format!("{:.2}", value / 1e9)
}

/// A number, or why there is none: `-` if nothing was measured, its spread if that was too large.
fn cell(number: Option<&Number>, show: Show) -> String {
    match number {
        None => "-".to_owned(),
        Some(Number { value: Some(value), .. }) => show(*value),
        Some(Number { spread, .. }) => format!("spread {:.0} %", spread * 100.0),
    }
}

/// Spaces before the tables.
const INDENT: usize = 2;

/// Writes a table below its title.
fn below(f: &mut fmt::Formatter<'_>, table: Table) -> fmt::Result {
    fmt::Display::fmt(&table.indented(INDENT), f)
}

/// Writes a title, after an empty line.
fn heading(f: &mut fmt::Formatter<'_>, title: &str) -> fmt::Result {
    write!(f, "\n{}", Layout::of(f).wrapped("", title))
}

fn matrix(f: &mut fmt::Formatter<'_>, title: &str, nodes: &[NodeId], matrix: &Matrix, show: Show) -> fmt::Result {
    if matrix.iter().flatten().all(Option::is_none) {
        return Ok(());
    }
    heading(f, title)?;
    if nodes.len() > MOST_COLUMNS {
        return ranges(f, matrix, show);
    }
    let of_memory = nodes.iter().map(ToString::to_string);
    let mut table = Table::new(["node".to_owned()].into_iter().chain(of_memory));
    for (id, row) in nodes.iter().zip(matrix).filter(|(_, row)| row.iter().any(Option::is_some)) {
        table.row([id.to_string()].into_iter().chain(row.iter().map(|number| cell(number.as_ref(), show))));
    }
    below(f, table)
}

/// For very many nodes: ranges instead of a matrix.
fn ranges(f: &mut fmt::Formatter<'_>, matrix: &Matrix, show: Show) -> fmt::Result {
    for (name, local) in [("own node", true), ("other nodes", false)] {
        let pairs =
            matrix.iter().enumerate().flat_map(|(i, row)| row.iter().enumerate().map(move |(j, cell)| (i, j, cell)));
        let mut values: Vec<f64> =
            pairs.filter(|(i, j, _)| (i == j) == local).filter_map(|(_, _, cell)| (*cell)?.value).collect();
        values.sort_by(f64::total_cmp);
        if let (Some(least), Some(median), Some(most)) = (values.first(), quantile(&values, 0.5), values.last()) {
            writeln!(f, "  {name}: {} to {}, median {}; --json has all", show(*least), show(*most), show(median))?;
        }
    }
    Ok(())
}

fn bandwidth(f: &mut fmt::Formatter<'_>, nodes: &[NodeId], of: &Bandwidth) -> fmt::Result {
    let all = ("all cores of the node", &of.all_cores);
    // Where every node has one core, both are the same.
    for (cores, by_access) in
        [("one core", &of.one_core)].into_iter().chain((of.all_cores != of.one_core).then_some(all))
    {
        for (access, values) in [("Read", &by_access.read), ("Write", &by_access.write), ("Copy", &by_access.copy)] {
            let title = format!("{access} bandwidth, {cores} (GB/s; rows access, columns hold the memory)");
            matrix(f, &title, nodes, values, gb_per_s)?;
        }
    }
    let machine = [("read", of.machine.read), ("write", of.machine.write), ("copy", of.machine.copy)];
    if machine.iter().any(|(_, number)| number.is_some()) {
        heading(f, "Bandwidth of the whole machine (GB/s; every core in its own node's memory)")?;
        let text = |(name, number): &(&str, Option<Number>)| format!("{name} {}", cell(number.as_ref(), gb_per_s));
        writeln!(f, "  {}", machine.iter().map(text).collect::<Vec<_>>().join("   "))?;
    }
    Ok(())
}

fn loaded(f: &mut fmt::Formatter<'_>, curve: &LoadedCurve) -> fmt::Result {
    let LoadedCurve { node, from, loading_cores, points } = curve;
    let loaders =
        if *loading_cores == 1 { "another one reads".to_owned() } else { format!("{loading_cores} others read") };
    let title = format!("Latency under load (memory of node {node}: a core of node {from} chases while {loaders})");
    heading(f, &title)?;
    let mut latencies = vec!["latency, ns".to_owned()];
    let mut loads = vec!["load, GB/s".to_owned()];
    for point in points {
        loads.push(cell(Some(&point.load_bytes_per_s), gb_per_s));
        latencies.push(cell(Some(&point.latency_ns), ns));
    }
    let mut table = Table::new(loads);
    table.row(latencies);
    below(f, table)
}

fn links(f: &mut fmt::Formatter<'_>, sharing: &[LinkSharing]) -> fmt::Result {
    if sharing.is_empty() {
        return Ok(());
    }
    heading(f, "How cores share the route to another node (GB/s read by all of them together)")?;
    let line = |LinkSharing { from, to, points }: &LinkSharing| {
        let point = |point: &::measure::SharePoint| {
            let plural = if point.cores == 1 { "core" } else { "cores" };
            format!("{} {plural} {}", point.cores, cell(Some(&point.bandwidth_bytes_per_s), gb_per_s))
        };
        format!("node {from} to memory of {to}: {}", points.iter().map(point).collect::<Vec<_>>().join(", "))
    };
    few(f, "  ", sharing.iter().map(line))
}

fn caches(f: &mut fmt::Formatter<'_>, of: &Caches) -> fmt::Result {
    let clock = cell(Some(&of.clock_hz), gb_per_s);
    heading(f, &format!("Latency by working set (node {}, clock {clock} GHz)", of.node))?;
    let mut table = Table::new(["working set", "latency, ns", "cache"]).left(&[0, 2]);
    let mut smaller = 0;
    for set in &of.working_sets {
        let level = of.levels.iter().find(|level| (smaller..=set.size_bytes).contains(&level.size_bytes));
        let seen = level.map_or_else(String::new, |level| {
            format!(
                "level {}: {} ns, holds {} or more",
                level.level,
                ns(level.latency_ns),
                size::rounded(level.size_bytes)
            )
        });
        table.row([size::rounded(set.size_bytes), cell(Some(&set.latency_ns), ns), seen]);
        smaller = set.size_bytes + 1;
    }
    below(f, table)
}

fn firmware(f: &mut fmt::Formatter<'_>, of: &Firmware) -> fmt::Result {
    let pairs = of.compared_pairs;
    writeln!(f, "\nFirmware distances against measured latency")?;
    if of.disagreements.is_empty() {
        let text = format!("all {pairs} distances between nodes are within 5 % of what was measured");
        f.write_str(&Layout::of(f).wrapped("  ", &text))?;
    } else {
        let off = of.disagreements.len();
        let text = format!("{off} of {pairs} distances between nodes are off by more than 5 %");
        f.write_str(&Layout::of(f).wrapped("  ", &text))?;
        let line = |d: &::measure::Disagreement| {
            let (over, error) = (if d.error > 0.0 { "over" } else { "under" }, d.error.abs() * 100.0);
            format!(
                "node {} to {}: distance {} claims {:.2} times local, measured {:.2}: {over}stated by {error:.0} %",
                d.from, d.to, d.distance, d.claimed_ratio, d.measured_ratio
            )
        };
        few(f, "  ", of.disagreements.iter().map(line))?;
    }
    if of.order_changes.is_empty() {
        return writeln!(f, "  the order of nodes is the same");
    }
    writeln!(f, "  the order of nodes differs:")?;
    let line = |c: &::measure::OrderChange| {
        let claims = if c.claimed_equal { "equally far" } else { "the other way round" };
        format!(
            "from node {}, memory of {} is nearer ({:.1} ns) than that of {} ({:.1} ns); the firmware says {claims}",
            c.from, c.nearer, c.nearer_ns, c.farther, c.farther_ns
        )
    };
    few(f, "  ", of.order_changes.iter().map(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A possible result for a two-node machine, as JSON.
    const MEASURED: &str = r#"{
        "version": "0.1.0", "date": "2026-01-31", "machine": "small-2x2", "simulated": true, "partial": true,
        "missing": [{"what": "latency from node 1 to memory of 0 (spread 31 %)", "why": "repeats spread by more than 10 %"},
            {"what": "caches", "why": "no clock"},
            {"what": "latency from node 1 to memory of 1 (spread 12 %)", "why": "repeats spread by more than 10 %"}],
        "notes": ["node 1 was measured on arrays of 8 MiB"],
        "settings": {"quick": true, "repeats": 3, "size_bytes": 67108864, "max_spread": 0.1, "huge_page_share": 1.0},
        "nodes": [0, 1],
        "latency_ns": [
            [{"value": 80.04, "spread": 0.01, "repeats": 3}, {"value": 120.06, "spread": 0.01, "repeats": 3}],
            [{"value": null, "spread": 0.31, "repeats": 12}, null]
        ],
        "bandwidth_bytes_per_s": {
            "one_core": {"read": [[{"value": 12e9, "spread": 0.0, "repeats": 3}, null], [null, null]],
                "write": [[null, null], [null, null]], "copy": [[null, null], [null, null]]},
            "all_cores": {"read": [[null, null], [null, null]], "write": [[null, null], [null, null]],
                "copy": [[null, null], [null, null]]},
            "machine": {"read": {"value": 80e9, "spread": 0.0, "repeats": 3}, "write": null, "copy": null}
        },
        "link_sharing": [{"from": 0, "to": 1, "points": [
            {"cores": 1, "bandwidth_bytes_per_s": {"value": 6e9, "spread": 0.0, "repeats": 3}},
            {"cores": 2, "bandwidth_bytes_per_s": {"value": null, "spread": 0.5, "repeats": 12}}
        ]}],
        "caches": {"node": 0, "clock_hz": {"value": 2.5e9, "spread": 0.0, "repeats": 3},
            "working_sets": [
                {"size_bytes": 32768, "latency_ns": {"value": 1.2, "spread": 0.0, "repeats": 3}},
                {"size_bytes": 46336, "latency_ns": {"value": 3.4, "spread": 0.0, "repeats": 3}}
            ],
            "levels": [{"level": 1, "size_bytes": 32768, "latency_ns": 1.2}]},
        "firmware": {"compared_pairs": 1,
            "disagreements": [{"from": 0, "to": 1, "distance": 21, "claimed_ratio": 2.1, "measured_ratio": 1.5,
                "error": 0.4}],
            "order_changes": [{"from": 0, "nearer": 2, "farther": 1, "nearer_ns": 100.0, "farther_ns": 120.06,
                "claimed_equal": true}]}
    }"#;

    fn measured() -> Results {
        serde_json::from_str(MEASURED).unwrap()
    }

    #[test]
    fn tables_say_what_was_measured_what_was_refused_and_what_is_missing() {
        insta::assert_snapshot!(MeasureText(&measured()));
    }

    #[test]
    fn the_text_fits_the_terminal_and_notes_stand_in_line() {
        for width in [60, 80, 120] {
            let text = format!("{:width$}", MeasureText(&measured()));
            assert!(text.lines().all(|line| crate::columns::width(line) <= width), "{width}:\n{text}");
        }
        let mut results = measured();
        let level = |level, size_bytes, latency_ns| ::measure::CacheLevel { level, size_bytes, latency_ns };
        results.caches.as_mut().unwrap().levels = vec![level(1, 32768, 1.2), level(2, 46336, 134.25)];
        let text = MeasureText(&results).to_string();
        let places: Vec<_> = text.lines().filter_map(|line| line.find("level ")).collect();
        assert_eq!(places.len(), 2, "{text}");
        assert_eq!(places[0], places[1], "{text}");
    }

    #[test]
    fn json_comes_back_as_it_was() {
        let text = serde_json::to_string(&measured()).unwrap();
        assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), measured());
        assert!(!text.contains("loaded_latency"), "parts that were not asked for are absent");
    }

    #[test]
    fn the_picture_has_a_map_for_each_matrix_with_a_number() {
        let svg = measure_svg(&measured());
        assert_eq!(svg.matches("memory of node</text>").count(), 2, "{svg}");
        assert!(!svg.contains("a cache of node"));
        let latency = measured().latency_ns.unwrap();
        let transfers = ::measure::Transfers { clean: latency.clone(), modified: latency };
        let of_caches = measure_svg(&Results { cache_to_cache_ns: Some(transfers), ..measured() });
        assert_eq!(of_caches.matches("a cache of node</text>").count(), 2, "{of_caches}");
        for part in [
            ">small-2x2</text>",
            "small-2x2 (simulated), measured",
            "Idle memory latency, ns",
            "Read bandwidth of one core, GB/s",
            ">120.1</text>",
            "PARTIAL",
        ] {
            assert!(svg.contains(part), "no {part} in {svg}");
        }
    }

    #[test]
    fn a_thousand_nodes_stay_a_page() {
        let mut results = measured();
        let number = |i: usize, j: usize| Number {
            value: Some(if i == j { 80.0 } else { 100.0 + j as f64 }),
            spread: 0.0,
            repeats: 3,
        };
        results.nodes = (0..1024).map(NodeId).collect();
        results.latency_ns = Some((0..1024).map(|i| (0..1024).map(|j| Some(number(i, j))).collect()).collect());
        let text = MeasureText(&results).to_string();
        assert!(text.contains("own node: 80.0 to 80.0") && text.contains("other nodes: 100.0 to 1123.0"), "{text}");
        assert!(text.lines().count() < 60);
    }
}
