//! Targets of the policies, and whether they are met.

use super::Compared;
use super::cases::Machine;
use report::{CompareReport, Estimate, PolicyRuns, PolicySummary, percent};

/// Shares and imbalances that differ by less count as equal.
const SAME_SHARE: f64 = 0.01;
const SAME_IMBALANCE: f64 = 0.05;
/// Times that differ by less count as equal: rounds start at different moments in each run.
const SAME_TIME: f64 = 0.02;
/// Minimum speed-up of `carrefour` over first touch.
const LEAST: f64 = 0.96;
/// With fewer pages moved, the policy has left a workload alone.
const TOUCHED_PAGES: f64 = 100.0;
/// Workloads with nothing to gain.
const NOTHING_TO_GAIN: [&str; 3] = ["ft", "levenshtein", "psearchy"];

/// A target.
pub struct Target {
    pub what: &'static str,
    pub wanted: &'static str,
    /// The result; `None` if it was not measured.
    pub measured: Option<Measured>,
}

pub struct Measured {
    pub is_met: bool,
    pub text: String,
}

impl Target {
    pub fn is_missed(&self) -> bool {
        self.measured.as_ref().is_some_and(|measured| !measured.is_met)
    }
}

/// A policy's runs and summary in a comparison, if it ran.
pub fn row<'a>(report: &'a CompareReport, policy: &str) -> Option<(&'a PolicyRuns, &'a PolicySummary)> {
    let rows = report.comparison.policies.iter().zip(&report.summaries);
    rows.into_iter().find(|(runs, _)| runs.policy == policy && !runs.runs.is_empty())
}

/// Speed-up of a policy over another.
fn faster(report: &CompareReport, policy: &str, than: &str) -> Option<Estimate> {
    let seconds =
        |(runs, _): (&PolicyRuns, &PolicySummary)| runs.runs.iter().map(|run| run.seconds).collect::<Vec<_>>();
    Estimate::ratio(&seconds(row(report, than)?), &seconds(row(report, policy)?))
}

/// `cg (A)`.
fn name(compared: &Compared) -> String {
    format!("{} ({})", compared.verb, compared.machine.name)
}

/// `-7.1 % (0.76 to 1.14)`: with the interval of several runs.
fn gain(speedup: &Estimate) -> String {
    format!("{:+.1} %{}", 100.0 * (speedup.mean - 1.0), speedup.interval_text())
}

/// All targets.
pub fn of(all: &[Compared]) -> Vec<Target> {
    vec![
        Target {
            what: "`carrefour` against first touch, `streamcluster`",
            wanted: "1.5 x on every machine",
            measured: streamcluster(all),
        },
        Target {
            what: "`carrefour` against first touch, the worst of all workloads",
            wanted: "no worse than -4 %",
            measured: worst(all, |machine| !machine.has_longer_rounds()),
        },
        Target {
            what: "the same of some that lose most, with longer rounds: 100 ms and five times the work",
            wanted: "no worse than -4 %",
            measured: worst(all, Machine::has_longer_rounds),
        },
        Target {
            what: "`carrefour`, local access ratio, on workloads that it touches",
            wanted: "no lower than under first touch",
            measured: kept(all, |before, after| after.0 >= before.0 - SAME_SHARE, |counts| percent(counts.0)),
        },
        Target {
            what: "`carrefour`, imbalance, on workloads that it touches",
            wanted: "no higher than under first touch",
            measured: kept(
                all,
                |before, after| after.1 <= before.1 + SAME_IMBALANCE,
                |counts| format!("{:.2}", counts.1),
            ),
        },
        Target {
            what: "`carrefour` against the kernel's balancing, numad and interleaving all",
            wanted: "not slower than any, on all but `is`",
            measured: rivals(all),
        },
        Target { what: "`auto` against `balanced+local` on `mix`", wanted: "faster", measured: mix(all, "auto", true) },
        Target {
            what: "`auto-threads` against `balanced+local` on `mix`",
            wanted: "slower, as published",
            measured: mix(all, "auto-threads", false),
        },
        Target {
            what: "`carrefour`'s own CPU time where there is nothing to gain (`ft`, `levenshtein`, `psearchy`)",
            wanted: "under 2 % of the machine's",
            measured: cost(all),
        },
        Target { what: "Each policy of each workload", wanted: "ran", measured: ran(all) },
    ]
}

/// Policies that did not run are missing from all other rows.
fn ran(all: &[Compared]) -> Option<Measured> {
    let wanted = || all.iter().flat_map(|compared| compared.policies.split(',').map(move |policy| (compared, policy)));
    let lost = wanted().filter(|(compared, policy)| row(&compared.report, policy).is_none());
    let lost: Vec<String> = lost.map(|(compared, policy)| format!("{} {policy}", name(compared))).collect();
    let count = wanted().count();
    let text = if lost.is_empty() { format!("all {count}") } else { format!("all {count} but {}", lost.join(", ")) };
    (count > 0).then_some(Measured { is_met: lost.is_empty(), text })
}

