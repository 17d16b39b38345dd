//! Control words of the kernel's resctrl. Class 0 is the topmost group, class 1 the group `nearside-1`, and so on: a class
//! has a group as long as a CPU is in it or one of its words is not as at the start.
//!
//! Not yet seen on hardware: tested with a model of the kernel's rules on the files of saved machines.

use super::control_word::{ControlWord, Interface, limit_text, ways_text};
use super::offer::{ControlDevice, LimitUnit, Offer, WayMasks, Words};
use linux::{BandwidthUnit, CacheWays, CpuSet, Resctrl, Schemata};
use machine::CpuId;
use std::io;
use std::path::Path;

/// Beginning of the names of classes' groups, and of grants' monitoring groups.
pub(super) const GROUP: &str = "nearside-";
/// The file system.
const FOLDER: &str = "/sys/fs/resctrl";

/// The control hardware behind resctrl.
#[derive(Debug)]
pub(crate) struct ResctrlControl {
    resctrl: Resctrl,
    offer: Offer,
    /// The domain of each cache.
    domains: Vec<u32>,
}

impl ResctrlControl {
    /// That of the system below `root`, if resctrl is mounted there and can limit anything of level 3 caches.
    pub(crate) fn find(root: &Path) -> Option<Self> {
        Self::new(Resctrl::find(root)?)
    }

    pub(super) fn new(resctrl: Resctrl) -> Option<Self> {
        let found = &resctrl.offer;
        let limits = found.bandwidth.map(|limit| match limit.unit {
            BandwidthUnit::EighthsOfGigabytes => {
                LimitUnit::Together { unit_bytes_per_s: 125_000_000, least: limit.least, none: limit.none }
            }
            BandwidthUnit::Mebibytes => {
                LimitUnit::Together { unit_bytes_per_s: 1 << 20, least: limit.least, none: limit.none }
            }
            BandwidthUnit::PercentOfCore => LimitUnit::Percent { least: limit.least, step: limit.step, of_core: true },
            BandwidthUnit::PercentOfGroup => {
                LimitUnit::Percent { least: limit.least, step: limit.step, of_core: false }
            }
        });
        let ways = found.ways.as_ref().map(|ways| WayMasks {
            all: ways.all,
            least: ways.least,
            may_have_gaps: ways.may_have_gaps,
        });
        if ways.is_none() && limits.is_none() {
            return None;
        }
        let (domains, caches) = found.caches.iter().map(|(domain, cpus)| (*domain, cpus.clone())).unzip();
        let offer = Offer { classes: found.classes, ways, limits, caches, counts_bytes: found.counts_bytes };
        Some(Self { resctrl, offer, domains })
    }

    /// The groups of classes, with their numbers, and the topmost one.
    fn own_groups(&self) -> io::Result<Vec<(usize, String)>> {
        let class = |name: &String| {
            let number = name.strip_prefix(GROUP)?;
            let class: usize = number.parse().ok().filter(|class: &usize| class.to_string() == number)?;
            (1..self.offer.classes as usize).contains(&class).then_some(class)
        };
        let groups = self.resctrl.groups()?.into_iter().filter_map(|name| Some((class(&name)?, name)));
        Ok([(0, String::new())].into_iter().chain(groups).collect())
    }

    /// The words of a group's shares. A resource without a value that can be its word has none.
    fn shares(&self, class: usize, schemata: &Schemata) -> impl Iterator<Item = (ControlWord, String)> {
        self.domains.iter().enumerate().flat_map(move |(cache, &domain)| {
            let ways = self.resctrl.offer.ways.as_ref().and_then(|ways| {
                let mut masks = ways.resources.iter().map(|resource| schemata.value(resource, domain));
                let first = masks.next()??;
                masks.all(|mask| mask == Some(first)).then(|| ways_text(turned(first & ways.all, ways)))
            });
            let limit = self.resctrl.offer.bandwidth.and_then(|limit| {
                let value = schemata.value("MB", domain)?;
                Some(limit_text(if value >= limit.none { 0 } else { value }))
            });
            let ways = ways.map(|text| (ControlWord::Ways { class, cache }, text));
            ways.into_iter().chain(limit.map(|text| (ControlWord::Limit { class, cache }, text)))
        })
    }

