//! Control groups, version 2: the group of a process, the CPUs and nodes that a group allows, and where its memory is.

use crate::file::{FileError, parsed};
use crate::nodes::node_files::parse_counters;
use crate::processes::process::{MalformedLine, Process, ProcessError};
use machine::{CpuSet, NodeId, NodeSet, bounded};
use std::path::{Component, Path, PathBuf};

/// Prefixes of the kernel's names for kinds that count events.
const EVENTS: [&str; 5] = ["workingset_", "pgdemote_", "pgpromote_", "pgscan_", "pgsteal_"];

/// Why a control group cannot be inspected.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The version 2 hierarchy is not mounted.
    #[error(
        "no control groups of version 2: /proc/self/mountinfo has no file system `cgroup2`; this kernel or container \
         has none, or version 1 only"
    )]
    NotMounted,
    /// Groups of version 2 cannot have this controller, usually because version 1 has it.
    #[error(
        "control groups of version 2 cannot have the {controller} controller: {}/cgroup.controllers has {}; if version 1 \
         has it, start the kernel with systemd.unified_cgroup_hierarchy=1 or cgroup_no_v1=all",
        folder.display(),
        if has.is_empty() { "none" } else { has }
    )]
    NoController {
        /// The directory of the topmost group.
        folder: PathBuf,
        /// The controller.
        controller: String,
        /// The controllers that it has.
        has: String,
    },
    /// The process cannot be inspected.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file of the group cannot be read or parsed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The version 2 control group hierarchy (Linux 4.5; cpusets in it since 5.0).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups {
    folder: PathBuf,
    /// The group that is mounted there. In a container without its own cgroup namespace it is not the root group.
    mounted: PathBuf,
}

/// The CPUs and nodes that a control group allows its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveCpuset {
    /// The group that sets them: the process's own, or its nearest ancestor with a cpuset.
    pub cgroup: String,
    /// Allowed CPUs.
    pub cpus: CpuSet,
    /// Allowed memory nodes.
    pub nodes: NodeSet,
}

/// Memory of one kind in a group, by node, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupMemory {
    /// The kind, in the kernel's words: `anon`, `file`, `shmem`, `anon_thp` and more.
    pub kind: String,
    /// Bytes on each node, in the kernel's order; for a few kinds the values count [events](Self::is_bytes).
    pub by_node: Vec<(NodeId, u64)>,
}

/// The memory limit of a control group, and its unreclaimable usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The group.
    pub cgroup: String,
    /// The limit in bytes.
    pub max_bytes: u64,
    /// Bytes in use, without what the kernel can reclaim: page cache and its own caches.
    pub used_bytes: u64,
    /// Bytes that the group may still swap out, if there is that much swap.
    pub swap_bytes: u64,
}

impl Cgroups {
    /// Finds the hierarchy of this system. Needs no privileges.
    pub fn find() -> Result<Self, CgroupError> {
        Self::find_in(Path::new("/"))
    }

    /// Finds the hierarchy of a saved system that has `proc/self/mountinfo`.
    pub fn find_in(root: &Path) -> Result<Self, CgroupError> {
        let path = root.join("proc/self/mountinfo");
        let text = bounded::text(&path).map_err(|source| FileError::Read { path, source })?;
        let (mounted, folder) = cgroup2_mount(&text).ok_or(CgroupError::NotMounted)?;
        Ok(Self { folder: root.join(folder.trim_start_matches('/')), mounted: mounted.into() })
    }

    /// The directory of the topmost mounted group.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Checks that groups can have a controller. Needs no privileges.
    pub fn requires(&self, controller: &str) -> Result<(), CgroupError> {
        let has =
            parsed(&self.folder.join("cgroup.controllers"), |text| Ok::<_, MalformedLine>(text.trim().to_owned()))?;
        let has = has.unwrap_or_default();
        if has.split_whitespace().any(|name| name == controller) {
            return Ok(());
        }
        Err(CgroupError::NoController { folder: self.folder.clone(), controller: controller.to_owned(), has })
    }

