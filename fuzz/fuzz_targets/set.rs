//! The grammar of sets that sysfs, cpusets and machine files share: what is read can be written and is read back as the
//! same set.
#![no_main]

use libfuzzer_sys::fuzz_target;
use machine::CpuSet;

fuzz_target!(|text: &str| {
    if let Ok(set) = text.parse::<CpuSet>() {
        assert_eq!(set.to_string().parse(), Ok(set));
    }
});
