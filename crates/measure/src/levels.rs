//! Detects caches in a curve of latency by working set.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Growth factor of latency from one size to its double below which both are served by the same level. Between two
/// levels it is larger, as a random cycle is then served by both.
const FLAT: f64 = 1.19;

/// One cache, as a program sees it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheLevel {
    /// 1, 2, 3 …, counted from the core.
    pub level: u8,
    /// The largest measured working set that fits.
    pub size_bytes: u64,
    /// Load latency.
    pub latency_ns: f64,
}

/// The flat parts of a curve of (bytes, ns) by increasing size, except one at its end, which is memory, or the outermost
/// cache that it reaches. A flat part has at least two points; its last one is reported, as the previous level still
/// serves a part of smaller sizes. Parts that differ by less than [`FLAT`] are one, with a jump of the measurement in it.
pub(crate) fn levels(points: &[(u64, f64)]) -> Vec<CacheLevel> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    for (at, pair) in points.windows(2).enumerate() {
        let [(size, ns), (larger, slower)] = pair else { continue };
        if (slower / ns).log2() >= FLAT.log2() * (*larger as f64 / *size as f64).log2() {
            continue;
        }
        match parts.last_mut() {
            Some(last) if last.end == at + 1 || *ns < FLAT * points[last.end - 1].1 => last.end = at + 2,
            _ => parts.push(at..at + 2),
        }
    }
    let caches = parts.into_iter().filter(|part| part.end < points.len());
    let level = |(level, part): (u8, Range<usize>)| {
        let (size_bytes, latency_ns) = points[part.end - 1];
        CacheLevel { level, size_bytes, latency_ns }
    };
    (1..).zip(caches).map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A curve over doublings from 4 KiB, by the share of a random cycle that each cache holds.
    fn curve(caches: &[(u64, f64)], memory_ns: f64, steps: u32) -> Vec<(u64, f64)> {
        let size = |step: u32| (4096.0 * 2_f64.powf(f64::from(step) / 2.0)) as u64;
        let latency = |size: u64| {
            let mut served = 0.0;
            let mut total = 0.0;
            for (bytes, ns) in caches {
                let share = (*bytes as f64 / size as f64).min(1.0).max(served);
                total += (share - served) * ns;
                served = share;
            }
            total + (1.0 - served) * memory_ns
        };
        (0..steps).map(size).map(|size| (size, latency(size))).collect()
    }

    #[test]
    fn three_caches_are_found_with_size_and_latency() {
        let found = levels(&curve(&[(64 << 10, 1.8), (512 << 10, 7.0), (8 << 20, 35.0)], 103.0, 34));
        assert_eq!(found.len(), 3, "{found:?}");
        for (level, (size, latency_ns)) in found.iter().zip([(64 << 10, 1.8), (512 << 10, 7.0), (8 << 20, 35.0)]) {
            assert!(level.size_bytes >= size / 2 && level.size_bytes <= size * 2, "{level:?}");
            assert!((level.latency_ns / latency_ns - 1.0).abs() < 0.15, "{level:?}");
        }
    }

    #[test]
    fn memory_alone_is_no_cache() {
        assert_eq!(levels(&[(4096, 100.0), (8192, 101.0)]), []);
        assert_eq!(levels(&[]), []);
    }

    /// Memory's latency jumps by 9 %, which is within the usual spread.
    #[test]
    fn a_jump_of_a_level_makes_no_other_level() {
        let mut points = curve(&[(32 << 10, 1.3)], 95.5, 30);
        points[20..].iter_mut().for_each(|(_, ns)| *ns *= 1.095);
        let found = levels(&points);
        assert!(found.len() == 1 && found[0].size_bytes <= 64 << 10, "{found:?}");
    }

    proptest! {
        #[test]
        fn levels_rise(latencies in prop::collection::vec(0.1_f64..500.0, 0..40)) {
            let points: Vec<_> = latencies.iter().enumerate().map(|(i, ns)| (4096 << i.min(40), *ns)).collect();
            let found = levels(&points);
            let rises = |pair: &[CacheLevel]| pair[0].level < pair[1].level && pair[0].size_bytes <= pair[1].size_bytes;
            prop_assert!(found.windows(2).all(rises));
        }
    }
}
