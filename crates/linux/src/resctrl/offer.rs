//! What the control hardware of a machine can do, by the `info` folder of resctrl.

use super::folder::ResctrlFiles;
use super::monitors::last_caches;
use super::schemata::{Schemata, number, parse_schemata};
use machine::number::counted;
use machine::{CpuSet, bounded};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// A limit that is none, with `mba_MBps`.
const NO_MEBIBYTES: u64 = 0xffff_ffff;
/// The least value of AMD's that is no limit; newer processors have 4,096 and 8,192.
const NO_EIGHTHS: u64 = 2048;
/// AMD's processors, and Hygon's of the same kind, limit by absolute values.
const AMD: [&str; 2] = ["AuthenticAMD", "HygonGenuine"];

/// What the control hardware can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResctrlOffer {
    /// Classes, which are groups, with the topmost group.
    pub classes: u32,
    /// Masks of the ways of level 3 caches.
    pub ways: Option<CacheWays>,
    /// Limits of bandwidth.
    pub bandwidth: Option<BandwidthLimit>,
    /// The CPUs of each level 3 cache, by its domain.
    pub caches: BTreeMap<u32, CpuSet>,
    /// Whether the bandwidth of a group is counted.
    pub counts_bytes: bool,
}

/// Masks of cache ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheWays {
    /// The resources that have the mask: one, or those of code and of data.
    pub resources: Vec<&'static str>,
    /// All ways.
    pub all: u64,
    /// Fewest ways in a mask.
    pub least: u32,
    /// Ways that devices or graphics fill as well.
    pub shared_with_devices: u64,
    /// Whether masks may have gaps.
    pub may_have_gaps: bool,
}

/// Limits of bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BandwidthLimit {
    /// What a value counts.
    pub unit: BandwidthUnit,
    /// The least value.
    pub least: u64,
    /// Values are multiples of this.
    pub step: u64,
    /// The value that is no limit.
    pub none: u64,
}

/// What a value of `MB` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandwidthUnit {
    /// Percent of what each core of a group can draw (Intel).
    PercentOfCore,
    /// Percent of what all groups together can draw in a domain (Arm).
    PercentOfGroup,
    /// Eighths of a GB/s of a group in a domain (AMD).
    EighthsOfGigabytes,
    /// MiB/s of a group in a domain: the kernel sets percent by its own loop (`mba_MBps`).
    Mebibytes,
}

impl ResctrlOffer {
    /// Whether there is something to limit.
    pub fn limits_something(&self) -> bool {
        self.ways.is_some() || self.bandwidth.is_some()
    }
}

/// In words; empty if nothing can be limited.
impl fmt::Display for ResctrlOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ways = self.ways.as_ref().map(|ways| {
            let (all, caches) = (ways.all.count_ones(), self.caches.len());
            let shared = match ways.shared_with_devices.count_ones() {
                0 => String::new(),
                shared => format!(" ({shared} of them shared with devices)"),
            };
            format!("{all} ways of {}{shared}", counted(caches, "L3 cache"))
        });
        let bandwidth = self.bandwidth.map(|limit| match limit.unit {
            BandwidthUnit::PercentOfCore => format!("bandwidth of each core in steps of {} %", limit.step),
            BandwidthUnit::PercentOfGroup => format!("bandwidth of a group in steps of {} %", limit.step),
            BandwidthUnit::EighthsOfGigabytes => "bandwidth of a group in steps of 1/8 GB/s".to_owned(),
            BandwidthUnit::Mebibytes => "bandwidth of a group in MiB/s".to_owned(),
        });
        let all: Vec<String> = ways.into_iter().chain(bandwidth).collect();
        if all.is_empty() { Ok(()) } else { write!(f, "{}, {} classes", all.join(", "), self.classes) }
    }
}

