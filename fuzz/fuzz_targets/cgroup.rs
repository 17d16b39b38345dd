//! Control groups: mountinfo, /proc/PID/cgroup and memory.numa_stat.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = (linux::cgroup2_mount(text), linux::parse_cgroup(text), linux::parse_memory_numa_stat(text));
});
