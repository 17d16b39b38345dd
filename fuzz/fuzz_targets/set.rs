//! The grammar of sets shared by sysfs, cpusets and machine files: writing a set and reading it back gives the same
//! set.
#![no_main]

use libfuzzer_sys::fuzz_target;
use machine::CpuSet;

fuzz_target!(|text: &str| {
    if let Ok(set) = text.parse::<CpuSet>() {
        assert_eq!(set.to_string().parse(), Ok(set));
    }
});
