//! Limits on what a trace shows, for continuous integration.

use crate::escape::escape_name;
use crate::layout::{Layout, Tone};
use crate::profile::TraceFacts;
use crate::table::Table;
use askama::Template;
use machine::number::{count, percent};
use profile::View;
use serde::Serialize;
use std::fmt;

/// Fewer samples that reached memory decide nothing.
const FEWEST: u64 = 10;

/// The limits that are asserted; none are not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Least share of accesses to memory of the CPU's own node, 0 to 1.
    pub local: Option<f64>,
    /// Most imbalance of the controllers: the standard deviation of their loads over their mean.
    pub imbalance: Option<f64>,
    /// Most mean latency of accesses that reach memory, ns.
    pub latency_ns: Option<f64>,
    /// Most mean latency of the slowest node's memory, relative to an idle machine.
    pub latency_over_idle: Option<f64>,
    /// Most of its bandwidth that the busiest controller may carry, 0 to 1.
    pub controller_load: Option<f64>,
    /// Most of its bandwidth that the busiest direction of a link may carry, 0 to 1.
    pub link_load: Option<f64>,
}

/// The side of a limit that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The limit and above.
    AtLeast,
    /// The limit and below.
    AtMost,
}

/// One limit, and whether it holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Assertion {
    /// Name of the metric, as in the verdict of `nearside report`.
    pub name: &'static str,
    /// The side of the limit that is allowed.
    pub bound: Bound,
    /// The limit.
    pub limit: f64,
    /// The measured value; none if it is not known.
    pub value: Option<f64>,
    /// Its unit; empty for a ratio.
    pub unit: &'static str,
    /// Whether it holds; none if the value is not known, or if it is estimated and fewer than 10 samples reached memory.
    pub holds: Option<bool>,
    /// What the metric means.
    pub meaning: &'static str,
}

/// A metric with its limit: the value, if it is known, and whether it is of counters.
type Asserted = (&'static str, Bound, f64, (Option<f64>, bool), &'static str, &'static str);

/// All limits, and whether they hold. Serialised, it is the JSON form.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AssertReport {
    /// The trace.
    pub trace: String,
    /// Samples that reached memory.
    pub samples: u64,
    /// Whether all limits hold; one that cannot be decided does not.
    pub passed: bool,
    /// Each limit.
    pub assertions: Vec<Assertion>,
    /// What the trace lacks, so that limits may hold that it would have shown not to: see [`TraceFacts::losses`].
    pub lost: Vec<String>,
}

/// The `JUnit` file.
#[derive(Template)]
#[template(path = "junit.xml")]
struct Junit<'a> {
    report: &'a AssertReport,
}

impl AssertReport {
    /// The trace, without characters that XML does not allow.
    fn trace_name(&self) -> String {
        escape_name(&self.trace)
    }
}

impl Bound {
    fn allows(self, value: f64, limit: f64) -> bool {
        match self {
            Self::AtLeast => value >= limit,
            Self::AtMost => value <= limit,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::AtLeast => "at least",
            Self::AtMost => "at most",
        }
    }
}

impl Assertion {
    /// A metric's value among others that are shown alike.
    fn text(&self, value: f64) -> String {
        match (self.name, self.unit) {
            ("imbalance", _) => format!("{value:.3}"),
            ("latency_over_idle", _) => format!("{value:.2}x"),
            (_, "") => percent(value),
            (_, unit) => format!("{value:.1} {unit}"),
        }
    }

    fn limit_text(&self) -> String {
        self.text(self.limit)
    }

    fn value_text(&self) -> String {
        let Some(value) = self.value else { return "not known".to_owned() };
        let text = self.text(value);
        match self.holds {
            Some(false) if text == self.limit_text() => format!("{text}, beyond it by less than is shown"),
            _ => text,
        }
    }

    fn outcome(&self) -> &'static str {
        match self.holds {
            Some(true) => "holds",
            Some(false) => "fails",
            None => "cannot be decided",
        }
    }
}

