//! Which CPUs Linux takes for those that share a cache. It computes them from the IDs of interrupt controllers and the
//! number of sharers (Linux, `arch/x86/kernel/cpu/cacheinfo.c`), and leaves those of other nodes out of a last-level cache.
//! QEMU's IDs fit caches that divide the machine evenly, and not all others.

use crate::shape::Topology;
use machine::{Cache, CpuId, CpuSet, Machine, NodeId};
use std::collections::BTreeMap;

/// A cache that Linux shows with other CPUs than share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misshown {
    pub level: u8,
    /// The CPUs that share it.
    pub is: CpuSet,
    /// Those that Linux shows to one of them.
    pub seen: CpuSet,
}

/// The first one, if there is any. CPUs are numbered as QEMU nests them.
pub(crate) fn misshown(machine: &Machine, topology: Topology) -> Option<Misshown> {
    let id = |cpu: CpuId| topology.apic_id(cpu.0 as usize);
    let on_node = |node: &machine::Node| node.cpus.iter().map(|cpu| (cpu, node.id)).collect::<Vec<_>>();
    let nodes: BTreeMap<CpuId, NodeId> = machine.nodes.iter().flat_map(on_node).collect();
    let of_cache = |cache: &Cache| {
        let groups = machine.cache_instances(cache);
        let bits = |group: &CpuSet| group.len().next_power_of_two().trailing_zeros();
        let bits_of: BTreeMap<CpuId, u32> =
            groups.iter().flat_map(|group| group.iter().map(|cpu| (cpu, bits(group)))).collect();
        let number = |cpu: CpuId, bits: u32| id(cpu) >> bits;
        let shares = |cpu: CpuId, other: CpuId| match (bits_of.get(&cpu), bits_of.get(&other)) {
            (Some(bits), Some(others)) if cache.level == 3 => {
                number(cpu, *bits) == number(other, *others) && nodes.get(&cpu) == nodes.get(&other)
            }
            (Some(bits), _) => number(cpu, *bits) == number(other, *bits),
            (None, _) => false,
        };
        let seen_by = |cpu: CpuId| -> CpuSet { nodes.keys().copied().filter(|other| shares(cpu, *other)).collect() };
        groups.into_iter().find_map(|is| {
            let seen = is.iter().map(seen_by).find(|seen| *seen != is)?;
            Some(Misshown { level: cache.level, is, seen })
        })
    };
    machine.caches.iter().find_map(of_cache)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{Changes, shape};
    use machine::presets;

    fn of(preset: &str, cpus_per_node: Option<u32>) -> Option<(u8, String, String)> {
        let shape = shape(&presets::find(preset).unwrap(), Changes { cpus_per_node, ..Changes::default() }).unwrap();
        let found = misshown(&shape.nested(), shape.topology)?;
        Some((found.level, found.is.to_string(), found.seen.to_string()))
    }

    #[test]
    fn every_preset_that_fits_is_shown_as_it_is() {
        let mut shown = 0;
        for preset in presets::names() {
            let preset = presets::find(preset).unwrap();
            let Ok(shape) = shape(&preset, Changes::default()) else { continue };
            assert_eq!(misshown(&shape.nested(), shape.topology), None, "{}", preset.name);
            shown += 1;
        }
        assert!(shown > 15, "{shown}");
    }

    /// Seen so in a virtual machine.
    #[test]
    fn parts_of_nodes_that_are_no_power_of_two_are_shown_in_other_groups() {
        let expected = (3, "6-9".to_owned(), "6-7".to_owned());
        assert_eq!(of("epyc-9224x2-cxl", Some(10)), Some(expected));
        assert_eq!(of("epyc-9224x2-cxl", Some(6)), None);
    }
}
