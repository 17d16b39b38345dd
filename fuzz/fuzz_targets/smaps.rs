//! /proc/PID/smaps, combined with a good numa_maps: telling huge pages apart changes no sum.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linux::{parse_numa_maps, parse_smaps, residences, total_pages};

const NUMA_MAPS: &str = include_str!("../corpus/numa_maps/mixed-page-sizes");

fuzz_target!(|text: &str| {
    let Ok(uses) = parse_smaps(text) else { return };
    let numa = parse_numa_maps(NUMA_MAPS).expect("a good numa_maps is read");
    let bytes: u64 = numa.iter().map(|mapping| mapping.resident_bytes()).sum();
    let all = residences(uses, numa, 2 << 20);
    let told: u64 = total_pages(&all.mappings).iter().map(|pages| pages.bytes()).sum();
    assert!(told <= bytes);
});
