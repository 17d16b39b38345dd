//! Uncore events that count the data read and written by memory controllers.

use super::pmu::{Config, Pmu};
use linux::CpuSet;
use std::path::Path;

/// Bytes per count, the same for all these events: a burst of one cache line.
pub(super) const BYTES: u64 = 64;

/// An event of a controller, or of some of its channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ControllerEvent {
    pub config: Config,
    /// One CPU of each package or node that has such a unit. The event is counted there.
    pub cpus: CpuSet,
}

/// Returns the known events of these PMUs; their counts are to be added up. Empty if no known PMU is present.
///
/// - Intel's integrated memory controllers: the kernel names the events (`uncore_imc_0/cas_count_read/`).
/// - AMD's unified memory controllers, since Zen 4: commands in either direction (`umc_cas_cmd.all` of perf's
///   `amdzen4`).
/// - AMD's data fabric, before Zen 4: data of eight channels (`dram_channel_data_controller_0` to `_7` of perf's
///   `amdzen1` to `amdzen3`). It has four counters, so each event is counted half of the time.
pub(super) fn controller_events(devices: &Path) -> Vec<ControllerEvent> {
    let events = |pmu: &Pmu, terms: &[String]| -> Vec<ControllerEvent> {
        let Some(cpus) = &pmu.cpus else { return Vec::new() };
        let configs = terms.iter().filter_map(|terms| pmu.config(terms));
        configs.map(|config| ControllerEvent { config, cpus: cpus.clone() }).collect()
    };
    let named = |pmu: &Pmu| -> Vec<String> {
        ["cas_count_read", "cas_count_write"].iter().filter_map(|name| pmu.event(name)).map(str::to_owned).collect()
    };
    let intel = Pmu::numbered(devices, "uncore_imc_").into_iter().chain(Pmu::read(devices, "uncore_imc"));
    let intel: Vec<_> = intel.flat_map(|pmu| events(&pmu, &named(&pmu))).collect();
    if !intel.is_empty() {
        return intel;
    }
    let commands = ["event=0x0a".to_owned()];
    let amd: Vec<_> = Pmu::numbered(devices, "amd_umc_").iter().flat_map(|pmu| events(pmu, &commands)).collect();
    if !amd.is_empty() {
        return amd;
    }
    let channels: Vec<String> = (0..8).map(|channel| format!("event={:#x},umask=0x38", 7 + channel * 0x40)).collect();
    Pmu::read(devices, "amd_df").iter().flat_map(|pmu| events(pmu, &channels)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::pmu::tests::devices;
    use super::*;

    fn words(files: &[(&str, &str)]) -> Vec<(u32, u64, String)> {
        let events = controller_events(devices(files).path());
        events.iter().map(|event| (event.config.pmu, event.config.words[0], event.cpus.to_string())).collect()
    }

    #[test]
    fn each_make_has_its_own() {
        let intel = [
            ("uncore_imc_0/type", "14"),
            ("uncore_imc_0/cpumask", "0,28"),
            ("uncore_imc_0/format/event", "config:0-7"),
            ("uncore_imc_0/format/umask", "config:8-15"),
            ("uncore_imc_0/events/cas_count_read", "event=0x04,umask=0x03"),
            ("uncore_imc_0/events/cas_count_read.scale", "6.103515625e-5"),
            ("uncore_imc_0/events/cas_count_write", "event=0x04,umask=0x0c"),
            ("uncore_imc_1/type", "15"),
            ("uncore_imc_free_running_0/type", "16"),
        ];
        assert_eq!(words(&intel), [(14, 0x304, "0,28".to_owned()), (14, 0xc04, "0,28".to_owned())]);
        let amd = [
            ("amd_umc_3/type", "20"),
            ("amd_umc_3/cpumask", "64"),
            ("amd_umc_3/format/event", "config:0-7"),
            ("amd_umc_3/format/rdwrmask", "config:8-9"),
            ("amd_df/type", "13"),
            ("amd_df/cpumask", "0"),
            ("amd_df/format/event", "config:0-7,32-35"),
            ("amd_df/format/umask", "config:8-15"),
        ];
        assert_eq!(words(&amd), [(20, 0xa, "64".to_owned())]);
        let before = words(&amd[4..]);
        assert_eq!(before.len(), 8);
        assert_eq!((before[3].1, before[4].1), (0x38c7, 0x1_0000_3807));
        assert_eq!(words(&[]), []);
    }
}
