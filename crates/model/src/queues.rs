//! Queueing at controllers and links whose demand exceeds their capacity.
//!
//! A core can have only a limited number of accesses in flight, so a longer queue slows the cores down until the
//! busiest resource is just full. By Little's law, a flow of accesses that keeps `n` lines in flight, each for a time
//! `t`, moves `n / t` lines per second. Given every flow's `n` and idle latency, [`Queues::settle`] finds the delays at
//! which no resource exceeds its capacity, and each resource has the delay for its utilisation ([`Server`]). They
//! exist, and the resulting rates are unique: they are the optimum of a concave problem (the proportionally fair rates
//! of a closed network), of which the delays are the dual variables.
//!
//! Delays take effect a few windows after the load that causes them, and the traffic meanwhile may be many times the
//! capacity of the resource. This is an overdraft: it is paid back by carrying less afterwards, so that over some
//! milliseconds no more bytes move than the bandwidth allows, however a program alternates between bursts and pauses.

/// Time in which an overdraft is paid back, ps: long against the lag of the delays, so that the two do not oscillate.
const PAYBACK_PS: f64 = 1e9;
/// Utilisation from which the full rise applies: measured curves begin at 13 to 18 %.
const RISEN: f64 = 0.1;
/// Relative distance at which a resource counts as full.
const TOLERANCE: f64 = 1e-4;
/// Each sweep gets closer; the next window continues from here.
const MAX_SWEEPS: usize = 50;
/// Newton's method doubles the digits with each step.
const MAX_STEPS: usize = 8;

/// Accesses of one node's CPUs to one node's memory.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    /// Average number of lines in flight.
    pub outstanding: f64,
    /// Latency of a line while nothing is busy, ps.
    pub idle_ps: f64,
    /// The resources on its path, each once.
    pub path: Box<[Step]>,
}

/// A resource on the path of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub resource: u32,
    /// Fraction of a line's bytes that cross it: 1, or less for messages only.
    pub part: f64,
    /// Service time of a line, relative to a read line.
    pub cost: f64,
}

/// A server that handles lines one after another. Below saturation, at utilisation `u`, a line waits for the rise plus
/// `slope u / (1 - u)`: the shape of measured loaded latencies.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_field_names, reason = "units are in names")]
pub(crate) struct Server {
    /// Service time per line, ps.
    pub service_ps: f64,
    /// Wait of a line as soon as there is a load, ps.
    pub rise_ps: f64,
    /// Slope, ps.
    pub slope_ps: f64,
}

/// The queues of all resources.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    servers: Box<[Server]>,
    /// Wait per line at each resource, ps.
    delay_ps: Box<[f64]>,
    /// Traffic of each resource beyond its bandwidth, as the time it would have needed, ps.
    overdraft_ps: Box<[f64]>,
    /// For each resource the flows through it, and the cost of each line. Kept only to avoid allocations.
    users: Box<[Vec<(usize, f64)>]>,
}

impl Queues {
    pub(crate) fn new(servers: Vec<Server>) -> Self {
        Self {
            delay_ps: vec![0.0; servers.len()].into(),
            overdraft_ps: vec![0.0; servers.len()].into(),
            users: vec![Vec::new(); servers.len()].into(),
            servers: servers.into(),
        }
    }

    /// Wait per line at each resource, ps.
    pub(crate) fn delays_ps(&self) -> &[f64] {
        &self.delay_ps
    }

    /// Wait of a line on its path, ps.
    pub(crate) fn delay_on(&self, path: &[Step]) -> f64 {
        path.iter().map(|step| self.delay_ps[step.resource as usize]).sum()
    }

    /// Empties all queues.
    pub(crate) fn clear(&mut self) {
        self.delay_ps.fill(0.0);
        self.overdraft_ps.fill(0.0);
    }

    /// Records lines that a resource carried.
    pub(crate) fn carry(&mut self, resource: u32, lines: f64) {
        self.overdraft_ps[resource as usize] += lines * self.servers[resource as usize].service_ps;
    }

    /// Advances time, which pays for traffic within the bandwidth.
    pub(crate) fn pass(&mut self, ps: f64) {
        for overdraft in &mut self.overdraft_ps {
            *overdraft = (*overdraft - ps).max(0.0);
        }
    }

