//! Comparison of two traces, as text.

use super::advice::{kind_words, place};
use super::change::Change;
use super::diff::{DiffReport, NodeChange, Side};
use super::metrics::verdict_line;
use super::rankings_text::remote_cost;
use super::text::{LONGEST_NAME, latency, number, share, short, time};
use crate::Table;
use crate::layout::{Layout, Tone};
use profile::Counts;
use std::fmt;

impl fmt::Display for DiffReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { a, b, filter, change, sites, sites_all, threads, nodes, .. } = self;
        let layout = Layout::of(f);
        let is_empty = [a, b].iter().all(|side| side.counts.samples == 0);
        if !is_empty {
            let text = format!("{}\n", layout.wrapped("", &headline(self)));
            f.write_str(&layout.painted_lines(tone(self.overall), &text))?;
        }
        for (first, side) in [("A  ", a), ("B  ", b)] {
            let text = format!("{}: {}", side.trace.path, side.verdict.text);
            f.write_str(&verdict_line(layout, first, &text, &side.verdict))?;
        }
        if !filter.is_empty() {
            f.write_str(&layout.wrapped("only ", &filter.join(", ")))?;
        }
        if is_empty {
            let why = "nothing to compare: neither has samples; nearside report lists the objects of each by size";
            return write!(f, "\n{}", layout.wrapped("  ", why));
        }
        write!(f, "\n{}", layout.text(&whole(a, b, *change, self.is_comparable())))?;
        if (a.trace.machine.as_str(), a.trace.nodes) != (b.trace.machine.as_str(), b.trace.nodes) {
            let differ = format!("the machines differ: {} and {}", a.trace.machine, b.trace.machine);
            f.write_str(&layout.wrapped("  ", &differ))?;
        }
        let [of_a, of_b] = [a, b].map(|side| side.trace.command.join(" "));
        if of_a != of_b && !of_a.is_empty() && !of_b.is_empty() {
            let differ = format!(
                "the programs differ, and so may their work: {} and {}",
                short(&of_a, LONGEST_NAME),
                short(&of_b, LONGEST_NAME)
            );
            f.write_str(&layout.wrapped("  ", &differ))?;
        }
        let mut table = changes("  sites");
        for site in sites {
            let counts = [&site.a, &site.b].map(|side| side.as_ref().map(|side| &side.counts));
            let (kind, place) = (kind_words(site.kind), place(&site.label, site.source.as_deref()));
            let label = if place.starts_with(kind) { place } else { format!("{kind} {place}") };
            change_row(&mut table, site.change, counts, label);
        }
        write!(f, "\n{}", layout.text(&table))?;
        if sites.len() < *sites_all {
            writeln!(f, "  and {} less costly ones", sites_all - sites.len())?;
        }
        let mut table = changes("  threads");
        for thread in threads {
            let counts = [&thread.a, &thread.b].map(|side| side.as_ref().map(|side| &side.counts));
            let many = |side: &Option<super::diff::ThreadSide>| side.as_ref().map_or(0, |side| side.threads);
            let label = format!("{} of {} ({}, {})", thread.name, thread.application, many(&thread.a), many(&thread.b));
            change_row(&mut table, thread.change, counts, label);
        }
        write!(f, "\n{}", layout.text(&table))?;
        if nodes.is_empty() || !self.is_comparable() {
            return Ok(());
        }
        let mut table = Table::new(["  accesses from -> to", "A", "B"]);
        for NodeChange { from, to, a_share, b_share } in nodes {
            table.row([format!("  node {from} -> {to}"), share(Some(*a_share)), share(Some(*b_share))]);
        }
        write!(f, "\n{}", layout.text(&table))?;
        if sites.iter().any(|site| site.change == Change::Noise) {
            let why = "noise: no difference is significant with as few samples";
            write!(f, "\n{}", layout.wrapped("", why))?;
        }
        Ok(())
    }
}