    /// The group of a process, as a path from the topmost mounted group, which is `/`. A group outside of it, or
    /// outside of our own cgroup namespace, begins with `/..`. Needs no privileges.
    pub fn of(&self, process: &Process) -> Result<String, CgroupError> {
        let group = parse_cgroup(&process.text("cgroup")?).ok_or(CgroupError::NotMounted)?;
        Ok(path_within(&group, &self.mounted))
    }

    /// The CPUs and nodes that a group allows. `None` if neither it nor an ancestor has a cpuset, and for groups
    /// outside of the mount. Needs no privileges.
    pub fn effective_cpuset(&self, cgroup: &str) -> Result<Option<EffectiveCpuset>, CgroupError> {
        if is_outside(cgroup) {
            return Ok(None);
        }
        for ancestor in Path::new(cgroup).ancestors() {
            let folder = self.folder_of(ancestor);
            let (cpus, nodes) = (folder.join("cpuset.cpus.effective"), folder.join("cpuset.mems.effective"));
            if let (Some(cpus), Some(nodes)) = (parsed(&cpus, str::parse)?, parsed(&nodes, str::parse)?) {
                return Ok(Some(EffectiveCpuset { cgroup: ancestor.display().to_string(), cpus, nodes }));
            }
        }
        Ok(None)
    }

    /// Where a group's memory is (Linux 5.9). `None` if it has no memory controller, and for groups outside of the
    /// mount. Needs no privileges.
    pub fn memory(&self, cgroup: &str) -> Result<Option<Vec<CgroupMemory>>, CgroupError> {
        if is_outside(cgroup) {
            return Ok(None);
        }
        Ok(parsed(&self.folder_of(cgroup).join("memory.numa_stat"), parse_memory_numa_stat)?)
    }

    /// The memory limits (`memory.max`, Linux 4.5) of a group and its ancestors, from the group upwards. Groups without
    /// a limit, and all groups outside of the mount, are left out. Needs no privileges.
    pub fn memory_limits(&self, cgroup: &str) -> Result<Vec<MemoryLimit>, CgroupError> {
        if is_outside(cgroup) {
            return Ok(Vec::new());
        }
        let limits = Path::new(cgroup).ancestors().map(|ancestor| self.memory_limit(ancestor));
        limits.filter_map(Result::transpose).collect()
    }

    fn memory_limit(&self, cgroup: &Path) -> Result<Option<MemoryLimit>, CgroupError> {
        let folder = self.folder_of(cgroup);
        let bytes =
            |name: &str| parsed(&folder.join(name), |text| if text == "max" { Ok(u64::MAX) } else { text.parse() });
        let Some(max_bytes) = bytes("memory.max")?.filter(|max| *max < u64::MAX) else { return Ok(None) };
        let used_bytes = bytes("memory.current")?.unwrap_or(0);
        let uses = parsed(&folder.join("memory.stat"), parse_counters)?.unwrap_or_default();
        let given_back =
            ["inactive_file", "active_file", "slab_reclaimable"].map(|name| uses.get(name).copied().unwrap_or(0));
        Ok(Some(MemoryLimit {
            cgroup: cgroup.display().to_string(),
            max_bytes,
            used_bytes: used_bytes.saturating_sub(given_back.iter().sum()),
            swap_bytes: bytes("memory.swap.max")?
                .unwrap_or(0)
                .saturating_sub(bytes("memory.swap.current")?.unwrap_or(0)),
        }))
    }

    /// The folder of a group of this name, such as [`of`](Self::of) returns.
    pub fn folder_of(&self, cgroup: impl AsRef<Path>) -> PathBuf {
        let cgroup = cgroup.as_ref();
        self.folder.join(cgroup.strip_prefix("/").unwrap_or(cgroup))
    }
}

impl CgroupMemory {
    /// Whether this kind counts bytes rather than events.
    pub fn is_bytes(kind: &str) -> bool {
        !EVENTS.iter().any(|start| kind.starts_with(start))
    }
}

/// The path of a group from the one that is mounted; it begins with `/..` outside of that.
pub(super) fn path_within(group: &str, mounted: &Path) -> String {
    let inside = Path::new(group).strip_prefix(mounted).map(|inside| Path::new("/").join(inside));
    inside.map_or_else(|_| format!("/..{group}"), |inside| inside.display().to_string())
}

