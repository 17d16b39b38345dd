//! The file as written, and the parts that need no more than a check.

use super::selector::{Selector, WrittenSelector};
use crate::seconds::Seconds;
use machine::{Violation, size};
use serde::{Deserialize, Deserializer, de};
use std::collections::BTreeMap;
use std::time::Duration;

/// The file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub title: String,
    #[serde(default)]
    pub about: String,
    /// The command of all cells, unless there is an axis `app`.
    pub command: Option<String>,
    #[serde(default)]
    pub warmups: u32,
    #[serde(default)]
    pub runs: Runs,
    #[serde(default)]
    pub order: Order,
    #[serde(default)]
    pub seed: u64,
    pub seconds: Option<String>,
    #[serde(default)]
    pub timeout_s: Option<f64>,
    #[serde(default)]
    pub metrics: toml::Table,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    pub grid: toml::Table,
    #[serde(default)]
    pub exclude: Vec<WrittenSelector>,
    #[serde(default)]
    pub baseline: WrittenSelector,
    #[serde(default)]
    pub lab: Lab,
    #[serde(default)]
    pub effect: Vec<WrittenEffect>,
    #[serde(default)]
    pub correlation: Vec<WrittenCorrelation>,
}

/// Number of runs of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runs {
    /// At least this number.
    pub min: u32,
    /// At most this number.
    pub max: u32,
    /// From `min` on until half of the mean's 95 % interval is at most this share of the mean.
    #[serde(default, deserialize_with = "optional_share")]
    pub until: Option<f64>,
}

impl Default for Runs {
    fn default() -> Self {
        Self { min: 3, max: 3, until: None }
    }
}

/// Order of the cells within a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Order {
    /// Another order in each round, by the seed.
    #[default]
    Shuffled,
    /// That of the grid.
    Listed,
}

/// How virtual machines are started.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Lab {
    /// Only the first CPUs of each node.
    pub cpus_per_node: Option<u32>,
    /// How Linux numbers CPUs.
    pub cpu_numbers: CpuNumbers,
    /// Memory of each node, bytes.
    #[serde(deserialize_with = "optional_size")]
    pub memory_per_node: Option<u64>,
    /// Divides the periods of kernel services.
    pub time_scale: u32,
    /// The model: `full` or `fast`.
    pub fidelity: Fidelity,
    /// Whether programs run as root, also for users that are not.
    pub as_root: bool,
    /// Longest time of this host until a run has a result, with its unmeasured runs and, if it is the first, the boot, s.
    pub host_timeout_s: u32,
}

/// By default, runs in the lab may take an hour of this host's time.
const HOST_TIMEOUT_S: u32 = 3600;

impl Default for Lab {
    fn default() -> Self {
        Self {
            cpus_per_node: None,
            cpu_numbers: CpuNumbers::Nested,
            memory_per_node: None,
            time_scale: 1,
            fidelity: Fidelity::Full,
            as_root: false,
            host_timeout_s: HOST_TIMEOUT_S,
        }
    }
}

impl Lab {
    /// These settings in the hash of a cell. A setting that a later version adds is in it only where it is not the
    /// default, so that results of earlier versions stay those of their cells.
    pub fn identity(&self) -> String {
        let &Self { cpus_per_node, cpu_numbers, memory_per_node, time_scale, fidelity, as_root, host_timeout_s } = self;
        let added = match cpu_numbers {
            CpuNumbers::Nested => "",
            CpuNumbers::Preset => ", cpu_numbers: Preset",
        };
        format!(
            "Lab {{ cpus_per_node: {cpus_per_node:?}, memory_per_node: {memory_per_node:?}, time_scale: {time_scale}, \
             fidelity: {fidelity:?}, as_root: {as_root}, host_timeout_s: {host_timeout_s}{added} }}"
        )
    }
}

/// How Linux numbers the CPUs of a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum CpuNumbers {
    /// Those of a package one after the other, of a node, and of a core.
    Nested,
    /// In the order of the preset's numbers.
    Preset,
}

impl CpuNumbers {
    /// The value of `nearside lab run --cpu-numbers`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How much of the memory model is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Fidelity {
    /// All of it.
    Full,
    /// Without translation, overlap and coherence.
    Fast,
}