impl AssertReport {
    /// Compares the accesses of a view with limits.
    pub fn new(view: &View, facts: &TraceFacts, limits: &Limits) -> Self {
        let verdict = view.verdict(view.measured());
        let metric = |name: &'static str, bound: Bound, limit: Option<f64>| {
            let found = verdict.metrics.iter().find(|metric| metric.name == name)?;
            Some((found.name, bound, limit?, (found.value, found.counted), found.unit, found.meaning))
        };
        let latency = |limit| {
            let meaning = "mean latency of accesses that reach memory";
            ("latency", Bound::AtMost, limit, (view.tally().latency_mean_ns(), false), "ns", meaning)
        };
        let asserted = [
            metric("local_access_ratio", Bound::AtLeast, limits.local),
            metric("imbalance", Bound::AtMost, limits.imbalance),
            limits.latency_ns.map(latency),
            metric("latency_over_idle", Bound::AtMost, limits.latency_over_idle),
            metric("controller_load", Bound::AtMost, limits.controller_load),
            metric("link_load", Bound::AtMost, limits.link_load),
        ];
        let assertion = |(name, bound, limit, (value, counted), unit, meaning): Asserted| Assertion {
            name,
            bound,
            limit,
            value,
            unit,
            holds: value.filter(|_| counted || verdict.samples >= FEWEST).map(|value| bound.allows(value, limit)),
            meaning,
        };
        let assertions: Vec<Assertion> = asserted.into_iter().flatten().map(assertion).collect();
        let passed = assertions.iter().all(|assertion| assertion.holds == Some(true));
        let (trace, lost) = (facts.path.clone(), facts.losses());
        Self { trace, samples: verdict.samples, passed, assertions, lost }
    }

    fn failures(&self) -> usize {
        self.assertions.iter().filter(|assertion| assertion.holds != Some(true)).count()
    }

    fn headline(&self) -> String {
        let (failures, all) = (self.failures(), self.assertions.len());
        let outcome = match (failures, all) {
            (0, 1) => "passed: the limit holds".to_owned(),
            (0, all) => format!("passed: all {all} limits hold"),
            (_, 1) => "failed: the only limit".to_owned(),
            (failures, all) => format!("failed: {failures} of {all} limits"),
        };
        let samples = if self.samples == 1 { "sample" } else { "samples" };
        let is_decided = self.assertions.iter().all(|it| it.holds.is_some());
        if is_decided && self.samples == 0 {
            return format!("{outcome}, by counters");
        }
        let few = match self.samples {
            _ if is_decided => "",
            0 => ", which decide nothing: `nearside doctor` shows what can sample accesses here",
            1..FEWEST => ", which decide nothing: record longer, or sample more often (--period, --rate)",
            _ => "",
        };
        format!("{outcome}, on {} {samples} that reached memory{few}", count(self.samples))
    }

    /// As a `JUnit` file, which systems for continuous integration read: one test case for each limit.
    pub fn junit(&self) -> Result<String, fmt::Error> {
        // Only formatting can fail: the template was checked when it was compiled.
        Junit { report: self }.render().map_err(|_| fmt::Error)
    }

    /// As Markdown, such as for the summary of a job.
    pub fn markdown(&self) -> String {
        let row = |it: &Assertion| {
            let (bound, limit) = (it.bound.text(), it.limit_text());
            format!("| `{}` | {bound} {limit} | {} | {} |\n", it.name, it.value_text(), it.outcome())
        };
        let rows: String = self.assertions.iter().map(row).collect();
        let lost = self.lost.iter().fold(String::new(), |all, lost| format!("{all}\nLost: {lost}\n"));
        format!("### nearside {}\n\n| metric | limit | measured | |\n|---|---|---|---|\n{rows}{lost}", self.headline())
    }
}

impl fmt::Display for AssertReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (layout, tone) = (Layout::of(f), if self.passed { Tone::Good } else { Tone::Bad });
        writeln!(f, "{}", layout.painted_lines(tone, &layout.wrapped("", &self.headline())))?;
        let mut table = Table::new(["metric", "limit", "measured", ""]);
        for it in &self.assertions {
            let limit = format!("{} {}", it.bound.text(), it.limit_text());
            table.row([it.name.to_owned(), limit, it.value_text(), it.outcome().to_owned()]);
        }
        fmt::Display::fmt(&table, f)?;
        self.lost.iter().try_for_each(|lost| writeln!(f, "lost: {lost}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_limit_is_no_plural() {
        let assertion = |holds| Assertion {
            name: "local_access_ratio",
            bound: Bound::AtLeast,
            limit: 0.5,
            value: Some(0.7),
            unit: "",
            holds: Some(holds),
            meaning: "accesses to memory of the CPU's own node",
        };
        let said = |samples, holds: &[bool]| {
            let assertions: Vec<Assertion> = holds.iter().map(|holds| assertion(*holds)).collect();
            AssertReport { trace: "trace".into(), samples, passed: false, assertions, lost: Vec::new() }.headline()
        };
        assert_eq!(said(77, &[true]), "passed: the limit holds, on 77 samples that reached memory");
        assert_eq!(said(77, &[true, true]), "passed: all 2 limits hold, on 77 samples that reached memory");
        assert_eq!(said(1, &[false]), "failed: the only limit, on 1 sample that reached memory");
        assert_eq!(said(0, &[false, true]), "failed: 1 of 2 limits, by counters");
        let lost = vec!["7 samples that <the kernel> dropped".to_owned()];
        let report = AssertReport { trace: "trace".into(), samples: 77, passed: true, assertions: Vec::new(), lost };
        let junit = report.junit().unwrap();
        for text in [report.to_string(), report.markdown(), junit.replace("&#60;", "<").replace("&#62;", ">")] {
            assert!(text.to_lowercase().contains("lost: 7 samples that <the kernel> dropped"), "{text}");
        }
        assert!(!junit.contains("<the"), "{junit}");
    }
}