/// The result, with what speaks for it and what against it; what decides comes first.
fn headline(report: &DiffReport) -> String {
    let DiffReport { a, b, overall, run_change, change, .. } = report;
    if let Some((side, status)) = report.failed_alone() {
        return format!("Cannot be compared: the program of {side} failed with exit code {status}, the other did not");
    }
    if !report.is_comparable() {
        let lacks = |side: &Side| side.counts.local_access_ratio.is_none();
        let which = match (lacks(a), lacks(b)) {
            (true, true) => "neither has",
            (true, false) => "A has no",
            _ => "B has no",
        };
        return format!("Cannot be compared: {which} samples that reached memory");
    }
    let result = match overall {
        Change::Better => "B is better",
        Change::Worse => "B is worse",
        Change::Same | Change::Noise | Change::New | Change::Gone => "No significant difference",
    };
    let accesses = accesses_text(&a.counts, &b.counts, *change);
    let run = a.trace.run_ns.zip(b.trace.run_ns).zip(*run_change);
    let Some((run, run_change)) = run.map(|(times, change)| (run_text(times, change), change)) else {
        return format!("{result}: {accesses}");
    };
    let is_clear = |change| matches!(change, Change::Better | Change::Worse);
    match (is_clear(run_change), is_clear(*change)) {
        (true, true) if run_change != *change => format!("{result}: {run}, although {accesses}"),
        (false, true) => format!("{result}: {accesses}; {run}"),
        _ => format!("{result}: {run}; {accesses}"),
    }
}

/// How much longer a run took than the first, by their times in ns.
fn run_text((before, after): (u64, u64), change: Change) -> String {
    let times = format!("({}, A {})", time(after), time(before));
    let by = after as f64 / before.max(1) as f64 - 1.0;
    let by = format!("its run took {} {}", share(Some(by.abs())), if by > 0.0 { "longer" } else { "less time" });
    match change {
        Change::Worse | Change::Better => format!("{by} {times}"),
        Change::Noise => format!("{by} {times}, within noise"),
        Change::Same | Change::New | Change::Gone => format!("its run took as long {times}"),
    }
}

/// The change of accesses: of their latency, or of the share of local ones if no latencies are known.
fn accesses_text(a: &Counts, b: &Counts, change: Change) -> String {
    let (what, values) = match (a.latency_mean_ns.zip(b.latency_mean_ns), a.local_access_ratio, b.local_access_ratio) {
        (Some((before, after)), ..) => {
            let by = after / before - 1.0;
            let by = format!("take {} {}", share(Some(by.abs())), if by > 0.0 { "longer" } else { "less time" });
            let values = format!("(mean latency {}, A {})", latency(Some(after)), latency(Some(before)));
            ([by, "take as long".to_owned()], values)
        }
        (None, Some(before), Some(after)) => {
            let more = if after > before { "are more often local" } else { "are less often local" };
            let values = format!("({}, A {})", share(Some(after)), share(Some(before)));
            ([more.to_owned(), "are local as often".to_owned()], values)
        }
        _ => return "too few of its accesses can be compared".to_owned(),
    };
    let [differ, same] = what;
    match change {
        Change::Worse | Change::Better => format!("its accesses {differ} {values}"),
        Change::Noise => format!("its accesses {differ} {values}, within noise"),
        Change::Same | Change::New | Change::Gone => format!("its accesses {same} {values}"),
    }
}

/// A table of changes. Where lines are short, samples and then latencies are left out.
fn changes(what: &str) -> Table {
    Table::new([what, "of all A", "B", "local A", "B", "latency A", "B", "samples A", "B"]).optional(&[7, 8, 5, 6])
}

fn change_row(table: &mut Table, change: Change, [a, b]: [Option<&Counts>; 2], label: String) {
    let both = |of: &dyn Fn(&Counts) -> String| [a, b].map(|counts| counts.map_or_else(|| "-".to_owned(), of));
    let parts = [
        both(&|counts| share(Some(counts.share))),
        both(&|counts| share(counts.local_access_ratio)),
        both(&|counts| latency(counts.latency_mean_ns)),
        both(&|counts| machine::number::count(counts.samples)),
    ];
    table.noted(std::iter::once(format!("  {}", change.word())).chain(parts.into_iter().flatten()), label);
    table.tone(0, tone(change));
}