impl Fidelity {
    /// The value of `nearside lab run --fidelity`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenEffect {
    pub name: String,
    #[serde(default)]
    pub of: WrittenSelector,
    pub against: WrittenSelector,
    pub metric: Option<String>,
    #[serde(default)]
    pub each: bool,
    pub expect: Change,
    #[serde(default, deserialize_with = "optional_share")]
    pub at_least: Option<f64>,
    #[serde(default, deserialize_with = "optional_share")]
    pub within: Option<f64>,
    #[serde(default)]
    pub source: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Change {
    Increase,
    Decrease,
    Same,
    #[serde(rename = "no increase")]
    NoIncrease,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenCorrelation {
    pub name: String,
    pub metric: String,
    #[serde(default)]
    pub over: WrittenSelector,
    pub expect: Bound,
    pub value: f64,
    #[serde(default)]
    pub source: String,
}

/// Side of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum Bound {
    #[serde(rename = "at most")]
    AtMost,
    #[serde(rename = "at least")]
    AtLeast,
}

/// An axis of the grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Its name: the word in commands, or one of `app`, `machine`, `pinning`, `balancing`, `huge_pages`,
    /// `kernel_module`.
    pub name: String,
    /// The labels of its values.
    pub labels: Vec<String>,
}

/// A published claim about the ratio of two sets of cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// Its name.
    pub name: String,
    /// The cells that it is about.
    pub of: Selector,
    /// The labels of the cells that they are compared with: where several are allowed, with the lowest mean.
    pub against: Selector,
    /// What is compared.
    pub metric: String,
    /// Whether each ratio must be as claimed, and not just their mean.
    pub each: bool,
    /// The claim.
    pub expect: Expect,
    /// Where it was published.
    pub source: String,
}

/// What a number must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expect {
    /// Larger by at least this share.
    Increase(f64),
    /// Smaller by at least this share.
    Decrease(f64),
    /// Not more than this share apart.
    Same(f64),
    /// Not larger by more than this share.
    NoIncrease(f64),
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

/// A published claim about the correlation of a metric with the time of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Correlation {
    /// Its name.
    pub name: String,
    /// What is correlated with the time.
    pub metric: String,
    /// The cells whose runs it is about.
    pub over: Selector,
    /// The claim.
    pub expect: Expect,
    /// Where it was published.
    pub source: String,
}

/// Columns of results that no metric and no axis may be named like.
pub(super) const RESERVED: [&str; 6] = ["cell", "failed", "host", "round", "seconds", "wall_seconds"];
/// Maximum number of runs of a cell.
const MOST_RUNS: u32 = 10_000;
/// Longest time limit of a run: a week.
const LONGEST_S: f64 = 7.0 * 86_400.0;

impl File {
    pub(super) fn check_runs(&self) -> Vec<Violation> {
        let Runs { min, max, until } = self.runs;
        let mut broken = Vec::new();
        let mut rule = |is_broken: bool, field: &str, rule: String| {
            if is_broken {
                broken.push(Violation { field: field.to_owned(), rule });
            }
        };
        rule(!(1..=max).contains(&min), "runs.min", format!("must be from 1 to max, which is {max}, is {min}"));
        rule(max > MOST_RUNS, "runs.max", format!("must be at most {MOST_RUNS}, is {max}"));
        rule(until.is_some() && min < 2, "runs.min", "must be at least 2: one run has no interval".to_owned());
        rule(self.warmups > MOST_RUNS, "warmups", format!("must be at most {MOST_RUNS}, is {}", self.warmups));
        rule(self.lab.host_timeout_s == 0, "lab.host_timeout_s", "must be at least 1".to_owned());
        rule(self.lab.time_scale == 0, "lab.time_scale", "must be at least 1".to_owned());
        let timeout = self.timeout_s;
        let is_time = |time: f64| time > 0.0 && time <= LONGEST_S;
        rule(
            timeout.is_some_and(|time| !is_time(time)),
            "timeout_s",
            format!("must be above 0, and at most {LONGEST_S}"),
        );
        for (name, value) in &self.environment {
            let is_name = !name.is_empty() && !name.contains(['=', '\0']);
            let field = format!("environment.{}", name.escape_debug());
            rule(!is_name || value.contains('\0'), &field, "is no name, or no value, of a variable".to_owned());
        }
        broken
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout_s.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }

