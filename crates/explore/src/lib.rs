//! Experiments as data: what to run on which machine, which number to read from its output, which number was
//! published, and how far apart the two are.
//!
//! A [`Suite`] is a TOML file of [`Experiment`]s. [`plan`] determines which virtual machines to boot, and what to run
//! on each. The caller runs them, and returns the [`Printed`] output and the reports; [`evaluate`] and [`Page`] do
//! the rest. This crate runs nothing itself.

mod evaluate;
mod experiment;
mod extract;
mod file;
mod page;
mod plan;
mod tolerance;

pub use evaluate::{EvaluateError, Observed, Outcome, evaluate};
pub use experiment::{Boot, Comparison, Contradiction, Experiment, Figure, Known, Reading, Suite, Thp, Value, Verdict};
pub use extract::{Curve, numbers};
pub use file::ExperimentError;
pub use page::{Page, Section, number};
pub use plan::{Job, Printed, Session, plan};
pub use tolerance::Within;
