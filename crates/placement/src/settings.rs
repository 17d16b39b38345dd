//! Settings of all policies.

use crate::policy::PolicyError;
use crate::thresholds::Thresholds;
use serde::{Deserialize, Serialize};

/// Settings of all policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Respect explicit memory policies and affinity of the program or its owner. Cpusets are always respected.
    pub respect_owner: bool,
    /// Also move memory that several processes map: `predict` decides once for all of them. Carrying it out needs
    /// `CAP_SYS_NICE`.
    pub shared: bool,
    /// Seed of random draws: the same seed gives the same decisions.
    pub seed: u64,
    /// The thresholds.
    pub thresholds: Thresholds,
}

impl Default for Settings {
    fn default() -> Self {
        Self { respect_owner: true, shared: false, seed: 0, thresholds: Thresholds::default() }
    }
}

impl Settings {
    /// Without what nearside added to Carrefour: gates by links, splits, taking moves back, and limits by what moves
    /// gain. Fails if a threshold of these was set.
    pub(crate) fn without_additions(mut self) -> Result<Self, PolicyError> {
        let values = self.thresholds.values().into_iter().zip(Thresholds::default().values());
        let mut set = values.filter(|(asked, default)| asked != default).map(|((name, _), _)| name);
        if let Some(name) = set.find(|name| ADDITIONS.contains(name)) {
            return Err(PolicyError::Addition(name));
        }
        self.thresholds = Thresholds {
            link_utilisation_min: NEVER,
            split_shared: 0,
            hot_page_share_min: NEVER,
            worse_cost_min: NEVER,
            credit_rounds: NEVER,
            ..self.thresholds
        };
        Ok(self)
    }
}

/// The thresholds of what nearside added to Carrefour.
const ADDITIONS: [&str; 6] =
    ["link_utilisation_min", "split_shared", "hot_page_share_min", "worse_cost_min", "credit_rounds", "credit_share"];
/// A threshold that nothing reaches, or a limit that nothing meets.
const NEVER: f64 = 1e9;
