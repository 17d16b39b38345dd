//! Lines that cores write in turns.
//!
//! The lab runs a CPU for a while before others, so the CPU would keep such a line for all of that time, where a real
//! one gives it up at each turn. While cores write a line in turns, no private cache keeps it, and each access is
//! checked: a hand-over is charged if another core has had the line since, or has probably had it by the time of the
//! access, as it used it that often when it last had it.

use crate::own_counts::WINDOW_PS;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Maximum number of lines written in turns at a time.
const SLOTS: usize = 1024;
/// A line that changes hands twice within this time, ps, is written in turns: CPUs are never that far apart.
const TURN_PS: u64 = 4 * WINDOW_PS;
/// A core that has let this many of its usual gaps between two uses pass does not use the line any more.
const GAPS: u64 = 4;

/// When a core uses a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// The CPU's time, ps.
    pub time_ps: u64,
    /// The time of the slowest active CPU, ps.
    pub slowest_ps: u64,
}

/// The lines that are, or may be, written in turns.
pub(crate) struct Turns {
    slots: Box<[Turn]>,
}

/// One line. Times are those of the cores that use it, ps. Host threads may race: the result is one hand-over too many
/// or too few.
#[derive(Default)]
pub(crate) struct Turn {
    line: AtomicU64,
    /// The core from which it was last taken.
    from: AtomicU64,
    /// When its owner took it, when the previous owner had taken it, and when that one last used it.
    taken_ps: AtomicU64,
    taken_before_ps: AtomicU64,
    left_ps: AtomicU64,
    /// Mean time between two uses of the previous owner, from the turn before that on.
    left_gap_ps: AtomicU64,
    /// The owner's last use, and the number of its uses.
    used_ps: AtomicU64,
    uses: AtomicU64,
    /// When a hand-over was last charged.
    charged_ps: AtomicU64,
}

impl Default for Turns {
    fn default() -> Self {
        Self { slots: (0..SLOTS).map(|_| Turn::default()).collect() }
    }
}

impl Turns {
    fn slot(&self, line: u64) -> Option<&Turn> {
        self.slots.get((line ^ line >> 10) as usize % SLOTS)
    }

    /// A line that changed hands shortly before this time, ps.
    pub(crate) fn find(&self, line: u64, time_ps: u64) -> Option<&Turn> {
        let recent = |turn: &&Turn| time_ps <= turn.taken_ps.load(Relaxed) + TURN_PS;
        self.slot(line).filter(|turn| turn.line.load(Relaxed) == line).filter(recent)
    }

    /// Records that the line is taken from a core. Returns whether it also changed hands shortly before.
    pub(crate) fn change(&self, line: u64, time_ps: u64, from: usize) -> bool {
        let before = self.find(line, time_ps).is_some();
        if let Some(turn) = self.slot(line) {
            let (used_ps, gap_ps) = if before { (turn.used_ps.load(Relaxed), turn.gap_ps()) } else { (time_ps, 0) };
            turn.taken_before_ps.store(if before { turn.taken_ps.load(Relaxed) } else { time_ps }, Relaxed);
            turn.left_ps.store(used_ps, Relaxed);
            turn.left_gap_ps.store(gap_ps, Relaxed);
            for time in [&turn.taken_ps, &turn.used_ps, &turn.charged_ps] {
                time.store(time_ps, Relaxed);
            }
            turn.uses.store(0, Relaxed);
            turn.from.store(from as u64, Relaxed);
            turn.line.store(line, Relaxed);
        }
        before
    }
}

impl Turn {
    pub(crate) fn from(&self) -> usize {
        self.from.load(Relaxed) as usize
    }

    /// Mean time between two uses of the owner, ps. It counts from when the previous owner took the line, as the owner
    /// had it before.
    fn gap_ps(&self) -> u64 {
        let since_ps = self.used_ps.load(Relaxed).saturating_sub(self.taken_before_ps.load(Relaxed));
        since_ps / self.uses.load(Relaxed).max(1)
    }

    /// Whether the line has probably changed hands since a core that still has it last paid for it. Cores that lag
    /// behind have not reached the access yet.
    pub(crate) fn changed_meanwhile(&self, is_owner: bool, moment: Moment) -> bool {
        let (gap_ps, used_ps) = if is_owner {
            (self.left_gap_ps.load(Relaxed), self.left_ps.load(Relaxed))
        } else {
            (self.gap_ps(), self.used_ps.load(Relaxed))
        };
        // The others, even the slowest, have gone on without it.
        let ended = moment.slowest_ps.min(moment.time_ps) > used_ps.saturating_add(GAPS * gap_ps);
        !ended && moment.time_ps.saturating_sub(self.charged_ps.load(Relaxed)) >= gap_ps
    }

    /// Records a hand-over that is charged.
    pub(crate) fn charge(&self, time_ps: u64) {
        self.charged_ps.store(time_ps, Relaxed);
    }

    /// Records an access.
    pub(crate) fn used(&self, is_owner: bool, time_ps: u64) {
        if is_owner {
            self.used_ps.store(time_ps, Relaxed);
            self.uses.store(self.uses.load(Relaxed) + 1, Relaxed);
        }
    }
}