    /// The name of a class's group, which is made if it is missing.
    fn group(&self, class: usize) -> io::Result<String> {
        if class == 0 {
            return Ok(String::new());
        }
        let name = format!("{GROUP}{class}");
        match self.resctrl.make_group(&name) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                let why =
                    format!("{FOLDER} has no class left for the group {name}: {error}; remove groups of other tools");
                Err(io::Error::new(error.kind(), why))
            }
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(name),
        }
    }

    fn change(&self, word: ControlWord, value: u64) -> io::Result<()> {
        match word {
            ControlWord::Class { cpu } => {
                let cpu = CpuId(u32::try_from(cpu).map_err(io::Error::other)?);
                let class = usize::try_from(value).map_err(io::Error::other)?;
                if class != 0 {
                    let group = self.group(class)?;
                    let cpus = self.resctrl.cpus(&group)?.iter().chain([cpu]).collect();
                    return self.resctrl.set_cpus(&group, &cpus);
                }
                // The topmost group takes no CPUs from others, but gets those that they give up.
                for (_, group) in self.own_groups()?.iter().filter(|(class, _)| *class != 0) {
                    let cpus = self.resctrl.cpus(group)?;
                    if cpus.contains(cpu) {
                        self.resctrl.set_cpus(group, &cpus.iter().filter(|&other| other != cpu).collect())?;
                    }
                }
                Ok(())
            }
            ControlWord::Ways { class, cache } => {
                let (ways, group) =
                    (self.resctrl.offer.ways.as_ref().ok_or(io::ErrorKind::NotFound)?, self.group(class)?);
                let domain = *self.domains.get(cache).ok_or(io::ErrorKind::NotFound)?;
                let mask = turned(value, ways);
                ways.resources.iter().try_for_each(|resource| self.resctrl.set_share(&group, resource, domain, mask))
            }
            ControlWord::Limit { class, cache } => {
                let (limit, group) = (self.resctrl.offer.bandwidth.ok_or(io::ErrorKind::NotFound)?, self.group(class)?);
                let domain = *self.domains.get(cache).ok_or(io::ErrorKind::NotFound)?;
                self.resctrl.set_share(&group, "MB", domain, if value == 0 { limit.none } else { value })
            }
        }
    }

    /// Removes groups that have no use. Another process's is never between its making and its use: both are locked.
    fn remove_unused(&self) -> io::Result<()> {
        for (class, group) in self.own_groups()?.into_iter().filter(|(class, _)| *class != 0) {
            let is_empty = self.resctrl.cpus(&group)?.is_empty() && !self.resctrl.has_tasks(&group)?;
            let schemata = self.resctrl.schemata(&group)?;
            let mut words = self.shares(class, &schemata);
            if is_empty && words.all(|(word, text)| word.at_start(&self.offer) == Some(text)) {
                self.resctrl.remove_group(&group)?;
            }
        }
        Ok(())
    }
}

/// A mask of the hardware's in nearside's order of ways, or the reverse. The rest of the machine keeps the lowest ways. Where
/// devices fill the highest ones as well, as on Intel's processors, these are the lowest here.
fn turned(mask: u64, ways: &CacheWays) -> u64 {
    let is_high = ways.shared_with_devices != ways.all && ways.shared_with_devices > ways.all / 2;
    if is_high { mask.reverse_bits() >> ways.all.leading_zeros() } else { mask }
}

impl ControlDevice for ResctrlControl {
    fn interface(&self) -> Interface {
        Interface::Resctrl
    }

    fn offer(&self) -> &Offer {
        &self.offer
    }

