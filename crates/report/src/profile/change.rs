//! Whether numbers of two traces differ significantly.

use profile::Tally;
use serde::Serialize;

/// Standard deviations of a 95 % interval.
const Z: f64 = 1.96;
/// Fewest samples for a comparison.
const FEWEST: u64 = 10;
/// The factor by which samples become fewer from which on nothing counts as left.
const VANISHED: u64 = 100;
/// Smallest relative difference that matters.
const SMALL: f64 = 0.02;
/// Runs of one program differ by up to this part of their time: five of a workload by up to 5.2 % (docs/figures.md).
const RUN_NOISE: f64 = 0.06;

/// The change of an item from one trace to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Change {
    /// Memory latency is higher now, or the local share is lower if no latencies are known.
    Worse,
    /// Memory latency is lower now, or the local share is higher.
    Better,
    /// Changed by less than 2 %.
    Same,
    /// Not significant: there are too few samples.
    Noise,
    /// Only the second trace has it; or the first has less than a hundredth of it.
    New,
    /// Only the first trace has it; or the second has less than a hundredth of it.
    Gone,
}

impl Change {
    /// For an item in both traces. The standard deviation of latencies is assumed to equal their mean.
    pub fn between(a: &Tally, b: &Tally) -> Self {
        let waits = a.wait_mean_ns().zip(b.wait_mean_ns());
        // Shares are of what reached memory, and latencies of all that left the core's caches.
        let count = |tally| if waits.is_some() { leaving(tally) } else { tally.effective_samples() };
        let (count_a, count_b) = (count(a), count(b));
        if count_a < FEWEST || count_b < FEWEST {
            return Self::Noise;
        }
        let (n_a, n_b) = (count_a as f64, count_b as f64);
        let (before, after, deviation) = if let Some((before, after)) = waits {
            (before, after, (before * before / n_a + after * after / n_b).sqrt())
        } else {
            let remote = |tally: &Tally| tally.local_access_ratio().map_or(0.0, |local| 1.0 - local);
            let (before, after) = (remote(a), remote(b));
            let both = (before * n_a + after * n_b) / (n_a + n_b);
            (before, after, (both * (1.0 - both) * (1.0 / n_a + 1.0 / n_b)).sqrt())
        };
        let difference = after - before;
        if difference.abs() <= SMALL * before.max(after) {
            Self::Same
        } else if difference.abs() <= Z * deviation {
            Self::Noise
        } else if difference > 0.0 {
            Self::Worse
        } else {
            Self::Better
        }
    }

    /// For the times of two runs, in ns, from the first to the last of this number of samples. They begin and end about
    /// one interval of samples after and before the run itself.
    pub fn of_runs(a: (u64, u64), b: (u64, u64)) -> Self {
        let (before, after) = (a.0 as f64, b.0 as f64);
        let ends = |samples: u64| 2.0 / samples.max(1) as f64;
        let difference = (after - before) / before.max(after).max(1.0);
        if difference.abs() <= SMALL {
            Self::Same
        } else if difference.abs() <= RUN_NOISE + ends(a.1) + ends(b.1) {
            Self::Noise
        } else if difference > 0.0 {
            Self::Worse
        } else {
            Self::Better
        }
    }

    /// For two traces as a whole: the time of the run decides if it is known and changed beyond noise, or else the
    /// accesses.
    pub fn overall(run: Option<Self>, accesses: Self) -> Self {
        run.filter(|run| matches!(run, Self::Worse | Self::Better)).unwrap_or(accesses)
    }

    /// For an item that one of the traces may lack.
    pub fn new(a: Option<&Tally>, b: Option<&Tally>, (all_a, all_b): (&Tally, &Tally)) -> Self {
        match (a, b) {
            (Some(a), Some(b)) if has_vanished((a, all_a), (b, all_b)) => Self::Gone,
            (Some(a), Some(b)) if has_vanished((b, all_b), (a, all_a)) => Self::New,
            (Some(a), Some(b)) => Self::between(a, b),
            (None, Some(_)) => Self::New,
            _ => Self::Gone,
        }
    }