    /// Finds the delays for these flows, starting with the current ones.
    pub(crate) fn settle(&mut self, flows: &[Flow]) {
        self.users.iter_mut().for_each(Vec::clear);
        for (index, flow) in flows.iter().enumerate() {
            for step in &flow.path {
                self.users[step.resource as usize].push((index, step.cost));
            }
        }
        for (delay, users) in self.delay_ps.iter_mut().zip(&self.users) {
            if users.is_empty() {
                *delay = 0.0;
            }
        }
        let mut total_ps: Vec<f64> = flows.iter().map(|flow| flow.idle_ps + self.delay_on(&flow.path)).collect();
        for _ in 0..MAX_SWEEPS {
            // One resource at a time: changing all at once would overcorrect if flows cross several full ones.
            let mut largest = 0.0_f64;
            for resource in 0..self.servers.len() {
                if !self.users[resource].is_empty() {
                    largest = largest.max(self.settle_one(resource, flows, &mut total_ps));
                }
            }
            if largest < TOLERANCE {
                break;
            }
        }
    }

    /// Finds one resource's delay with the others fixed. Returns the change relative to the latency of its flows.
    fn settle_one(&mut self, resource: usize, flows: &[Flow], total_ps: &mut [f64]) -> f64 {
        let users = &self.users[resource];
        let Server { service_ps, rise_ps, slope_ps } = self.servers[resource];
        let service_ps = service_ps * (1.0 + self.overdraft_ps[resource] / PAYBACK_PS);
        let before = self.delay_ps[resource];
        let mut delay = before;
        let mut relative_to = f64::INFINITY;
        for _ in 0..MAX_STEPS {
            // Utilisation, and minus its derivative by the delay.
            let (mut utilisation, mut slope) = (0.0, 0.0);
            for &(user, cost) in users {
                let latency = total_ps[user] + (delay - before);
                let rate = flows[user].outstanding / latency * service_ps * cost;
                utilisation += rate;
                slope += rate / latency;
            }
            // Newton's method on 1 / utilisation, which is linear in the delay if all flows have one latency: it is
            // (delay + excess + full) / full, and 1 / utilisation of the curve is 1 + slope / (delay - rise).
            let mean_latency = utilisation / slope;
            let full = utilisation * mean_latency;
            let rise = rise_ps * (utilisation / RISEN).min(1.0);
            let excess = mean_latency - full - delay + rise;
            let queue = ((excess * excess + 4.0 * full * slope_ps).sqrt() - excess) / 2.0;
            let next = rise + queue;
            let step = (next - delay).abs();
            delay = next;
            relative_to = mean_latency;
            if step < TOLERANCE * mean_latency {
                break;
            }
        }
        self.delay_ps[resource] = delay;
        for &(user, _) in users {
            total_ps[user] += delay - before;
        }
        (delay - before).abs() / relative_to
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flow(outstanding: f64, idle_ps: f64, path: &[u32]) -> Flow {
        Flow {
            outstanding,
            idle_ps,
            path: path.iter().map(|&resource| Step { resource, part: 1.0, cost: 1.0 }).collect(),
        }
    }

    fn queues(service_ps: &[f64]) -> Queues {
        Queues::new(service_ps.iter().map(|&service_ps| Server { service_ps, ..Server::default() }).collect())
    }

    fn utilisations(queues: &Queues, flows: &[Flow]) -> Vec<f64> {
        let mut utilisations = vec![0.0; queues.servers.len()];
        for flow in flows {
            for &Step { resource, cost, .. } in &flow.path {
                let rate = flow.outstanding / (flow.idle_ps + queues.delay_on(&flow.path));
                utilisations[resource as usize] += rate * cost * queues.servers[resource as usize].service_ps;
            }
        }
        utilisations
    }

    #[test]
    fn idle_resources_have_no_queue() {
        let mut queues = queues(&[10_000.0]);
        queues.settle(&[flow(5.0, 100_000.0, &[0])]);
        assert_eq!(queues.delays_ps(), [0.0]);
    }

    #[test]
    fn a_full_resource_delays_until_it_is_just_full() {
        let mut queues = queues(&[10_000.0]);
        queues.settle(&[flow(40.0, 100_000.0, &[0])]);
        // 40 lines of 10 ns each are in flight: each takes 400 ns, 300 of them in the queue.
        assert!((queues.delays_ps()[0] - 300_000.0).abs() < 100.0, "{:?}", queues.delays_ps());
        queues.settle(&[]);
        assert_eq!(queues.delays_ps(), [0.0]);
    }

    #[test]
    fn only_the_narrowest_of_a_path_has_a_queue() {
        let mut queues = queues(&[10_000.0, 13_000.0, 12_000.0]);
        queues.settle(&[flow(100.0, 150_000.0, &[0, 1, 2])]);
        let delays = queues.delays_ps();
        assert!((delays.iter().sum::<f64>() - (1_300_000.0 - 150_000.0)).abs() < 1000.0, "{delays:?}");
        assert!(delays[0] < 1000.0 && delays[2] < 1000.0, "{delays:?}");
    }

    /// `spec/field.md` 5.2: latency by utilisation on a two-socket Xeon 8180, `81.3 ns (1.04 + 0.145 u / (1 - u))`.
    #[test]
    fn latency_grows_with_load_as_measured() {
        let (idle_ps, service_ps) = (81_300.0, 600.0);
        for (utilisation, factor) in [(0.16, 1.068), (0.39, 1.133), (0.52, 1.197), (0.74, 1.453), (0.9, 2.345)] {
            let server = Server { service_ps, rise_ps: 0.04 * idle_ps, slope_ps: 0.145 * idle_ps };
            let mut queues = Queues::new(vec![server]);
            let latency_ps = idle_ps * factor;
            queues.settle(&[flow(utilisation * latency_ps / service_ps, idle_ps, &[0])]);
            let measured = (idle_ps + queues.delays_ps()[0]) / idle_ps;
            assert!((measured / factor - 1.0).abs() < 0.005, "{measured} at {utilisation}, not {factor}");
        }
        let mut queues = Queues::new(vec![Server { service_ps, rise_ps: 0.04 * idle_ps, slope_ps: 0.145 * idle_ps }]);
        queues.settle(&[flow(0.001, idle_ps, &[0])]);
        assert!(queues.delays_ps()[0] < 0.001 * idle_ps, "an idle controller has its idle latency");
    }

    #[test]
    fn an_overdraft_is_paid_back() {
        let mut queues = queues(&[10_000.0]);
        let flows = [flow(40.0, 100_000.0, &[0])];
        // Twice the capacity of a millisecond.
        queues.carry(0, 200_000.0);
        queues.pass(1e9);
        queues.settle(&flows);
        assert!((utilisations(&queues, &flows)[0] - 0.5).abs() < 0.01);
        queues.pass(1e9);
        queues.settle(&flows);
        assert!((utilisations(&queues, &flows)[0] - 1.0).abs() < 0.01);
    }

    proptest! {
        /// Conservation: no resource exceeds its capacity, and one that is not full has no queue.
        #[test]
        fn no_resource_carries_more_than_it_can(
            service in prop::collection::vec(5_000.0..50_000.0, 1..12),
            (rise_ps, slope_ps) in prop_oneof![Just((0.0, 0.0)), (0.0..30_000.0, 100.0..30_000.0)],
            flows in prop::collection::vec(
                (0.01..500.0, 50_000.0..400_000.0, prop::collection::btree_set(0_u32..12, 1..4)), 0..40),
        ) {
            let flows: Vec<_> = flows.into_iter().map(|(outstanding, idle, path)| {
                let path: std::collections::BTreeSet<u32> = path.into_iter().map(|r| r % service.len() as u32).collect();
                flow(outstanding, idle, &path.into_iter().collect::<Vec<_>>())
            }).collect();
            let mut queues =
                Queues::new(service.into_iter().map(|service_ps| Server { service_ps, rise_ps, slope_ps }).collect());
            // A few windows with the same load: each continues from the last.
            for _ in 0..10 {
                queues.settle(&flows);
            }
            for (utilisation, delay) in utilisations(&queues, &flows).into_iter().zip(queues.delays_ps()) {
                prop_assert!(utilisation <= 1.01, "{}", utilisation);
                let curve = rise_ps * (utilisation / RISEN).min(1.0) + slope_ps * utilisation / (1.0 - utilisation).max(1e-9);
                prop_assert!(*delay < 1.05 * curve + 1000.0 || utilisation > 0.99, "{} at {}", delay, utilisation);
            }
        }
    }
}
