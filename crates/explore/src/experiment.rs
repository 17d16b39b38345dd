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
    /// Where it was published.
    pub source: String,
    /// Why it is missed, where it is.
    pub reason: Option<String>,
    /// Whether it belongs to the few that every test runs.
    pub quick: bool,
}

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
    fn two_numbers_are_compared() {
        let of = |comparison: Comparison| comparison.of(3.0, 4.0).to_string();
        let all = [Comparison::Ratio, Comparison::Difference, Comparison::Loss, Comparison::Increase].map(of);
        assert_eq!(all, ["0.75", "-1", "25", "-25"]);
    }
}
