//! What a machine's memory is really like, measured by programs that know nothing of it: the latency of each pair of
//! nodes, bandwidth, latency under load, caches, and how links are shared. The same code runs on real hosts and in the
//! lab's guest.
//!
//! [`Host`] says what may be used, [`plan`] which [`Step`]s to take, [`run`] takes them, and [`Results`] is what came
//! of it, from which [`calibrated`] makes a machine file.

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
mod plan;
mod random;
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
pub use plan::{Access, CopyState, Cores, Options, Part, Plan, Step, plan};
pub use random::Random;
pub use results::{
    Bandwidth, ByAccess, Caches, LinkSharing, LoadPoint, LoadedCurve, Matrix, Missing, Results, Settings, SharePoint,
    Transfers, WorkingSet,
};
pub use run::{Progress, run};
pub use statistics::Number;