    fn values(&self) -> io::Result<Words> {
        let (classes, caches) = (self.offer.classes as usize, self.domains.len());
        let pairs = (0..classes).flat_map(|class| (0..caches).map(move |cache| (class, cache)));
        let shares =
            pairs.flat_map(|(class, cache)| [ControlWord::Ways { class, cache }, ControlWord::Limit { class, cache }]);
        let cpus =
            self.offer.caches.iter().flat_map(CpuSet::iter).map(|cpu| ControlWord::Class { cpu: cpu.0 as usize });
        let at_start = |word: ControlWord| Some((word, word.at_start(&self.offer)?));
        let mut words: Words = shares.chain(cpus).filter_map(at_start).collect();
        let own = self.own_groups()?;
        for name in self.resctrl.groups()?.iter().filter(|name| !own.iter().any(|(_, own)| own == *name)) {
            // Its CPUs have no class of nearside's.
            self.resctrl
                .cpus(name)?
                .iter()
                .for_each(|cpu| drop(words.remove(&ControlWord::Class { cpu: cpu.0 as usize })));
        }
        for (class, group) in own {
            words.retain(|word, _| !matches!(word, ControlWord::Ways { class: of, .. } | ControlWord::Limit { class: of, .. } if *of == class));
            words.extend(self.shares(class, &self.resctrl.schemata(&group)?));
            if class != 0 {
                for cpu in self.resctrl.cpus(&group)?.iter() {
                    words.insert(ControlWord::Class { cpu: cpu.0 as usize }, class.to_string());
                }
            }
        }
        Ok(words)
    }

    fn set(&self, word: ControlWord, text: &str) -> io::Result<()> {
        let at_start = word.at_start(&self.offer).ok_or(io::ErrorKind::NotFound)?;
        let value = word.parse(text).ok_or(io::ErrorKind::InvalidInput)?;
        let _lock = self.resctrl.lock()?;
        if let Err(error) = self.change(word, value) {
            // A group that was made for it has no use.
            let _ = self.remove_unused();
            return Err(error);
        }
        // The kernel rounds some values, and other tools do not lock.
        let now = self.value(word)?;
        if now != text {
            return Err(io::Error::other(format!("{FOLDER} has {now} after {text} was written")));
        }
        if text == at_start { self.remove_unused() } else { Ok(()) }
    }

    fn others_classes(&self) -> io::Result<u32> {
        let others = self.resctrl.groups()?.len() + 1 - self.own_groups()?.len();
        Ok(u32::try_from(others).unwrap_or(u32::MAX))
    }

    fn in_the_way(&self, known: &CpuSet, wanted: &CpuSet) -> io::Result<Option<String>> {
        let own = self.own_groups()?;
        for name in self.resctrl.groups()? {
            let (cpus, is_own) = (self.resctrl.cpus(&name)?, own.iter().any(|(_, own)| *own == name));
            let foreign: CpuSet =
                cpus.iter().filter(|&cpu| if is_own { !known.contains(cpu) } else { wanted.contains(cpu) }).collect();
            let what = if !foreign.is_empty() {
                format!("CPUs {foreign}")
            } else if is_own && self.resctrl.has_tasks(&name)? {
                "threads".to_owned()
            } else {
                continue;
            };
            return Ok(Some(format!(
                "the group {FOLDER}/{name} of another tool has {what}: remove it with rmdir, or use --throttle duty without --cache-ways"
            )));
        }
        let schemata = self.resctrl.schemata("")?;
        let changed = self.shares(0, &schemata).find(|(word, text)| word.at_start(&self.offer).as_ref() != Some(text));
        Ok(changed.filter(|_| known.is_empty() && own.len() == 1).map(|(word, text)| {
            let name = word.path(Interface::Resctrl);
            format!(
                "another tool has set {} to {text} in {FOLDER}/schemata: mount resctrl again, or use --throttle duty without --cache-ways",
                name.display()
            )
        }))
    }

    fn rest_bytes(&self, cache: usize) -> Option<u64> {
        let domain = *self.domains.get(cache)?;
        self.resctrl.offer.counts_bytes.then(|| self.resctrl.total_bytes("", domain))?
    }

    fn tidy(&self) -> io::Result<()> {
        let _lock = self.resctrl.lock()?;
        self.remove_unused()
    }
}

#[cfg(test)]
mod tests {
    use super::super::resctrl_kernel::{Kernel, machine, schemata};
    use super::*;
    use saved_files::SavedFiles;

