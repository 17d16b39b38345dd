//! The /proc files of a process: its mappings and its status. A mapping never ends before it begins.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linux::{parse_maps, parse_status};

fuzz_target!(|text: &str| {
    let _ = parse_status(text);
    if let Ok(mappings) = parse_maps(text) {
        assert!(mappings.iter().all(|mapping| mapping.range.start <= mapping.range.end));
    }
});
