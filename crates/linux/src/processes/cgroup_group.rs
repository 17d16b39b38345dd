//! Control groups that this process makes: partitions of CPUs, nodes of memory, limits.

use crate::processes::cgroup::Cgroups;
use crate::refusals::switch::{Switch, SwitchError};
use machine::{CpuSet, bounded};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Rounds in which processes are moved out of a group while new ones are started in it.
const MOST_ROUNDS: usize = 50;
/// Rounds after which its processes are frozen, so that they start no more.
const ROUNDS_UNFROZEN: usize = 5;
/// Between two tries to remove a group whose last process is still ending.
const PAUSE: Duration = Duration::from_millis(2);
/// Longest time that such a process may take: it gives back its memory, and is in no list any more.
const ENDING: Duration = Duration::from_secs(5);

/// A control group of version 2. Needs root for all but reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupGroup {
    folder: PathBuf,
}

/// Kinds of CPU partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// Its CPUs are its own, and the kernel balances load among them (Linux 5.0).
    Root,
    /// Its CPUs are its own, without load balancing (Linux 6.6).
    Isolated,
}

/// Why a group cannot be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupGroupError {
    /// The system refused.
    #[error("cannot {what} the control group {}", path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// Its folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file of it was refused.
    #[error(transparent)]
    File(#[from] SwitchError),
    /// The kernel took the value and did not make the partition.
    #[error(
        "the kernel makes no partition of {}: cpuset.cpus.partition is `{state}`{}", path.display(), in_the_way(others)
    )]
    NoPartition {
        /// Its folder.
        path: PathBuf,
        /// The file's content, which has the kernel's reason.
        state: String,
        /// Groups beside it whose lists have some of its CPUs, with these CPUs.
        others: Vec<(PathBuf, CpuSet)>,
    },
}

/// What to do about groups that have CPUs of a partition.
fn in_the_way(others: &[(PathBuf, CpuSet)]) -> String {
    let line = |(group, cpus): &(PathBuf, CpuSet)| {
        let group = group.display();
        format!("; {group} has CPUs {cpus} in its cpuset.cpus: take them out of it, or ask for other CPUs")
    };
    others.iter().map(line).collect::<Vec<_>>().concat()
}

impl Partition {
    /// The kernel's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Isolated => "isolated",
        }
    }
}

impl CgroupGroup {
    /// The group of this name below the topmost mounted one, which may not exist.
    pub fn below(cgroups: &Cgroups, name: &str) -> Self {
        Self::at(cgroups.folder().join(name))
    }

    /// The group in this folder, which may not exist.
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes it, with the controllers for CPUs and memory. Fails if it exists.
    pub fn create(&self) -> Result<(), CgroupGroupError> {
        if let Some(parent) = self.folder.parent() {
            for controller in ["+cpuset", "+cpu", "+memory"] {
                Switch::at(parent.join("cgroup.subtree_control")).set(controller)?;
            }
        }
        fs::create_dir(&self.folder).map_err(self.failed("make"))
    }

    /// The content of one of its files, without the last line's end.
    pub fn value(&self, file: &str) -> Result<String, CgroupGroupError> {
        Ok(Switch::at(self.folder.join(file)).value()?)
    }

    /// Whether it has processes.
    pub fn has_processes(&self) -> bool {
        self.value("cgroup.events").is_ok_and(|events| events.lines().any(|line| line == "populated 1"))
    }

    /// Writes one of its files.
    pub fn set(&self, file: &str, value: &str) -> Result<(), CgroupGroupError> {
        Ok(Switch::at(self.folder.join(file)).set(value)?)
    }

    /// Makes its CPUs a partition, and reads back whether the kernel did: an unfulfillable request is no error of the
    /// write. From one kind to another the way is over an ordinary group.
    pub fn make_partition(&self, kind: Partition) -> Result<(), CgroupGroupError> {
        const FILE: &str = "cpuset.cpus.partition";
        self.set(FILE, "member")?;
        self.set(FILE, kind.name())?;
        let state = Switch::at(self.folder.join(FILE)).value()?;
        if state == kind.name() {
            return Ok(());
        }
        let others = if state.contains("not exclusive") { self.others_with_its_cpus() } else { Vec::new() };
        Err(CgroupGroupError::NoPartition { path: self.folder.clone(), state, others })
    }

    /// Groups beside it whose lists of CPUs have some of its own, which the kernel allows no partition; with these CPUs.
    fn others_with_its_cpus(&self) -> Vec<(PathBuf, CpuSet)> {
        let cpus =
            |folder: &Path| -> Option<CpuSet> { Switch::at(folder.join("cpuset.cpus")).value().ok()?.parse().ok() };
        let own = cpus(&self.folder).unwrap_or_default();
        let beside = self.folder.parent().and_then(|parent| fs::read_dir(parent).ok());
        let folders = beside.into_iter().flatten().flatten().map(|entry| entry.path());
        let others = folders.filter(|folder| *folder != self.folder).filter_map(|folder| {
            let both = cpus(&folder)?.intersection(&own);
            (!both.is_empty()).then_some((folder, both))
        });
        others.collect()
    }

