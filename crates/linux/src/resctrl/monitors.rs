//! Traffic between each last-level cache and memory: the bandwidth monitors of resctrl.

use crate::resctrl::folder::NO_GROUPS;
use crate::{Cause, CpuSet, Diagnosis};
use machine::{CpuId, bounded};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The command that makes resctrl's files appear.
pub const MOUNT_RESCTRL: &str = "sudo mount -t resctrl resctrl /sys/fs/resctrl";

/// Traffic between one last-level cache and memory since its monitors started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheTraffic {
    /// The CPUs that share the cache.
    pub cpus: CpuSet,
    /// Bytes to and from memory of its own node.
    pub local_bytes: u64,
    /// Bytes to and from any memory.
    pub total_bytes: u64,
}

/// The bandwidth monitors of a machine's last-level caches (Intel's MBM, and the equivalents of AMD and Arm). Not yet
/// tested on hardware.
#[derive(Clone, Debug)]
pub struct BandwidthMonitors {
    folder: PathBuf,
    /// The CPUs of each cache, by cache ID.
    caches: BTreeMap<u32, CpuSet>,
}

impl BandwidthMonitors {
    /// Finds the monitors in `folder`, which is `/sys/fs/resctrl`, of the caches below `sys`. Since Linux 4.14; root
    /// must mount it, after which it is readable by all users.
    pub fn find(folder: &Path, sys: &Path) -> Result<Self, Diagnosis> {
        let failed = |why: &str, remedy: Option<&str>| Diagnosis {
            cause: Cause::Other(why.to_owned()),
            remedy: remedy.map(str::to_owned),
        };
        if !folder.join("info").is_dir() {
            return Err(failed("resctrl is not mounted, or the processor does not support it", Some(MOUNT_RESCTRL)));
        }
        let monitors = Self { folder: folder.to_owned(), caches: last_caches(sys) };
        if monitors.read().is_empty() {
            return Err(failed("resctrl monitors no memory bandwidth on this processor", None));
        }
        Ok(monitors)
    }

    /// The CPUs of each cache.
    pub fn caches(&self) -> impl Iterator<Item = &CpuSet> {
        self.caches.values()
    }

    /// The totals so far, by cache, summed over all groups, as each task is in one of them. A cache whose totals are
    /// unavailable is left out.
    pub fn read(&self) -> Vec<CacheTraffic> {
        let groups = children(&self.folder).into_iter().filter(|(name, _)| !NO_GROUPS.contains(&name.as_str()));
        // A group's totals include those of the monitoring groups within it.
        let groups: Vec<PathBuf> = [self.folder.clone()].into_iter().chain(groups.map(|(_, path)| path)).collect();
        let mut all: BTreeMap<u32, Option<(u64, u64)>> = BTreeMap::new();
        for (name, domain) in groups.iter().flat_map(|group| children(&group.join("mon_data"))) {
            let Some(id) = name.strip_prefix("mon_L3_").and_then(|id| id.parse().ok()) else { continue };
            // Reads `Unavailable` for some time after a group was created.
            let number = |file: &str| bounded::text(domain.join(file)).ok()?.trim().parse::<u64>().ok();
            let told = number("mbm_local_bytes").zip(number("mbm_total_bytes"));
            let sum = all.entry(id).or_insert(Some((0, 0)));
            *sum = sum.zip(told).map(|(sum, told)| (sum.0.saturating_add(told.0), sum.1.saturating_add(told.1)));
        }
        let traffic = |(id, sum): (u32, Option<(u64, u64)>)| {
            let (local_bytes, total_bytes) = sum?;
            Some(CacheTraffic { cpus: self.caches.get(&id)?.clone(), local_bytes, total_bytes })
        };
        all.into_iter().filter_map(traffic).collect()
    }
}

/// Subdirectories, by name.
fn children(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    let mut all: Vec<_> =
        entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path()))).collect();
    all.sort_unstable();
    all
}

