//! Cache lines that threads share falsely: each thread uses words of its own, and every write takes the line from the
//! others. No placement of pages helps them; padding does.

use crate::evidence::Evidence;
use crate::flow::Flow;
use crate::line_words::{LineWords, line_of};
use crate::profile::{Access, Profile};
use crate::samples::leaves_caches;
use crate::statistics::Share;
use rustc_hash::FxHashMap;
use trace::{AccessKind, Served};

/// Share of the accesses that leave their core's caches from which on padding is advised.
const MOSTLY: f64 = 0.5;
/// Fewest samples of a line: with fewer, two threads that use the same word may not have been seen.
const FEWEST_OF_LINE: u64 = 20;

/// A line that other cores' caches have served.
#[derive(Default)]
struct Line {
    words: LineWords,
    has_writer: bool,
    /// Samples that another core's cache served.
    from_others: u64,
}

impl Line {
    fn is_falsely_shared(&self) -> bool {
        self.words.samples() >= FEWEST_OF_LINE && self.has_writer && self.words.is_falsely_shared()
    }
}

fn is_from_other_core(access: &Access) -> bool {
    access.served == Some(Served::Peer)
}

/// That most accesses that leave their core's caches are to lines that threads share falsely; none if they are not.
pub(crate) fn falsely_shared_lines(flow: &Flow, profile: &Profile) -> Option<Evidence> {
    let of = flow.accesses().filter(|access| leaves_caches(access.served)).count() as u64;
    let served_by_others = flow.accesses().filter(is_from_other_core);
    let mut lines: FxHashMap<_, Line> =
        served_by_others.map(|access| (line_of(&access, profile), Line::default())).collect();
    for access in flow.accesses() {
        if let Some(line) = lines.get_mut(&line_of(&access, profile)) {
            line.words.add(&access);
            line.has_writer |= access.kind == AccessKind::Store;
            line.from_others += u64::from(is_from_other_core(&access));
        }
    }
    lines.retain(|_, line| line.is_falsely_shared());
    let part = lines.values().map(|line| line.from_others).sum();
    let share = Share { part, of, threshold: MOSTLY };
    share.is_reached().then(|| {
        let text = format!(
            "{:.1} % of {of} accesses take {} from another core, whose threads use other words of it",
            100.0 * share.value(),
            if lines.len() == 1 {
                "the same cache line".to_owned()
            } else {
                format!("one of {} cache lines", lines.len())
            }
        );
        Evidence { what: "falsely_shared_lines", value: share.value(), threshold: MOSTLY, samples: of, text }
    })
}
