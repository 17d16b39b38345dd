//! Samples and events of a perf.data file, round by round.

use super::in_order::{InOrder, Order, Sorted};
use crate::{Event, Record, Sample, What};
use machine::{Pid, Tid};
use std::collections::HashSet;

/// What was decoded while the rings of all CPUs were emptied once, in the order of the file.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub samples: Vec<Sample>,
    pub events: Vec<Event>,
    /// Later rounds have no earlier times than this, in ns.
    pub until: u64,
}

/// A round, or samples of one that is too long to be kept.
#[derive(Debug, Default)]
pub(crate) struct RoundPart {
    pub round: SortedRound,
    /// The first samples of a long round, in any order; the round is empty then, and follows.
    pub early: Vec<Sample>,
}

/// A round whose lists are sorted by time.
#[derive(Debug, Default)]
pub(crate) struct SortedRound {
    samples: Sorted<Sample>,
    events: Sorted<Event>,
    until: u64,
}

/// Merges rounds into samples and events in time order; at equal times, events come first.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    samples: InOrder<Sample>,
    events: InOrder<Event>,
    starts: Starts,
    /// An event held back until after the start of its process.
    following: Option<Event>,
}

/// Processes whose start was reported.
#[derive(Debug, Default)]
pub struct Starts(HashSet<Pid>);

impl Starts {
    /// Creates the start of an event's process if none was reported: a process first seen without a fork existed
    /// already. Takes events in time order.
    pub fn missing(&mut self, event: &Event) -> Option<Event> {
        let is_new = self.0.insert(event.pid) && !matches!(event.what, What::ProcessStarted { .. });
        let what = What::ProcessStarted { parent: None };
        is_new.then(|| Event { tid: Tid(event.pid.0), what, ..event.clone() })
    }
}

impl Round {
    /// Sorts its lists by time. Reuses the memory of `orders`.
    pub fn sorted(self, orders: [Order; 2]) -> SortedRound {
        let [of_samples, of_events] = orders;
        let (samples, events) = (Sorted::new(self.samples, of_samples), Sorted::new(self.events, of_events));
        SortedRound { samples, events, until: self.until }
    }
}

impl SortedRound {
    /// The memory of its lists and orders, emptied.
    pub fn into_used(self) -> (Round, [Order; 2]) {
        let ((samples, of_samples), (events, of_events)) = (self.samples.into_used(), self.events.into_used());
        (Round { samples, events, until: 0 }, [of_samples, of_events])
    }
}

impl Rounds {
    /// Adds a round, once everything that was ready has been taken. Returns an older one, whose memory may be reused.
    pub fn add(&mut self, round: SortedRound) -> SortedRound {
        let SortedRound { samples, events, until } = round;
        SortedRound { samples: self.samples.add(samples, until), events: self.events.add(events, until), until: 0 }
    }

    /// The next record that is ready.
    #[inline]
    pub fn next(&mut self) -> Option<Record> {
        if let Some(event) = self.following.take() {
            return Some(Record::Event(event));
        }
        let sample = self.samples.peek();
        if self.events.peek().is_none_or(|event| sample.is_some_and(|sample| sample < event)) {
            return self.samples.next().copied().map(Record::Sample);
        }
        let event = self.events.next()?.clone();
        let Some(start) = self.starts.missing(&event) else { return Some(Record::Event(event)) };
        self.following = Some(event);
        Some(Record::Event(start))
    }
}
