//! /proc/PID/numa_maps: sums never overflow, and counts of pages have a size.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for mapping in linux::parse_numa_maps(text).into_iter().flatten() {
        let _ = mapping.resident_bytes();
        assert!(mapping.pages.is_empty() || mapping.page_bytes > 0);
        assert!(mapping.pages.is_sorted());
    }
});
