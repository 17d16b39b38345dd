//! Available memory of this host.

use std::fs;

/// Memory available to programs, bytes; `None` if the kernel does not report it.
pub fn available_memory() -> Option<u64> {
    parse_available(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_available(meminfo: &str) -> Option<u64> {
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    kib.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
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
}
