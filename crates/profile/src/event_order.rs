//! Merges events of several streams in chronological order.

use trace::{Event, What};

/// Sorts by time. Events of one thread at the same time keep their order, which is known. Those of different threads at
/// the same time get an order that does not depend on the order of streams.
pub(crate) fn sort(events: &mut [Event]) {
    let starts = |event: &Event| matches!(event.what, What::ProcessStarted { .. });
    events.sort_by_key(|event| (event.time_ns, !starts(event), event.pid, event.tid));
}
