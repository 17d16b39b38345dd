//! Settings of the library, written by the recorder.

use crate::{MAGIC, MOST_FRAMES, PAGE, VERSION};

/// Settings of the library, written by the recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Clock of all times.
    pub clock: Clock,
    /// Size of a ring's records, in bytes; a power of two.
    pub ring_bytes: usize,
    /// Number of rings of a program, which is the number of threads that can be followed at a time.
    pub rings: usize,
    /// How long a thread waits for room in its ring before it drops an event, in ns.
    pub patience_ns: u64,
    /// Objects up to this size, in bytes, are counted by call chain instead of being reported one by one. 0 reports
    /// all.
    pub small_bytes: usize,
    /// Maximum number of frames in a call chain.
    pub frames: usize,
    /// The recorder's PID namespace, as the inode of `/proc/self/ns/pid`: IDs of other namespaces mean nothing to it.
    pub namespace: u64,
}

/// Clock of all times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The processor's time stamp counter.
    Tsc,
    /// `CLOCK_MONOTONIC`, in ns.
    Monotonic,
}

/// The settings are from a recorder of another version, or out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedSettings;

impl Settings {
    /// Number of words of the settings.
    pub const WORDS: usize = 9;

    /// Encodes the settings for the file.
    pub fn to_words(self) -> [u64; Self::WORDS] {
        let clock = match self.clock {
            Clock::Tsc => 0,
            Clock::Monotonic => 1,
        };
        let sizes = [self.ring_bytes, self.rings, self.small_bytes, self.frames].map(|size| size as u64);
        let [ring_bytes, rings, small_bytes, frames] = sizes;
        [MAGIC, VERSION, clock, ring_bytes, rings, self.patience_ns, small_bytes, frames, self.namespace]
    }

    /// Decodes the settings from the file.
    pub fn from_words(words: [u64; Self::WORDS]) -> Result<Self, MalformedSettings> {
        let [MAGIC, VERSION, clock, ring_bytes, rings, patience_ns, small_bytes, frames, namespace] = words else {
            return Err(MalformedSettings);
        };
        let clock = match clock {
            0 => Clock::Tsc,
            1 => Clock::Monotonic,
            _ => return Err(MalformedSettings),
        };
        let size = |size: u64| usize::try_from(size).map_err(|_| MalformedSettings);
        let ring_bytes = size(ring_bytes)?;
        let (rings, small_bytes, frames) = (size(rings)?, size(small_bytes)?, size(frames)?);
        let keepable = ring_bytes.is_power_of_two()
            && (16 * PAGE..=1 << 30).contains(&ring_bytes)
            && (1..=1 << 16).contains(&rings)
            && (1..=MOST_FRAMES).contains(&frames);
        if keepable {
            Ok(Self { clock, ring_bytes, rings, patience_ns, small_bytes, frames, namespace })
        } else {
            Err(MalformedSettings)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SETTINGS: Settings = Settings {
        clock: Clock::Monotonic,
        ring_bytes: 1 << 20,
        rings: 1024,
        patience_ns: 7,
        small_bytes: 64,
        frames: 32,
        namespace: 3,
    };

    #[test]
    fn what_is_written_is_read_back() {
        let tsc = Settings { clock: Clock::Tsc, ..SETTINGS };
        assert_eq!([SETTINGS, tsc].map(|given| Settings::from_words(given.to_words())), [Ok(SETTINGS), Ok(tsc)]);
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        let refused = |place: usize, word: u64| {
            let mut words = SETTINGS.to_words();
            words[place] = word;
            Settings::from_words(words).is_err()
        };
        let wrong =
            [(0, 0), (1, 9), (2, 2), (3, 3 << 20), (3, 4096), (3, 1 << 40), (4, 0), (4, 1 << 60), (7, 0), (7, 99)];
        assert!(wrong.iter().all(|&(place, word)| refused(place, word)));
        assert!(!refused(6, 0));
    }

    proptest! {
        #[test]
        fn any_words_are_settings_or_refused(words: [u64; Settings::WORDS]) {
            if let Ok(settings) = Settings::from_words(words) {
                prop_assert_eq!(settings.to_words(), words);
            }
        }
    }
}
