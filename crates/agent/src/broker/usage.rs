//! What grants and the rest of the machine draw from memory, as counted once a period.

use crate::grants::{Counted, MemoryMonitor, Subject, drawn_by};
use reserve::{Flow, GrantId, Ledger, ReadWrite};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

/// Periods in which the highest traffic counts for forecasts: programs pause, and draw as much again afterwards.
const PERIODS: usize = 60;

/// What was drawn in each of the last periods.
#[derive(Debug)]
pub(super) struct Usage {
    monitor: MemoryMonitor,
    period: Duration,
    next: Instant,
    history: History,
}

/// The last count, and the periods before it.
#[derive(Debug, Default)]
struct History {
    last: Option<(Counted, BTreeSet<GrantId>)>,
    /// The newest comes last.
    periods: VecDeque<Vec<Flow>>,
}

impl Usage {
    pub fn new(monitor: MemoryMonitor, period: Duration) -> Self {
        monitor.remove_left();
        Self { monitor, period, next: Instant::now() + period, history: History::default() }
    }

    /// When to count next.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Whether it is time to count.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// Counts. `runs` has the grants with programs: what a grant without one draws says nothing.
    /// Returns whether there is a new period. After a failure nothing is known of it.
    pub fn count(&mut self, now: Instant, ledger: &Ledger, runs: impl Fn(GrantId) -> bool) -> io::Result<bool> {
        self.next = now + self.period;
        match self.monitor.count(ledger) {
            Ok(None) => Ok(false),
            Ok(Some(counted)) => {
                let running = ledger.grants().map(|grant| grant.id).filter(|id| runs(*id)).collect();
                Ok(self.history.add(counted, running))
            }
            Err(error) => {
                self.history.last = None;
                self.history.push(Vec::new());
                Err(error)
            }
        }
    }

    /// What was drawn in the last period.
    pub fn drawn(&self) -> &[Flow] {
        self.history.periods.back().map_or(&[], Vec::as_slice)
    }

    /// What a grant has drawn in the last period. None where it was not counted.
    pub fn drawn_by(&self, id: GrantId) -> Option<ReadWrite> {
        drawn_by(self.drawn(), Some(id))
    }

    /// The most that was drawn in one of the last periods. The rest's is of the fewest cores that can draw that much, as
    /// is known of a core.
    pub fn most(&self, core_bytes_per_s: Option<f64>) -> Vec<Flow> {
        let mut flows = self.history.most();
        for flow in flows.iter_mut().filter(|flow| flow.of.is_none()) {
            let cores = core_bytes_per_s.map_or(1.0, |core| ((flow.load.read + flow.load.write) / core).ceil());
            flow.cores = cores.clamp(1.0, flow.cores.into()) as u32;
        }
        flows
    }

    /// Forgets a grant: its number may be used again.
    pub fn forget(&mut self, id: GrantId) {
        self.history.periods.iter_mut().for_each(|flows| flows.retain(|flow| flow.of != Some(id)));
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        self.monitor.remove_left();
    }
}

impl History {
    fn add(&mut self, counted: Counted, running: BTreeSet<GrantId>) -> bool {
        let before = self.last.replace((counted, running));
        let Some(((before, ran), (after, runs))) = before.zip(self.last.as_ref()) else { return false };
        // One that was counted before draws nothing without a program.
        let known: BTreeSet<GrantId> = self.periods.iter().flatten().filter_map(|flow| flow.of).collect();
        let has_run =
            |subject: Subject| subject.is_none_or(|id| known.contains(&id) || ran.contains(&id) && runs.contains(&id));
        let Some(flows) = flows(&before, after, has_run) else { return false };
        self.push(flows);
        true
    }

    fn push(&mut self, flows: Vec<Flow>) {
        self.periods.push_back(flows);
        if self.periods.len() > PERIODS {
            self.periods.pop_front();
        }
    }

    /// Of each subject, the period in which it drew most.
    fn most(&self) -> Vec<Flow> {
        let mut most: BTreeMap<Subject, (f64, Vec<Flow>)> = BTreeMap::new();
        for period in &self.periods {
            let mut subjects: BTreeMap<Subject, Vec<Flow>> = BTreeMap::new();
            for flow in period {
                subjects.entry(flow.of).or_default().push(*flow);
            }
            for (of, flows) in subjects {
                let total = flows.iter().map(|flow| flow.load.read + flow.load.write).sum();
                let known = most.entry(of).or_insert_with(|| (total, flows.clone()));
                if total > known.0 {
                    *known = (total, flows);
                }
            }
        }
        most.into_values().flat_map(|(_, flows)| flows).collect()
    }
}

