//! Settings of all policies.

use crate::thresholds::Thresholds;
use serde::{Deserialize, Serialize};

/// Settings of all policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Respect explicit memory policies and affinity of the program or its owner. Cpusets are always respected.
    pub respect_owner: bool,
    /// Seed of random draws: the same seed gives the same decisions.
    pub seed: u64,
    /// The thresholds.
    pub thresholds: Thresholds,
}

impl Default for Settings {
    fn default() -> Self {
        Self { respect_owner: true, seed: 0, thresholds: Thresholds::default() }
    }
}
