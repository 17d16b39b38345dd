//! Events of several streams in the order in which they happened.

use trace::{Event, What};

/// Sorts by time. Events of one time and thread keep their order, which is known; those of several threads at one time
/// have none, and get one that does not depend on which stream came first.
pub(crate) fn sort(events: &mut [Event]) {
    let starts = |event: &Event| matches!(event.what, What::ProcessStarted { .. });
    events.sort_by_key(|event| (event.time_ns, !starts(event), event.pid, event.tid));
}
