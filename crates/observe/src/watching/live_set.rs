//! The live processes, threads, mappings and objects, as a minimal set of events, for a run of any length.

use linux::{Pid, Tid};
use std::collections::BTreeMap;
use trace::{Event, What};

/// The processes that run, with what they have.
#[derive(Debug, Default)]
pub struct LiveSet {
    processes: BTreeMap<Pid, Process>,
}

#[derive(Clone, Debug, Default)]
struct Process {
    started: Option<Event>,
    /// Threads, each with the last event that named it.
    threads: BTreeMap<Tid, Option<Event>>,
    /// Keyed by first address and time.
    mappings: BTreeMap<(u64, u64), Event>,
    /// Keyed by address, whether it was announced, and for those that were, the time.
    objects: BTreeMap<(u64, bool, u64), Event>,
}

impl LiveSet {
    /// Takes an event. Events must come in order.
    pub fn take(&mut self, event: Event) {
        let (pid, tid, time) = (event.pid, event.tid, event.time_ns);
        if let What::ProcessStarted { parent } = event.what {
            let parent = parent.and_then(|parent| self.processes.get(&parent));
            let mut process = parent.map(|parent| parent.as_fork(pid, time)).unwrap_or_default();
            process.threads.insert(tid, None);
            // What it inherits from its parent becomes its own.
            process.started = Some(Event { what: What::ProcessStarted { parent: None }, ..event });
            self.processes.insert(pid, process);
            return;
        }
        let process = self.processes.entry(pid).or_default();
        match &event.what {
            What::ThreadStarted => drop(process.threads.insert(tid, None)),
            What::ThreadEnded => {
                process.threads.remove(&tid);
                if process.threads.is_empty() {
                    self.processes.remove(&pid);
                }
            }
            What::Named { exec, .. } => {
                if *exec {
                    process.mappings.clear();
                    process.objects.clear();
                    process.threads.clear();
                }
                process.threads.insert(tid, Some(event));
            }
            What::Mapped { start, bytes, .. }
            | What::Unmapped { start, bytes }
            | What::Remapped { start, bytes, .. } => {
                let (start, end) = (*start, start.saturating_add(*bytes));
                process.forget_mappings(start, end);
                process.mappings.insert((start, time), event);
            }
            What::Allocated { address, .. } => drop(process.objects.insert((*address, false, 0), event)),
            What::Announced { address, bytes, .. } => {
                let (address, end) = (*address, address.saturating_add(*bytes));
                process.end_announced(address, end);
                process.objects.insert((address, true, time), event);
            }
            What::Resized { address, bytes } => {
                let object = process.objects.get_mut(&(*address, false, 0));
                if let Some(Event { what: What::Allocated { bytes: of, .. }, .. }) = object {
                    *of = *bytes;
                }
            }
            What::Invalidated { start, bytes } => {
                let (start, end) = (*start, start.saturating_add(*bytes));
                process.objects.retain(|(address, ..), event| *address >= end || object_end(event) <= start);
            }
            What::Freed { address } => match process.objects.remove(&(*address, false, 0)) {
                Some(block) => process.end_announced(*address, object_end(&block)),
                None => process.withdraw(*address),
            },
            What::Withdrawn { address } => process.withdraw(*address),
            What::ProcessStarted { .. }
            | What::Counted { .. }
            | What::PagePlaced { .. }
            | What::FramesAllocated { .. } => {}
        }
    }

    /// The events that describe the whole set.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.processes.values().flat_map(|process| {
            let Process { started, threads, mappings, objects } = process;
            let threads = threads.values().flatten();
            started.iter().chain(threads).chain(mappings.values()).chain(objects.values()).cloned()
        })
    }
}

impl Process {
    fn as_fork(&self, pid: Pid, time_ns: u64) -> Self {
        let of_child = |event: &Event| Event { pid, time_ns, ..event.clone() };
        Self {
            started: None,
            threads: BTreeMap::new(),
            mappings: self.mappings.iter().map(|(key, event)| (*key, of_child(event))).collect(),
            objects: self.objects.iter().map(|(key, event)| (*key, of_child(event))).collect(),
        }
    }

    /// Removes the announced objects that are inside of these addresses.
    fn end_announced(&mut self, start: u64, end: u64) {
        let within = self.objects.range((start, false, 0)..(end, false, 0));
        let gone = within.filter(|((_, announced, _), event)| *announced && object_end(event) <= end);
        let gone: Vec<_> = gone.map(|(key, _)| *key).collect();
        for key in gone {
            self.objects.remove(&key);
        }
    }

