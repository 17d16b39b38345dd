//! Hardware that limits what CPUs take from others: masks of cache ways and limits of bandwidth.

use crate::description::Machine;
use crate::source::Source;
use crate::violation::Violation;
use serde::{Deserialize, Serialize};

/// Control hardware. A CPU is in one class at a time; each class has a mask and a limit for each L3 cache's CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// Classes that a CPU can be in; the first is every CPU's until it is put in another one.
    pub classes: u32,
    /// Fewest ways in a mask of the ways of an L3 cache that a class fills; without it there are no such masks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_ways: Option<u32>,
    /// Unit of the limit of a CPU's lines to and from memory, bytes/s; without it there are no such limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_step_bytes_per_s: Option<f64>,
    /// Where the numbers come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// Most ways in a mask: the bits of a word.
pub const MOST_WAYS: u32 = 64;
/// The level of the caches that have masks and limits.
pub const CONTROLLED_LEVEL: u8 = 3;

impl Machine {
    /// The ways of each L3 cache, if control hardware has masks of them.
    pub fn controlled_ways(&self) -> Option<u32> {
        self.control.as_ref()?.least_ways?;
        self.caches.iter().find(|cache| cache.level == CONTROLLED_LEVEL).map(|cache| cache.ways)
    }

    /// Masks and limits are by L3 cache, and a mask is one word.
    pub(crate) fn control_violations(&self) -> Vec<Violation> {
        let Some(control) = &self.control else { return Vec::new() };
        let highest = self.caches.iter().map(|cache| cache.level).max();
        if highest != Some(CONTROLLED_LEVEL) {
            let rule = "needs caches of level 3 and none above: masks and limits are by such a cache";
            return vec![Violation::new("control", rule)];
        }
        let Some(least) = control.least_ways else { return Vec::new() };
        let all: Vec<u32> =
            self.caches.iter().filter(|cache| cache.level == CONTROLLED_LEVEL).map(|cache| cache.ways).collect();
        let rule = match all.first() {
            Some(&ways) if all.iter().any(|&other| other != ways) => {
                "needs caches of level 3 that all have the same number of ways".to_owned()
            }
            Some(&ways) if !(1..=MOST_WAYS).contains(&ways) => {
                format!("needs caches of level 3 with 1 to {MOST_WAYS} ways, not {ways}")
            }
            // The first class keeps as many beside another one's.
            Some(&ways) if least > ways / 2 => {
                format!("must be at most {}, half of the ways of a level 3 cache, is {least}", ways / 2)
            }
            _ => return Vec::new(),
        };
        vec![Violation::new("control.least_ways", rule)]
    }
}
