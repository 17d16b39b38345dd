//! Experiments as data: what to run on which machine, which number to read from its output, which number was
//! published, and how far apart the two are.
//!
//! A [`Suite`] is a TOML file of [`Experiment`]s. [`plan`] determines which virtual machines to boot, and what to run
//! on each. The caller runs them, and returns the [`Printed`] output and the reports; [`evaluate`] and [`Page`] do
//! the rest.
//!
//! A [`Campaign`] is a TOML file with a grid: programs, machines and settings, of which every combination is a [`Cell`].
//! [`Store`] keeps a file for each run of a cell, and [`Progress`] determines what is left to run. [`effects`] and
//! [`correlations`] compare the results with what was published.
//!
//! This crate runs nothing itself.

mod campaign;
mod evaluate;
mod experiment;
mod extract;
mod file;
mod page;
mod plan;
mod seconds;
mod statistics;
mod tolerance;

pub use campaign::{
    Axis, Campaign, CampaignError, Cell, Claim, Correlated, Correlation, CorrelationResult, Effect, EffectResult,
    Expect, Judged, Lab, LabMachine, Measured, Outcome as UnitOutcome, Pair, Part, Place, Progress, Ranked, Results,
    Runs, Selector, Store, StoreError, StoreLock, Unit, parts, ranking, relative_means,
};
pub use evaluate::{EvaluateError, Observed, Outcome, evaluate};
pub use experiment::{Boot, Comparison, Contradiction, Experiment, Figure, Known, Reading, Suite, Thp, Value, Verdict};
pub use extract::{Curve, numbers};
pub use file::ExperimentError;
pub use page::{Page, Section, number};
pub use plan::{Job, Printed, Session, plan};
pub use seconds::Seconds;
pub use statistics::{Estimate, fisher_interval, mean, pearson, spearman};
pub use tolerance::Within;
