//! Which events of a processor's cores count where accesses beyond their caches were served: a table by make and model.

use super::pmu::{Config, Pmu, number};
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use trace::Counter;

/// Processors with the same events.
struct Cores {
    /// `vendor_id` of /proc/cpuinfo; of Arm's, `CPU implementer`.
    maker: &'static str,
    /// `cpu family`; of Arm's, `CPU architecture`.
    family: u32,
    /// `model`; of Arm's, `CPU part`.
    models: &'static [RangeInclusive<u32>],
    aliases: &'static [Alias],
}

/// A counter as terms of the kernel's PMU of cores.
struct Alias {
    counter: Counter,
    event: &'static str,
    /// The part of the event's count that belongs to another counter.
    less: Option<&'static str>,
}

const fn alias(counter: Counter, event: &'static str) -> Alias {
    Alias { counter, event, less: None }
}

/// `MEM_LOAD_L3_MISS_RETIRED`: loads that retired. Models are those of `skylakex`, `cascadelakex`, `icelakex`,
/// `sapphirerapids`, `emeraldrapids` and `graniterapids` in Linux, tools/perf/pmu-events/arch/x86/mapfile.csv; the events
/// are in cache.json of each.
const INTEL: &[Alias] = &[
    alias(Counter::LocalDram, "event=0xd3,umask=0x01"),
    alias(Counter::RemoteDram, "event=0xd3,umask=0x02"),
    alias(Counter::PeerModified, "event=0xd3,umask=0x04"),
    alias(Counter::PeerClean, "event=0xd3,umask=0x08"),
];

/// Demand fills of the first-level data cache: `ls_refills_from_sys` in Linux, tools/perf/pmu-events/arch/x86/amdzen2/
/// memory.json. Lines of caches of other nodes' cores are one kind.
const ZEN_2: &[Alias] = &[
    alias(Counter::LocalDram, "event=0x43,umask=0x08"),
    alias(Counter::RemoteDram, "event=0x43,umask=0x40"),
    alias(Counter::Peer, "event=0x43,umask=0x10"),
];

/// `ls_dmnd_fills_from_sys` in amdzen3 to amdzen5: caches of other core complexes, whether of the same node or of another.
const ZEN_3: &[Alias] = &[
    alias(Counter::LocalDram, "event=0x43,umask=0x08"),
    alias(Counter::RemoteDram, "event=0x43,umask=0x40"),
    alias(Counter::Peer, "event=0x43,umask=0x14"),
];

/// `REMOTE_ACCESS`: data that came from another chip, whether from its memory or caches. Other reads that no cache served
/// (`LL_CACHE_MISS_RD`) are local. Linux, tools/perf/pmu-events/arch/arm64/arm/neoverse-n1/memory.json and that of
/// `neoverse-n2-v2` and `neoverse-v1`; parts are in arm64/mapfile.csv.
const ARM: &[Alias] = &[
    Alias { counter: Counter::LocalDram, event: "event=0x37", less: Some("event=0x31") },
    alias(Counter::RemoteDram, "event=0x31"),
];

const TABLE: &[Cores] = &[
    Cores {
        maker: "GenuineIntel",
        family: 6,
        models: &[0x55..=0x55, 0x6a..=0x6a, 0x6c..=0x6c, 0x8f..=0x8f, 0xad..=0xae, 0xcf..=0xcf],
        aliases: INTEL,
    },
    Cores { maker: "AuthenticAMD", family: 0x17, models: &[0x30..=0xff], aliases: ZEN_2 },
    Cores { maker: "AuthenticAMD", family: 0x19, models: &[0x00..=0xff], aliases: ZEN_3 },
    Cores { maker: "AuthenticAMD", family: 0x1a, models: &[0x00..=0x2f, 0x40..=0x4f, 0x60..=0x7f], aliases: ZEN_3 },
    Cores {
        maker: "0x41",
        family: 8,
        models: &[0xd0c..=0xd0c, 0xd40..=0xd40, 0xd49..=0xd49, 0xd4f..=0xd4f],
        aliases: ARM,
    },
];

/// The processors of the table, for messages.
const KNOWN: &str = "Intel's servers since Skylake-SP, AMD's Zen 2 to 5, and Arm's Neoverse N1, N2, V1 and V2";
/// Prefixes of the PMUs of Arm's cores.
const ARM_CORES: [&str; 2] = ["armv8_", "armv9_"];

/// An event to open on each CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuEvent {
    pub counter: Counter,
    pub config: Config,
    /// The event whose count is not part of the counter.
    pub less: Option<Config>,
}

/// A processor, as /proc/cpuinfo describes its first CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Processor<'a> {
    maker: &'a str,
    family: u32,
    model: u32,
}

/// The events of this processor, or why there are none.
pub(super) fn cpu_events(devices: &Path, cpuinfo: &str) -> Result<Vec<CpuEvent>, String> {
    let pmu = core_pmu(devices).ok_or("the processor exposes no performance counters, as in most virtual machines")?;
    let processor = Processor::parse(cpuinfo).ok_or("/proc/cpuinfo does not name the processor")?;
    let cores = TABLE.iter().find(|cores| cores.has(&processor)).ok_or_else(|| {
        let Processor { maker, family, model } = processor;
        format!(
            "the events of this processor are not known ({maker}, family {family:#x}, model {model:#x}); those of {KNOWN} are"
        )
    })?;
    let event = |alias: &Alias| {
        let less = match alias.less {
            Some(terms) => Some(pmu.config(terms)?),
            None => None,
        };
        Some(CpuEvent { counter: alias.counter, config: pmu.config(alias.event)?, less })
    };
    let events: Option<Vec<_>> = cores.aliases.iter().map(event).collect();
    events.ok_or_else(|| format!("the kernel's PMU {} lacks the terms event or umask", pmu.name))
}

