//! What an experiment is, once its file is read.

use crate::Within;
use crate::extract::Curve;
use machine::size;
use serde::Deserialize;
use std::fmt;

/// A file of experiments.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// Its file's name, without `.toml`.
    pub name: String,
    /// A heading.
    pub title: String,
    /// What was done in the source, and how it is done here; Markdown.
    pub about: String,
    /// In the order of the file.
    pub experiments: Vec<Experiment>,
    /// Published numbers that contradict each other.
    pub contradictions: Vec<Contradiction>,
}

/// One number that was published, and how it is measured here.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// What `--only` calls it. Rows of one table share a name.
    pub name: String,
    /// What it is for people: `latency, 1 hop`.
    pub quantity: String,
    /// The unit of both numbers; empty for a ratio.
    pub unit: String,
    /// How the number comes about.
    pub value: Value,
    /// How often each command is run; the median counts.
    pub repeats: u32,
    /// The number that was published.
    pub published: f64,
    /// How near the measured one has to be.
    pub within: Within,
    /// The least that it may be, where the published number is the most.
    pub least: Option<f64>,
    /// Where it was published.
    pub source: String,
    /// Whether the number, or one that it follows from, was put into the preset: then it shows that the model does what
    /// the preset says. Any other is a prediction.
    pub input: bool,
    /// Why it is missed, where it is, and what was measured when that was written.
    pub known: Option<Known>,
    /// Whether it belongs to the few that every test runs.
    pub quick: bool,
}

/// A miss that is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Why.
    pub reason: String,
    /// What was measured: a later number may not be further off.
    pub was: f64,
}

/// How near a measured number is to the published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As near as it has to be.
    Within,
    /// It is not, for a known reason, and no further off than it was.
    Known,
    /// It is further off than it was.
    Worse,
    /// It is not, and no reason is known.
    Missed,
}

/// What a number may be further off than it was, as a part of the larger one: numbers of two runs differ by as much.
const REPEATS_WITHIN: f64 = 0.05;

/// Published numbers that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// Which, and what is done about it.
    pub text: String,
    /// Where they were published.
    pub source: String,
}

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Boot {
    /// The preset.
    pub preset: String,
    /// Memory of each node, bytes; the lab's own default where it is left out.
    pub memory_per_node: Option<u64>,
    /// CPUs of each node, if not all.
    pub cpus_per_node: Option<u32>,
    /// Transparent huge pages; the kernel's own default where it is left out.
    pub thp: Option<Thp>,
}

/// When the guest's kernel uses transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Thp {
    /// Wherever it can.
    Always,
    /// Where a program asks for them.
    Madvise,
    /// Nowhere.
    Never,
}

impl Thp {
    /// The argument of `nearside lab run --thp`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Madvise => "madvise",
            Self::Never => "never",
        }
    }
}

/// A number of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Where to run.
    pub boot: Boot,
    /// What to run: text for a shell.
    pub command: String,
    /// What to read.
    pub figure: Figure,
}

/// Where a number is.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// At this JSON pointer of what the command prints.
    Printed(String),
    /// On a curve that the command prints.
    OnCurve(Curve),
    /// At this JSON pointer of the lab's report, which stands for the hardware counters of a real machine. The command
    /// has a virtual machine for itself.
    Reported(String),
}

/// How the number of an experiment comes about.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// As it is read.
    Alone(Reading),
    /// From two.
    Compared(Comparison, Reading, Reading),
    /// How many of these readings it takes, in order, to come within a tenth of the largest: the first alone is 1.
    Saturation(Vec<Reading>),
}

/// What is made of a number and the one that it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The first over the second.
    Ratio,
    /// The first less the second.
    Difference,
    /// How much less the first is, in hundredths of the second.
    Loss,
    /// How much more the first is, in hundredths of the second.
    Increase,
}

impl Figure {
    /// The JSON pointer, of a curve that of its points.
    pub fn pointer(&self) -> &str {
        match self {
            Self::Printed(pointer) | Self::Reported(pointer) => pointer,
            Self::OnCurve(curve) => &curve.points,
        }
    }
}

impl Experiment {
    /// How near a measured number is.
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
    /// All that has to be read.
    pub fn readings(&self) -> Vec<&Reading> {
        match self {
            Self::Alone(reading) => vec![reading],
            Self::Compared(_, one, other) => vec![one, other],
            Self::Saturation(readings) => readings.iter().collect(),
        }
    }

    /// The machine that it is about: of two, the first reading's.
    pub fn preset(&self) -> &str {
        self.readings().first().map_or("", |reading| &reading.boot.preset)
    }
}

impl Comparison {
    /// What comes of the two numbers.
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
