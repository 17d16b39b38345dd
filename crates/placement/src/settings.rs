//! What users may choose of any policy.

use crate::thresholds::Thresholds;
use serde::{Deserialize, Serialize};

/// What users may choose of any policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Leave threads and memory where the program or its owner asked for them: explicit memory policies and affinity.
    /// Cpusets are kept to in any case.
    pub respect_owner: bool,
    /// What chance is drawn from: the same one gives the same decisions.
    pub seed: u64,
    /// The numbers that decide.
    pub thresholds: Thresholds,
}

impl Default for Settings {
    fn default() -> Self {
        Self { respect_owner: true, seed: 0, thresholds: Thresholds::default() }
    }
}
