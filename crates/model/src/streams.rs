//! The stream detector of one CPU: finds the misses that continue a sequential scan.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Concurrent scans per CPU. Hardware follows 8 to 32.
const TRACKERS: usize = 16;
/// Lines per 4 KiB page.
const PAGE_LINES: u64 = 64;

/// Follows ascending and descending scans by cache line. Only its CPU's thread may call it.
///
/// The first two lines of a scan are random accesses; from the third on it is a stream. Hardware prefetchers also see
/// physical addresses, and stop at the end of a page. Here a scan that leaves its page by the last line continues at
/// the first line of any other page (and by the first line, at the last line), because the next virtual page is rarely
/// the next physical one, and a core's published stream bandwidth includes page ends.
#[derive(Default)]
pub(crate) struct Streams {
    /// The latest line of each scan.
    latest: [AtomicU64; TRACKERS],
    /// One bit per tracker: its scan ascends.
    ascending: AtomicU32,
    /// One bit per tracker: its scan descends.
    descending: AtomicU32,
    /// One bit per tracker: continued since [`Streams::hand`] last passed it.
    continued: AtomicU32,
    /// The next candidate for replacement.
    hand: AtomicU32,
}

impl Streams {
    /// Records a miss. Returns whether it continues a scan.
    pub(crate) fn miss(&self, line: u64) -> bool {
        let ascending = self.ascending.load(Relaxed);
        let descending = self.descending.load(Relaxed);
        for (tracker, latest) in self.latest.iter().enumerate() {
            let step = line.wrapping_sub(latest.load(Relaxed));
            if step.wrapping_add(1) <= 2 {
                let bit = 1 << tracker;
                match step {
                    1 if descending & bit == 0 => return self.go_on(tracker, line, ascending & bit != 0, true),
                    0 => return false,
                    u64::MAX if ascending & bit == 0 => {
                        return self.go_on(tracker, line, descending & bit != 0, false);
                    }
                    _ => {}
                }
            }
        }
        let entered = match line % PAGE_LINES {
            0 => self.leaving(ascending, PAGE_LINES - 1).map(|tracker| self.go_on(tracker, line, true, true)),
            63 => self.leaving(descending, 0).map(|tracker| self.go_on(tracker, line, true, false)),
            _ => None,
        };
        entered.unwrap_or_else(|| {
            self.begin(line);
            false
        })
    }

    /// One of these trackers whose scan is at this line of its page.
    fn leaving(&self, trackers: u32, line_in_page: u64) -> Option<usize> {
        (0..TRACKERS).find(|&tracker| {
            trackers >> tracker & 1 == 1 && self.latest[tracker].load(Relaxed) % PAGE_LINES == line_in_page
        })
    }

    fn go_on(&self, tracker: usize, line: u64, known: bool, up: bool) -> bool {
        let bit = 1 << tracker;
        self.latest[tracker].store(line, Relaxed);
        if known {
            self.continued.store(self.continued.load(Relaxed) | bit, Relaxed);
        } else {
            let direction = if up { &self.ascending } else { &self.descending };
            direction.store(direction.load(Relaxed) | bit, Relaxed);
        }
        known
    }

    /// Gives the line its own tracker, in place of one that was not continued recently: random misses must not evict
    /// concurrent scans.
    fn begin(&self, line: u64) {
        let mut continued = self.continued.load(Relaxed);
        let mut hand = self.hand.load(Relaxed) as usize % TRACKERS;
        while continued >> hand & 1 == 1 {
            continued &= !(1 << hand);
            hand = (hand + 1) % TRACKERS;
        }
        self.latest[hand].store(line, Relaxed);
        self.ascending.store(self.ascending.load(Relaxed) & !(1 << hand), Relaxed);
        self.descending.store(self.descending.load(Relaxed) & !(1 << hand), Relaxed);
        self.continued.store(continued, Relaxed);
        self.hand.store(hand as u32 + 1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn continued(lines: impl IntoIterator<Item = u64>) -> usize {
        let streams = Streams::default();
        lines.into_iter().filter(|&line| streams.miss(line)).count()
    }

    #[test]
    fn a_scan_is_a_stream_from_its_third_line_on() {
        assert_eq!(continued(1000..2000), 998);
        assert_eq!(continued((1000..2000).rev()), 998);
    }

    #[test]
    fn a_scan_goes_on_over_pages_in_any_order() {
        let pages = [70_u64, 3, 900, 12, 11];
        assert_eq!(continued(pages.iter().flat_map(|page| page * 64..(page + 1) * 64)), 5 * 64 - 2);
        assert_eq!(continued(pages.iter().flat_map(|page| (page * 64..(page + 1) * 64).rev())), 5 * 64 - 2);
    }

    #[test]
    fn a_scan_that_turns_round_begins_anew() {
        assert!(continued([10, 11, 12, 11, 10, 9]) < 4);
    }

    #[test]
    fn strides_and_repeats_are_no_streams() {
        assert_eq!(continued((0..1000).map(|i| 5000 + 3 * i)), 0);
        assert_eq!(continued(std::iter::repeat_n(77, 100)), 0);
    }

    #[test]
    fn a_scan_survives_random_misses_beside_it() {
        let random = |i: u64| 1_000_000 + (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 30) * 2;
        // Between two lines of the scan, each of three random misses takes a tracker.
        let found = continued((0..1000).flat_map(|i| [i, random(3 * i), random(3 * i + 1), random(3 * i + 2)]));
        assert!((960..=1000).contains(&found), "{found}");
    }

    proptest! {
        #[test]
        fn interleaved_scans_are_each_followed(scans in 1_usize..=12, length in 3_u64..300) {
            let start = |scan: usize| (scan as u64 + 1) << 30;
            let lines = (0..length).flat_map(|i| (0..scans).map(move |scan| start(scan) + i));
            prop_assert_eq!(continued(lines), scans * (length as usize - 2));
        }

        #[test]
        fn random_misses_are_no_streams(lines in prop::collection::vec(0_u64..1 << 24, 0..2000)) {
            let found = continued(lines.iter().copied());
            prop_assert!(found * 100 <= lines.len().max(400), "{} of {}", found, lines.len());
        }

        #[test]
        fn any_line_number_is_taken(lines in prop::collection::vec(any::<u64>(), 0..100)) {
            continued(lines);
        }
    }
}
