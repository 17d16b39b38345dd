//! Which threads use which words of a cache line.

use crate::ids::{ProcessId, ThreadId};
use crate::profile::{Access, Profile};
use machine::LINE_BYTES;

/// Bytes of a line that are distinguished: few instructions access more.
const WORD_BYTES: u64 = 8;
const WORDS: usize = (LINE_BYTES / WORD_BYTES) as usize;
/// Least share of a line's samples that are of words which one thread uses, where threads share it falsely.
const OWN: f64 = 0.9;

/// The line of an access.
pub(crate) fn line_of(access: &Access, profile: &Profile) -> (ProcessId, u64) {
    (profile.threads()[access.thread.index()].process, access.address / LINE_BYTES)
}

/// The threads that use a word.
#[derive(Clone, Copy, Default)]
enum User {
    #[default]
    None,
    One(ThreadId),
    Several,
}

/// The words of a line, with their samples and users.
#[derive(Clone, Copy, Default)]
pub(crate) struct LineWords {
    samples: [u64; WORDS],
    users: [User; WORDS],
}

impl LineWords {
    pub(crate) fn add(&mut self, access: &Access) {
        let word = (access.address % LINE_BYTES / WORD_BYTES) as usize;
        self.samples[word] += 1;
        self.users[word] = match self.users[word] {
            User::None => User::One(access.thread),
            User::One(user) if user == access.thread => User::One(user),
            _ => User::Several,
        };
    }

    pub(crate) fn samples(&self) -> u64 {
        self.samples.iter().sum()
    }

    /// Whether several threads use it.
    pub(crate) fn is_shared(&self) -> bool {
        let first = self.owned().map(|(thread, _)| thread).next();
        let has_shared_word = self.users.iter().any(|user| matches!(user, User::Several));
        has_shared_word || self.owned().any(|(thread, _)| Some(thread) != first)
    }

    /// Whether several threads use it, nearly all of them words of their own.
    pub(crate) fn is_falsely_shared(&self) -> bool {
        let own: u64 = self.owned().map(|(_, samples)| samples).sum();
        self.is_shared() && own as f64 >= OWN * self.samples() as f64
    }

    /// The words that one thread uses, with their samples.
    fn owned(&self) -> impl Iterator<Item = (ThreadId, u64)> + '_ {
        self.users.iter().zip(self.samples).filter_map(|(user, samples)| match user {
            User::One(thread) => Some((*thread, samples)),
            User::None | User::Several => None,
        })
    }
}