    /// As a word.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// Whether hardly anything is left of one, however many samples all of each trace are.
fn has_vanished((one, all_one): (&Tally, &Tally), (left, all_left): (&Tally, &Tally)) -> bool {
    let of_all = leaving(one) as f64 / (leaving(all_one) as f64).max(1.0);
    let expected = of_all * leaving(all_left) as f64;
    leaving(one) >= FEWEST * VANISHED
        && (FEWEST * VANISHED) as f64 <= expected
        && (leaving(left) * VANISHED) as f64 <= expected
}

/// Samples that left the core's caches, as far as they tell a share of accesses.
fn leaving(tally: &Tally) -> u64 {
    tally.effective_samples_of_leaving()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(local: u64, remote: u64, latency_ns: Option<f64>) -> Tally {
        let all = (local + remote) as f64;
        Tally {
            samples: local + remote,
            local_samples: local,
            remote_samples: remote,
            local_accesses: local as f64,
            remote_accesses: remote as f64,
            squared_accesses: all,
            accesses: all,
            memory_time_ns: latency_ns.unwrap_or(0.0) * all,
            timed_accesses: if latency_ns.is_some() { all } else { 0.0 },
            ..Tally::default()
        }
    }

    #[test]
    fn runs_differ_beyond_their_noise_and_that_of_their_ends() {
        let ms = |ms: u64, samples| (1_000_000 * ms, samples);
        assert_eq!(Change::of_runs(ms(1000, 9000), ms(1015, 9000)), Change::Same);
        assert_eq!(Change::of_runs(ms(1000, 9000), ms(1050, 9000)), Change::Noise);
        assert_eq!(Change::of_runs(ms(1000, 9000), ms(1080, 9000)), Change::Worse);
        assert_eq!(Change::of_runs(ms(1080, 9000), ms(1000, 9000)), Change::Better);
        // With 100 samples, the run itself may be longer by two intervals of 1 %.
        assert_eq!(Change::of_runs(ms(1000, 100), ms(1080, 9000)), Change::Noise);
        assert_eq!(Change::of_runs(ms(1000, 0), ms(1080, 9000)), Change::Noise);
    }

    #[test]
    fn the_run_decides_if_its_time_changed() {
        for accesses in [Change::Better, Change::Same, Change::Noise, Change::Worse] {
            for run in [Change::Worse, Change::Better] {
                assert_eq!(Change::overall(Some(run), accesses), run);
            }
            for run in [None, Some(Change::Same), Some(Change::Noise)] {
                assert_eq!(Change::overall(run, accesses), accesses);
            }
        }
    }

    #[test]
    fn few_samples_are_noise_and_small_differences_are_none() {
        let between = |a: Tally, b: Tally| Change::between(&a, &b);
        assert_eq!(between(tally(900, 100, Some(100.0)), tally(900, 100, Some(150.0))), Change::Worse);
        assert_eq!(between(tally(900, 100, Some(150.0)), tally(900, 100, Some(100.0))), Change::Better);
        assert_eq!(between(tally(9, 1, Some(150.0)), tally(9, 1, Some(100.0))), Change::Noise);
        assert_eq!(between(tally(5, 1, Some(150.0)), tally(900, 100, Some(1.0))), Change::Noise);
        assert_eq!(between(tally(900, 100, Some(100.0)), tally(900, 100, Some(101.0))), Change::Same);
        // Without latencies, the remote share decides.
        assert_eq!(between(tally(100, 900, None), tally(900, 100, None)), Change::Better);
        assert_eq!(between(tally(12, 10, None), tally(10, 12, None)), Change::Noise);
        assert_eq!(between(tally(1000, 0, None), tally(1000, 0, None)), Change::Same);
        let one = &tally(1, 1, None);
        assert_eq!(
            (Change::new(None, Some(one), (one, one)), Change::new(Some(one), None, (one, one))),
            (Change::New, Change::Gone)
        );
        let [many, few] = [tally(1000, 1000, Some(700.0)), tally(1, 0, Some(100.0))];
        let changed = |a, b, all| Change::new(Some(a), Some(b), all);
        let all = (&many, &many);
        assert_eq!((changed(&many, &few, all), changed(&few, &many, all)), (Change::Gone, Change::New));
        assert_eq!(changed(&many, &few, (&many, &few)), Change::Noise, "the second trace has few samples at all");
    }
}
