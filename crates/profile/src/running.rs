//! How many threads ran at a time, where no counter says so: from their samples.

/// The samples of a thread within some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub samples: u64,
    pub first_ns: u64,
    pub last_ns: u64,
}

impl Seen {
    pub fn merge(&mut self, other: Self) {
        self.samples += other.samples;
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
    }

    /// How long the thread was there, ns, if its samples are spread evenly; none with one sample.
    fn time_ns(self) -> Option<f64> {
        let between = self.last_ns.saturating_sub(self.first_ns) as f64;
        (self.samples > 1).then(|| between * (self.samples + 1) as f64 / (self.samples - 1) as f64)
    }
}

/// The average number of running threads within `time_ns`: as many as were there, but no more than CPUs were sampled, as
/// threads may be many that wait for each other, or live one after another.
pub(crate) fn running(threads: impl Iterator<Item = Seen>, cpus: usize, time_ns: f64) -> f64 {
    let times: Vec<Option<f64>> = threads.map(|seen| seen.time_ns().map(|time| time.min(time_ns))).collect();
    let known: Vec<f64> = times.iter().flatten().copied().collect();
    let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
    // Without times, they may have been there all the time.
    let mean = if mean > 0.0 { mean } else { time_ns };
    let there = times.len() as f64 * mean / time_ns;
    there.min(cpus.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(samples: u64, first_ns: u64, last_ns: u64) -> Seen {
        Seen { samples, first_ns, last_ns }
    }

    #[test]
    fn threads_that_live_one_after_another_or_wait_for_a_cpu_count_as_one() {
        let whole = |threads: u64, cpus| running((0..threads).map(|_| seen(99, 100, 9900)), cpus, 10_000.0);
        assert!((whole(8, 8) - 8.0).abs() < 0.01 && (whole(8, 64) - 8.0).abs() < 0.01);
        assert!((whole(200, 8) - 8.0).abs() < 0.01);
        let short = |samples: u64| (0..100).map(move |number| seen(samples, 100 * number + 10, 100 * number + 90));
        assert!((running(short(9), 8, 10_000.0) - 1.0).abs() < 0.01);
        // One sample has no duration: those of the other threads count.
        let one = (0..100).map(|number| seen(1, 100 * number, 100 * number));
        assert!((running(short(9).chain(one.clone()), 8, 10_000.0) - 2.0).abs() < 0.01);
        assert!((running(one, 8, 10_000.0) - 8.0).abs() < 0.01);
        let timeless = (0..4).map(|_| seen(9, 7, 7));
        assert!((running(timeless, 8, 10_000.0) - 4.0).abs() < 0.01);
    }
}