fn core_pmu(devices: &Path) -> Option<Pmu> {
    let arm = || {
        let entries = fs::read_dir(devices).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| ARM_CORES.iter().any(|prefix| name.starts_with(prefix))).min()
    };
    Pmu::read(devices, "cpu").or_else(|| Pmu::read(devices, &arm()?))
}

impl Cores {
    fn has(&self, processor: &Processor<'_>) -> bool {
        let is_model = self.models.iter().any(|models| models.contains(&processor.model));
        (self.maker, self.family) == (processor.maker, processor.family) && is_model
    }
}

impl<'a> Processor<'a> {
    fn parse(cpuinfo: &'a str) -> Option<Self> {
        let first = cpuinfo.lines().skip_while(|line| line.is_empty()).take_while(|line| !line.is_empty());
        let fields: Vec<(&str, &str)> =
            first.filter_map(|line| line.split_once(':')).map(|(name, value)| (name.trim(), value.trim())).collect();
        let field = |names: [&str; 2]| fields.iter().find(|(name, _)| names.contains(name)).map(|(_, value)| *value);
        let of = |names| u32::try_from(number(field(names)?)?).ok();
        Some(Self {
            maker: field(["vendor_id", "CPU implementer"])?,
            family: of(["cpu family", "CPU architecture"])?,
            model: of(["model", "CPU part"])?,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::pmu::tests::devices;
    use super::*;
    use proptest::prelude::*;

    /// /proc/cpuinfo of an x86 processor, two CPUs.
    pub fn cpuinfo(maker: &str, family: u32, model: u32) -> String {
        let cpu = |cpu| {
            format!(
                "processor\t: {cpu}\nvendor_id\t: {maker}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: A: 9\n\n"
            )
        };
        cpu(0) + &cpu(1)
    }

    const X86: [(&str, &str); 3] =
        [("cpu/type", "4"), ("cpu/format/event", "config:0-7"), ("cpu/format/umask", "config:8-15")];
    const NEOVERSE: &str = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU architecture: 8\n\
                            CPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n\n";

    fn configs(files: &[(&str, &str)], cpuinfo: &str) -> Result<Vec<(Counter, u64, Option<u64>)>, String> {
        let events = cpu_events(devices(files).path(), cpuinfo)?;
        let config = |event: &CpuEvent| (event.counter, event.config.words[0], event.less.map(|less| less.words[0]));
        Ok(events.iter().map(config).collect())
    }

    #[test]
    fn each_make_has_its_events() {
        let intel = [0x1d3, 0x2d3, 0x4d3, 0x8d3];
        for model in [0x55, 0x6a, 0x6c, 0x8f, 0xad, 0xae, 0xcf] {
            let found = configs(&X86, &cpuinfo("GenuineIntel", 6, model)).unwrap();
            assert_eq!(found.iter().map(|event| event.1).collect::<Vec<_>>(), intel, "{model:#x}");
            let counters: Vec<Counter> = found.iter().map(|event| event.0).collect();
            assert_eq!(counters, Counter::SERVED.map(|(counter, _)| counter)[..4]);
        }
        let (local, remote) = (Counter::LocalDram, Counter::RemoteDram);
        for (family, model, peer) in
            [(0x17, 0x31, 0x1043), (0x19, 0x01, 0x1443), (0x19, 0x11, 0x1443), (0x1a, 0x02, 0x1443)]
        {
            let amd = [(local, 0x843, None), (remote, 0x4043, None), (Counter::Peer, peer, None)];
            assert_eq!(configs(&X86, &cpuinfo("AuthenticAMD", family, model)).unwrap(), amd, "{family:#x} {model:#x}");
        }
        let pmu = [("armv8_pmuv3_0/type", "10"), ("armv8_pmuv3_0/format/event", "config:0-15")];
        assert_eq!(configs(&pmu, NEOVERSE).unwrap(), [(local, 0x37, Some(0x31)), (remote, 0x31, None)]);
    }

    #[test]
    fn without_events_the_reason_is_given() {
        let known = cpuinfo("GenuineIntel", 6, 0x55);
        assert!(configs(&[], &known).unwrap_err().contains("no performance counters"));
        assert!(configs(&X86[..2], &known).unwrap_err().contains("cpu lacks the terms"));
        assert!(configs(&X86, "").unwrap_err().contains("does not name"));
        // Zen 1, and Broadwell.
        for (maker, family, model) in [("AuthenticAMD", 0x17, 0x01), ("GenuineIntel", 6, 0x4f)] {
            let said = configs(&X86, &cpuinfo(maker, family, model)).unwrap_err();
            assert!(said.contains(&format!("{maker}, family {family:#x}, model {model:#x}")), "{said}");
        }
    }

    proptest! {
        #[test]
        fn any_text_names_a_processor_or_none(text in "((vendor_id|cpu family|model|CPU part)[\t ]*:?[ 0-9a-fx]{0,12}\n){0,6}|.*") {
            let _ = Processor::parse(&text);
        }
    }
}