/// Reads what `files` offers on the system below `root`. Files that are missing or have another form offer nothing.
pub(super) fn read(files: &dyn ResctrlFiles, root: &Path) -> ResctrlOffer {
    let schemata = files.read("schemata").map(|text| parse_schemata(&text)).unwrap_or_default();
    let caches = last_caches(&root.join("sys"));
    let (ways, way_classes) = ways(files, &schemata).unzip();
    let (bandwidth, limit_classes) = bandwidth(files, &schemata, root).unzip();
    let has_caches = |resource: &str| schemata.domains(resource).all(|(domain, _)| caches.contains_key(&domain));
    let ways = ways.filter(|ways: &CacheWays| ways.resources.iter().all(|resource| has_caches(resource)));
    let bandwidth = bandwidth.filter(|_| has_caches("MB"));
    let features = files.read("info/L3_MON/mon_features").unwrap_or_default();
    ResctrlOffer {
        classes: [way_classes, limit_classes].into_iter().flatten().min().unwrap_or(1),
        ways,
        bandwidth,
        caches,
        counts_bytes: features.lines().any(|feature| feature.trim() == "mbm_total_bytes"),
    }
}

fn file_number(files: &dyn ResctrlFiles, path: &str, radix: u32) -> Option<u64> {
    number(files.read(path).ok()?.trim(), radix)
}

fn ways(files: &dyn ResctrlFiles, schemata: &Schemata) -> Option<(CacheWays, u32)> {
    let has = |resource: &&'static str| schemata.domains(resource).next().is_some();
    let resources: Vec<&'static str> = ["L3", "L3CODE", "L3DATA"].into_iter().filter(has).collect();
    let first = *resources.first()?;
    let number_in = |name: &str, radix| file_number(files, &format!("info/{first}/{name}"), radix);
    // Code and data have masks of their own: one of them alone holds nothing.
    if matches!(resources[..], ["L3CODE" | "L3DATA"]) {
        return None;
    }
    let all = number_in("cbm_mask", 16).filter(|&all| all != 0 && all & all.wrapping_add(1) == 0)?;
    let least = number_in("min_cbm_bits", 10).and_then(|least| u32::try_from(least).ok()).unwrap_or(1);
    let ways = CacheWays {
        all,
        least: least.clamp(1, all.count_ones()),
        shared_with_devices: number_in("shareable_bits", 16).unwrap_or(0) & all,
        may_have_gaps: number_in("sparse_masks", 10) == Some(1),
        resources,
    };
    Some((ways, classes(number_in("num_closids", 10))?))
}

/// The hardware has at most 2^16 classes, and no use of more is known.
fn classes(number: Option<u64>) -> Option<u32> {
    number.filter(|number| (1..=1 << 16).contains(number)).and_then(|number| u32::try_from(number).ok())
}

fn bandwidth(files: &dyn ResctrlFiles, schemata: &Schemata, root: &Path) -> Option<(BandwidthLimit, u32)> {
    let most = schemata.domains("MB").map(|(_, value)| value).max()?;
    let number_in = |name: &str| file_number(files, &format!("info/MB/{name}"), 10);
    let step = number_in("bandwidth_gran").filter(|step| (1..=100).contains(step))?;
    let least = number_in("min_bandwidth").filter(|&least| least <= 100)?.max(step);
    let vendor = vendor(root);
    let limit = if has_option(root, "mba_MBps") {
        BandwidthLimit { unit: BandwidthUnit::Mebibytes, least: 1, step: 1, none: NO_MEBIBYTES }
    } else if AMD.contains(&vendor.as_str()) {
        let none = most.clamp(NO_EIGHTHS, 1 << 20).next_power_of_two();
        BandwidthLimit { unit: BandwidthUnit::EighthsOfGigabytes, least, step, none }
    } else {
        let unit = if vendor == "GenuineIntel" { BandwidthUnit::PercentOfCore } else { BandwidthUnit::PercentOfGroup };
        BandwidthLimit { unit, least, step, none: 100 }
    };
    Some((limit, classes(number_in("num_closids"))?))
}

/// Whether resctrl is mounted with an option.
fn has_option(root: &Path, option: &str) -> bool {
    let is_it = |line: &str| {
        let mut words = line.split(' ').skip(2);
        words.next() == Some("resctrl") && words.next().is_some_and(|all| all.split(',').any(|one| one == option))
    };
    bounded::text(root.join("proc/mounts")).is_ok_and(|text| text.lines().any(is_it))
}

/// The processor's vendor, where /proc/cpuinfo has it: on x86.
fn vendor(root: &Path) -> String {
    let text = bounded::text(root.join("proc/cpuinfo")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("vendor_id"));
    line.and_then(|line| line.split_once(':')).map_or_else(String::new, |(_, vendor)| vendor.trim().to_owned())
}
