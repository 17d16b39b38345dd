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
    pub verdict: Verdict,
    pub text: String,
    /// The workloads and machines that miss it: `cg (A)`.
    pub missed: Vec<String>,
}

/// Whether a target is met. The worst of several is theirs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Met,
    /// The confidence interval has values that meet it and values that do not: that needs more runs.
    Open,
    Missed,
}

impl Verdict {
    /// By the whole confidence interval, and not by its mean: the few runs of a policy differ by chance. A single run
    /// has no interval; its deterministic program takes the same time again.
    fn of(estimate: &Estimate, is_met: impl Fn(f64) -> bool) -> Self {
        let (low, high) = estimate.interval.unwrap_or((estimate.mean, estimate.mean));
        match (is_met(low), is_met(high)) {
            (true, true) => Self::Met,
            (false, false) => Self::Missed,
            _ => Self::Open,
        }
    }

    fn exact(is_met: bool) -> Self {
        if is_met { Self::Met } else { Self::Missed }
    }
}

impl Measured {
    /// From the verdict of each workload and machine.
    fn new(each: Vec<(Verdict, String)>, text: String) -> Option<Self> {
        let verdict = each.iter().map(|(verdict, _)| *verdict).max()?;
        let missed = each.into_iter().filter(|(verdict, _)| *verdict == Verdict::Missed).map(|(_, name)| name);
        Some(Self { verdict, text, missed: missed.collect() })
    }
}

