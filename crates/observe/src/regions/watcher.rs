//! Reports the named ranges of recorded processes as they come and go.

use super::{RegionRule, Regions};
use linux::{NamedRange, Pid, Process, ProcessError, Tid, monotonic_ns};
use rustc_hash::FxHashSet;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trace::{Event, StackId, What};

/// Mappings are read again after this time, and after this multiple of the time that reading them took.
const INTERVAL: Duration = Duration::from_millis(20);
const PAUSE_FACTOR: u32 = 50;
/// A process that has ended is not looked at again, unless another one begins with its number.
const ENDED: Duration = Duration::from_secs(365 * 24 * 3600);

/// Reports the named ranges of recorded processes as they come and go.
#[derive(Debug)]
pub struct RegionWatcher {
    regions: Regions,
    /// Whether programs report the names that they give through their own rings.
    rules_only: bool,
    seen: HashMap<Pid, Seen>,
}

#[derive(Debug)]
struct Seen {
    named: FxHashSet<NamedRange>,
    next: Instant,
}

impl RegionWatcher {
    /// With `rules_only`, names that programs give themselves are left out.
    pub fn new(regions: Regions, rules_only: bool) -> Self {
        Self { regions, rules_only, seen: HashMap::new() }
    }

    /// Which rules have named nothing, for the reader of the recording.
    pub fn notes(&self) -> Vec<String> {
        let note = |rule: &RegionRule| {
            format!(
                "the rule {} of --regions named nothing: no mapping or variable of a program matched it whenever its \
                 mappings were read, every {} ms",
                rule.name,
                INTERVAL.as_millis()
            )
        };
        self.regions.unmatched().map(note).collect()
    }

    /// The process began, or executed another program: it has none of the names of before.
    pub fn begins(&mut self, pid: Pid) {
        self.seen.remove(&pid);
    }

    /// Forgets names whose memory one of these events unmaps or moves: the same name may be there again by the next look.
    pub fn forget_unmapped(&mut self, events: &[Event]) {
        for Event { pid, what, .. } in events {
            let (start, bytes) = match *what {
                What::Unmapped { start, bytes } => (start, bytes),
                What::Remapped { old, old_bytes, .. } => (old, old_bytes),
                _ => continue,
            };
            if let Some(seen) = self.seen.get_mut(pid).filter(|seen| !seen.named.is_empty()) {
                let end = start.saturating_add(bytes);
                seen.named.retain(|named| named.range.end <= start || end <= named.range.start);
            }
        }
    }

    /// Adds what changed to `events`, for processes that are due. `no_stack` is the ID of the empty call chain.
    pub fn look(&mut self, pids: impl Iterator<Item = Pid>, no_stack: StackId, events: &mut Vec<Event>) {
        for pid in pids {
            let began = Instant::now();
            if self.seen.get(&pid).is_some_and(|seen| began < seen.next) {
                continue;
            }
            let seen = self.seen.entry(pid).or_insert(Seen { named: FxHashSet::default(), next: began });
            let mappings = match Process::open(pid).and_then(|process| process.mappings()) {
                Ok(mappings) => mappings,
                Err(ProcessError::Gone(_)) => {
                    seen.next = began + ENDED;
                    continue;
                }
                // What was there is still there, as far as is known.
                Err(_) => {
                    seen.next = began + INTERVAL;
                    continue;
                }
            };
            let now = if self.rules_only { self.regions.by_rules(&mappings) } else { self.regions.named(&mappings) };
            let before = std::mem::replace(&mut seen.named, now.into_iter().collect());
            let event = |what| Event { time_ns: monotonic_ns(), pid, tid: Tid(pid.0), cpu: None, what };
            let ended = before.difference(&seen.named);
            events.extend(ended.map(|old| event(What::Withdrawn { address: old.range.start })));
            let new = seen.named.difference(&before);
            events.extend(new.map(|new| event(announced(new, no_stack))));
            seen.next = Instant::now() + INTERVAL.max(began.elapsed() * PAUSE_FACTOR);
        }
    }
}

/// The event that a named range begins with.
pub(crate) fn announced(named: &NamedRange, stack: StackId) -> What {
    let NamedRange { range, name } = named;
    let name = Some(Arc::from(name.as_str()));
    What::Announced { address: range.start, bytes: range.end - range.start, stack, name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::GivenRegion;
    use trace::Stacks;

    /// Memory whose rights change is reported as mapped again, and keeps its name.
    #[test]
    fn names_of_memory_that_is_unmapped_begin_again() {
        let own = Pid(std::process::id());
        let (mut watcher, no_stack) = (RegionWatcher::new(Regions::default(), false), Stacks::new().id(&[]));
        let _given = GivenRegion::new(&(0x17_0000..0x19_0000), "pool").unwrap();
        let mut begins = |before: Option<What>| {
            let event = before.map(|what| Event { time_ns: 1, pid: own, tid: Tid(own.0), cpu: None, what });
            watcher.forget_unmapped(event.as_slice());
            watcher.seen.values_mut().for_each(|seen| seen.next = Instant::now());
            let mut events = Vec::new();
            watcher.look([own].into_iter(), no_stack, &mut events);
            events.iter().any(|event| matches!(event.what, What::Announced { address: 0x17_0000, .. }))
        };
        let again = What::Mapped {
            start: 0x17_0000,
            bytes: 0x1000,
            offset: 0,
            name: "//anon".into(),
            file: None,
            executable: false,
        };
        let seen =
            [None, None, Some(again), Some(What::Unmapped { start: 0x18_0000, bytes: 0x1000 }), None].map(&mut begins);
        assert_eq!(seen, [true, false, false, true, false]);
    }

    #[test]
    fn names_begin_and_end_once() {
        let own = Pid(std::process::id());
        let (mut watcher, no_stack) = (RegionWatcher::new(Regions::default(), false), Stacks::new().id(&[]));
        let look = |watcher: &mut RegionWatcher| {
            watcher.seen.values_mut().for_each(|seen| seen.next = Instant::now());
            let mut events = Vec::new();
            watcher.look([own].into_iter(), no_stack, &mut events);
            // Other tests name ranges meanwhile.
            events.retain(|event| {
                matches!(event.what, What::Announced { address: 0x7000, .. } | What::Withdrawn { address: 0x7000 })
            });
            events
        };
        let given = GivenRegion::new(&(0x7000..0x9000), "table").unwrap();
        let begun = look(&mut watcher);
        assert_eq!(begun.len(), 1);
        let What::Announced { bytes: 0x2000, name: Some(name), .. } = &begun[0].what else { panic!("{begun:?}") };
        assert_eq!(&**name, "table");
        assert_eq!(look(&mut watcher), []);
        drop(given);
        assert!(matches!(look(&mut watcher)[..], [Event { what: What::Withdrawn { address: 0x7000 }, .. }]));
        let given = GivenRegion::new(&(0x7000..0x9000), "table").unwrap();
        assert_eq!(look(&mut watcher).len(), 1);
        watcher.begins(own);
        assert_eq!(look(&mut watcher).len(), 1);
        drop(given);
        let mut events = Vec::new();
        let mut of_rules = RegionWatcher::new(Regions::default(), true);
        of_rules.look([own].into_iter(), no_stack, &mut events);
        assert_eq!(events, []);
    }
}
