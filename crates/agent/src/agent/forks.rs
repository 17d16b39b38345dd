//! Processes that work on the memory of the program that forked them: they execute no other program.

use machine::Pid;
use std::collections::BTreeSet;

/// Processes that have been forked.
#[derive(Debug, Default)]
pub(super) struct Forks {
    /// Those that run, and have executed no program so far.
    alive: BTreeSet<Pid>,
    /// How many have ended without executing one.
    ended: usize,
}

impl Forks {
    pub fn began(&mut self, pid: Pid) {
        self.alive.insert(pid);
    }

    pub fn executed(&mut self, pid: Pid) {
        self.alive.remove(&pid);
    }

    pub fn ended(&mut self, pid: Pid) {
        self.ended += usize::from(self.alive.remove(&pid));
    }

    /// Whether there were several: a single one may be a shell's, which works on nothing.
    pub fn have_worked(&self) -> bool {
        self.alive.len() + self.ended > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_that_execute_nothing_have_worked() {
        let mut forks = Forks::default();
        for pid in [1, 2, 3].map(Pid) {
            forks.began(pid);
            forks.executed(pid);
            forks.ended(pid);
        }
        forks.began(Pid(4));
        forks.ended(Pid(4));
        assert!(!forks.have_worked());
        forks.began(Pid(5));
        assert!(forks.have_worked());
        forks.executed(Pid(5));
        assert!(!forks.have_worked());
    }
}
