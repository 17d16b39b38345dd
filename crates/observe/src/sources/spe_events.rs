//! Live sampling with Arm's statistical profiling extension: its events, the clock of its data, and context switches.
//! Follows the kernel's `drivers/perf/arm_spe_pmu.c`. Not yet tested on hardware.

use super::memory_event::{Kind, LEAST_LATENCY, MemoryEvent};
use super::perf_rings::{Wanted, online_cpus};
use super::pmu::Pmu;
use super::system_features::core;
use super::{Pace, PerfOptions};
use linux::CpuSet;
use machine::CpuId;
use perf_data::Core;
use perf_data::attribute as has;
use perf_data::spe::SpeQueues;
use perf_event::Builder;
use perf_event::events::Software;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use trace::perf::SPE_SERVED;
use trace::{Source, SourceNote};

/// Prefix of the units that sample accesses on Arm's processors: one for each kind of core.
pub(super) const UNIT: &str = "arm_spe_";
/// Granularity and maximum of the driver's period (`PMSIRR_EL1.INTERVAL`).
const PERIOD_UNIT: u64 = 1 << 8;
const LONGEST_PERIOD: u64 = (1 << 32) - PERIOD_UNIT;
/// Assumed number of slow accesses of a busy core per second, since the driver supports no rate: one in twenty
/// operations.
const ACCESSES_PER_S: u64 = 100_000_000;
/// Sample type of events that write no samples into their rings.
const SIDE_TYPE: u64 = has::IDENTIFIER | has::TID | has::TIME | has::CPU;
/// Arm's SPE hands data over in portions of this many bytes: about 250 accesses.
const PORTION: u32 = 16 << 10;
/// The initial PID namespace, whose IDs the kernel passes to the processor.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// Loads and stores with timestamps, with jitter so that no loop is in step with the sampling.
pub(super) fn event(pmu: &Pmu) -> Option<MemoryEvent> {
    let terms = format!("ts_enable=1,load_filter=1,store_filter=1,min_latency={LEAST_LATENCY},jitter=1");
    let shortest = pmu.cap("min_interval").unwrap_or(0).clamp(PERIOD_UNIT, LONGEST_PERIOD);
    let shortest = shortest.next_multiple_of(PERIOD_UNIT);
    Some(MemoryEvent {
        name: format!("{}/{terms}/", pmu.name),
        config: pmu.config(&terms)?,
        leader: None,
        precise: 0,
        cpus: pmu.cpus.clone(),
        kind: Kind::Spe(pmu.config(&format!("{terms},pa_enable=1"))?, shortest),
    })
}

/// The nearest period that Arm's SPE supports, given its shortest one.
pub(super) fn period(pace: Pace, shortest: u64) -> u64 {
    let period = match pace {
        Pace::Period(period) => period,
        Pace::Rate(rate) => ACCESSES_PER_S / rate.max(1),
    };
    (period / PERIOD_UNIT * PERIOD_UNIT).max(shortest).min(LONGEST_PERIOD)
}

/// An event with an AUX area.
pub(super) fn wanted(mut builder: Builder<'static>, cpus: Option<CpuSet>) -> Wanted {
    builder.aux_watermark(PORTION);
    builder.attrs_mut().sample_type = SIDE_TYPE;
    Wanted { cpus, aux: true, ..Wanted::new(builder) }
}

/// Context switch records, since Linux 4.3, for CPUs whose processors do not say whose accesses they sample.
pub(super) fn switches(events: &[MemoryEvent]) -> Option<Wanted> {
    let mut events = events.iter().filter(|event| event.is_spe()).peekable();
    events.peek()?;
    let cpus = events.map(|event| event.cpus.as_ref()).try_fold(CpuSet::default(), |mut all, cpus| {
        all.extend(cpus?.iter());
        Some(all)
    });
    let mut builder = Builder::new(Software::DUMMY);
    builder.exclude_kernel(true).sample_period(1).context_switch(true).comm(true).comm_exec(true);
    builder.attrs_mut().sample_type = SIDE_TYPE;
    Some(Wanted { cpus, ..Wanted::new(builder) })
}

