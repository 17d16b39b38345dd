//! The result of placing a program's pages and threads.

use crate::{Table, bytes, count, percent};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The final output of `nearside place`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaceReport {
    /// The policy.
    pub policy: String,
    /// Whether it was a dry run, in which nothing was changed.
    pub dry_run: bool,
    /// Whether the machine was the lab's.
    pub simulated: bool,
    /// The program's exit status, 128 + n if signal n ended it; none if no program was started.
    pub exit_status: Option<i32>,
    /// Duration, s.
    pub time_s: f64,
    /// Length of a round, s.
    pub round_s: f64,
    /// Rounds.
    pub rounds: u64,
    /// The source of accesses; none if they were not observed.
    pub source: Option<String>,
    /// Samples of managed processes.
    pub samples: u64,
    /// Samples that were lost, or whose pages exceeded the limit.
    pub samples_lost: u64,
    /// Processes that were managed.
    pub processes: u64,
    /// Pages that were moved.
    pub pages_moved: u64,
    /// Bytes of those pages.
    pub bytes_moved: u64,
    /// Moved pages by reason.
    pub by_rule: Vec<PlaceRule>,
    /// Pages that could not be moved, by reason.
    pub pages_refused: Vec<PlaceRefusal>,
    /// Pages of files that processes got private copies of.
    pub pages_copied: u64,
    /// Bytes of those pages: memory that the copies use until their processes end.
    pub bytes_copied: u64,
    /// Huge pages that were split.
    pub pages_split: u64,
    /// Threads whose CPUs were changed.
    pub threads_moved: u64,
    /// Until the first move.
    pub before: PlaceMetrics,
    /// After the first move.
    pub after: PlaceMetrics,
    /// CPU time of placing itself, s.
    pub cpu_time_s: f64,
    /// That, as a share of one CPU.
    pub cpu_share: f64,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Memory metrics over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaceMetrics {
    /// Duration, s.
    pub time_s: f64,
    /// Accesses that memory served, 1/µs.
    pub accesses_per_us: Option<f64>,
    /// Local accesses over all, 0 to 1.
    pub local_access_ratio: Option<f64>,
    /// Standard deviation (n - 1) of the controllers' loads over their mean.
    pub imbalance: Option<f64>,
    /// Mean cost of an access, ns: measured, or estimated from the load of controllers and links.
    pub access_ns: Option<f64>,
}

/// Moved pages for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceRule {
    /// The rule's name in the decision log.
    pub rule: String,
    /// The rule as text.
    pub why: String,
    /// Number of pages.
    pub pages: u64,
}

/// Pages that could not be moved for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceRefusal {
    /// The reason: `gone`, `shared`, `busy`, `held`, `no_memory`, `write_back` or `other`.
    pub why: String,
    /// Number of pages.
    pub pages: u64,
}

impl fmt::Display for PlaceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let many = |number: u64, what: &str| format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" });
        let simulated = if self.simulated { " simulated" } else { "" };
        let dry = if self.dry_run { ", dry run" } else { "" };
        let (rounds, samples) = (many(self.rounds, "round"), many(self.samples, "sample"));
        writeln!(f, "nearside: {}{dry}: {rounds} in {:.3} s{simulated}, {samples}", self.policy, self.time_s)?;
        let line = |f: &mut fmt::Formatter<'_>, name: &str, text: &str| writeln!(f, "  {name:14}{text}");
        if !self.dry_run {
            let moved = format!("{} ({})", many(self.pages_moved, "page"), bytes(self.bytes_moved));
            line(f, "moved", &moved)?;
            if self.pages_copied > 0 {
                let (pages, bytes) = (many(self.pages_copied, "page"), bytes(self.bytes_copied));
                line(f, "copied", &format!("{pages} ({bytes}) of files, for single processes"))?;
            }
            for PlaceRule { why, pages, .. } in &self.by_rule {
                line(f, "", &format!("{}: {why}", count(*pages)))?;
            }
            let refused: Vec<String> =
                self.pages_refused.iter().map(|of| format!("{} {}", count(of.pages), of.why)).collect();
            if !refused.is_empty() {
                line(f, "stayed", &refused.join(", "))?;
            }
            for (name, number, what) in
                [("split", self.pages_split, "huge page"), ("threads", self.threads_moved, "move")]
            {
                if number > 0 {
                    line(f, name, &many(number, what))?;
                }
            }
        }
        line(f, "own CPU time", &format!("{:.1} ms, {} of one CPU", self.cpu_time_s * 1e3, percent(self.cpu_share)))?;
        let has_numbers = |metrics: &PlaceMetrics| metrics.accesses_per_us.is_some();
        let sides = [("before that", &self.before), ("since then", &self.after)];
        let told: Vec<_> = sides.into_iter().filter(|(_, metrics)| has_numbers(metrics)).collect();
        if !told.is_empty() {
            let mut table = Table::new(["", "time", "accesses/µs", "local", "imbalance", "an access"]);
            for (name, metrics) in &told {
                let name = if self.after.time_s == 0.0 { "all the time" } else { name };
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
        self.notes.iter().try_for_each(|note| writeln!(f, "  note: {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            pages_refused: vec![PlaceRefusal { why: "busy".to_owned(), pages: 3 }],
            threads_moved: 1,
            before: metrics(0.1, 991.4),
            after: metrics(1.4, 383.0),
            cpu_time_s: 0.0123,
            cpu_share: 0.0082,
            notes: vec!["the kernel's NUMA balancing is off meanwhile".to_owned()],
            ..PlaceReport::default()
        };
        assert_eq!(
            report.to_string(),
            "nearside: carrefour: 30 rounds in 1.500 s simulated, 61.2 k samples\n  \
             moved         412 pages (1.69 MB)\n  \
             copied        2 pages (8.19 kB) of files, for single processes\n                \
             412: only that node uses them\n  \
             stayed        3 busy\n  \
             threads       1 move\n  \
             own CPU time  12.3 ms, 0.8 % of one CPU\n                  \
             time  accesses/µs   local  imbalance  an access\n  \
             before that  0.100 s         76.2  25.0 %       1.50     991 ns\n  \
             since then   1.400 s         76.2  25.0 %       1.50     383 ns\n  \
             note: the kernel's NUMA balancing is off meanwhile\n"
        );
        let idle = PlaceReport { dry_run: true, after: PlaceMetrics::default(), ..report };
        let text = idle.to_string();
        assert!(text.starts_with("nearside: carrefour, dry run: 30 rounds"), "{text}");
        assert!(text.contains("  all the time  0.100 s") && !text.contains("moved"), "{text}");
    }
}
