//! How caches are shared, in the shortest words of a machine file.

use crate::description::{Machine, Sharing};
use crate::set::CpuSet;

/// The CPUs of each core, node and package: saved systems may have thousands of different caches to compare with them.
pub(crate) struct SimpleSharing([(Sharing, Vec<CpuSet>); 3]);

impl SimpleSharing {
    /// For caches of this machine, whose cores, nodes and packages are known.
    pub fn of(machine: &Machine) -> Self {
        let sets = |sharing: Sharing| {
            let sets = sorted(machine.sets_sharing(&sharing));
            (sharing, sets)
        };
        Self([Sharing::Core, Sharing::Node, Sharing::Package].map(sets))
    }

    /// `core`, `node` or `package` if each of these has one of the sets, or else the sets.
    pub fn simplest(&self, sets: Vec<CpuSet>) -> Sharing {
        let sets = sorted(sets);
        let same = self.0.iter().find(|(_, known)| *known == sets);
        same.map_or_else(|| Sharing::Cpus(sets), |(sharing, _)| sharing.clone())
    }
}

fn sorted(mut sets: Vec<CpuSet>) -> Vec<CpuSet> {
    sets.sort_by_key(CpuSet::first);
    sets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    #[test]
    fn sets_of_cores_nodes_and_packages_have_their_names() {
        let machine = presets::find("small-2x2").unwrap();
        let simple = SimpleSharing::of(&machine);
        let mut cores = machine.cores();
        cores.reverse();
        assert_eq!(simple.simplest(cores.clone()), Sharing::Core);
        assert_eq!(simple.simplest(machine.nodes.iter().map(|node| node.cpus.clone()).collect()), Sharing::Node);
        assert_eq!(simple.simplest(vec![machine.cpus()]), Sharing::Package);
        let odd = vec!["1-2".parse().unwrap()];
        assert_eq!(simple.simplest(odd.clone()), Sharing::Cpus(odd));
    }
}
