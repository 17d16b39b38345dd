//! A run of the agent, as text.

use crate::Table;
use agent::{PlaceGain, PlaceMetrics, PlaceReport, PlaceRule, WorkShares};
use machine::number::{count, percent, rounded_count};
use machine::size;
use placement::Lesson;
use std::fmt;

/// What a run of the agent did, as text.
#[derive(Clone, Copy, Debug)]
pub struct PlaceText<'a>(pub &'a PlaceReport);

impl fmt::Display for PlaceText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        let simulated = if report.simulated { " simulated" } else { "" };
        let dry = if report.dry_run { ", dry run" } else { "" };
        let (rounds, samples) = (rounded_count(report.rounds, "round"), rounded_count(report.samples, "sample"));
        writeln!(f, "nearside: {}{dry}: {rounds} in {:.3} s{simulated}, {samples}", report.policy, report.time_s)?;
        if report.began_with == Some(Lesson::Spread) {
            line(f, "began", "with its memory spread over the nodes, as earlier runs taught")?;
        }
        if report.spreads_start && report.lesson != Some(Lesson::NoThreads) {
            line(f, "began", "with what it touches before it makes threads spread over the nodes, if it can make any")?;
        }
        if !report.dry_run {
            moves(f, report)?;
        }
        if let Some(lesson) = report.lesson.filter(|_| report.lesson != report.began_with) {
            let begins = match lesson {
                Lesson::Spread => "begins with its memory spread over the nodes",
                Lesson::FirstTouch => "begins with its memory where it is touched first",
                Lesson::WorksAlone => {
                    "begins with its memory where it is touched first, as the first thread of this one did nearly all work"
                }
                Lesson::NoThreads => "begins with its memory where it is touched first, as this one made no threads",
            };
            line(f, "next run", &format!("{begins}, unless with --forget"))?;
        }
        line(
            f,
            "own CPU time",
            &format!("{:.1} ms, {} of one CPU", report.cpu_time_s * 1e3, percent(report.cpu_share)),
        )?;
        let WorkShares { observing, deciding, moving } = report.cpu_time_of;
        let [observing, deciding, moving] = [observing, deciding, moving].map(percent);
        if report.rounds > 0 {
            line(f, "", &format!("{observing} observing, {deciding} deciding, {moving} moving"))?;
        }
        let has_numbers = |metrics: &PlaceMetrics| metrics.accesses_per_us.is_some();
        let sides = [("before that", &report.before), ("since then", &report.after)];
        let told: Vec<_> = sides.into_iter().filter(|(_, metrics)| has_numbers(metrics)).collect();
        if !told.is_empty() {
            let mut table = Table::new(["", "time", "accesses/µs", "local", "imbalance", "an access"]);
            for (name, metrics) in &told {
                let name = if report.after.time_s == 0.0 { "all the time" } else { name };
                let number = |value: Option<f64>, decimals: usize, unit: &str| {
                    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}{unit}"))
                };
                table.row([
                    format!("  {name}"),
                    format!("{:.3} s", metrics.time_s),
                    number(metrics.accesses_per_us, 1, ""),
                    metrics.local_access_ratio.map_or_else(|| "-".to_owned(), percent),
                    number(metrics.imbalance, 2, ""),
                    number(metrics.access_ns, 0, " ns"),
                ]);
            }
            write!(f, "{table}")?;
        }
        report.notes.iter().try_for_each(|note| writeln!(f, "  note: {note}"))
    }
}

/// A line with a name.
fn line(f: &mut fmt::Formatter<'_>, name: &str, text: &str) -> fmt::Result {
    writeln!(f, "  {name:14}{text}")
}