fn streamcluster(all: &[Compared]) -> Option<Measured> {
    let of =
        |compared: &Compared| Some((compared.machine.name, faster(&compared.report, "carrefour", "first-touch")?.mean));
    let found: Vec<(&str, f64)> =
        all.iter().filter(|compared| compared.verb == "streamcluster").filter_map(of).collect();
    let text: Vec<String> = found.iter().map(|(machine, times)| format!("{times:.2} x ({machine})")).collect();
    let is_met = found.iter().all(|(_, times)| *times >= 1.5);
    (!found.is_empty()).then(|| Measured { is_met, text: text.join(", ") })
}

fn worst(all: &[Compared], is_meant: fn(&Machine) -> bool) -> Option<Measured> {
    let of = |compared: &Compared| Some((faster(&compared.report, "carrefour", "first-touch")?, name(compared)));
    let meant = all.iter().filter(|compared| is_meant(compared.machine));
    let mut found: Vec<(Estimate, String)> = meant.filter_map(of).collect();
    found.sort_by(|(a, _), (b, _)| a.mean.total_cmp(&b.mean));
    let slower = found.iter().take_while(|(times, _)| times.mean < LEAST).count();
    let told = found.iter().take(slower.max(3));
    let text: Vec<String> = told.map(|(times, name)| format!("{name} {}", gain(times))).collect();
    (!found.is_empty()).then(|| Measured { is_met: slower == 0, text: text.join(", ") })
}

/// Local access ratio and imbalance.
type Counts = (f64, f64);

fn kept(all: &[Compared], is_kept: fn(Counts, Counts) -> bool, show: fn(Counts) -> String) -> Option<Measured> {
    let counts = |compared: &Compared, policy| {
        let (_, summary) = row(&compared.report, policy)?;
        Some((summary.local_access_ratio?, summary.imbalance?))
    };
    let is_touched = |compared: &&Compared| {
        row(&compared.report, "carrefour").is_some_and(|(_, summary)| summary.pages_moved >= Some(TOUCHED_PAGES))
    };
    let of = |compared| Some((compared, counts(compared, "first-touch")?, counts(compared, "carrefour")?));
    let found: Vec<_> = all.iter().filter(is_touched).filter_map(of).collect();
    let lost = found.iter().filter(|(_, before, after)| !is_kept(*before, *after));
    let lost: Vec<String> = lost
        .map(|(compared, before, after)| format!("{} {} → {}", name(compared), show(*before), show(*after)))
        .collect();
    let text = if lost.is_empty() {
        format!("all {}", found.len())
    } else {
        format!("{} of {}, but not {}", found.len() - lost.len(), found.len(), lost.join(", "))
    };
    (!found.is_empty()).then_some(Measured { is_met: lost.is_empty(), text })
}

/// Where a competitor is faster.
fn rivals(all: &[Compared]) -> Option<Measured> {
    let mut compared_with = 0;
    let mut lost = Vec::new();
    for compared in all.iter().filter(|compared| compared.verb != "is") {
        for rival in ["kernel", "numad", "interleave"] {
            let Some(ratio) = faster(&compared.report, rival, "carrefour") else { continue };
            compared_with += 1;
            if ratio.mean > 1.0 + SAME_TIME {
                lost.push(format!("{}: {rival} {}", name(compared), gain(&ratio)));
            }
        }
    }
    let text = if lost.is_empty() {
        format!("all {compared_with}")
    } else {
        format!("{} of {compared_with}, but not {}", compared_with - lost.len(), lost.join(", "))
    };
    (compared_with > 0).then_some(Measured { is_met: lost.is_empty(), text })
}

fn mix(all: &[Compared], policy: &str, is_to_be_faster: bool) -> Option<Measured> {
    let of = |compared: &Compared| Some((compared.machine.name, faster(&compared.report, policy, "balanced+local")?));
    let found: Vec<(&str, Estimate)> = all.iter().filter(|compared| compared.verb == "mix").filter_map(of).collect();
    let text: Vec<String> = found.iter().map(|(machine, times)| format!("{machine} {}", gain(times))).collect();
    let is_met = found.iter().all(|(_, times)| (times.mean > 1.0) == is_to_be_faster);
    (!found.is_empty()).then(|| Measured { is_met, text: text.join(", ") })
}

fn cost(all: &[Compared]) -> Option<Measured> {
    let of = |compared: &Compared| Some((row(&compared.report, "carrefour")?.1.policy_cpu_share?, name(compared)));
    let mut found: Vec<(f64, String)> =
        all.iter().filter(|compared| NOTHING_TO_GAIN.contains(&compared.verb)).filter_map(of).collect();
    found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let (most, name) = found.first()?;
    Some(Measured { is_met: *most < 0.02, text: format!("at most {}, {name}", percent(*most)) })
}