/// The CPUs of each level 3 cache, by resctrl's cache ID.
pub(super) fn last_caches(sys: &Path) -> BTreeMap<u32, CpuSet> {
    let mut caches: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for (name, cpu) in children(&sys.join("devices/system/cpu")) {
        let Some(number) = name.strip_prefix("cpu").and_then(|number| number.parse().ok()) else { continue };
        for (_, cache) in children(&cpu.join("cache")) {
            let number_in = |file: &str| bounded::text(cache.join(file)).ok()?.trim().parse::<u32>().ok();
            if let (Some(3), Some(id)) = (number_in("level"), number_in("id")) {
                caches.entry(id).or_default().insert(CpuId(number));
            }
        }
    }
    caches
}

#[cfg(test)]
mod tests {
    use super::*;
    use saved_files::SavedFiles;

    fn saved(files: &[(&str, &str)]) -> SavedFiles {
        let root = SavedFiles::new();
        for (path, text) in files {
            root.put(path, &format!("{text}\n"));
        }
        root
    }

    const SYS: [(&str, &str); 8] = [
        ("sys/devices/system/cpu/cpu0/cache/index3/level", "3"),
        ("sys/devices/system/cpu/cpu0/cache/index3/id", "0"),
        ("sys/devices/system/cpu/cpu1/cache/index3/level", "3"),
        ("sys/devices/system/cpu/cpu1/cache/index3/id", "1"),
        ("sys/devices/system/cpu/cpu2/cache/index2/level", "2"),
        ("sys/devices/system/cpu/cpu2/cache/index3/level", "3"),
        ("sys/devices/system/cpu/cpu2/cache/index3/id", "1"),
        ("sys/devices/system/cpu/cpufreq/boost", "1"),
    ];

    #[test]
    fn groups_are_added_up_and_what_is_not_known_now_is_left_out() {
        let mut files = SYS.to_vec();
        files.extend([
            ("resctrl/info/L3_MON/num_rmids", "8"),
            ("resctrl/mon_data/mon_L3_00/mbm_local_bytes", "100"),
            ("resctrl/mon_data/mon_L3_00/mbm_total_bytes", "150"),
            ("resctrl/mon_data/mon_L3_00/llc_occupancy", "7"),
            ("resctrl/mon_data/mon_L3_01/mbm_local_bytes", "10"),
            ("resctrl/mon_data/mon_L3_01/mbm_total_bytes", "10"),
            ("resctrl/batch/mon_data/mon_L3_00/mbm_local_bytes", "1"),
            ("resctrl/batch/mon_data/mon_L3_00/mbm_total_bytes", "2"),
            ("resctrl/batch/mon_groups/one/mon_data/mon_L3_00/mbm_total_bytes", "1000"),
            ("resctrl/mon_groups/two/mon_data/mon_L3_00/mbm_total_bytes", "1000"),
        ]);
        let root = saved(&files);
        let find = || BandwidthMonitors::find(&root.path().join("resctrl"), &root.path().join("sys"));
        let traffic = |cpus: &str, local_bytes, total_bytes| CacheTraffic {
            cpus: cpus.parse().unwrap(),
            local_bytes,
            total_bytes,
        };
        assert_eq!(find().unwrap().read(), [traffic("0", 101, 152), traffic("1-2", 10, 10)]);
        root.put("resctrl/batch/mon_data/mon_L3_00/mbm_local_bytes", "Unavailable\n");
        assert_eq!(find().unwrap().read(), [traffic("1-2", 10, 10)]);
    }

    #[test]
    fn without_monitors_the_reason_is_reported() {
        let root = saved(&SYS);
        let find = || BandwidthMonitors::find(&root.path().join("resctrl"), &root.path().join("sys")).unwrap_err();
        assert!(find().to_string().contains("mount -t resctrl"), "{}", find());
        root.put("resctrl/info/L3/num_closids", "16\n");
        assert!(find().to_string().contains("monitors no memory bandwidth"), "{}", find());
    }
}
