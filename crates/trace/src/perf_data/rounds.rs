//! Samples and events of a perf.data file, round by round.

use super::in_order::{InOrder, Order, Sorted};
use crate::{Event, Record, Sample, What};
use linux::{Pid, Tid};
use std::collections::HashSet;

/// What was decoded until the rings of all CPUs had been emptied once, in the order in which it came.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub samples: Vec<Sample>,
    pub events: Vec<Event>,
    /// What comes in later rounds is no earlier than this, ns.
    pub until: u64,
}

/// A round, each of its lists by time.
#[derive(Debug, Default)]
pub(crate) struct SortedRound {
    samples: Sorted<Sample>,
    events: Sorted<Event>,
    until: u64,
}

/// Rounds as samples and events in the order of time; of one time, events come first.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    samples: InOrder<Sample>,
    events: InOrder<Event>,
    starts: Starts,
    /// An event that follows the start of its process.
    following: Option<Event>,
}

/// Processes whose start was told.
#[derive(Debug, Default)]
pub(crate) struct Starts(HashSet<Pid>);

impl Starts {
    /// The start of an event's process, where none was told: whoever is seen first without a fork was there already.
    /// Wants events in the order of time, as each CPU tells its own.
    pub fn missing(&mut self, event: &Event) -> Option<Event> {
        let is_new = self.0.insert(event.pid) && !matches!(event.what, What::ProcessStarted { .. });
        let what = What::ProcessStarted { parent: None };
        is_new.then(|| Event { tid: Tid(event.pid.0), what, ..event.clone() })
    }
}

impl Round {
    /// Its lists by time. Of `orders` only the memory is used.
    pub fn sorted(self, orders: [Order; 2]) -> SortedRound {
        let [of_samples, of_events] = orders;
        let (samples, events) = (Sorted::new(self.samples, of_samples), Sorted::new(self.events, of_events));
        SortedRound { samples, events, until: self.until }
    }
}

impl SortedRound {
    /// The memory of its lists and of their orders, without what was in it.
    pub fn into_used(self) -> (Round, [Order; 2]) {
        let ((samples, of_samples), (events, of_events)) = (self.samples.into_used(), self.events.into_used());
        (Round { samples, events, until: 0 }, [of_samples, of_events])
    }
}

impl Rounds {
    /// Takes a round, when all that was ready before has been taken. An older one, whose memory may be used again.
    pub fn add(&mut self, round: SortedRound) -> SortedRound {
        let SortedRound { samples, events, until } = round;
        SortedRound { samples: self.samples.add(samples, until), events: self.events.add(events, until), until: 0 }
    }

    /// The next one that is ready.
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
