//! Lines that cores write in turns.
//!
//! The lab runs a CPU for a while before others, so the CPU would keep such a line for all of that time, where a real
//! one gives it up at each turn. While cores write a line in turns, no private cache keeps it, and each access is
//! checked: a hand-over is charged if another core has had the line since, or has probably had it by the time of the
//! access, as it used it that often when it last had it.

use crate::line_queue::LineQueue;
use crate::own_counts::WINDOW_PS;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    slots: Box<[Mutex<Turn>]>,
}

/// One line. Times are those of the cores that use it, ps.
#[derive(Default)]
pub(crate) struct Turn {
    line: u64,
    /// The core from which it was last taken.
    from: usize,
    /// When its owner took it, and when that core had last used it in an earlier turn.
    taken_ps: u64,
    used_before_ps: u64,
    /// When each core, except its owner, last had it or will have it, in that core's time.
    users: Vec<(usize, u64)>,
    /// How the previous owner used it, since it last had it before.
    previous: UsePattern,
    /// The owner's last use, and the number of its uses.
    used_ps: u64,
    uses: u64,
    /// How long it has waited for the line since it took it, and how long a core that only read it has: the next to take
    /// it, perhaps.
    waited_ps: u64,
    reader_waited_ps: u64,
    /// When the owner was last charged a hand-over, and when the line arrives.
    charged_ps: u64,
    arrived_ps: u64,
    pub queue: LineQueue,
}

/// How a core uses a line.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_field_names, reason = "units are in names")]
struct UsePattern {
    /// When it last had it, ps.
    last_ps: u64,
    /// Mean time between two uses, ps.
    gap_ps: u64,
    /// The part of it in which the core does not wait for the line, ps: so soon it wants it back.
    pause_ps: u64,
}

impl Default for Turns {
    fn default() -> Self {
        Self { slots: (0..SLOTS).map(|_| Mutex::default()).collect() }
    }
}

impl Turns {
    /// The record of a line, or of another one whose place it takes.
    pub(crate) fn of(&self, line: u64) -> MutexGuard<'_, Turn> {
        self.slots[(line ^ line >> 10) as usize % SLOTS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all of them.
    pub(crate) fn clear(&self) {
        for slot in &self.slots {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Turn::default();
        }
    }
}

impl Turn {
    /// Whether the line changed hands shortly before this time, ps.
    pub(crate) fn is_recent(&self, line: u64, time_ps: u64) -> bool {
        let last_ps = self.users.iter().fold(self.taken_ps, |last_ps, user| last_ps.max(user.1));
        self.line == line && time_ps <= last_ps.saturating_add(TURN_PS)
    }

    /// Records that a core takes the line from another one.
    pub(crate) fn change(&mut self, line: u64, time_ps: u64, from: usize, to: usize) {
        if !self.is_recent(line, time_ps) {
            *self = Self { line, used_before_ps: time_ps, used_ps: time_ps, ..Self::default() };
        }
        self.previous = self.owners();
        let used_before = self.users.iter().find(|&&(core, last_ps)| core == to && last_ps <= time_ps);
        self.used_before_ps = used_before.map_or(time_ps, |&(_, last_ps)| last_ps);
        self.users.retain(|&(core, _)| core != to);
        self.note_user(from, self.previous.last_ps);
        (self.from, self.uses) = (from, 0);
        (self.taken_ps, self.used_ps, self.charged_ps, self.arrived_ps) = (time_ps, time_ps, time_ps, time_ps);
        self.waited_ps = std::mem::take(&mut self.reader_waited_ps);
    }

    pub(crate) fn from(&self) -> usize {
        self.from
    }

    /// How the owner uses it, since it last had it before its turn.
    fn owners(&self) -> UsePattern {
        let (used_for_ps, uses) = (self.used_ps.saturating_sub(self.used_before_ps), self.uses.max(1));
        UsePattern {
            last_ps: self.used_ps.max(self.arrived_ps),
            gap_ps: used_for_ps.max(self.waited_ps) / uses,
            pause_ps: used_for_ps.saturating_sub(self.waited_ps) / uses,
        }
    }

    /// How long the owner has to wait until the line arrives, ps.
    pub(crate) fn under_way_ps(&self, time_ps: u64) -> u64 {
        // Another CPU of the same core may be ahead, and have taken it.
        if time_ps < self.charged_ps { 0 } else { self.arrived_ps.saturating_sub(time_ps) }
    }

    fn note_user(&mut self, core: usize, last_ps: u64) {
        self.users.retain(|&(user, _)| user != core);
        self.users.push((core, last_ps));
    }

    /// Whether the line has probably changed hands since it came to a core that still has it: another one wanted it back
    /// before this access, even if the lab has not run that far yet.
    pub(crate) fn changed_meanwhile(&self, me: usize, is_owner: bool, moment: Moment) -> bool {
        let UsePattern { last_ps, gap_ps, pause_ps } = if is_owner { self.previous } else { self.owners() };
        let others = self.users.iter().filter(|&&(core, _)| core != me).map(|&(_, last_ps)| last_ps);
        let last_ps = others.fold(last_ps, u64::max);
        // The others, even the slowest, have gone on without it.
        let ended = moment.slowest_ps.min(moment.time_ps) > last_ps.saturating_add(GAPS * gap_ps);
        let read_ps = self.users.iter().find(|&&(core, _)| core == me).map(|&(_, last_ps)| last_ps);
        let arrived_ps = if is_owner { self.arrived_ps } else { read_ps.unwrap_or(0) };
        // The store of an atomic operation follows its load at once.
        !ended && moment.time_ps > arrived_ps && moment.time_ps - arrived_ps >= pause_ps
    }

    /// Records a hand-over that is charged, and how long the core waits for it, ps.
    pub(crate) fn charge(&mut self, me: usize, is_owner: bool, time_ps: u64, wait_ps: u64) {
        if is_owner {
            self.charged_ps = time_ps;
            self.arrived_ps = time_ps.saturating_add(wait_ps);
            self.waited_ps += wait_ps;
        } else {
            self.reader_waited_ps = wait_ps;
            self.note_user(me, time_ps.saturating_add(wait_ps));
        }
    }

    /// Records an access.
    pub(crate) fn note_use(&mut self, is_owner: bool, time_ps: u64) {
        if is_owner {
            self.used_ps = time_ps;
            self.uses += 1;
        }
    }
}
