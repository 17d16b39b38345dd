//! Campaigns: a grid of programs, machines and settings, run until each mean is known well enough.

mod cell;
mod claims;
mod file;
mod parts;
mod progress;
mod read;
mod results;
mod selector;
mod store;

pub use cell::{Cell, LabMachine, Place};
pub use claims::{Claim, Correlated, CorrelationResult, EffectResult, Judged, Pair, Ranked, ranking, relative_means};
pub use file::{Campaign, CampaignError};
pub use parts::{Part, parts};
pub use progress::Progress;
pub use read::{Axis, Correlation, Effect, Expect, Lab, Runs};
pub use results::{Measured, Outcome, Results, Unit};
pub use selector::Selector;
pub use store::{Store, StoreError, StoreLock};
