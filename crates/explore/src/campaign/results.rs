//! Results of runs.

use super::file::Campaign;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// The metric that is the time of a run.
pub const SECONDS: &str = "seconds";

/// One run of one cell: the contents of a result file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// The cell's name.
    pub cell: String,
    /// The cell's hash.
    pub id: String,
    /// The round, from 0.
    pub round: u32,
    /// The cell's labels by axis.
    pub labels: BTreeMap<String, String>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where threads ran, as the value of `OMP_PLACES`.
    pub places: Option<String>,
    /// The hash of the campaign's file.
    pub campaign: String,
    /// The version of nearside.
    pub nearside: String,
    /// The version of the lab's model, if it ran there.
    pub model: Option<String>,
    /// The name of the host that it ran on, or on which the lab did.
    #[serde(default)]
    pub host: Option<String>,
    /// The kernel's release.
    pub kernel: String,
    /// When it began, s since 1970.
    pub began_s: f64,
    /// The host's load average of one minute at that time.
    pub load: Option<f64>,
    /// What was done in another way than the file says.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The result.
    pub outcome: Outcome,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It succeeded.
    Measured(Measured),
    /// It failed, which is a result, too.
    Failed {
        /// The reason.
        why: String,
        /// The last lines of the program's output.
        output: String,
    },
}

/// Numbers of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The time, as the campaign's `seconds` has it.
    pub seconds: f64,
    /// From start to end.
    pub wall_seconds: f64,
    /// Other numbers by name.
    pub metrics: BTreeMap<String, f64>,
}

impl Measured {
    /// A metric by name, the time included.
    pub fn metric(&self, name: &str) -> Option<f64> {
        if name == SECONDS { Some(self.seconds) } else { self.metrics.get(name).copied() }
    }
}

/// The results of a campaign so far, by cell.
#[derive(Clone, Debug, Default)]
pub struct Results(HashMap<String, Vec<Unit>>);

impl Results {
    /// The results among units that are of a campaign's cells, each once. Returns the number of the others, too.
    pub fn of(campaign: &Campaign, units: impl IntoIterator<Item = Unit>) -> (Self, usize) {
        let mut all: HashMap<String, BTreeMap<u32, Unit>> =
            campaign.cells.iter().map(|cell| (cell.id.clone(), BTreeMap::new())).collect();
        let mut others = 0;
        for unit in units {
            match all.get_mut(&unit.id) {
                Some(of_cell) => _ = of_cell.insert(unit.round, unit),
                None => others += 1,
            }
        }
        (Self(all.into_iter().map(|(id, units)| (id, units.into_values().collect())).collect()), others)
    }

    /// The runs of a cell, by round.
    pub fn units(&self, id: &str) -> &[Unit] {
        self.0.get(id).map_or(&[], Vec::as_slice)
    }

    /// The successful runs of a cell.
    pub fn measured(&self, id: &str) -> impl Iterator<Item = &Measured> {
        self.units(id).iter().filter_map(|unit| match &unit.outcome {
            Outcome::Measured(measured) => Some(measured),
            Outcome::Failed { .. } => None,
        })
    }

    /// A metric of the successful runs of a cell.
    pub fn values(&self, id: &str, metric: &str) -> Vec<f64> {
        self.measured(id).filter_map(|measured| measured.metric(metric)).collect()
    }

    /// The hosts of the runs of a cell; none where that is not known.
    pub fn hosts(&self, id: &str) -> impl Iterator<Item = Option<&str>> {
        self.units(id).iter().map(|unit| unit.host.as_deref())
    }

    /// Why a cell failed, and the last lines of its output.
    pub fn failure(&self, id: &str) -> Option<(&str, &str)> {
        self.units(id).iter().find_map(|unit| match &unit.outcome {
            Outcome::Failed { why, output } => Some((why.as_str(), output.as_str())),
            Outcome::Measured(_) => None,
        })
    }

    /// Adds the result of a run, in the place of an earlier one.
    pub fn add(&mut self, unit: Unit) {
        let units = self.0.entry(unit.id.clone()).or_default();
        units.retain(|earlier| earlier.round != unit.round);
        units.push(unit);
        units.sort_by_key(|unit| unit.round);
    }
}
