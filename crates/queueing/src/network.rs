//! The closed network, and its solution.
//!
//! Each class of threads has a fixed number of lines, in flight or being worked on. Each line takes
//! the time to work on it, the idle latency of its route, and the queueing delays at the controller and links. The
//! delay at utilisation `u` follows the machine's curve of loaded latency: its rise, and `slope u / (1 - u)`. No
//! resource exceeds its bandwidth.

use crate::distances::Distances;
use machine::NodeId;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::BTreeMap;

/// Size of a cache line, bytes.
pub const LINE_BYTES: f64 = machine::LINE_BYTES as f64;
/// Utilisation at which the rise is complete.
const RISEN: f64 = 0.1;
const MOST_SWEEPS: usize = 60;
/// A delay is exact to this part of itself, and to this part of a nanosecond: far below [`TOLERANCE`] of a latency.
const EXACT: f64 = 1e-6;
/// Most steps of the search for a delay.
const MOST_STEPS: usize = 100;
/// A delay is sought up to this many times the last guess farther at a time.
const FARTHER: f64 = 4.0;
/// Queueing delay where more lines arrive than can be served, ns.
const MOST_DELAY_NS: f64 = 1e12;
/// Iteration ends when delays change by less than this part of a latency.
const TOLERANCE: f64 = 1e-4;

/// Threads with the same access pattern.
#[derive(Clone, Debug)]
pub struct Class {
    /// The node of their CPUs.
    pub from: NodeId,
    /// Lines in flight or being worked on.
    pub lines: f64,
    /// The time between a line's arrival and the request for the next, ns.
    pub work_ns: f64,
    /// The sources of its lines.
    pub to: Vec<NodeShare>,
    /// The most lines per ns that its threads ask for, however fast memory is; infinite for threads that only wait.
    pub most_rate: f64,
}

/// Lines of a class that come from one node.
#[derive(Clone, Copy, Debug)]
pub struct NodeShare {
    /// The node.
    pub to: NodeId,
    /// The part of the class's lines; all parts add up to 1.
    pub part: f64,
    /// Traffic on the controller and links, including write-backs, bytes per line of the class.
    pub bytes: f64,
}

/// The result for a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// Lines per ns.
    pub rate: f64,
    /// Mean latency, ns.
    pub latency_ns: f64,
}

impl Class {
    /// The part of its lines that come from the node of its CPUs, 0 to 1.
    pub fn local_part(&self) -> f64 {
        self.to.iter().filter(|share| share.to == self.from).map(|share| share.part).sum()
    }

    /// Lines per ns, if each takes this long.
    fn rate(&self, round_ns: f64) -> f64 {
        (self.lines / round_ns.max(f64::MIN_POSITIVE)).min(self.most_rate)
    }
}

#[derive(Clone, Copy, Default)]
#[allow(clippy::struct_field_names, reason = "units are in names")]
struct Server {
    byte_ns: f64,
    rise_ns: f64,
    slope_ns: f64,
    /// Traffic that no class answers for.
    other_byte_per_ns: f64,
}

/// A class, as seen by a resource.
#[derive(Clone, Copy)]
struct User {
    class: usize,
    /// How often a line of the class passes the resource.
    times: f64,
    /// Traffic per line, bytes.
    bytes: f64,
}

/// What lines wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// A node's memory controller.
    Controller(NodeId),
    /// A direction of a link: [`machine::Hop::directed_link`].
    Link(usize),
}

/// Traffic that no class answers for, bytes/s: it does not become less where lines wait.
pub type Background = BTreeMap<Resource, f64>;

/// Solves the model for all classes running together. None if the machine's description lacks a latency that is needed.
pub fn solve(classes: &[Class], distances: &Distances) -> Option<Vec<Served>> {
    solve_beside(classes, &Background::new(), distances)
}

