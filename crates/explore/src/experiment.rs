//! Experiments, as parsed from their files.

use crate::Within;
use crate::extract::Curve;
use machine::size;
use serde::Deserialize;
use std::fmt;

/// A file of experiments.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// Name of the file, without `.toml`.
    pub name: String,
    /// Heading.
    pub title: String,
    /// What the source did, and how it is done here; Markdown.
    pub about: String,
    /// Experiments, in the order of the file.
    pub experiments: Vec<Experiment>,
    /// Published numbers that contradict each other.
    pub contradictions: Vec<Contradiction>,
}

/// A published number, and how it is measured here.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Name for `--only`. The rows of a table share a name.
    pub name: String,
    /// What the number is, for readers: `latency, 1 hop`.
    pub quantity: String,
    /// Unit of both numbers; empty for a ratio.
    pub unit: String,
    /// How the number is obtained.
    pub value: Value,
    /// Number of runs of each command, of which the median is used.
    pub repeats: u32,
    /// The published number.
    pub published: f64,
    /// Tolerance of the measured number.
    pub within: Within,
    /// Lower bound, if the published number is an upper bound.
    pub least: Option<f64>,
    /// Where it was published.
    pub source: String,
    /// Whether the number, or one that it follows from, is an input of the preset: it then shows that the model does
    /// what the preset says. All others are predictions.
    pub input: bool,
    /// If it is missed: the known reason, and the number measured at that time.
    pub known: Option<Known>,
    /// Whether it belongs to the few experiments that run in every test.
    pub quick: bool,
}

/// A known miss.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The reason.
    pub reason: String,
    /// The number measured at that time. A later number may not be further off.
    pub was: f64,
}

/// How a measured number compares with the published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within the tolerance.
    Within,
    /// Outside the tolerance for a known reason, and no further off than before.
    Known,
    /// Further off than before.
    Worse,
    /// Outside the tolerance for no known reason.
    Missed,
}

/// How much further off a number may be than before, as a share of the larger one: two runs differ by as much.
const REPEATS_WITHIN: f64 = 0.05;

/// Published numbers that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The contradiction, and how it is handled.
    pub text: String,
    /// Where they were published.
    pub source: String,
}

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Boot {
    /// The preset.
    pub preset: String,
    /// Memory per node, in bytes; `None` for the lab's default.
    pub memory_per_node: Option<u64>,
    /// CPUs per node, if not all.
    pub cpus_per_node: Option<u32>,
    /// Transparent huge pages; `None` for the kernel's default.
    pub thp: Option<Thp>,
}

/// When the guest's kernel uses transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Thp {
    /// Wherever possible.
    Always,
    /// Where a program asks for them.
    Madvise,
    /// Never.
    Never,
}

impl Thp {
    /// The value of `nearside lab run --thp`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A number that is read from a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The machine to run on.
    pub boot: Boot,
    /// The shell command to run.
    pub command: String,
    /// The number to read.
    pub figure: Figure,
}

/// Where a number is found.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// At this JSON pointer of the command's output.
    Printed(String),
    /// On a curve in the command's output.
    OnCurve(Curve),
    /// At this JSON pointer of the lab's report, which stands for the hardware counters of a real machine. The
    /// command has a virtual machine of its own.
    Reported(String),
}

/// How the number of an experiment is obtained.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A single reading.
    Alone(Reading),
    /// A comparison of two readings.
    Compared(Comparison, Reading, Reading),
    /// The number of these readings, in order, up to the first within a tenth of the largest: 1 if it is the first.
    Saturation(Vec<Reading>),
}

/// How two numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The first divided by the second.
    Ratio,
    /// The first minus the second.
    Difference,
    /// How much smaller the first is, in percent of the second.
    Loss,
    /// How much larger the first is, in percent of the second.
    Increase,
}

impl Figure {
    /// The JSON pointer; for a curve, that of its points.
    pub fn pointer(&self) -> &str {
        match self {
            Self::Printed(pointer) | Self::Reported(pointer) => pointer,
            Self::OnCurve(curve) => &curve.points,
        }
    }
}

