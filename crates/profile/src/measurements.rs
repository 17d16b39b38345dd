//! Counter readings over a time range.

use crate::statistics::ratio;
use machine::{CpuId, LinkDirection, Machine, NodeId};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use trace::{Count, Counter};

/// Counter readings over the time range of the samples, if there are any. They cover the whole machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurements {
    /// Instructions executed.
    pub instructions: Option<f64>,
    /// Accesses that memory served.
    pub memory_accesses: Option<f64>,
    /// The part of the running CPUs' time spent waiting for memory, 0 to 1.
    pub memory_bound: Option<f64>,
    /// Average number of running CPUs.
    pub running: Option<f64>,
    /// Bytes that each controller read and wrote per access that it served: a line, plus write-backs.
    pub bytes_per_access: BTreeMap<NodeId, f64>,
    /// Utilisation of each controller's bandwidth, 0 to 1.
    pub controllers: BTreeMap<NodeId, f64>,
    /// Utilisation of each direction of a link, 0 to 1: from the node whose CPUs access.
    pub links: BTreeMap<(NodeId, NodeId), f64>,
}

/// What is counted, from which node, and to which.
type Key = (Counter, Option<NodeId>, Option<NodeId>);

impl Measurements {
    /// From counts in chronological order: over the shortest time between two readings that contains this time, ns, as
    /// far as they go.
    pub(crate) fn new(counts: &[Count], machine: &Machine, time_ns: &RangeInclusive<u64>) -> Self {
        let counts = || of_machine(counts);
        let times: BTreeSet<u64> = counts().map(|count| count.time_ns).collect();
        let first = times.range(..=time_ns.start()).next_back().or(times.first());
        let last = times.range(time_ns.end()..).next().or(times.last());
        let Some((first, last)) = first.zip(last).filter(|(first, last)| first < last) else { return Self::default() };
        let seconds = (last - first) as f64 / 1e9;

        // A node may have several caches that are counted, and two nodes several links.
        let at = |time: u64| {
            let mut sums: BTreeMap<Key, u64> = BTreeMap::new();
            for count in counts().filter(|count| count.time_ns == time) {
                let sum = sums.entry((count.counter, count.from, count.to)).or_default();
                *sum = sum.saturating_add(count.value);
            }
            sums
        };
        let before = at(*first);
        // A counter that went back was reset.
        let more = |(key, now): (Key, u64)| Some((key, now.checked_sub(*before.get(&key)?)? as f64));
        let grown: Vec<(Key, f64)> = at(*last).into_iter().filter_map(more).collect();
        let sum = |counter: Counter| {
            let values = || grown.iter().filter(|((of, ..), _)| *of == counter).map(|(_, value)| value);
            values().next().map(|_| values().sum::<f64>())
        };
        let mut found = Self {
            instructions: sum(Counter::Instructions),
            memory_accesses: sum(Counter::MemoryAccesses),
            running: sum(Counter::CpuTime).map(|ran_ns| ran_ns / 1e9 / seconds),
            memory_bound: sum(Counter::MemoryWait).zip(sum(Counter::CpuTime)).and_then(|(wait, ran)| ratio(wait, ran)),
            ..Self::default()
        };
        // Where it is not known which node's memory all accesses went to, its own are a part of those that it served.
        let of_memory = |key: &Key| key.0 == Counter::MemoryAccesses;
        let all_have_nodes = grown.iter().all(|(key, _)| !of_memory(key) || key.2.is_some());
        for (key, bytes) in &grown {
            let rate = bytes / seconds;
            match *key {
                (Counter::ControllerBytes, _, Some(node)) => {
                    let to_node = |(key, _): &&(Key, f64)| of_memory(key) && key.2 == Some(node);
                    let accesses = grown.iter().filter(to_node).map(|(_, accesses)| accesses).sum();
                    let per_access = ratio(*bytes, accesses).filter(|_| all_have_nodes);
                    found.bytes_per_access.extend(per_access.map(|bytes| (node, bytes)));
                    let bandwidth = machine.node(node).and_then(|node| node.bandwidth_bytes_per_s);
                    found.controllers.extend(bandwidth.and_then(|all| ratio(rate, all)).map(|part| (node, part)));
                }
                (Counter::LinkBytes, Some(from), Some(to)) => {
                    let all = link_bandwidth(machine, from, to);
                    found.links.insert((from, to), ratio(rate, all).unwrap_or(0.0));
                }
                _ => {}
            }
        }
        found
    }
}

/// Counts without those of threads and CPUs, which are read at other times.
pub(crate) fn of_machine(counts: &[Count]) -> impl DoubleEndedIterator<Item = &Count> {
    let is_read = |count: &&Count| count.cpu.is_none() && !Counter::SCHEDULING.contains(&count.counter);
    counts.iter().filter(is_read)
}

/// What counters of single CPUs, in chronological order, grew by from their first reading to their last. One that was read
/// once only is not known.
pub(crate) fn of_cpus(counts: &[Count]) -> BTreeMap<CpuId, BTreeMap<Counter, u64>> {
    let mut first: BTreeMap<(CpuId, Counter), u64> = BTreeMap::new();
    let mut grown: BTreeMap<CpuId, BTreeMap<Counter, u64>> = BTreeMap::new();
    for (cpu, count) in counts.iter().filter_map(|count| Some((count.cpu?, count))) {
        match first.entry((cpu, count.counter)) {
            Entry::Vacant(entry) => drop(entry.insert(count.value)),
            Entry::Occupied(first) => {
                let more = count.value.saturating_sub(*first.get());
                grown.entry(cpu).or_default().insert(count.counter, more);
            }
        }
    }
    grown
}

