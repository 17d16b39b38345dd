//! Derives a round's counts from counter readings and those before.

use machine::{CpuId, Link, LinkDirection, Machine, NodeId};
use placement::{ControllerLoad, Costs, LinkLoad, NodeBytes, Traffic};
use std::collections::BTreeMap;
use trace::{Count, Counter};

/// Bytes per access.
const LINE_BYTES: f64 = machine::LINE_BYTES as f64;

/// What was counted in a round.
#[derive(Debug, Default)]
pub(crate) struct RoundCounts {
    traffic: Vec<Traffic>,
    /// Remote accesses by CPUs of a node, where their target is not known.
    elsewhere: Vec<(NodeId, f64)>,
    /// Accesses served by a node's controller.
    carried: Vec<(NodeId, f64)>,
    pub controllers: Vec<ControllerLoad>,
    pub links: Vec<LinkLoad>,
    /// Of all CPUs.
    pub instructions: f64,
    /// Of all CPUs, s.
    pub cpu_time_s: f64,
    /// Part of the CPU time spent waiting for memory, s.
    pub memory_wait_s: f64,
}

impl RoundCounts {
    /// All traffic of the round, from counters as far as possible. Where counters do not give the target, samples of
    /// accesses that memory served do, or else the shares in which pages were used.
    pub fn traffic(mut self, sampled: Vec<Traffic>, uses: &[Traffic]) -> Vec<Traffic> {
        let shares = if sampled.is_empty() { uses } else { &sampled };
        if self.traffic.is_empty() && self.elsewhere.is_empty() {
            return if self.carried.is_empty() { sampled } else { carried(shares.to_vec(), &self.carried) };
        }
        for (from, accesses) in self.elsewhere {
            let sampled = shares.iter().filter(|pair| pair.from == from && pair.to != from);
            let sum: f64 = sampled.clone().map(|pair| pair.accesses).sum();
            let part = |pair: &Traffic| Traffic { accesses: pair.accesses / sum * accesses, ..*pair };
            self.traffic.extend(sampled.map(part));
        }
        self.traffic
    }
}

/// Shares of uses where nothing samples them: from each CPU for as long as it ran, to where memory is; equally to all
/// nodes while that is not known.
pub(crate) fn uses_by_time(running: &[(CpuId, f64)], resident: &[NodeBytes], costs: &Costs) -> Vec<Traffic> {
    let mut from: BTreeMap<NodeId, f64> = BTreeMap::new();
    for (cpu, part) in running {
        if let Some(node) = costs.node_of_cpu(*cpu) {
            *from.entry(node).or_default() += part;
        }
    }
    let mut to: BTreeMap<NodeId, f64> = BTreeMap::new();
    for NodeBytes { node, bytes } in resident {
        *to.entry(*node).or_default() += *bytes as f64;
    }
    if to.is_empty() {
        to = costs.memory_nodes().iter().map(|node| (node, 1.0)).collect();
    }
    let pair =
        |(&from, part): (&NodeId, &f64), (&to, bytes): (&NodeId, &f64)| Traffic { from, to, accesses: part * bytes };
    from.iter().flat_map(|of| to.iter().map(move |by| pair(of, by))).collect()
}

/// Scales shares so that each controller carries what was counted.
fn carried(mut sampled: Vec<Traffic>, carried: &[(NodeId, f64)]) -> Vec<Traffic> {
    for (node, accesses) in carried {
        let of_node = || sampled.iter().filter(|pair| pair.to == *node);
        let sum: f64 = of_node().map(|pair| pair.accesses).sum();
        for pair in sampled.iter_mut().filter(|pair| pair.to == *node && sum > 0.0) {
            pair.accesses *= accesses / sum;
        }
    }
    sampled
}

/// The previous counter readings.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    last: Vec<Count>,
}

impl Counters {
    /// Takes new counter readings and returns the counts since those of the round before, scaled to the round's length:
    /// readings do not coincide with the ends of rounds.
    pub fn take(&mut self, told: &mut Vec<Count>, round_s: f64, machine: &Machine) -> Option<RoundCounts> {
        let time_ns = told.last()?.time_ns;
        told.retain(|count| count.time_ns == time_ns);
        let before = std::mem::replace(&mut self.last, std::mem::take(told));
        let meanwhile_s = time_ns.saturating_sub(before.first()?.time_ns) as f64 / 1e9;
        (meanwhile_s > 0.0).then(|| difference(&before, &self.last, meanwhile_s, round_s, machine))
    }
}