    /// Removes the announced object that begins at an address, the last of several, with those inside of it.
    fn withdraw(&mut self, address: u64) {
        let found = self.objects.range((address, true, 0)..=(address, true, u64::MAX)).next_back();
        if let Some(end) = found.map(|(_, event)| object_end(event)) {
            self.end_announced(address, end);
        }
    }

    /// Removes mappings of which nothing is left.
    fn forget_mappings(&mut self, start: u64, end: u64) {
        let covered = |event: &Event| match &event.what {
            What::Mapped { start, bytes, .. }
            | What::Unmapped { start, bytes }
            | What::Remapped { start, bytes, .. } => start.saturating_add(*bytes) <= end,
            _ => false,
        };
        let gone = self.mappings.range((start, 0)..(end, 0)).filter(|(_, event)| covered(event));
        let gone: Vec<(u64, u64)> = gone.map(|(key, _)| *key).collect();
        for key in gone {
            self.mappings.remove(&key);
        }
    }
}

/// The address after an object.
fn object_end(event: &Event) -> u64 {
    match event.what {
        What::Allocated { address, bytes, .. } | What::Announced { address, bytes, .. } => {
            address.saturating_add(bytes)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::StackId;

    fn event(time_ns: u64, pid: u32, tid: u32, what: What) -> Event {
        Event { time_ns, pid: Pid(pid), tid: Tid(tid), cpu: None, what }
    }

    fn mapped(start: u64, bytes: u64) -> What {
        What::Mapped { start, bytes, offset: 0, name: "/a".into(), file: None, executable: false }
    }

    fn named(name: &str, exec: bool) -> What {
        What::Named { name: name.into(), exec }
    }

    #[test]
    fn what_is_inside_of_a_block_ends_with_it() {
        let mut live_set = LiveSet::default();
        let stack = StackId(0);
        let announced = |address, bytes| What::Announced { address, bytes, stack, name: None };
        let times = |live_set: &LiveSet| live_set.events().map(|event| event.time_ns).collect::<Vec<_>>();
        let allocated = What::Allocated { address: 0x100, bytes: 0x100, stack };
        let told = [allocated, announced(0x100, 0x80), announced(0x100, 8), announced(0x180, 8), announced(0x300, 8)];
        for (what, time) in told.into_iter().zip(1..) {
            live_set.take(event(time, 7, 7, what));
        }
        assert_eq!(times(&live_set), [1, 2, 3, 4, 5]);
        // The last one that began at this address ends.
        live_set.take(event(6, 7, 7, What::Withdrawn { address: 0x100 }));
        assert_eq!(times(&live_set), [1, 2, 4, 5]);
        live_set.take(event(7, 7, 7, announced(0x100, 0x80)));
        assert_eq!(times(&live_set), [1, 7, 4, 5]);
        live_set.take(event(8, 7, 7, What::Freed { address: 0x100 }));
        assert_eq!(times(&live_set), [5]);
        live_set.take(event(9, 7, 7, What::Freed { address: 0x300 }));
        assert_eq!(live_set.events().count(), 0);
    }

    #[test]
    fn what_has_ended_is_reported_no_more() {
        let mut live_set = LiveSet::default();
        let stack = StackId(0);
        let told = [
            event(1, 7, 7, What::ProcessStarted { parent: None }),
            event(2, 7, 7, named("a", false)),
            event(3, 7, 7, mapped(0x1000, 0x1000)),
            event(4, 7, 7, mapped(0x1000, 0x4000)),
            event(5, 7, 7, What::Allocated { address: 0x10, bytes: 8, stack }),
            event(6, 7, 7, What::Allocated { address: 0x20, bytes: 8, stack }),
            event(7, 7, 7, What::Freed { address: 0x10 }),
            event(7, 7, 7, What::Resized { address: 0x20, bytes: 80 }),
            event(8, 7, 8, What::ThreadStarted),
            event(8, 7, 8, named("b", false)),
            event(9, 7, 8, What::ThreadEnded),
        ];
        for event in told {
            live_set.take(event);
        }
        let times: Vec<u64> = live_set.events().map(|event| event.time_ns).collect();
        assert_eq!(times, [1, 2, 4, 6]);
        assert!(live_set.events().any(|event| event.what == What::Allocated { address: 0x20, bytes: 80, stack }));
        // A fork has its parent's mappings until it executes another program.
        live_set.take(event(10, 9, 9, What::ProcessStarted { parent: Some(Pid(7)) }));
        let of_child = |live_set: &LiveSet| live_set.events().filter(|event| event.pid == Pid(9)).count();
        assert_eq!(of_child(&live_set), 3);
        live_set.take(event(11, 9, 9, named("c", true)));
        assert_eq!(of_child(&live_set), 2);
        live_set.take(event(12, 9, 9, What::ThreadEnded));
        assert_eq!(of_child(&live_set), 0);
    }
}