impl Target {
    pub fn is_missed(&self) -> bool {
        self.measured.as_ref().is_some_and(|measured| measured.verdict == Verdict::Missed)
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
    let wanted = all.iter().flat_map(|compared| compared.policies.split(',').map(move |policy| (compared, policy)));
    let each = wanted.map(|(compared, policy)| {
        let has_run = row(&compared.report, policy).is_some();
        (Verdict::exact(has_run), format!("{} {policy}", name(compared)))
    });
    let each: Vec<_> = each.collect();
    let text = all_but(&each);
    Measured::new(each, text)
}

fn streamcluster(all: &[Compared]) -> Option<Measured> {
    let of = |compared: &Compared| {
        let times = faster(&compared.report, "carrefour", "first-touch")?;
        let text = format!("{:.2} x{} ({})", times.mean, times.interval_text(), compared.machine.name);
        Some((Verdict::of(&times, |times| times >= 1.5), name(compared), text))
    };
    let found = all.iter().filter(|compared| compared.verb == "streamcluster").filter_map(of);
    let (each, text): (Vec<_>, Vec<_>) = found.map(|(verdict, name, text)| ((verdict, name), text)).unzip();
    Measured::new(each, text.join(", "))
}

fn worst(all: &[Compared], is_meant: fn(&Machine) -> bool) -> Option<Measured> {
    let of = |compared: &Compared| Some((faster(&compared.report, "carrefour", "first-touch")?, name(compared)));
    let meant = all.iter().filter(|compared| is_meant(compared.machine));
    let mut found: Vec<(Estimate, String)> = meant.filter_map(of).collect();
    found.sort_by(|(a, _), (b, _)| a.mean.total_cmp(&b.mean));
    let slower = found.iter().take_while(|(times, _)| times.mean < LEAST).count();
    let told = found.iter().take(slower.max(3));
    let text: Vec<String> = told.map(|(times, name)| format!("{name} {}", gain(times))).collect();
    let each = found.into_iter().map(|(times, name)| (Verdict::of(&times, |times| times >= LEAST), name));
    Measured::new(each.collect(), text.join(", "))
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
    let of = |compared| {
        let (before, after) = (counts(compared, "first-touch")?, counts(compared, "carrefour")?);
        let text = format!("{} {} → {}", name(compared), show(before), show(after));
        Some((Verdict::exact(is_kept(before, after)), text))
    };
    let each: Vec<_> = all.iter().filter(is_touched).filter_map(of).collect();
    let text = all_but(&each);
    Measured::new(each, text)
}

/// Where a competitor is faster.
fn rivals(all: &[Compared]) -> Option<Measured> {
    let mut each = Vec::new();
    for compared in all.iter().filter(|compared| compared.verb != "is") {
        for rival in ["kernel", "numad", "interleave"] {
            let Some(ratio) = faster(&compared.report, rival, "carrefour") else { continue };
            let verdict = Verdict::of(&ratio, |ratio| ratio <= 1.0 + SAME_TIME);
            each.push((verdict, format!("{}: {rival} {}", name(compared), gain(&ratio))));
        }
    }
    let text = all_but(&each);
    Measured::new(each, text)
}

/// `45 of 78, but not cg (A); open: mix (A)`.
fn all_but(each: &[(Verdict, String)]) -> String {
    let list = |wanted: Verdict, lead: &str| {
        let of: Vec<&str> = each.iter().filter(|(at, _)| *at == wanted).map(|(_, name)| name.as_str()).collect();
        if of.is_empty() { String::new() } else { format!("{lead}{}", of.join(", ")) }
    };
    let met = each.iter().filter(|(verdict, _)| *verdict == Verdict::Met).count();
    if met == each.len() {
        return format!("all {met}");
    }
    format!("{met} of {}{}{}", each.len(), list(Verdict::Missed, ", but not "), list(Verdict::Open, "; open: "))
}

fn mix(all: &[Compared], policy: &str, is_to_be_faster: bool) -> Option<Measured> {
    let of = |compared: &Compared| {
        let times = faster(&compared.report, policy, "balanced+local")?;
        let verdict = Verdict::of(&times, |times| if is_to_be_faster { times > 1.0 } else { times < 1.0 });
        Some(((verdict, name(compared)), format!("{} {}", compared.machine.name, gain(&times))))
    };
    let found = all.iter().filter(|compared| compared.verb == "mix").filter_map(of);
    let (each, text): (Vec<_>, Vec<_>) = found.unzip();
    Measured::new(each, text.join(", "))
}

fn cost(all: &[Compared]) -> Option<Measured> {
    let of = |compared: &Compared| Some((row(&compared.report, "carrefour")?.1.policy_cpu_share?, name(compared)));
    let mut found: Vec<(f64, String)> =
        all.iter().filter(|compared| NOTHING_TO_GAIN.contains(&compared.verb)).filter_map(of).collect();
    found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let (most, name) = found.first()?;
    let text = format!("at most {}, {name}", percent(*most));
    Measured::new(found.into_iter().map(|(share, name)| (Verdict::exact(share < 0.02), name)).collect(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(slow: &[f64], fast: &[f64]) -> Verdict {
        Verdict::of(&Estimate::ratio(slow, fast).unwrap(), |times| times > 1.0)
    }

    #[test]
    fn the_interval_decides_and_not_the_mean() {
        assert_eq!(verdict(&[1.2, 2.0, 0.9], &[1.0, 1.3, 0.8]), Verdict::Open, "faster by 32 % on average");
        assert_eq!(verdict(&[1.31, 1.32, 1.33], &[1.0, 1.01, 1.02]), Verdict::Met);
        assert_eq!(verdict(&[1.0, 1.01, 1.02], &[1.31, 1.32, 1.33]), Verdict::Missed);
        assert_eq!((verdict(&[1.3], &[1.0]), verdict(&[1.0], &[1.3])), (Verdict::Met, Verdict::Missed));
    }

    #[test]
    fn several_are_as_good_as_the_worst() {
        let each = |verdicts: &[Verdict]| -> Vec<(Verdict, String)> {
            verdicts.iter().zip('a'..).map(|(verdict, name)| (*verdict, name.to_string())).collect()
        };
        let of = |verdicts: &[Verdict]| Measured::new(each(verdicts), String::new()).map(|m| (m.verdict, m.missed));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[Verdict::Met, Verdict::Open]), Some((Verdict::Open, vec![])));
        assert_eq!(of(&[Verdict::Missed, Verdict::Open]), Some((Verdict::Missed, vec!["a".to_owned()])));
        let all = [Verdict::Met, Verdict::Open, Verdict::Missed];
        assert_eq!(all_but(&each(&all)), "1 of 3, but not c; open: b");
        assert_eq!(all_but(&each(&all[..1])), "all 1");
    }
}