/// Whether a group's path leads out of the hierarchy.
pub(super) fn is_outside(cgroup: &str) -> bool {
    Path::new(cgroup).components().any(|component| component == Component::ParentDir)
}

/// The version 2 group and mount point in the text of /proc/PID/mountinfo. The first mount wins.
pub fn cgroup2_mount(mountinfo: &str) -> Option<(String, String)> {
    mount(mountinfo, |kind, _| kind == "cgroup2")
}

/// The mounted folder and mount point of the first file system of this kind and with such options.
pub(super) fn mount(mountinfo: &str, is_wanted: impl Fn(&str, &str) -> bool) -> Option<(String, String)> {
    let wanted = |line: &str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut file_system = file_system.split(' ');
        let (kind, options) = (file_system.next()?, file_system.nth(1).unwrap_or_default());
        let mut words = mount.split(' ').skip(3).map(unescaped);
        is_wanted(kind, options).then(|| Some((words.next()?, words.next()?)))?
    };
    mountinfo.lines().find_map(wanted)
}

/// The version 2 group in the text of /proc/PID/cgroup.
pub fn parse_cgroup(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix("0::")).map(|path| {
        // The group was removed while it had processes.
        path.strip_suffix(" (deleted)").unwrap_or(path).to_owned()
    })
}

/// Parses `memory.numa_stat`, version 2: `anon N0=8192 N1=0`.
pub fn parse_memory_numa_stat(text: &str) -> Result<Vec<CgroupMemory>, MalformedLine> {
    let value = |word: &str| {
        let (node, bytes) = word.strip_prefix('N')?.split_once('=')?;
        Some((NodeId(node.parse().ok()?), bytes.parse().ok()?))
    };
    let kind = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let kind = words.next()?.to_owned();
        Some(CgroupMemory { kind, by_node: words.map(value).collect::<Option<_>>()? })
    };
    text.lines().map(|line| kind(line).ok_or_else(|| MalformedLine(line.to_owned()))).collect()
}

