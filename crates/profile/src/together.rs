//! Sites of one cause: what placing them together is expected to gain. Moving one of several arrays off a saturated node
//! changes little while the others stay there.

use crate::advice::Advice;
use crate::evidence::Action;
use crate::gain::{Gain, Placement, gain};
use crate::ids::SiteId;
use crate::profile::Access;
use crate::verdict::WORTH_IT;
use crate::view::View;
use queueing::Distances;
use serde::Serialize;
use std::collections::BTreeSet;

/// Sites to which one action applies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Together {
    /// The action.
    pub action: Action,
    /// The sites, the most expensive first.
    pub sites: Vec<SiteId>,
    /// Their labels: see [`Profile::site_label`](crate::Profile::site_label).
    pub labels: Vec<String>,
    /// The expected gain of the action for all of them.
    pub gain: Gain,
}

impl View<'_> {
    /// Actions whose gain for several of these sites is worth it, and larger than for each of them alone.
    pub fn together(&self, advice: &[Advice]) -> Vec<Together> {
        let placements = [
            (Action::Interleave, Placement::Interleaved),
            (Action::AllocateLocally, Placement::Local),
            (Action::Replicate, Placement::Local),
            (Action::Migrate, Placement::Local),
        ];
        let distances = Distances::new(self.profile().machine());
        let of_action = |(action, placement): (Action, Placement)| {
            // What the rules decided and a prediction for this site alone has ruled out may help with the others.
            let is_meant = |advice: &&Advice| {
                let is_less_alone = |ruled_out: &crate::evidence::RuledOut| {
                    ruled_out.action == action && [PREDICTED_LOSS, SMALLER_GAIN].contains(&ruled_out.because.what)
                };
                advice.action == action || advice.ruled_out.iter().any(is_less_alone)
            };
            let meant: Vec<&Advice> = advice.iter().filter(is_meant).collect();
            if meant.len() < 2 {
                return None;
            }
            let sites: BTreeSet<SiteId> = meant.iter().map(|advice| advice.site).collect();
            let placed =
                |access: &Access| self.profile().site_of(access.object).is_some_and(|site| sites.contains(&site));
            let gain = gain(self, &self.flow_where(placed), &distances, placed, &placement)?;
            let alone = meant.iter().filter_map(|advice| advice.gain).map(|gain| gain.speedup).fold(1.0, f64::max);
            (gain.speedup >= WORTH_IT && gain.speedup > alone).then(|| Together {
                action,
                sites: meant.iter().map(|advice| advice.site).collect(),
                labels: meant.iter().map(|advice| advice.label.clone()).collect(),
                gain,
            })
        };
        // Of two actions for the same site, the one that gains more.
        let mut found: Vec<Together> = placements.into_iter().filter_map(of_action).collect();
        found.sort_by(|a, b| b.gain.speedup.total_cmp(&a.gain.speedup));
        let mut named: BTreeSet<SiteId> = BTreeSet::new();
        found.retain(|together| {
            let is_new = together.sites.iter().all(|site| !named.contains(site));
            named.extend(together.sites.iter().filter(|_| is_new));
            is_new
        });
        found
    }
}

/// What the evidence of a predicted loss is called.
pub(crate) const PREDICTED_LOSS: &str = "predicted_speedup";
/// What the evidence of a gain that is smaller than another action's is called.
pub(crate) const SMALLER_GAIN: &str = "smaller_gain";