    const SKYLAKE: &str = "vendor_id\t: GenuineIntel";
    const ROME: &str = "vendor_id\t: AuthenticAMD";
    const ARM: &str = "CPU implementer\t: 0x41";
    /// Two packages of an Intel Xeon of 2017: 11 ways, of which devices fill the two highest as well.
    const SKYLAKE_INFO: [(&str, &str); 9] = [
        ("L3/cbm_mask", "7ff"),
        ("L3/min_cbm_bits", "1"),
        ("L3/num_closids", "16"),
        ("L3/shareable_bits", "600"),
        ("MB/bandwidth_gran", "10"),
        ("MB/delay_linear", "1"),
        ("MB/min_bandwidth", "10"),
        ("MB/num_closids", "8"),
        ("L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes"),
    ];
    const SKYLAKE_SCHEMATA: &str = "    L3:0=7ff;1=7ff\n    MB:0=100;1=100\n";
    const CACHES: [(u32, &str); 2] = [(0, "0-1"), (1, "2-3")];

    fn changed(
        info: &[(&'static str, &'static str)],
        by: &[(&'static str, &'static str)],
    ) -> Vec<(&'static str, &'static str)> {
        let others = info.iter().filter(|(name, _)| by.iter().all(|(changed, _)| changed != name));
        others.chain(by).copied().collect()
    }

    fn skylake() -> SavedFiles {
        machine(SKYLAKE, &SKYLAKE_INFO, SKYLAKE_SCHEMATA, &CACHES)
    }

    fn control(kernel: &Kernel) -> ResctrlControl {
        ResctrlControl::new(kernel.resctrl()).unwrap()
    }

    const CPU_0: ControlWord = ControlWord::Class { cpu: 0 };

    fn ways(class: usize, cache: usize) -> ControlWord {
        ControlWord::Ways { class, cache }
    }

    fn limit(class: usize, cache: usize) -> ControlWord {
        ControlWord::Limit { class, cache }
    }

    #[test]
    fn offers_are_those_of_saved_machines() {
        let offer = |vendor, info: &[(&str, &str)], schemata| {
            let found = ResctrlControl::find(machine(vendor, info, schemata, &CACHES).path()).unwrap();
            (
                found.offer.classes,
                found.offer.ways.map(|ways| (ways.all, ways.least, ways.may_have_gaps)),
                found.offer.limits,
            )
        };
        let percent = |least, of_core| Some(LimitUnit::Percent { least, step: least, of_core });
        assert_eq!(offer(SKYLAKE, &SKYLAKE_INFO, SKYLAKE_SCHEMATA), (8, Some((0x7ff, 1, false)), percent(10, true)));
        // Newer Intel processors take masks with gaps; AMD's have absolute limits; Arm's percents have a step of 1.
        let sparse =
            changed(&SKYLAKE_INFO, &[("L3/sparse_masks", "1"), ("L3/cbm_mask", "fff"), ("L3/shareable_bits", "c00")]);
        assert_eq!(offer(SKYLAKE, &sparse, "L3:0=fff;1=fff\nMB:0=100;1=100\n").1, Some((0xfff, 1, true)));
        let amd = changed(
            &SKYLAKE_INFO,
            &[
                ("L3/cbm_mask", "ffff"),
                ("L3/shareable_bits", "0"),
                ("MB/bandwidth_gran", "1"),
                ("MB/delay_linear", "0"),
                ("MB/min_bandwidth", "0"),
                ("MB/num_closids", "16"),
            ],
        );
        let together = |unit_bytes_per_s, none| Some(LimitUnit::Together { unit_bytes_per_s, least: 1, none });
        let rome = "    MB:0=2048;1=  16\n    L3:0=ffff;1=ffff\n";
        assert_eq!(offer(ROME, &amd, rome), (16, Some((0xffff, 1, false)), together(125_000_000, 2048)));
        let genoa = "  SMBA:0=2048;1=2048\n    MB:0=4096;1=4096\n    L3:0=ffff;1=ffff\n";
        assert_eq!(offer(ROME, &amd, genoa).2, together(125_000_000, 4096));
        let arm = changed(&amd, &[("L3/shareable_bits", "ffff"), ("MB/min_bandwidth", "1"), ("MB/delay_linear", "1")]);
        assert_eq!(
            offer(ARM, &arm, "MB:0=100;1=100\nL3:0=ffff;1=ffff\n"),
            (16, Some((0xffff, 1, false)), percent(1, false))
        );
        let root = skylake();
        root.put("proc/mounts", "none /sys/fs/resctrl resctrl rw,relatime,mba_MBps 0 0\n");
        root.put("sys/fs/resctrl/schemata", "L3:0=7ff;1=7ff\nMB:0=4294967295;1=4294967295\n");
        let found = ResctrlControl::find(root.path()).unwrap();
        assert_eq!(found.offer.limits, together(1 << 20, 0xffff_ffff));
        assert_eq!(found.value(limit(0, 1)).unwrap(), "max");
    }