    /// Its list of processes, for [`ChildSetup::join`](crate::ChildSetup::join). Must not be passed on: the kernel
    /// checks the rights of the process that opened it.
    pub fn processes_file(&self) -> Result<File, CgroupGroupError> {
        let file = OpenOptions::new().write(true).open(self.folder.join("cgroup.procs"));
        file.map_err(self.failed("open the processes of"))
    }

    /// Moves its processes, and those of the groups in it, to the group in another folder, and removes them. Returns whether it was there. Where that group
    /// takes none, since it was removed or has groups of its own, the nearest one above that does gets them.
    pub fn remove(&self, into: &Path) -> Result<bool, CgroupGroupError> {
        let list = self.folder.join("cgroup.procs");
        // The group may be gone, and above the topmost one there is none.
        let lists = into.ancestors().map(|group| group.join("cgroup.procs")).filter(|list| list.is_file());
        let targets: Vec<Switch> = lists.map(Switch::at).collect();
        let began = Instant::now();
        let (mut round, mut was_there) = (0, false);
        while round < MOST_ROUNDS {
            let text = match bounded::text(&list) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(was_there),
                read => read.map_err(self.failed("list the processes of"))?,
            };
            was_there = true;
            let groups = self.groups();
            let is_ending = text.is_empty() && began.elapsed() < ENDING && groups.is_empty();
            round += usize::from(!is_ending);
            if round == ROUNDS_UNFROZEN && !is_ending {
                // Those that are moved go on.
                let _ = self.set("cgroup.freeze", "1");
            }
            // What stays of them is reported as that of this one.
            for group in groups {
                let list = bounded::text(group.folder.join("cgroup.procs")).unwrap_or_default();
                for pid in list.lines() {
                    let _ = targets.iter().any(|target| target.set(pid).is_ok());
                }
                let _ = fs::remove_dir(&group.folder);
            }
            for pid in text.lines() {
                // A process that has ended meanwhile needs no new group.
                let _ = targets.iter().any(|target| target.set(pid).is_ok());
            }
            match fs::remove_dir(&self.folder) {
                Ok(()) => return Ok(true),
                Err(error) if error.kind() == ErrorKind::ResourceBusy => sleep(PAUSE),
                Err(error) => return Err(self.failed("remove")(error)),
            }
        }
        // Its processes go on, and its CPUs are no longer its own.
        let _ = self.set("cgroup.freeze", "0");
        let _ = self.set("cpuset.cpus.partition", "member");
        Err(self.failed("remove")(ErrorKind::ResourceBusy.into()))
    }

    /// The groups in it, as those of a container that was started there: each after those in it.
    fn groups(&self) -> Vec<Self> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let each = folders.map(|folder| Self::at(folder.path()));
        each.flat_map(|group| group.groups().into_iter().chain([group.clone()])).collect()
    }

    fn failed(&self, what: &'static str) -> impl FnOnce(io::Error) -> CgroupGroupError {
        let path = self.folder.clone();
        move |source| CgroupGroupError::System { what, path, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_partition_is_one_only_if_the_kernel_says_so() {
        let top = tempfile::tempdir().unwrap();
        let [own, other, free] = ["own", "other", "free"].map(|name| top.path().join(name));
        for (folder, cpus) in [(&own, "0-1"), (&other, "1-3"), (&free, "")] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("cpuset.cpus"), cpus).unwrap();
        }
        // It takes each word and keeps none, as a kernel that cannot fulfil them.
        symlink("/dev/null", own.join("cpuset.cpus.partition")).unwrap();
        let group = CgroupGroup::at(own.clone());
        let said = group.make_partition(Partition::Isolated).unwrap_err().to_string();
        assert_eq!(said, format!("the kernel makes no partition of {}: cpuset.cpus.partition is ``", own.display()));
        let how =
            format!("; {} has CPUs 1 in its cpuset.cpus: take them out of it, or ask for other CPUs", other.display());
        assert_eq!(in_the_way(&group.others_with_its_cpus()), how);
    }

    #[test]
    fn processes_go_to_the_nearest_group_that_is_still_there() {
        let folder = tempfile::tempdir().unwrap();
        let (old, above) = (folder.path().join("old"), folder.path().join("above"));
        for group in [&old, &above] {
            fs::create_dir(group).unwrap();
        }
        fs::write(above.join("cgroup.procs"), "").unwrap();
        fs::write(old.join("cgroup.procs"), "77\n").unwrap();
        // The kernel removes a group with its files; here it stays, and what was moved is seen.
        assert!(CgroupGroup::at(old).remove(&above.join("gone/before")).is_err());
        assert_eq!(fs::read_to_string(above.join("cgroup.procs")).unwrap(), "77");
    }

    #[test]
    fn groups_are_listed_after_those_in_them() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("container/init")).unwrap();
        fs::write(folder.path().join("cgroup.procs"), "").unwrap();
        let names = CgroupGroup::at(folder.path().to_owned()).groups().into_iter();
        let names: Vec<_> = names.map(|group| group.folder.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["init", "container"]);
    }
}