/// What Arm's SPE cannot see while it is recorded.
pub(super) fn note(event: &MemoryEvent, options: &PerfOptions) -> SourceNote {
    let mut cannot_see = vec![
        format!("Accesses that took less than {LEAST_LATENCY} cycles, including their waits, are not sampled."),
        "Latencies are counted in core cycles, and converted at the highest frequency that cpufreq gives for the core."
            .to_owned(),
        SPE_SERVED.to_owned(),
    ];
    if let (Pace::Rate(rate), Some(period)) = (options.pace, event.period(options.pace)) {
        cannot_see.push(format!(
            "The kernel does not adapt the period of Arm's SPE: for {rate} samples per second it is {period} \
             operations, which gives more or fewer samples depending on the program."
        ));
    }
    if options.stacks {
        cannot_see.push("Arm's SPE records no call chains.".to_owned());
    }
    SourceNote { source: Source::Spe, event: event.name.clone(), cannot_see }
}

/// The core type of each CPU.
pub(super) fn cores() -> io::Result<HashMap<CpuId, Core>> {
    Ok(online_cpus()?.iter().map(|cpu| (cpu, core(Path::new("/sys"), cpu))).collect())
}

/// Empty queues for a new recording.
pub(super) fn queues() -> SpeQueues {
    let is_first = fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name == Path::new(FIRST_NAMESPACE));
    SpeQueues::live(!is_first)
}

#[cfg(test)]
mod tests {
    use super::super::memory_events::memory_events;
    use super::super::pmu::Config;
    use super::super::pmu::tests::devices;
    use super::*;

    /// The files of a machine with two kinds of cores.
    const SPE_FILES: [(&str, &str); 10] = [
        ("type", "8"),
        ("cpumask", "0-3"),
        ("caps/min_interval", "1024"),
        ("format/ts_enable", "config:0"),
        ("format/pa_enable", "config:1"),
        ("format/jitter", "config:16"),
        ("format/load_filter", "config:33"),
        ("format/store_filter", "config:34"),
        ("format/event_filter", "config1:0-63"),
        ("format/min_latency", "config2:0-11"),
    ];

    #[test]
    fn each_kind_of_core_of_arm_has_its_unit() {
        let of = |unit: &str, file: &str| format!("{unit}/{file}");
        let paths: Vec<_> = SPE_FILES.iter().map(|(file, text)| (of("arm_spe_0", file), *text)).collect();
        let others = SPE_FILES.iter().map(|(file, text)| (of("arm_spe_10", file), *text));
        let others = others.map(|(path, text)| match path.as_str() {
            "arm_spe_10/type" => (path, "9"),
            "arm_spe_10/cpumask" => (path, "4-7"),
            "arm_spe_10/caps/min_interval" => (path, "unknown"),
            _ => (path, text),
        });
        let paths: Vec<_> = paths.into_iter().chain(others).collect();
        let mut files: Vec<_> = paths.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        files.extend([("armv8_pmuv3_0/type", "10"), ("arm_spe_/type", "11"), ("arm_spe_x/type", "12")]);
        let root = devices(&files);
        let events = memory_events(root.path()).unwrap();
        let config = |pmu, first| Config { pmu, words: [first, 0, 30, 0] };
        let wanted = 1 | 1 << 16 | 3 << 33;
        let told: Vec<_> = events.iter().map(|event| (event.config, event.kind, event.cpus.clone())).collect();
        let cpus = |text: &str| text.parse().ok();
        let first = (config(8, wanted), Kind::Spe(config(8, wanted | 2), 1024), cpus("0-3"));
        assert_eq!(told, [first, (config(9, wanted), Kind::Spe(config(9, wanted | 2), 256), cpus("4-7"))]);
        let name = "arm_spe_0/ts_enable=1,load_filter=1,store_filter=1,min_latency=30,jitter=1/";
        assert_eq!(events[0].name, name);
    }

    #[test]
    fn periods_are_those_that_the_unit_has() {
        let periods = [0, 1023, 1024, 5000, u64::MAX].map(|wanted| period(Pace::Period(wanted), 1024));
        assert_eq!(periods, [1024, 1024, 1024, 4864, 0xffff_ff00]);
        assert_eq!([0, 1000, u64::MAX].map(|rate| period(Pace::Rate(rate), 1024)), [100_000_000, 99_840, 1024]);
    }
}