    #[test]
    fn a_class_has_a_group_as_long_as_it_is_used() {
        let kernel = Kernel::of(skylake(), 8, true);
        let device = control(&kernel);
        let before = device.values().unwrap();
        assert_eq!(
            (before[&CPU_0].as_str(), before[&ways(0, 1)].as_str(), before[&limit(7, 0)].as_str()),
            ("0", "0x7ff", "max")
        );
        let words = [(ways(0, 0), "0xff"), (ways(2, 0), "0x700"), (limit(0, 0), "30"), (CPU_0, "2")];
        for (word, text) in words {
            device.set(word, text).unwrap();
            assert_eq!(device.value(word).unwrap(), text);
        }
        // The rest keeps the two ways that devices fill: the highest of the hardware.
        let (top, class) = (schemata(&kernel, ""), schemata(&kernel, "nearside-2"));
        assert_eq!((top.value("L3", 0), top.value("L3", 1), class.value("L3", 0)), (Some(0x7f8), Some(0x7ff), Some(7)));
        assert_eq!((top.value("MB", 0), class.value("MB", 0)), (Some(30), Some(100)));
        let resctrl = kernel.resctrl();
        assert_eq!(["", "nearside-2"].map(|group| resctrl.cpus(group).unwrap().to_string()), ["1-3", "0"]);
        for (word, _) in words.iter().rev() {
            device.set(*word, &before[word]).unwrap();
        }
        assert_eq!((device.values().unwrap(), resctrl.groups().unwrap().len()), (before, 0));
        assert!(kernel.log.lock().unwrap().contains(&"rmdir nearside-2".to_owned()));
    }