/// [`solve`], with other traffic on the same controllers and links.
pub fn solve_beside(classes: &[Class], background: &Background, distances: &Distances) -> Option<Vec<Served>> {
    let mut numbers: FxHashMap<Resource, usize> = FxHashMap::default();
    let mut servers: Vec<Server> = Vec::new();
    let mut users: Vec<Vec<User>> = Vec::new();
    let mut idle_ns = Vec::with_capacity(classes.len());
    for (class_number, class) in classes.iter().enumerate() {
        let mut idle = 0.0;
        for &NodeShare { to, part, bytes } in class.to.iter().filter(|share| share.part > 0.0) {
            idle += part * distances.idle_ns(class.from, to)?;
            let hops = distances.routes.as_ref().and_then(|routes| routes.hops(class.from, to)).unwrap_or_default();
            let links = hops.iter().map(|hop| Resource::Link(hop.directed_link()));
            for resource in links.chain([Resource::Controller(to)]) {
                let number = *numbers.entry(resource).or_insert_with(|| {
                    let other = background.get(&resource).copied().unwrap_or(0.0);
                    servers.push(Server { other_byte_per_ns: other / 1e9, ..server(resource, distances) });
                    users.push(Vec::new());
                    servers.len() - 1
                });
                // Classes come one after the other, so a class that has passed it before is the last.
                match users[number].last_mut().filter(|user| user.class == class_number) {
                    Some(user) => (user.times, user.bytes) = (user.times + part, user.bytes + bytes),
                    None => users[number].push(User { class: class_number, times: part, bytes }),
                }
            }
        }
        idle_ns.push(idle);
    }
    let mut delays = vec![0.0; servers.len()];
    let mut waits = vec![0.0; classes.len()];
    for _ in 0..MOST_SWEEPS {
        let mut largest = 0.0_f64;
        for (resource, (server, users)) in servers.iter().zip(&users).enumerate() {
            let before: f64 = delays[resource];
            let round =
                |class: usize, times: f64| classes[class].work_ns + idle_ns[class] + waits[class] - times * before;
            let utilisation = |delay: f64| -> f64 {
                let rate = |&User { class, times, bytes }: &User| {
                    bytes * classes[class].rate(round(class, times) + times * delay)
                };
                (server.other_byte_per_ns + users.iter().map(rate).sum::<f64>()) * server.byte_ns
            };
            let delay = server.delay_ns(before, utilisation);
            for &User { class, times, .. } in users {
                waits[class] += times * (delay - before);
                largest = largest.max(times * (delay - before).abs() / (idle_ns[class] + waits[class]).max(1e-9));
            }
            delays[resource] = delay;
        }
        if largest < TOLERANCE {
            break;
        }
    }
    let served = |((class, idle), wait): ((&Class, f64), f64)| {
        let latency_ns = idle + wait;
        Served { rate: class.rate(class.work_ns + latency_ns), latency_ns }
    };
    Some(classes.iter().zip(idle_ns).zip(waits).map(served).collect())
}

fn server(resource: Resource, distances: &Distances) -> Server {
    let machine = distances.machine;
    // Without a curve there is no queue below saturation, as in the lab's model.
    let (rise, slope) = distances.curve().unwrap_or((0.0, 0.0));
    let (bandwidth, own_ns) = match resource {
        Resource::Controller(node) => {
            let bandwidth = machine.node(node).and_then(|node| node.bandwidth_bytes_per_s);
            (bandwidth, distances.idle_ns(node, node).unwrap_or(0.0))
        }
        Resource::Link(directed) => {
            let link = machine.links.get(directed / 2);
            let added = link.map(|link| {
                let [one, other] = link.nodes;
                let added = distances.idle_ns(one, other).zip(distances.idle_ns(other, other));
                added.map_or(0.0, |(there, local)| (there - local).max(0.0))
            });
            (link.map(|link| link.bandwidth_bytes_per_s), added.unwrap_or(0.0))
        }
    };
    let byte_ns = bandwidth.filter(|bandwidth| *bandwidth > 0.0).map_or(0.0, |bandwidth| 1e9 / bandwidth);
    Server { byte_ns, rise_ns: own_ns * rise, slope_ns: own_ns * slope, other_byte_per_ns: 0.0 }
}