/// Decodes the octal escapes of the kernel's path lists, such as `\040` for a space.
pub(crate) fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            bytes.push(byte);
            rest = &after[3..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::process::Pid;
    use proptest::prelude::*;
    use saved_files::SavedFiles;

    const HYBRID: &str = "\
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw,relatime shared:9 - cgroup2 cgroup2 rw
";

    #[test]
    fn the_hierarchy_and_the_group_are_found_among_older_ones() {
        assert_eq!(cgroup2_mount(HYBRID), Some(("/".to_owned(), "/sys/fs/cgroup/uni fied".to_owned())));
        assert_eq!(cgroup2_mount("34 31 0:31 / /a rw - cgroup cgroup2 rw\n"), None);
        assert_eq!(parse_cgroup("3:cpuset:/a\n0::/b/c (deleted)\n").as_deref(), Some("/b/c"));
        assert_eq!(parse_cgroup("3:cpuset:/a\n"), None);
    }

    #[test]
    fn the_nearest_cpuset_above_holds() {
        let root = SavedFiles::new();
        root.put("proc/self/mountinfo", HYBRID);
        root.put("proc/7/cgroup", "0::/top/leaf\n");
        let unified = "sys/fs/cgroup/uni fied";
        root.put(&format!("{unified}/top/cpuset.cpus.effective"), "0-3\n");
        root.put(&format!("{unified}/top/cpuset.mems.effective"), "1\n");
        root.put(&format!("{unified}/top/leaf/memory.numa_stat"), "anon N0=8192 N3=0\nfile N0=4096 N3=1\n");
        root.put(&format!("{unified}/cgroup.controllers"), "cpuset hugetlb\n");
        let cgroups = Cgroups::find_in(root.path()).unwrap();
        assert!(cgroups.requires("cpuset").is_ok());
        let refused = cgroups.requires("cpu").unwrap_err().to_string();
        assert!(
            refused.contains("cannot have the cpu controller: ") && refused.contains("has cpuset hugetlb;"),
            "{refused}"
        );
        let process = Process::open_in(&root.path().join("proc"), Pid(7)).unwrap();
        let cgroup = cgroups.of(&process).unwrap();
        let set = cgroups.effective_cpuset(&cgroup).unwrap().unwrap();
        assert_eq!(
            (set.cgroup.as_str(), set.cpus.to_string().as_str(), set.nodes.to_string().as_str()),
            ("/top", "0-3", "1")
        );
        let memory = cgroups.memory(&cgroup).unwrap().unwrap();
        assert_eq!((memory[1].kind.as_str(), memory[1].by_node[1]), ("file", (NodeId(3), 1)));
        assert_eq!(cgroups.memory("/top").unwrap(), None);
        assert!(memory.iter().all(|memory| CgroupMemory::is_bytes(&memory.kind)));
        assert!(!["workingset_nodes", "pgpromote_success"].into_iter().any(CgroupMemory::is_bytes));
        // The root of our namespace is not an ancestor of groups outside of it.
        assert_eq!(cgroups.effective_cpuset("/../top").unwrap(), None);
        assert_eq!(cgroups.memory("/../top/leaf").unwrap(), None);
        root.put(&format!("{unified}/top/memory.max"), "65536\n");
        root.put(&format!("{unified}/top/memory.current"), "32768\n");
        root.put(&format!("{unified}/top/memory.stat"), "anon 4096\ninactive_file 20480\n");
        root.put(&format!("{unified}/top/leaf/memory.max"), "max\n");
        let limit = MemoryLimit { cgroup: "/top".to_owned(), max_bytes: 65536, used_bytes: 12288, swap_bytes: 0 };
        assert_eq!(cgroups.memory_limits(&cgroup).unwrap(), [limit]);
        assert_eq!(cgroups.effective_cpuset("/").unwrap(), None);
        root.put(&format!("{unified}/cpuset.cpus.effective"), "x\n");
        root.put(&format!("{unified}/cpuset.mems.effective"), "0\n");
        assert!(matches!(cgroups.effective_cpuset("/"), Err(CgroupError::File(FileError::Malformed { .. }))));
        assert!(matches!(Cgroups::find_in(Path::new("/nowhere")), Err(CgroupError::File(FileError::Read { .. }))));
    }

    #[test]
    fn a_machine_with_version_1_is_refused_in_a_sentence_that_says_so() {
        let root = SavedFiles::new();
        let version_1 = HYBRID.lines().next().unwrap();
        root.put("proc/self/mountinfo", &format!("{version_1}\n"));
        let none = Cgroups::find_in(root.path()).unwrap_err().to_string();
        assert!(none.starts_with("no control groups of version 2: ") && none.ends_with(" version 1 only"), "{none}");
        // As on systemd's hybrid machines, where version 1 has all controllers.
        root.put("proc/self/mountinfo", HYBRID);
        root.put("sys/fs/cgroup/uni fied/cgroup.controllers", "\n");
        let has_none = Cgroups::find_in(root.path()).unwrap().requires("cpuset").unwrap_err().to_string();
        assert!(
            has_none.contains("has none; if version 1 has it, start the kernel with systemd.unified"),
            "{has_none}"
        );
    }

    #[test]
    fn a_container_may_see_a_part_of_the_hierarchy_under_its_full_names() {
        let root = SavedFiles::new();
        root.put("proc/self/mountinfo", "41 31 0:38 /box/a /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n");
        root.put("proc/7/cgroup", "0::/box/a/leaf\n");
        root.put("proc/8/cgroup", "0::/box/another\n");
        root.put("sys/fs/cgroup/leaf/memory.max", "65536\n");
        let cgroups = Cgroups::find_in(root.path()).unwrap();
        let of = |pid| cgroups.of(&Process::open_in(&root.path().join("proc"), Pid(pid)).unwrap()).unwrap();
        assert_eq!((of(7).as_str(), of(8).as_str()), ("/leaf", "/../box/another"));
        assert_eq!(cgroups.memory_limits(&of(7)).unwrap()[0].max_bytes, 65536);
        assert_eq!(cgroups.memory_limits(&of(8)).unwrap(), []);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = (cgroup2_mount(&text), parse_cgroup(&text), parse_memory_numa_stat(&text), unescaped(&text));
        }
    }
}
