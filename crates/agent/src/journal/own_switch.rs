//! The kernel's switches that nearside sets, and so the only ones that a journal may restore.

use linux::{NodeId, Switch};
use std::path::Path;

/// The folder of weights, for paths in journals.
const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave/node";

/// A switch that nearside sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnSwitch {
    /// Whether the kernel's NUMA balancing moves pages.
    NumaBalancing,
    /// Number of consecutive pages that weighted interleave places on a node.
    InterleaveWeight(NodeId),
}

impl OwnSwitch {
    /// The switch.
    pub fn switch(self) -> Switch {
        match self {
            Self::NumaBalancing => Switch::numa_balancing(),
            Self::InterleaveWeight(node) => Switch::interleave_weight(node),
        }
    }

    /// The switch with exactly this path.
    pub(super) fn at(path: &Path) -> Option<Self> {
        let node = path.to_str().and_then(|path| path.strip_prefix(WEIGHTS)?.parse().ok());
        let weight = node.map(|node| Self::InterleaveWeight(NodeId(node)));
        // As bytes: paths also are equal with further slashes.
        [Some(Self::NumaBalancing), weight]
            .into_iter()
            .flatten()
            .find(|own| own.switch().path().as_os_str() == path.as_os_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nearside_sets_is_its_own() {
        for own in [OwnSwitch::NumaBalancing, OwnSwitch::InterleaveWeight(NodeId(12))] {
            assert_eq!(OwnSwitch::at(own.switch().path()), Some(own));
        }
        let weight = |name: &str| format!("/sys/kernel/mm/mempolicy/weighted_interleave/{name}");
        let others = ["/proc/sys/kernel/core_pattern", "/proc/sys//kernel/numa_balancing", "/sys/power/state", ""];
        let others = others.map(str::to_owned).into_iter();
        for path in others.chain(["node+1", "node01", "node1/", "node", "auto", "node1/../node2"].map(weight)) {
            assert_eq!(OwnSwitch::at(Path::new(&path)), None, "{path}");
        }
    }
}