impl Server {
    /// The delay that is consistent with the resulting utilisation: the more lines wait, the fewer arrive. It is probably
    /// near `guess`, ns.
    fn delay_ns(&self, guess: f64, utilisation: impl Fn(f64) -> f64) -> f64 {
        if self.byte_ns <= 0.0 {
            return 0.0;
        }
        // What a delay is too short by: falls at least as fast as the delay grows, so the solution is no further away.
        let missing = |delay: f64| {
            let u = utilisation(delay);
            let queue = if u < 1.0 { self.slope_ns * u / (1.0 - u) } else { MOST_DELAY_NS };
            self.rise_ns * (u / RISEN).min(1.0) + queue - delay
        };
        let is_found = |delay: f64, missing: f64| missing.abs() <= EXACT * delay.max(1.0);
        let at_guess = missing(guess);
        if is_found(guess, at_guess) {
            return (guess + at_guess).max(0.0);
        }
        let (mut low, mut at_low) = if at_guess > 0.0 { (guess, at_guess) } else { (0.0, missing(0.0)) };
        let (mut high, mut at_high) = (guess, at_guess);
        if at_low <= 0.0 {
            return 0.0;
        }
        while at_high > 0.0 && high < MOST_DELAY_NS {
            (low, at_low) = (high, at_high);
            high += at_high.min(FARTHER * high.max(1.0));
            at_high = missing(high);
        }
        for step in 1..MOST_STEPS {
            // The secant, and each third time the middle, as a secant is slow where the queue grows steeply.
            let part = if step % 3 == 0 { 0.5 } else { at_low / (at_low - at_high) };
            let middle = low + (high - low) * part;
            let at_middle = missing(middle);
            if is_found(middle, at_middle) || high - low <= EXACT * high.max(1.0) {
                return middle;
            }
            if at_middle > 0.0 {
                (low, at_low) = (middle, at_middle);
            } else {
                (high, at_high) = (middle, at_middle);
            }
        }
        high
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;

    fn class(from: u32, lines: f64, to: &[(u32, f64)]) -> Class {
        let share = |&(node, part): &(u32, f64)| NodeShare { to: NodeId(node), part, bytes: part * LINE_BYTES };
        let to = to.iter().map(share).collect();
        Class { from: NodeId(from), lines, work_ns: 0.0, to, most_rate: f64::INFINITY }
    }

    #[test]
    fn an_idle_machine_has_its_latencies() {
        let machine = presets::find("opteron-6164x2").unwrap();
        let classes = [class(0, 0.01, &[(0, 1.0)]), class(1, 0.01, &[(0, 1.0)])];
        let found = solve(&classes, &Distances::new(&machine)).unwrap();
        assert!((found[0].latency_ns / 102.94 - 1.0).abs() < 0.02, "{found:?}");
        assert!((found[1].latency_ns / 145.29 - 1.0).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn one_node_for_all_is_slower_than_each_its_own() {
        let machine = presets::find("opteron-6164x2").unwrap();
        let distances = Distances::new(&machine);
        let solve = |to: fn(u32) -> Vec<(u32, f64)>| {
            let classes: Vec<Class> = (0..4).map(|node| class(node, 12.0, &to(node))).collect();
            let found = solve(&classes, &distances).unwrap();
            let bytes_per_s: f64 = found.iter().map(|served| served.rate * LINE_BYTES * 1e9).sum();
            let latency: f64 = found.iter().map(|served| served.latency_ns).sum::<f64>() / 4.0;
            (bytes_per_s, latency)
        };
        let one = solve(|_| vec![(0, 1.0)]);
        let interleaved = solve(|_| (0..4).map(|node| (node, 0.25)).collect());
        let local = solve(|node| vec![(node, 1.0)]);
        // No controller exceeds its bandwidth, and one that all threads use comes close to it.
        assert!(one.0 <= 5.85e9 && one.0 > 0.9 * 5.85e9, "{one:?}");
        assert!(local.0 <= 4.0 * 5.85e9 && local.0 >= interleaved.0, "{local:?} {interleaved:?}");
        assert!(interleaved.0 > 2.5 * one.0, "{interleaved:?} {one:?}");
        // By Little's law.
        assert!((one.1 - 48.0 * LINE_BYTES * 1e9 / one.0).abs() < 0.05 * one.1, "{one:?}");
    }

    /// From any guess, with and without a slope, below and beyond saturation.
    #[test]
    fn a_delay_is_the_one_that_its_own_utilisation_causes() {
        for (rise_ns, slope_ns) in [(0.0, 0.0), (8.0, 15.0), (0.0, 100.0), (50.0, 0.01)] {
            let server = Server { byte_ns: 0.1, rise_ns, slope_ns, other_byte_per_ns: 0.0 };
            for (lines, idle_ns) in [(0.01, 100.0), (1.0, 100.0), (20.0, 100.0), (400.0, 300.0), (1e4, 100.0)] {
                let utilisation = |delay: f64| lines / (idle_ns + delay) * LINE_BYTES * server.byte_ns;
                let caused = |delay: f64| match utilisation(delay) {
                    u if u < 1.0 => rise_ns * (u / RISEN).min(1.0) + slope_ns * u / (1.0 - u),
                    _ => f64::INFINITY,
                };
                for guess in [0.0, 1.0, 37.0, 1e4, 1e7] {
                    let delay = server.delay_ns(guess, utilisation);
                    // It lies between a delay that is too short and one that is not: without a slope the queue jumps.
                    let margin = 1e-4 * delay.max(1.0);
                    let is_short = |delay: f64| caused(delay) > delay;
                    assert!(!is_short(delay + margin), "{rise_ns} {slope_ns} {lines} {guess}: {delay}");
                    assert!(
                        delay <= margin || is_short(delay - margin),
                        "{rise_ns} {slope_ns} {lines} {guess}: {delay}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_is_written_back_takes_its_part() {
        let machine = presets::find("opteron-6164x2").unwrap();
        let rate = |bytes| {
            let class = Class { to: vec![NodeShare { to: NodeId(0), part: 1.0, bytes }], ..class(0, 100.0, &[]) };
            solve(&[class], &Distances::new(&machine)).unwrap()[0].rate
        };
        let part = rate(2.0 * LINE_BYTES) / rate(LINE_BYTES);
        assert!((0.45..0.55).contains(&part), "{part}");
    }

    /// Published for this machine: -11 % beside one more reader and -61 % beside five; 4.1 GB/s of other traffic cost 5 %.
    #[test]
    fn readers_of_one_controller_lose_what_was_published() {
        let machine = presets::find("magny-cours-4p").unwrap();
        let distances = Distances::new(&machine);
        let reader = Class { most_rate: 5.949e9 / 64e9, ..class(0, 7.0, &[(0, 1.0)]) };
        let rate = |readers: usize, other: f64| {
            let background = Background::from([(Resource::Controller(NodeId(0)), other)]);
            solve_beside(&vec![reader.clone(); readers], &background, &distances).unwrap()[0].rate
        };
        let loss = |readers, other| 100.0 * (1.0 - rate(readers, other) / rate(1, 0.0));
        for (lost, expected) in [(loss(2, 0.0), 11.0), (loss(6, 0.0), 61.0), (loss(1, 4.1e9), 4.9), (loss(1, 1e9), 0.0)]
        {
            assert!((lost - expected).abs() < 2.0, "{lost} instead of {expected}");
        }
        // Traffic beyond the bandwidth leaves nothing.
        assert!(loss(1, 14e9) > 99.9);
    }

    #[test]
    fn a_machine_without_latencies_has_no_answer() {
        let mut machine = presets::find("opteron-6164x2").unwrap();
        machine.latency = None;
        assert!(solve(&[class(0, 1.0, &[(0, 1.0)])], &Distances::new(&machine)).is_none());
    }
}