impl Experiment {
    /// Compares a measured number with the published one.
    pub fn verdict(&self, measured: f64) -> Verdict {
        let least = self.least.map(|least| (Within::AtLeast, least));
        let bounds = [Some((self.within, self.published)), least].into_iter().flatten();
        let mut missed = bounds.filter(|(within, bound)| !within.allows(*bound, measured));
        let Some((within, bound)) = missed.next() else { return Verdict::Within };
        let Some(Known { was, .. }) = self.known else { return Verdict::Missed };
        let room = REPEATS_WITHIN * bound.abs().max(was.abs());
        if within.off(bound, measured) <= within.off(bound, was) + room { Verdict::Known } else { Verdict::Worse }
    }
}

impl Value {
    /// All readings that it needs.
    pub fn readings(&self) -> Vec<&Reading> {
        match self {
            Self::Alone(reading) => vec![reading],
            Self::Compared(_, one, other) => vec![one, other],
            Self::Saturation(readings) => readings.iter().collect(),
        }
    }

    /// The preset it is about; for a comparison, that of the first reading.
    pub fn preset(&self) -> &str {
        self.readings().first().map_or("", |reading| &reading.boot.preset)
    }
}

impl Comparison {
    /// Compares two numbers.
    pub fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Ratio => one / other,
            Self::Difference => one - other,
            Self::Loss => (1.0 - one / other) * 100.0,
            Self::Increase => (one / other - 1.0) * 100.0,
        }
    }
}

impl fmt::Display for Boot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.preset)?;
        if let Some(bytes) = self.memory_per_node {
            write!(f, ", {} a node", size::format(bytes))?;
        }
        if let Some(cpus) = self.cpus_per_node {
            write!(f, ", {cpus} CPUs a node")?;
        }
        if let Some(thp) = self.thp {
            write!(f, ", huge pages {}", thp.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_miss_may_not_get_worse() {
        let reading = Reading {
            boot: Boot { preset: "small-2x2".into(), memory_per_node: None, cpus_per_node: None, thp: None },
            command: String::new(),
            figure: Figure::Printed("/x".into()),
        };
        let mut experiment = Experiment {
            name: String::new(),
            quantity: String::new(),
            unit: String::new(),
            value: Value::Alone(reading),
            repeats: 1,
            published: 100.0,
            within: Within::Percent(3.0),
            least: None,
            source: String::new(),
            input: false,
            known: None,
            quick: false,
        };
        let verdicts = |experiment: &Experiment, all: [f64; 4]| all.map(|measured| experiment.verdict(measured));
        let (near, known, worse, missed) = (Verdict::Within, Verdict::Known, Verdict::Worse, Verdict::Missed);
        assert_eq!(verdicts(&experiment, [97.0, 103.5, 90.0, f64::NAN]), [near, missed, missed, missed]);
        experiment.known = Some(Known { reason: String::new(), was: 90.0 });
        assert_eq!(verdicts(&experiment, [97.0, 85.5, 84.0, f64::NAN]), [near, known, worse, worse]);
        (experiment.within, experiment.least, experiment.known) = (Within::AtMost, Some(50.0), None);
        assert_eq!(verdicts(&experiment, [50.0, 100.0, 49.0, 101.0]), [near, near, missed, missed]);
        experiment.known = Some(Known { reason: String::new(), was: 110.0 });
        assert_eq!(verdicts(&experiment, [115.0, 116.0, 49.0, 20.0]), [known, worse, worse, worse]);
    }

    #[test]
    fn two_numbers_are_compared() {
        let of = |comparison: Comparison| comparison.of(3.0, 4.0).to_string();
        let all = [Comparison::Ratio, Comparison::Difference, Comparison::Loss, Comparison::Increase].map(of);
        assert_eq!(all, ["0.75", "-1", "25", "-25"]);
    }
}