/// Bytes/s between two counts. A subject whose CPUs have changed is left out. None where no time has passed.
fn flows(before: &Counted, after: &Counted, has_run: impl Fn(Subject) -> bool) -> Option<Vec<Flow>> {
    let seconds = after.at_ns.checked_sub(before.at_ns).filter(|&ns| ns > 0)? as f64 / 1e9;
    let mut flows = Vec::new();
    for (&(of, from), (cpus, bytes)) in &after.drawn {
        let before = before.drawn.get(&(of, from)).filter(|(before, _)| before == cpus && has_run(of));
        let Some((_, before)) = before else { continue };
        for (&to, now) in bytes {
            let had = before.get(&to).copied().unwrap_or_default();
            // Counters that went back were reset: what they had counted before is not known.
            let grown = |now: f64, had: f64| (now >= had).then_some((now - had) / seconds);
            let Some((read, write)) = grown(now.read, had.read).zip(grown(now.write, had.write)) else { continue };
            let load = ReadWrite { read, write };
            flows.push(Flow { of, from, to, load, cores: cpus.len().max(1) as u32 });
        }
    }
    Some(flows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::NodeId;
    use proptest::prelude::*;

    const ALL: fn(Subject) -> bool = |_| true;

    fn counted(at_s: u64, drawn: &[(Subject, &str, f64)]) -> Counted {
        let drawn = drawn.iter().map(|&(of, cpus, read)| {
            let bytes = BTreeMap::from([(NodeId(1), ReadWrite { read, write: read / 2.0 })]);
            ((of, NodeId(0)), (cpus.parse().unwrap(), bytes))
        });
        Counted { at_ns: at_s * 1_000_000_000, drawn: drawn.collect() }
    }

    fn reads(flows: &[Flow]) -> Vec<(Subject, f64, u32)> {
        flows.iter().map(|flow| (flow.of, flow.load.read, flow.cores)).collect()
    }

    #[test]
    fn rates_are_of_subjects_whose_cpus_stayed_and_that_ran() {
        let grant = Some(GrantId(3));
        let before = counted(1, &[(None, "0-2", 100.0), (grant, "3", 10.0)]);
        let after = counted(3, &[(None, "0-2", 500.0), (grant, "3", 4.0)]);
        // The grant's counter was reset.
        let rest = flows(&before, &after, ALL).unwrap();
        assert_eq!(reads(&rest), [(None, 200.0, 3)]);
        let both = flows(&before, &counted(3, &[(None, "0-2", 500.0), (grant, "3", 14.0)]), ALL).unwrap();
        assert_eq!(reads(&both), [(None, 200.0, 3), (grant, 2.0, 1)]);
        assert_eq!((both[0].from, both[0].to, both[0].load.write), (NodeId(0), NodeId(1), 100.0));
        assert_eq!(reads(&flows(&before, &after, |of| of.is_none()).unwrap()), [(None, 200.0, 3)]);
        let reshaped = counted(3, &[(None, "0-1", 500.0), (grant, "3", 14.0)]);
        assert_eq!(reads(&flows(&before, &reshaped, ALL).unwrap()), [(grant, 2.0, 1)]);
        assert_eq!((flows(&before, &before, ALL), flows(&after, &before, ALL)), (None, None));
    }

    #[test]
    fn the_highest_of_the_last_sixty_periods_counts() {
        let (mut history, grant) = (History::default(), GrantId(1));
        let mut total = 0.0;
        let mut add = |history: &mut History, at_s, rate: f64, runs: bool| {
            total += rate;
            history.add(counted(at_s, &[(Some(grant), "0", total)]), runs.then_some(grant).into_iter().collect())
        };
        assert!(!add(&mut history, 1, 0.0, false));
        // A grant without a program has drawn nothing that says what its program will draw.
        assert!(add(&mut history, 2, 0.0, true) && history.most().is_empty());
        for at_s in 3..=5 {
            add(&mut history, at_s, if at_s == 4 { 9.0 } else { 1.0 }, true);
        }
        assert_eq!(reads(&history.most()), [(Some(grant), 9.0, 1)]);
        (6..=63).for_each(|at_s| assert!(add(&mut history, at_s, 1.0, true)));
        assert_eq!((reads(&history.most()), history.periods.len()), (vec![(Some(grant), 9.0, 1)], PERIODS));
        add(&mut history, 64, 1.0, true);
        assert_eq!(reads(&history.most()), [(Some(grant), 1.0, 1)]);
    }

    proptest! {
        #[test]
        fn no_count_makes_rates_that_are_none(counts in prop::collection::vec((0..5_u64, 0.0..1e18_f64), 0..20)) {
            let mut history = History::default();
            for (at_s, read) in counts {
                history.add(counted(at_s, &[(None, "0", read)]), BTreeSet::new());
                prop_assert!(history.most().iter().all(|flow| flow.load.read >= 0.0 && flow.load.read.is_finite()));
            }
        }
    }
}
