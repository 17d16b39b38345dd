//! The choice of events that sample memory accesses, by the PMUs that a system has.

use super::memory_event::{Kind, LEAST_LATENCY, MemoryEvent};
use super::pmu::Pmu;
use super::spe_events;
use linux::{Cause, Diagnosis};
use std::fs;
use std::path::Path;

/// PMUs of Intel's cores: the only kind, or the kinds of hybrid processors.
const CORES: [&str; 3] = ["cpu", "cpu_core", "cpu_atom"];
/// Prefixes of the PMUs of Arm's cores.
const ARM_CORES: [&str; 2] = ["armv8_", "armv9_"];

/// Returns the best events of these PMUs, or why there is none.
pub(super) fn memory_events(devices: &Path) -> Result<Vec<MemoryEvent>, Diagnosis> {
    if let Some(event) = Pmu::read(devices, "ibs_op").as_ref().and_then(ibs) {
        return Ok(vec![event]);
    }
    let cores: Vec<Pmu> = CORES.iter().filter_map(|name| Pmu::read(devices, name)).collect();
    let events: Vec<MemoryEvent> = cores.iter().flat_map(intel).collect();
    if !events.is_empty() {
        return Ok(events);
    }
    let units = Pmu::numbered(devices, spe_events::UNIT);
    let events: Vec<MemoryEvent> = units.iter().filter_map(spe_events::event).collect();
    if !events.is_empty() {
        return Ok(events);
    }
    let why = if !units.is_empty() {
        "the driver of Arm's SPE (arm_spe_0) lacks a term present since Linux 4.16: ts_enable, load_filter, \
         store_filter, min_latency, jitter or pa_enable"
    } else if ARM_CORES.iter().any(|name| has_any(devices, name)) {
        "this kernel has no arm_spe_0: the processor, its firmware or its hypervisor does not provide Arm's SPE, or \
         the kernel lacks CONFIG_ARM_SPE_PMU or isolates its page tables (boot with kpti=off)"
    } else if cores.is_empty() {
        "the processor exposes no performance counters, as in most virtual machines"
    } else {
        "this processor, or its virtual machine, has no event that samples memory accesses (AMD's ibs_op, Intel's \
         mem-loads, Arm's arm_spe_0)"
    };
    Err(Cause::Other(why.to_owned()).into())
}

/// All micro-operations, counted by operations and not by cycles, so that each is equally likely to be sampled.
fn ibs(pmu: &Pmu) -> Option<MemoryEvent> {
    let terms = "cnt_ctl=1";
    let without_kernel = pmu.knows("swfilt").then(|| pmu.config("cnt_ctl=1,swfilt=1")).flatten();
    Some(MemoryEvent {
        name: format!("ibs_op/{terms}/"),
        config: pmu.config(terms)?,
        leader: None,
        precise: 0,
        cpus: pmu.cpus.clone(),
        kind: Kind::Ibs(without_kernel),
    })
}

/// Loads by latency, and stores. Since Sapphire Rapids, loads need a leader event of their own.
fn intel(pmu: &Pmu) -> Vec<MemoryEvent> {
    let event = |name: &str, more: &str| {
        let terms = pmu.event(name)?;
        Some(MemoryEvent {
            name: format!("{}/{name}{more}/", pmu.name),
            config: pmu.config(&format!("{terms}{more}"))?,
            leader: None,
            precise: 2,
            cpus: pmu.cpus.clone(),
            kind: Kind::Counter,
        })
    };
    let leader = pmu.event("mem-loads-aux").and_then(|terms| pmu.config(terms));
    let loads = event("mem-loads", &format!(",ldlat={LEAST_LATENCY}"));
    let loads = loads.map(|loads| MemoryEvent { leader, ..loads });
    loads.into_iter().chain(event("mem-stores", "")).collect()
}

/// Whether any PMU's name has this prefix.
fn has_any(devices: &Path, name: &str) -> bool {
    let mut entries = fs::read_dir(devices).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_str().is_some_and(|entry| entry.starts_with(name)))
}

#[cfg(test)]
mod tests {
    use super::super::pmu::Config;
    use super::super::pmu::tests::devices;
    use super::*;

    fn names(files: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let events = memory_events(devices(files).path());
        events.map(|events| events.into_iter().map(|event| event.name).collect()).map_err(|why| why.to_string())
    }

    const IBS: [(&str, &str); 3] =
        [("ibs_op/type", "9"), ("ibs_op/format/cnt_ctl", "config:19"), ("ibs_op/format/rand_en", "config:57")];
    const INTEL: [(&str, &str); 6] = [
        ("cpu/type", "4"),
        ("cpu/format/event", "config:0-7"),
        ("cpu/format/umask", "config:8-15"),
        ("cpu/format/ldlat", "config1:0-15"),
        ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3"),
        ("cpu/events/mem-stores", "event=0xd0,umask=0x82"),
    ];

    #[test]
    fn each_make_has_its_events() {
        assert_eq!(names(&IBS).unwrap(), ["ibs_op/cnt_ctl=1/"]);
        let loads_and_stores = ["cpu/mem-loads,ldlat=30/", "cpu/mem-stores/"];
        assert_eq!(names(&INTEL).unwrap(), loads_and_stores);
        let root = devices(&INTEL);
        let events = memory_events(root.path()).unwrap();
        assert_eq!(events[0].config, Config { pmu: 4, words: [0x1cd, 30, 0, 0] });
        assert_eq!((events[0].leader, events[0].precise), (None, 2));
    }

    #[test]
    fn newer_ones_have_a_leader_or_leave_the_kernel_out() {
        let mut files = INTEL.to_vec();
        files.push(("cpu/events/mem-loads-aux", "event=0x03,umask=0x82"));
        let events = memory_events(devices(&files).path()).unwrap();
        let leaders: Vec<_> = events.iter().map(|event| event.leader).collect();
        assert_eq!(leaders, [Some(Config { pmu: 4, words: [0x8203, 0, 0, 0] }), None]);
        let mut files = IBS.to_vec();
        files.push(("ibs_op/format/swfilt", "config2:0"));
        let events = memory_events(devices(&files).path()).unwrap();
        let without_kernel = Config { pmu: 9, words: [1 << 19, 0, 1, 0] };
        assert_eq!(events[0].kind, Kind::Ibs(Some(without_kernel)));
    }

    #[test]
    fn without_one_the_reason_is_given() {
        assert!(names(&[]).unwrap_err().contains("no performance counters"));
        assert!(names(&INTEL[..5][..4]).unwrap_err().contains("no event that samples"));
        assert!(names(&[("arm_spe_0/type", "8")]).unwrap_err().contains("lacks a term"));
        assert!(names(&[("armv8_pmuv3_0/type", "10")]).unwrap_err().contains("kpti=off"));
    }
}
