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

impl Settings {
    /// Without what nearside added to Carrefour: gates by links, splits, taking moves back, and limits by what moves
    /// gain.
    #[must_use]
    pub(crate) fn without_additions(mut self) -> Self {
        self.thresholds = Thresholds {
            link_utilisation_min: 1.0,
            split_shared: 0,
            hot_page_share_min: 1.0,
            worse_cost_min: NEVER,
            credit_rounds: NEVER,
            ..self.thresholds
        };
        self
    }
}

/// A threshold that nothing reaches, or a limit that nothing meets.
const NEVER: f64 = 1e9;