    #[test]
    fn code_and_data_have_the_same_mask() {
        let of_cdp = |name: &'static str| {
            SKYLAKE_INFO
                .iter()
                .filter(move |(file, _)| file.starts_with("L3/"))
                .map(move |(file, text)| (file.replacen("L3", name, 1), *text))
        };
        let info: Vec<(String, &str)> = of_cdp("L3CODE").chain(of_cdp("L3DATA")).collect();
        let info: Vec<(&str, &str)> = info.iter().map(|(file, text)| (file.as_str(), *text)).collect();
        let kernel = Kernel::of(machine(SKYLAKE, &info, "L3DATA:0=7ff;1=7ff\nL3CODE:0=7ff;1=7ff\n", &CACHES), 8, true);
        let device = control(&kernel);
        assert_eq!(device.offer.limits, None);
        device.set(ways(1, 1), "0x1c").unwrap();
        let class = schemata(&kernel, "nearside-1");
        assert_eq!((class.value("L3CODE", 1), class.value("L3DATA", 1)), (Some(0x1c0), Some(0x1c0)));
        // Masks that differ are no value of nearside's.
        kernel.put("nearside-1/schemata", "L3DATA:0=7ff;1=3\nL3CODE:0=7ff;1=1c\n");
        assert_eq!(device.value(ways(1, 1)).unwrap_err().kind(), io::ErrorKind::NotFound);
        let one = machine(SKYLAKE, &info, "L3CODE:0=7ff;1=7ff\n", &CACHES);
        assert!(ResctrlControl::find(one.path()).is_none());
    }

    #[test]
    fn what_the_kernel_refuses_has_its_reason_and_leaves_nothing() {
        let kernel = Kernel::of(skylake(), 2, true);
        let device = control(&kernel);
        let refused = |word, text: &str| device.set(word, text).unwrap_err().to_string();
        let gap = refused(ways(1, 0), "0x5");
        assert!(gap.contains("the kernel says: The mask 500 has non-consecutive 1-bits"), "{gap}");
        assert_eq!(kernel.resctrl().groups().unwrap(), [""; 0]);
        device.set(CPU_0, "1").unwrap();
        let full = refused(ControlWord::Class { cpu: 1 }, "2");
        assert!(full.contains("no class left for the group nearside-2") && full.contains("Out of CLOSIDs"), "{full}");
        for (word, text) in [(limit(0, 2), "10"), (ControlWord::Class { cpu: 9 }, "1"), (ways(8, 0), "0x1")] {
            assert_eq!(device.set(word, text).unwrap_err().kind(), io::ErrorKind::NotFound, "{word:?}");
        }
        assert_eq!(device.set(ways(0, 0), "7").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        // A group that another tool has removed is as at the start.
        device.resctrl.remove_group("nearside-1").unwrap();
        assert_eq!(device.value(CPU_0).unwrap(), "0");
    }

    #[test]
    fn groups_of_other_tools_are_named() {
        let kernel = Kernel::of(skylake(), 8, true);
        let device = control(&kernel);
        let cpus = |text: &str| text.parse::<CpuSet>().unwrap();
        let in_the_way = |known: &str, wanted: &str| device.in_the_way(&cpus(known), &cpus(wanted)).unwrap();
        assert_eq!(in_the_way("", "0"), None);
        for (name, list) in [("COS3", "2\n"), ("nearside-1", "3\n"), ("nearside-01", "\n")] {
            kernel.put(&format!("{name}/cpus_list"), list);
            kernel.put(&format!("{name}/tasks"), "");
            kernel.put(&format!("{name}/schemata"), SKYLAKE_SCHEMATA);
        }
        assert_eq!(
            (device.others_classes().unwrap(), device.values().unwrap().get(&ControlWord::Class { cpu: 2 })),
            (2, None)
        );
        assert_eq!(in_the_way("3", "0"), None);
        assert!(in_the_way("3", "2").unwrap().contains("/sys/fs/resctrl/COS3 of another tool has CPUs 2"));
        assert!(in_the_way("1", "0").unwrap().contains("/nearside-1 of another tool has CPUs 3"));
        kernel.put("nearside-1/tasks", "77\n");
        assert!(in_the_way("3", "0").unwrap().contains("/nearside-1 of another tool has threads"));
        device.resctrl.remove_group("nearside-1").unwrap();
        kernel.put("schemata", "L3:0=7ff;1=7ff\nMB:0=100;1=50\n");
        assert!(in_the_way("", "0").unwrap().contains("another tool has set /resctrl/class-0/limit-1 to 50"));
        // It may be another grant's.
        assert_eq!(in_the_way("1", "0"), None);
    }

    #[test]
    fn only_what_is_counted_is_a_count() {
        let kernel = Kernel::of(skylake(), 8, true);
        let device = control(&kernel);
        assert_eq!(device.rest_bytes(1), Some(0));
        for (text, count) in [("123\n", Some(123)), ("Unavailable\n", None), ("Unassigned\n", None), ("-1\n", None)] {
            kernel.put("mon_data/mon_L3_01/mbm_total_bytes", text);
            assert_eq!(device.rest_bytes(1), count, "{text}");
        }
    }

    #[test]
    fn a_hostile_tree_offers_nothing_or_is_refused() {
        for (file, text) in [
            ("L3/cbm_mask", "\u{0}\u{1}junk"),
            ("L3/cbm_mask", "ffffffffffffffffffffffff"),
            ("L3/cbm_mask", "0"),
            ("L3/num_closids", "0"),
            ("L3/num_closids", "99999999999"),
        ] {
            let root = machine(SKYLAKE, &changed(&SKYLAKE_INFO, &[(file, text)]), SKYLAKE_SCHEMATA, &CACHES);
            assert_eq!(ResctrlControl::find(root.path()).unwrap().offer.ways, None, "{file} {text}");
        }
        let of_schemata = |text: &str| {
            let root = skylake();
            root.put("sys/fs/resctrl/schemata", text);
            ResctrlControl::find(root.path()).map(|device| device.values().unwrap().len())
        };
        // Domains that are no caches, no end, no text.
        assert_eq!(of_schemata("L3:7=7ff\nMB:9=100\n"), None);
        assert_eq!(of_schemata(&"L3:0=7ff;".repeat(200_000)), None);
        assert_eq!(of_schemata("\u{fffd}\u{0}"), None);
        let root = skylake();
        let (path, pipe) = (root.path().join("sys/fs/resctrl/schemata"), rustix::fs::FileType::Fifo);
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, pipe, rustix::fs::Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(ResctrlControl::find(root.path()).is_none());
    }
}
