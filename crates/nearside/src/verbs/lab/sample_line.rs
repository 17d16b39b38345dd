//! A sample as a line of JSON: times in ns and the thread's name as text, for people and for tools that read JSON.

use model::pmu::Sample;
use serde::Serialize;

/// See the fields of [`Sample`].
#[derive(Serialize)]
pub struct SampleLine {
    time_ns: f64,
    cpu: u32,
    pid: u32,
    tid: u32,
    name: String,
    instruction: u64,
    address: u64,
    physical_address: u64,
    node: u32,
    /// 1 to 3 for a cache of that level, 4 for memory, 5 for a cache of another core or node.
    level: u8,
    latency_ns: f64,
    /// The part of it that the core waited.
    stall_ns: f64,
    store: bool,
}

impl From<&Sample> for SampleLine {
    fn from(sample: &Sample) -> Self {
        let name = sample.name.split(|&byte| byte == 0).next().unwrap_or_default();
        Self {
            time_ns: sample.time_ps as f64 / 1000.0,
            cpu: sample.cpu,
            pid: sample.pid,
            tid: sample.tid,
            name: String::from_utf8_lossy(name).into_owned(),
            instruction: sample.instruction,
            address: sample.address,
            physical_address: sample.physical_address,
            node: sample.node,
            level: sample.level,
            latency_ns: sample.latency_ps as f64 / 1000.0,
            stall_ns: sample.stall_ps as f64 / 1000.0,
            store: sample.store,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_at_its_first_zero() {
        let named = |name: &[u8; 16]| SampleLine::from(&Sample { name: *name, ..Sample::default() }).name;
        assert_eq!(named(b"chase\0rest of it"), "chase");
        assert_eq!(named(b"sixteen letters!"), "sixteen letters!");
        assert_eq!(named(&[0xff; 16]).chars().count(), 16);
    }
}
