//! Available memory.

use crate::nodes::free_memory::FreeMemory;
use rustix::process::{Resource, getrlimit};
use std::fs;

/// Memory available to the calling process, bytes: this host's, as far as its control group and its limit of addresses
/// (`ulimit -v`) allow; `None` if the kernel does not report it.
pub fn available_memory() -> Option<u64> {
    let host = parse_available(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = FreeMemory::for_caller().limits;
    let of_group = groups.iter().map(|limit| limit.max_bytes.saturating_sub(limit.used_bytes));
    let addresses = getrlimit(Resource::As).current.map(|most| most.saturating_sub(mapped_bytes()));
    of_group.chain(addresses).chain([host]).min()
}

/// Memory that this process has mapped, bytes.
fn mapped_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split_whitespace().next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages.saturating_mul(machine::SMALL_PAGE)
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
