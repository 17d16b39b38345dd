//! What this process's host and starter have settled: memory that is free, signals that are ignored.

use std::fs;

/// Memory that programs can still have, bytes; none where the kernel does not say.
pub(crate) fn available_memory() -> Option<u64> {
    parse_available(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_available(meminfo: &str) -> Option<u64> {
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    kib.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

/// Whether this process was started with a signal ignored, as `nohup` and shells without job control do. That is
/// then to stay so.
pub(crate) fn is_ignored(signal: i32) -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| parse_ignored(&status, signal))
}

fn parse_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    (1..=64).contains(&signal) && mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_meminfo() {
        let text = "MemTotal:       24684848 kB\nMemFree:         1000 kB\nMemAvailable:   21921908 kB\n";
        assert_eq!(parse_available(text), Some(21_921_908 * 1024));
        assert_eq!(parse_available("MemTotal: 1 kB\n"), None);
        assert_eq!(parse_available("MemAvailable: much\n"), None);
        assert!(available_memory().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn ignored_signals_are_read_from_status() {
        let text = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\tffffffffffffffff\n";
        let ignored: Vec<i32> = (-1..70).filter(|&signal| parse_ignored(text, signal)).collect();
        assert_eq!(ignored, [1, 13]);
        assert!(!parse_ignored("", 1));
    }
}