/// What was moved, copied and split, and why; or why nothing was.
fn moves(f: &mut fmt::Formatter<'_>, report: &PlaceReport) -> fmt::Result {
    let moved = format!("{} ({})", rounded_count(report.pages_moved, "page"), size::rounded(report.bytes_moved));
    line(f, "moved", &moved)?;
    if report.pages_copied > 0 {
        let (pages, bytes) = (rounded_count(report.pages_copied, "page"), size::rounded(report.bytes_copied));
        line(f, "copied", &format!("{pages} ({bytes}) of files, for single processes"))?;
    }
    for PlaceRule { why, pages, .. } in &report.by_rule {
        line(f, "", &format!("{}: {why}", count(*pages)))?;
    }
    for gain in &report.gains {
        let measured = gain.measured_speedup.map_or_else(String::new, |by| format!(", measured {by:.2} times"));
        let taken_back = if gain.taken_back { "; taken back" } else { "" };
        let PlaceGain { predicted_speedup, access_ns_before, access_ns, .. } = gain;
        let costs = format!("an access {access_ns_before:.0} ns before, {access_ns:.0} ns since");
        line(f, "gain", &format!("predicted {predicted_speedup:.2} times{measured}: {costs}{taken_back}"))?;
    }
    let has_acted = report.pages_moved + report.pages_copied + report.pages_split + report.threads_moved > 0;
    let all_refused: u64 = report.pages_refused.iter().map(|of| of.pages).sum();
    match &report.idle_reason {
        _ if has_acted => {}
        Some(reason) if all_refused > 0 => {
            let pages = rounded_count(all_refused, "page");
            line(f, "", &format!("because the kernel refused {pages} (see below), and otherwise {reason}"))?;
        }
        Some(reason) => line(f, "", &format!("because {reason}"))?,
        None if report.rounds == 0 && report.time_s < report.round_s => {
            let round = report.round_s;
            line(f, "", &format!("because it ended before a round of {round} s was over: --round shortens rounds"))?;
        }
        None => {}
    }
    let refused: Vec<String> =
        report.pages_refused.iter().map(|of| format!("{} {}", count(of.pages), of.why)).collect();
    if !refused.is_empty() {
        line(f, "stayed", &refused.join(", "))?;
    }
    for (name, number, what) in [("split", report.pages_split, "huge page"), ("threads", report.threads_moved, "move")]
    {
        if number > 0 {
            line(f, name, &rounded_count(number, what))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::PlaceRefusal;

    #[test]
    fn moves_are_shown_with_reasons_and_results() {
        let metrics = |time_s, ns| PlaceMetrics {
            time_s,
            accesses_per_us: Some(76.25),
            local_access_ratio: Some(0.25),
            imbalance: Some(1.5),
            access_ns: Some(ns),
        };
        let report = PlaceReport {
            policy: "carrefour".to_owned(),
            simulated: true,
            time_s: 1.5,
            rounds: 30,
            samples: 61_234,
            pages_moved: 412,
            bytes_moved: 412 * 4096,
            pages_copied: 2,
            bytes_copied: 8192,
            by_rule: vec![PlaceRule {
                rule: "one_node_uses".to_owned(),
                why: "only that node uses them".to_owned(),
                pages: 412,
            }],
            gains: vec![PlaceGain {
                round: 5,
                predicted_speedup: 1.5,
                measured_speedup: Some(1.625),
                access_ns_before: 991.4,
                access_ns: 383.0,
                taken_back: false,
            }],
            pages_refused: vec![PlaceRefusal { why: "busy".to_owned(), pages: 3 }],
            threads_moved: 1,
            before: metrics(0.1, 991.4),
            after: metrics(1.4, 383.0),
            cpu_time_s: 0.0123,
            cpu_share: 0.0082,
            cpu_time_of: WorkShares { observing: 0.25, deciding: 0.005, moving: 0.745 },
            notes: vec!["the kernel's NUMA balancing is off meanwhile".to_owned()],
            ..PlaceReport::default()
        };
        assert_eq!(
            PlaceText(&report).to_string(),
            "nearside: carrefour: 30 rounds in 1.500 s simulated, 61.2 k samples\n  \
             moved         412 pages (1.61 MiB)\n  \
             copied        2 pages (8 KiB) of files, for single processes\n                \
             412: only that node uses them\n  \
             gain          predicted 1.50 times, measured 1.62 times: an access 991 ns before, 383 ns since\n  \
             stayed        3 busy\n  \
             threads       1 move\n  \
             own CPU time  12.3 ms, 0.8 % of one CPU\n                \
             25.0 % observing, 0.5 % deciding, 74.5 % moving\n                  \
             time  accesses/µs   local  imbalance  an access\n  \
             before that  0.100 s         76.2  25.0 %       1.50     991 ns\n  \
             since then   1.400 s         76.2  25.0 %       1.50     383 ns\n  \
             note: the kernel's NUMA balancing is off meanwhile\n"
        );
        let unmoved = PlaceReport {
            idle_reason: Some("no page is better elsewhere".to_owned()),
            pages_moved: 0,
            pages_copied: 0,
            threads_moved: 0,
            pages_refused: Vec::new(),
            ..report.clone()
        };
        let of_several = vec![PlaceRefusal { why: "shared".to_owned(), pages: 3 }];
        let text = PlaceText(&PlaceReport { pages_refused: of_several, ..unmoved.clone() }).to_string();
        let why = "because the kernel refused 3 pages (see below), and otherwise no page is better elsewhere\n";
        assert!(text.contains(why) && text.contains("stayed        3 shared\n"), "{text}");
        let text = PlaceText(&unmoved).to_string();
        assert!(text.contains("  moved         0 pages (1.61 MiB)\n"), "{text}");
        assert!(text.contains("\n                because no page is better elsewhere\n"), "{text}");
        let brief = PlaceReport { idle_reason: None, rounds: 0, time_s: 0.5, round_s: 1.0, ..unmoved };
        let text = PlaceText(&brief).to_string();
        assert!(text.contains("because it ended before a round of 1 s was over"), "{text}");
        let idle = PlaceReport { dry_run: true, after: PlaceMetrics::default(), ..report };
        let text = PlaceText(&idle).to_string();
        assert!(text.starts_with("nearside: carrefour, dry run: 30 rounds"), "{text}");
        assert!(text.contains("  all the time  0.100 s") && !text.contains("moved"), "{text}");
    }
}
