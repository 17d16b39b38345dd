//! The CPUs that a process's cpuset allows, of either version of control groups.

use crate::file::parsed;
use crate::processes::cgroup::{Cgroups, is_outside, mount, path_within};
use crate::processes::process::Process;
use machine::{CpuSet, bounded};
use std::path::{Path, PathBuf};

/// Where cpusets are: in version 2, or, on older and hybrid systems, in a hierarchy of version 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpusets {
    version_2: Option<Cgroups>,
    version_1: Option<Hierarchy>,
    isolated: CpuSet,
}

/// A hierarchy of version 1 with cpusets.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    folder: PathBuf,
    /// The group that is mounted there.
    mounted: PathBuf,
}

impl Cpusets {
    /// Finds them on this system. Needs no privileges.
    pub fn find() -> Self {
        Self::find_in(Path::new("/"))
    }

    /// Finds those of a saved system that has `proc/self/mountinfo`.
    pub fn find_in(root: &Path) -> Self {
        let mountinfo = bounded::text(root.join("proc/self/mountinfo")).unwrap_or_default();
        let has_cpusets = |options: &str| options.split(',').any(|option| option == "cpuset");
        let version_1 = mount(&mountinfo, |kind, options| kind == "cgroup" && has_cpusets(options));
        let version_1 = version_1.map(|(mounted, folder)| Hierarchy {
            folder: root.join(folder.trim_start_matches('/')),
            mounted: mounted.into(),
        });
        // Linux before 4.2 only has its command line, of which it understands more than is read here.
        let resolved = parsed(&root.join("sys/devices/system/cpu/isolated"), str::parse).ok().flatten();
        let isolated = resolved.unwrap_or_else(|| {
            bounded::text(root.join("proc/cmdline")).map(|words| isolated_by(&words)).unwrap_or_default()
        });
        Self { version_2: Cgroups::find_in(root).ok(), version_1, isolated }
    }

    /// The CPUs that a process's cpuset allows, without those that are isolated unless all are; `None` where it has no
    /// cpuset. Needs no privileges.
    pub fn cpus_of(&self, process: &Process) -> Option<CpuSet> {
        let version_2 = |cgroups: &Cgroups| cgroups.effective_cpuset(&cgroups.of(process).ok()?).ok()?;
        let cpuset = self.version_2.as_ref().and_then(version_2).map(|cpuset| cpuset.cpus);
        cpuset.or_else(|| self.version_1.as_ref()?.cpus_of(process)).map(|cpus| self.without_isolated(cpus))
    }

    /// These CPUs without those that the kernel keeps free of threads since it booted (`isolcpus=`), unless all are: the
    /// affinity of a thread that has chosen none leaves them out.
    pub fn without_isolated(&self, cpus: CpuSet) -> CpuSet {
        let left: CpuSet = cpus.iter().filter(|cpu| !self.isolated.contains(*cpu)).collect();
        if left.is_empty() { cpus } else { left }
    }
}

impl Hierarchy {
    fn cpus_of(&self, process: &Process) -> Option<CpuSet> {
        let text = process.text("cgroup").ok()?;
        let cgroup = path_within(group_of(&text)?, &self.mounted);
        if is_outside(&cgroup) {
            return None;
        }
        let folder = self.folder.join(cgroup.trim_start_matches('/'));
        parsed(&folder.join("cpuset.effective_cpus"), str::parse).ok()?
    }
}

/// The CPUs of `isolcpus=` in the kernel's command line, such as `isolcpus=domain,managed_irq,2-5`: with flags and without
/// `domain`, threads run on them as on any.
fn isolated_by(command_line: &str) -> CpuSet {
    // The kernel takes the first.
    let value = command_line.split_ascii_whitespace().find_map(|word| word.strip_prefix("isolcpus="));
    let Some(value) = value else { return CpuSet::new() };
    let list = value.find(|first: char| first.is_ascii_digit()).unwrap_or(value.len());
    let (flags, list) = value.split_at(list);
    let is_domain = flags.is_empty() || flags.split(',').any(|flag| flag == "domain");
    if is_domain { list.parse().unwrap_or_default() } else { CpuSet::new() }
}

/// The group with cpusets in the text of /proc/PID/cgroup, such as `3:cpuset:/docker/a`.
fn group_of(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let has_cpusets = controllers.split(',').any(|controller| controller == "cpuset");
        has_cpusets.then(|| path.strip_suffix(" (deleted)").unwrap_or(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::process::Pid;
    use saved_files::SavedFiles;

    #[test]
    fn version_1_has_the_cpusets_where_version_2_has_none() {
        let root = SavedFiles::new();
        let version_1 = "34 31 0:31 /box /sys/fs/cgroup/cpu\\040set rw - cgroup cgroup rw,cpu,cpuset\n";
        let unified = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        root.put("proc/7/cgroup", "3:cpu,cpuset:/box/a\n2:memory:/m\n0::/b\n");
        root.put("proc/8/cgroup", "3:cpu,cpuset:/other\n0::/b\n");
        root.put("sys/fs/cgroup/cpu set/a/cpuset.effective_cpus", "0-3,8\n");
        let process = |pid| Process::open_in(&root.path().join("proc"), Pid(pid)).unwrap();
        for mounts in [version_1.to_owned(), format!("{version_1}{unified}")] {
            root.put("proc/self/mountinfo", &mounts);
            let cpusets = Cpusets::find_in(root.path());
            let of = |pid| cpusets.cpus_of(&process(pid)).map(|cpus| cpus.to_string());
            assert_eq!((of(7).as_deref(), of(8)), (Some("0-3,8"), None));
        }
        root.put("sys/fs/cgroup/unified/b/cpuset.cpus.effective", "5\n");
        root.put("sys/fs/cgroup/unified/b/cpuset.mems.effective", "0\n");
        let of_both = Cpusets::find_in(root.path()).cpus_of(&process(7));
        assert_eq!(of_both.map(|cpus| cpus.to_string()).as_deref(), Some("5"));
        root.put("proc/self/mountinfo", "");
        assert_eq!(Cpusets::find_in(root.path()).cpus_of(&process(7)), None);
    }

    #[test]
    fn isolated_cpus_are_left_out_unless_all_are() {
        let of = |words: &str| isolated_by(words).to_string();
        assert_eq!(
            ["quiet isolcpus=2-5 nohz_full=6", "isolcpus=domain,managed_irq,7", "quiet"].map(of),
            ["2-5", "7", ""]
        );
        assert_eq!(
            ["isolcpus=nohz,2-5", "isolcpus=1 isolcpus=2", "isolcpus=x", "isolcpus=2-"].map(of),
            ["", "1", "", ""]
        );
        let root = SavedFiles::new();
        root.put("proc/cmdline", "isolcpus=2-5\n");
        let left = |cpus: &str| Cpusets::find_in(root.path()).without_isolated(cpus.parse().unwrap()).to_string();
        assert_eq!([left("0-7"), left("2-3")], ["0-1,6-7", "2-3"]);
    }
}