    /// What is read from the output of programs, beside the time.
    pub(super) fn metrics(&self) -> Result<Vec<(String, Seconds)>, Violation> {
        let metric = |(name, pattern): (&String, &toml::Value)| {
            let broken = |rule: String| Violation { field: format!("metrics.{name}"), rule };
            if RESERVED.contains(&name.as_str()) {
                return Err(broken("has the name of a column that every result has".to_owned()));
            }
            if self.grid.contains_key(name) {
                return Err(broken("has the name of an axis".to_owned()));
            }
            let text = pattern.as_str().ok_or_else(|| broken("must be a JSON pointer or a text with {}".to_owned()))?;
            Ok((name.clone(), text.parse().map_err(broken)?))
        };
        self.metrics.iter().map(metric).collect()
    }

    pub(super) fn effects(&self, axes: &[Axis]) -> Result<Vec<Effect>, Violation> {
        let effect = |(index, written): (usize, &WrittenEffect)| {
            let at = |field: &str| format!("effect[{index}].{field}");
            let (of, against) = (&written.of, &written.against);
            let against = Selector::new(against, axes, &at("against"))?;
            let broken = |field: &str, rule: &str| Violation { field: at(field), rule: rule.to_owned() };
            if against.is_empty() {
                return Err(broken("against", "must name labels of at least one axis"));
            }
            let expect = match (written.expect, written.at_least, written.within) {
                (Change::Increase, share, None) => Expect::Increase(share.unwrap_or(0.0)),
                (Change::Decrease, share, None) => Expect::Decrease(share.unwrap_or(0.0)),
                (Change::Same, None, Some(share)) => Expect::Same(share),
                (Change::NoIncrease, None, share) => Expect::NoIncrease(share.unwrap_or(0.0)),
                (Change::Same, ..) => return Err(broken("expect", "`same` needs `within`, and no `at_least`")),
                (Change::NoIncrease, ..) => return Err(broken("at_least", "`no increase` has `within`")),
                _ => return Err(broken("within", "only `same` and `no increase` have it; others have `at_least`")),
            };
            Ok(Effect {
                name: written.name.clone(),
                of: Selector::new(of, axes, &at("of"))?,
                against,
                metric: written.metric.clone().unwrap_or_else(|| super::results::SECONDS.to_owned()),
                each: written.each,
                expect,
                source: written.source.clone(),
            })
        };
        self.effect.iter().enumerate().map(effect).collect()
    }

    pub(super) fn correlations(&self, axes: &[Axis]) -> Result<Vec<Correlation>, Violation> {
        let correlation = |(index, written): (usize, &WrittenCorrelation)| {
            let at = |field: &str| format!("correlation[{index}].{field}");
            if !(-1.0..=1.0).contains(&written.value) {
                return Err(Violation { field: at("value"), rule: "must be from -1 to 1".to_owned() });
            }
            Ok(Correlation {
                name: written.name.clone(),
                metric: written.metric.clone(),
                over: Selector::new(&written.over, axes, &at("over"))?,
                expect: match written.expect {
                    Bound::AtMost => Expect::AtMost(written.value),
                    Bound::AtLeast => Expect::AtLeast(written.value),
                },
                source: written.source.clone(),
            })
        };
        self.correlation.iter().enumerate().map(correlation).collect()
    }
}

/// `3 %`, as a share.
fn optional_share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a percentage in quotes, such as \"3 %\"")]
    enum Written {
        Text(String),
    }
    let Written::Text(text) = Written::deserialize(deserializer)?;
    let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
    let share = number.map(|percent| percent / 100.0).filter(|share| (0.0..1e6).contains(share));
    share.map(Some).ok_or_else(|| de::Error::custom(format!("`{text}` is not a percentage such as \"3 %\"")))
}

fn optional_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    size::parse(&text).map(Some).map_err(de::Error::custom)
}