fn difference(before: &[Count], after: &[Count], meanwhile_s: f64, round_s: f64, machine: &Machine) -> RoundCounts {
    let mut counts = RoundCounts::default();
    let scale = round_s / meanwhile_s;
    for (index, count) in after.iter().enumerate() {
        let key = |count: &Count| (count.counter, count.from, count.to);
        // Sources report counters in a fixed order.
        let before = before.get(index).filter(|before| key(before) == key(count));
        let Some(before) = before else { continue };
        let grown = count.value.saturating_sub(before.value) as f64;
        let used = |bandwidth: Option<f64>| bandwidth.map(|bandwidth| (grown / meanwhile_s / bandwidth).min(1.0));
        match (count.counter, count.from, count.to) {
            (Counter::MemoryAccesses, Some(from), Some(to)) if grown > 0.0 => {
                counts.traffic.push(Traffic { from, to, accesses: grown * scale });
            }
            (Counter::MemoryAccesses, Some(from), None) if grown > 0.0 => {
                counts.elsewhere.push((from, grown * scale));
            }
            (Counter::ControllerBytes, _, Some(node)) => {
                counts.carried.push((node, grown * scale / LINE_BYTES));
                let bandwidth = machine.nodes.iter().find(|of| of.id == node).and_then(|of| of.bandwidth_bytes_per_s);
                counts.controllers.extend(used(bandwidth).map(|utilisation| ControllerLoad { node, utilisation }));
            }
            (Counter::LinkBytes, Some(from), Some(to)) => {
                let carries = |link: &&Link| {
                    link.nodes == [from, to] || link.direction == LinkDirection::Both && link.nodes == [to, from]
                };
                let link = machine.links.iter().find(carries);
                let bandwidth = link.map(|link| link.bandwidth_bytes_per_s);
                counts.links.extend(used(bandwidth).map(|utilisation| LinkLoad { from, to, utilisation }));
            }
            (Counter::Instructions, ..) => counts.instructions = grown * scale,
            (Counter::CpuTime, ..) => counts.cpu_time_s = grown * scale / 1e9,
            (Counter::MemoryWait, ..) => counts.memory_wait_s = grown * scale / 1e9,
            _ => {}
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;

    fn told(time_ns: u64, of: u64) -> Vec<Count> {
        let count = |counter, from: Option<u32>, to: Option<u32>, value| Count {
            time_ns,
            counter,
            from: from.map(NodeId),
            to: to.map(NodeId),
            cpu: None,
            value,
        };
        vec![
            count(Counter::Instructions, None, None, 1000 * of),
            count(Counter::MemoryAccesses, Some(0), Some(0), 5),
            count(Counter::MemoryAccesses, Some(0), Some(1), 100 * of),
            count(Counter::ControllerBytes, None, Some(1), 1_000_000 * of),
            count(Counter::LinkBytes, Some(1), Some(0), u64::MAX / 8 * of),
        ]
    }

    #[test]
    fn a_round_is_the_difference_of_two_words_scaled_to_its_length() {
        let machine = presets::find("opteron-8380x4").unwrap();
        let mut counters = Counters::default();
        assert!(counters.take(&mut told(1_000_000_000, 1), 1.0, &machine).is_none(), "no earlier reading");
        assert!(counters.take(&mut Vec::new(), 1.0, &machine).is_none(), "no reading");
        // Readings within a round add nothing.
        let mut words = told(1_200_000_000, 2);
        words.extend(told(1_500_000_000, 3));
        let counts = counters.take(&mut words, 1.0, &machine).unwrap();
        let carried = counts.carried[0];
        assert!(carried.0 == NodeId(1) && (carried.1 - 4e6 / 64.0).abs() < 1e-9, "{carried:?}");
        assert_eq!(counts.traffic, [Traffic { from: NodeId(0), to: NodeId(1), accesses: 400.0 }]);
        assert!((counts.instructions - 4000.0).abs() < 1e-9);
        let capacity = machine.nodes[1].bandwidth_bytes_per_s.unwrap();
        assert!((counts.controllers[0].utilisation - 4e6 / capacity).abs() < 1e-9);
        assert_eq!(counts.links.iter().map(|link| link.utilisation).collect::<Vec<_>>(), [1.0]);
        assert!(words.is_empty());
    }

    #[test]
    fn a_link_of_one_direction_carries_nothing_of_the_other() {
        let mut machine = presets::find("opteron-8380x4").unwrap();
        machine.links.retain(|link| link.nodes == [NodeId(0), NodeId(1)]);
        machine.links[0].direction = LinkDirection::Forward;
        let (from, to) = (Some(NodeId(1)), Some(NodeId(0)));
        let told = |time_ns, value| Count { time_ns, counter: Counter::LinkBytes, from, to, cpu: None, value };
        let counts = difference(&[told(0, 0)], &[told(1, 1 << 30)], 1.0, 1.0, &machine);
        assert_eq!(counts.links, []);
        machine.links[0].direction = LinkDirection::Both;
        assert_eq!(difference(&[told(0, 0)], &[told(1, 1 << 30)], 1.0, 1.0, &machine).links.len(), 1);
    }

    fn pair(from: u32, to: u32, accesses: f64) -> Traffic {
        Traffic { from: NodeId(from), to: NodeId(to), accesses }
    }

    #[test]
    fn samples_say_where_remote_accesses_went() {
        let sampled = vec![pair(0, 0, 9.0), pair(0, 1, 1.0), pair(0, 2, 3.0), pair(1, 1, 5.0)];
        let counts = RoundCounts {
            traffic: vec![pair(0, 0, 100.0)],
            elsewhere: vec![(NodeId(0), 40.0), (NodeId(1), 7.0)],
            ..RoundCounts::default()
        };
        assert_eq!(
            counts.traffic(sampled, &[pair(0, 3, 1.0)]),
            [pair(0, 0, 100.0), pair(0, 1, 10.0), pair(0, 2, 30.0)]
        );
    }

    #[test]
    fn without_samples_traffic_is_of_those_who_ran_and_goes_where_their_memory_is() {
        let costs = Costs::new(&presets::find("opteron-8380x4").unwrap());
        // CPUs 0 to 3 are node 0's, 4 to 7 node 1's.
        let running = [(CpuId(0), 1.0), (CpuId(1), 0.5), (CpuId(4), 0.5), (CpuId(999), 1.0)];
        let resident = [(2, 100), (2, 200), (1, 100)].map(|(node, bytes)| NodeBytes { node: NodeId(node), bytes });
        let uses = uses_by_time(&running, &resident, &costs);
        let wanted = [pair(0, 1, 150.0), pair(0, 2, 450.0), pair(1, 1, 50.0), pair(1, 2, 150.0)];
        assert_eq!(uses, wanted);
        let of_controllers = RoundCounts { carried: vec![(NodeId(2), 400.0)], ..RoundCounts::default() };
        let to_2 = of_controllers.traffic(Vec::new(), &uses).into_iter().filter(|pair| pair.to == NodeId(2));
        assert_eq!(to_2.collect::<Vec<_>>(), [pair(0, 2, 300.0), pair(1, 2, 100.0)]);
        let of_caches = RoundCounts { elsewhere: vec![(NodeId(0), 400.0)], ..RoundCounts::default() };
        assert_eq!(of_caches.traffic(Vec::new(), &uses), [pair(0, 1, 100.0), pair(0, 2, 300.0)]);
        assert_eq!(uses_by_time(&running, &[], &costs).len(), 8, "memory is not known yet");
    }

    #[test]
    fn samples_are_scaled_to_what_controllers_carried() {
        let sampled = vec![pair(0, 0, 3.0), pair(0, 1, 1.0), pair(1, 0, 1.0), pair(1, 2, 5.0)];
        let counts = RoundCounts { carried: vec![(NodeId(0), 400.0), (NodeId(3), 9.0)], ..RoundCounts::default() };
        assert_eq!(
            counts.traffic(Vec::new(), &sampled),
            [pair(0, 0, 300.0), pair(0, 1, 1.0), pair(1, 0, 100.0), pair(1, 2, 5.0)]
        );
        assert_eq!(RoundCounts::default().traffic(sampled.clone(), &[]), sampled);
        assert_eq!(RoundCounts::default().traffic(Vec::new(), &sampled), []);
    }
}
