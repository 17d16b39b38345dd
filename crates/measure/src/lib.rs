//! Measures the memory of a machine with programs that assume nothing about it: the latency of each pair of nodes,
//! bandwidth, latency under load, caches, and how links are shared. The same code runs on real hosts and in the lab's
//! guest.
//!
//! [`Host`] is the usable part of the machine, [`plan`] decides on [`Step`]s, [`run`] executes them, and [`Results`]
//! holds the results, from which [`calibrated`] makes a machine file.

mod arena;
mod calibrated;
pub mod chase;
mod curve;
mod cycles;
mod date;
mod error;
mod firmware;
mod host;
mod levels;
mod missing;
mod plan;
mod results;
mod run;
mod statistics;
mod stream;
mod team;

pub use calibrated::calibrated;
pub use error::MeasureError;
pub use firmware::{Disagreement, Firmware, OrderChange};
pub use host::Host;
pub use levels::CacheLevel;
pub use missing::Missing;
pub use plan::{Access, CopyState, Cores, Options, Part, Plan, Step, plan};
pub use results::{
    Bandwidth, ByAccess, Caches, LinkSharing, LoadPoint, LoadedCurve, Results, Settings, SharePoint, Transfers,
    WorkingSet,
};
pub use run::{Progress, run};
pub use statistics::{Matrix, Number};
