//! Experiments as data: what to run on which machine, what to read of what it prints, what was published, and how far
//! apart the two are.
//!
//! A [`Suite`] is a TOML file of [`Experiment`]s. [`plan`] says which virtual machines to boot and what to run on each;
//! the program that does that hands back the [`Printed`] and the reports, and [`evaluate`] and [`Page`] do the rest. Nothing in
//! here runs anything.

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