/// Of all links between two nodes, in one direction, bytes/s.
fn link_bandwidth(machine: &Machine, from: NodeId, to: NodeId) -> f64 {
    let joins = |link: &&machine::Link| {
        link.nodes == [from, to] || link.nodes == [to, from] && link.direction == LinkDirection::Both
    };
    machine.links.iter().filter(joins).map(|link| link.bandwidth_bytes_per_s).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;

    fn counts() -> Vec<Count> {
        let node = |number| Some(NodeId(number));
        let at = |time_s: u64, counter, from, to, value| Count {
            time_ns: time_s * 1_000_000_000,
            counter,
            from,
            to,
            cpu: None,
            value,
        };
        let moment = |time_s: u64, n: u64| {
            [
                at(time_s, Counter::Instructions, None, None, 500 + 1000 * n),
                at(time_s, Counter::CpuTime, None, None, 800 * n),
                at(time_s, Counter::MemoryWait, None, None, 600 * n),
                at(time_s, Counter::MemoryAccesses, node(0), node(0), 7 * n),
                at(time_s, Counter::MemoryAccesses, node(0), node(1), 3 * n),
                at(time_s, Counter::ControllerBytes, None, node(1), n << 30),
                at(time_s, Counter::LinkBytes, node(0), node(1), n << 20),
            ]
        };
        [moment(1, 0), moment(2, 1), moment(3, 3)].concat()
    }

    #[test]
    fn differences_of_the_moments_around_a_time_count() {
        let machine = presets::find("small-4x2").unwrap();
        let s = 1_000_000_000;
        let of = |time| Measurements::new(&counts(), &machine, &time);
        let first = of(s + 1..=2 * s);
        assert_eq!((first.instructions, first.memory_accesses), (Some(1000.0), Some(10.0)));
        assert_eq!((first.memory_bound, first.running), (Some(0.75), Some(800e-9)));
        assert_eq!(first.bytes_per_access, [(NodeId(1), f64::from(1 << 30) / 3.0)].into());
        let bandwidth = machine.node(NodeId(1)).unwrap().bandwidth_bytes_per_s.unwrap();
        assert_eq!(first.controllers, [(NodeId(1), f64::from(1 << 30) / bandwidth)].into());
        let link = link_bandwidth(&machine, NodeId(0), NodeId(1));
        assert_eq!(first.links, [((NodeId(0), NodeId(1)), f64::from(1 << 20) / link)].into());
        // A time slightly longer than the readings cover uses as many as there are.
        assert_eq!(of(s + 1..=2 * s + 1).instructions, Some(3000.0));
        assert_eq!(of(0..=u64::MAX), of(s..=3 * s));
        assert_eq!(of(s..=3 * s).controllers, [(NodeId(1), 1.5 * f64::from(1 << 30) / bandwidth)].into());
    }

    /// The preset's links are one for each direction.
    #[test]
    fn one_way_links_carry_what_goes_their_way() {
        let machine = presets::find("xeon-8180x2").unwrap();
        let one = machine.links.iter().find(|link| link.nodes == [NodeId(0), NodeId(1)]).unwrap();
        assert_eq!(one.direction, LinkDirection::Forward);
        let of_both = link_bandwidth(&machine, NodeId(0), NodeId(1));
        assert!((of_both / one.bandwidth_bytes_per_s - 1.0).abs() < 1e-9, "{of_both} of {one:?}");
    }

    #[test]
    fn caches_of_one_node_are_summed() {
        let machine = presets::find("small-4x2").unwrap();
        let node = Some(NodeId(0));
        let of = |time_ns, value| Count {
            time_ns,
            counter: Counter::MemoryAccesses,
            from: node,
            to: node,
            cpu: None,
            value,
        };
        let counts = [of(1, 9000), of(1, 5000), of(2, 9100), of(2, 5300)];
        assert_eq!(Measurements::new(&counts, &machine, &(1..=2)).memory_accesses, Some(400.0));
    }

    #[test]
    fn without_two_moments_nothing_is_known() {
        let machine = presets::find("small-4x2").unwrap();
        let (all, one) = (0..=u64::MAX, &counts()[..7]);
        assert_eq!(Measurements::new(&[], &machine, &all), Measurements::default());
        assert_eq!(Measurements::new(one, &machine, &all), Measurements::default());
        // Counters that were reset, and nodes that do not exist.
        let mut odd = counts();
        odd[14].value = 0;
        odd[19].to = Some(NodeId(77));
        let found = Measurements::new(&odd, &machine, &all);
        assert_eq!((found.instructions, found.controllers.len()), (None, 0));
    }

    #[test]
    fn counters_of_cpus_are_apart_from_those_of_the_machine() {
        let of =
            |cpu, counter, value| Count { time_ns: 7, counter, from: None, to: None, cpu: Some(CpuId(cpu)), value };
        let (local, peer) = (Counter::LocalDram, Counter::Peer);
        let readings =
            [of(0, local, 5), of(3, local, 9), of(3, peer, 2), of(0, local, 6), of(0, local, 9), of(3, peer, 1)];
        assert_eq!(of_cpus(&readings), [(CpuId(0), [(local, 4)].into()), (CpuId(3), [(peer, 0)].into())].into());
        let machine = presets::find("small-4x2").unwrap();
        let both = [counts(), readings.into()].concat();
        assert_eq!(
            Measurements::new(&both, &machine, &(0..=u64::MAX)),
            Measurements::new(&counts(), &machine, &(0..=u64::MAX))
        );
        assert!(of_cpus(&counts()).is_empty());
    }
}