fn tone(change: Change) -> Tone {
    match change {
        Change::Worse => Tone::Bad,
        Change::Better => Tone::Good,
        Change::Noise => Tone::Unsure,
        Change::Same | Change::New | Change::Gone => Tone::Plain,
    }
}

/// All accesses together. How they changed is only told of traces that can be compared.
fn whole(a: &Side, b: &Side, change: Change, is_comparable: bool) -> Table {
    let mut table = Table::new(["", "A", "B", ""]);
    let mut row = |name: &str, of: &dyn Fn(&Side) -> String, note: &str| {
        table.row([format!("  {name}"), of(a), of(b), note.to_owned()]);
        table.tone(3, if note == change.word() { tone(change) } else { Tone::Plain });
    };
    let is_any = |of: &dyn Fn(&Counts) -> Option<f64>| [a, b].iter().any(|side| of(&side.counts).is_some());
    let is_timed = is_any(&|counts| counts.latency_mean_ns);
    let is_local = is_any(&|counts| counts.local_access_ratio);
    // Of parts of runs, the lengths are those of the recordings.
    let faster = match a.trace.run_ns.zip(b.trace.run_ns) {
        Some((before, after)) => format!("{:.2} times as fast", before as f64 / after as f64),
        None => String::new(),
    };
    let metric = |side: &Side, name: &str| {
        let metric = side.verdict.metrics.iter().find(|metric| metric.name == name);
        metric.and_then(|metric| metric.value).map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
    };
    row("first to last access", &|side| time(side.trace.duration_ns), &faster);
    row("samples", &|side| number(side.counts.samples), "");
    // Without latencies, it is the local share that became better or worse.
    let word = if is_comparable { change.word() } else { "" };
    let of_share = if is_local && !is_timed { word } else { "" };
    row("local access ratio", &|side| share(side.counts.local_access_ratio), of_share);
    if is_timed {
        row("mean latency", &|side| latency(side.counts.latency_mean_ns), word);
    }
    // Of no samples, the shares are 0 and tell nothing.
    let of_samples = |side: &Side, value: Option<f64>| share(value.filter(|_| side.counts.samples > 0));
    row("remote cost", &|side| of_samples(side, remote_cost(&side.counts)), "");
    row("imbalance", &|side| metric(side, "imbalance"), "");
    row("latency over idle", &|side| metric(side, "latency_over_idle"), "");
    row("unknown", &|side| of_samples(side, Some(side.verdict.unknown_share)), "");
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::Tally;

    fn counts(latency_mean_ns: Option<f64>, local_access_ratio: Option<f64>) -> Counts {
        Counts { latency_mean_ns, local_access_ratio, ..Tally::default().counts(&Tally::default()) }
    }

    #[test]
    fn both_facts_have_their_numbers() {
        let ms = |before: u64, after: u64| (before * 1_000_000, after * 1_000_000);
        assert_eq!(run_text(ms(100, 110), Change::Worse), "its run took 10.0 % longer (110.00 ms, A 100.00 ms)");
        assert_eq!(run_text(ms(100, 90), Change::Better), "its run took 10.0 % less time (90.00 ms, A 100.00 ms)");
        let within = "its run took 4.0 % longer (104.00 ms, A 100.00 ms), within noise";
        assert_eq!(run_text(ms(100, 104), Change::Noise), within);
        assert_eq!(run_text(ms(100, 101), Change::Same), "its run took as long (101.00 ms, A 100.00 ms)");
        let (slow, fast) = (counts(Some(200.0), Some(0.3)), counts(Some(100.0), Some(0.9)));
        let less = "its accesses take 50.0 % less time (mean latency 100 ns, A 200 ns)";
        assert_eq!(accesses_text(&slow, &fast, Change::Better), less);
        let (few, many) = (counts(None, Some(0.3)), counts(None, Some(0.9)));
        assert_eq!(accesses_text(&many, &few, Change::Worse), "its accesses are less often local (30.0 %, A 90.0 %)");
        assert_eq!(accesses_text(&few, &few, Change::Same), "its accesses are local as often (30.0 %, A 30.0 %)");
        let none = counts(None, None);
        assert_eq!(accesses_text(&none, &none, Change::Noise), "too few of its accesses can be compared");
    }
}
