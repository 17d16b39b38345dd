//! The disk that holds the files of a virtual machine.

use crate::numbers::{DISK_BANDWIDTH, DISK_LATENCY};
use crate::source::Source;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The duration of a disk transfer: a latency, plus the time for its bytes, which is serialized with other transfers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Latency of one transfer, however small, ns.
    pub latency_ns: f64,
    /// Bandwidth of all transfers together, bytes/s.
    pub bandwidth_bytes_per_s: f64,
    /// Where the numbers come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

impl Default for Disk {
    /// A server's solid-state disk from the years of the older presets: sequential reads, and the typical latency of
    /// random ones, of Intel's SSD DC S3700 (Intel, product specification 328171).
    fn default() -> Self {
        Self { latency_ns: 50_000.0, bandwidth_bytes_per_s: 500e6, source: None }
    }
}

const LATENCY_UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
const BANDWIDTH_UNITS: [(&str, f64); 4] = [("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9), ("B/s", 1.0)];

/// Parses a number with one of these units; a longer unit precedes its own suffixes.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let (number, factor) = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let number: f64 = number.trim().parse().ok()?;
    Some(number * factor).filter(|number| number.is_finite() && *number > 0.0)
}

impl FromStr for Disk {
    type Err = String;

    /// Parses a latency and a bandwidth: `50us,500MB/s`. Units are powers of ten.
    fn from_str(text: &str) -> Result<Self, String> {
        let read = |(latency, bandwidth): (&str, &str)| {
            let latency_ns = quantity(latency, &LATENCY_UNITS)?;
            Some(Self { latency_ns, bandwidth_bytes_per_s: quantity(bandwidth, &BANDWIDTH_UNITS)?, source: None })
        };
        let disk = text.split_once(',').and_then(read).ok_or_else(|| {
            format!("`{text}` is not a disk: write its latency (ns, us, ms or s) and bandwidth (kB/s, MB/s or GB/s), such as 50us,500MB/s")
        })?;
        if !DISK_LATENCY.holds(disk.latency_ns) {
            return Err(format!("the latency of a disk must be {DISK_LATENCY}, is {} ns", disk.latency_ns));
        }
        if !DISK_BANDWIDTH.holds(disk.bandwidth_bytes_per_s) {
            return Err(format!(
                "the bandwidth of a disk must be {DISK_BANDWIDTH}, is {} B/s",
                disk.bandwidth_bytes_per_s
            ));
        }
        Ok(disk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_disk_is_a_latency_and_a_bandwidth() {
        let disk = |latency_ns, bandwidth_bytes_per_s| Ok(Disk { latency_ns, bandwidth_bytes_per_s, source: None });
        assert_eq!("50us,500MB/s".parse(), disk(50_000.0, 5e8));
        assert_eq!(" 8.5 ms , 0.15 GB/s ".parse(), disk(8_500_000.0, 1.5e8));
        assert_eq!("1s,100B/s".parse(), disk(1e9, 100.0));
        for (text, why) in
            [("11s,1MB/s", "latency of a disk must be from 0.01 to 1e10 ns"), ("1s,1B/s", "bandwidth of a disk")]
        {
            let found = text.parse::<Disk>().unwrap_err();
            assert!(found.contains(why), "{found}");
        }
        for text in ["", "50us", "50,500MB/s", "50us,500", "0us,1MB/s", "-1us,1MB/s", "nanus,1MB/s", "infs,1MB/s"] {
            assert!(text.parse::<Disk>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            let _ = text.parse::<Disk>();
        }
    }
}
