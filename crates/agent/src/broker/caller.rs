//! Who calls, and which processes may join a grant.

use crate::journal::{GROUP, grant_of};
use linux::{CgroupGroup, Cgroups, Pid, Process, printable, process_of};
use machine::chain;
use reserve::{Action, Cores, GrantId, Quota};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::path::{Component, Path};

/// What users may have, besides root. A user without an entry, and in no group that has one, may have nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quotas {
    /// By user.
    pub users: BTreeMap<u32, Quota>,
    /// By group: the largest of a user's groups counts.
    pub groups: BTreeMap<u32, Quota>,
}

impl Quotas {
    /// What a user may have; `None` for no limit.
    pub fn of(&self, uid: u32, groups: &[u32]) -> Option<Quota> {
        if uid == 0 {
            return None;
        }
        let of_groups = groups.iter().filter_map(|group| self.groups.get(group));
        let largest = of_groups.max_by_key(|quota| quota.order());
        Some(self.users.get(&uid).or(largest).copied().unwrap_or_default())
    }

    /// What the grants of a user may have that another one changes by a handle. The kernel says the groups of who asks only:
    /// the least of all groups counts.
    pub fn by_handle(&self, uid: u32) -> Option<Quota> {
        let least = Quota {
            bytes: self.groups.values().filter_map(|quota| quota.bytes).min(),
            controllers: self.groups.values().filter_map(|quota| quota.controllers).min(),
            ..Quota::default()
        };
        (uid != 0).then(|| self.users.get(&uid).copied().unwrap_or(least))
    }
}

/// Refuses actions by the handle of another user's grant that are not about this grant alone: it gives its owner's rights
/// to this one, and a further grant, also one on its cache, would be on its owner's account without a quota.
pub(super) fn check_by_handle(owner: u32, owners: &BTreeSet<u32>, actions: &[Action]) -> Result<(), String> {
    let makes = |action: &Action| match action {
        Action::Request(request) => !matches!(request.cores, Cores::Of(_)),
        Action::Guard(..) | Action::Release(..) => false,
    };
    if owners.len() > 1 || actions.iter().any(makes) {
        return Err(format!("a transaction with a grant of user {owner} changes no grants of others and makes none"));
    }
    Ok(())
}

/// The process of a pidfd, if this user may let it join a grant. `held` has the grants' control groups.
pub(super) fn may_enter<'a>(
    pidfd: impl AsFd,
    uid: u32,
    held: impl IntoIterator<Item = (GrantId, &'a Path)>,
) -> Result<Pid, String> {
    let pid = process_of(pidfd).map_err(|error| chain(&error))?;
    let process = Process::open(pid).map_err(|error| chain(&error))?;
    let status = process.status().map_err(|error| chain(&error))?;
    let no = |why: &str| Err(format!("process {pid} cannot join a grant: {why}"));
    if pid.0 == 1 {
        return no("it is the first process of the system");
    }
    if pid.0 == std::process::id() {
        return no("it is the agent");
    }
    if status.is_kernel_thread {
        return no("it is a kernel thread");
    }
    if status.process != Some(pid) {
        return no("it is a thread of another process");
    }
    if matches!(status.state, Some('Z' | 'X')) {
        return no("it has ended");
    }
    let [real, ..] = status.uids;
    if uid != 0 && real != uid {
        return no(&format!("it is of user {real}, and the caller is user {uid}"));
    }
    let cgroups = Cgroups::find().map_err(|error| chain(&error))?;
    let group = cgroups.of(&process).map_err(|error| chain(&error))?;
    let folder = cgroups.folder_of(&group);
    // Of adopted groups, the name does not tell.
    if let Some((id, _)) = held.into_iter().find(|(_, held)| folder.starts_with(held)) {
        return no(&format!("it is in grant {id} already"));
    }
    if let Some(number) = grant_of(&group) {
        return no(&format!("it is in grant {number} already"));
    }
    Ok(pid)
}

/// The control group of this name, if it may become a grant; `isolates` is whether its CPUs are to be a partition.
pub(super) fn may_adopt(cgroup: &str, isolates: bool, cgroups: &Cgroups) -> Result<CgroupGroup, String> {
    let no = |why: &str| Err(format!("control group {} cannot become a grant: {why}", printable(cgroup)));
    let path = Path::new(cgroup);
    let parts: Vec<Component<'_>> = path.components().collect();
    let [Component::RootDir, names @ ..] = &parts[..] else {
        return no("it is named from the topmost one, such as /batch.slice");
    };
    if names.is_empty() || !names.iter().all(|name| matches!(name, Component::Normal(_))) {
        return no("it is the topmost one, or its name has `..`");
    }
    let folder = cgroups.folder().join(path.strip_prefix("/").unwrap_or(path));
    if !folder.join("cgroup.procs").is_file() {
        return no("there is no such control group");
    }
    if names.iter().any(|name| name.as_os_str().to_string_lossy().starts_with(GROUP)) {
        return no("it is a grant's own");
    }
    if !folder.join("cpuset.cpus").is_file() {
        return no("it has no cpuset: write +cpuset to cgroup.subtree_control of the one above it");
    }
    if isolates && names.len() > 1 {
        return no("the kernel makes partitions of topmost groups: leave --isolate core and cache out");
    }
    for pid in [Pid(1), Pid(std::process::id())] {
        let of = Process::open(pid).ok().and_then(|process| cgroups.of(&process).ok());
        if of.is_some_and(|of| Path::new(&of).starts_with(path)) {
            return no("it has the first process of the system, or the agent");
        }
    }
    Ok(CgroupGroup::at(folder))
}

/// Refuses a group that another tool has made a partition, which the end of a grant could not restore.
pub(super) fn check_member(cgroup: &str, group: &CgroupGroup) -> Result<(), String> {
    let partition = std::fs::read_to_string(group.folder().join("cpuset.cpus.partition")).unwrap_or_default();
    if matches!(partition.trim(), "" | "member") {
        return Ok(());
    }
    Err(format!(
        "control group {} cannot become a grant: it is a partition of CPUs already, which grants cannot give back: write \
         member to its cpuset.cpus.partition",
        printable(cgroup)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::open_pidfd;
    use reserve::{Request, Share};
    use rustix::io::Errno;
    use rustix::process::{PidfdFlags, pidfd_open};
    use std::os::fd::OwnedFd;
    use std::process::Command;

    #[test]
    fn only_living_processes_of_the_caller_join() {
        let refused = |pidfd: &OwnedFd, uid, why: &str| {
            let said = may_enter(pidfd, uid, []).unwrap_err();
            assert!(said.contains(why), "{said}");
        };
        let own = open_pidfd(Pid(std::process::id())).unwrap();
        refused(&own, 0, "it is the agent");
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pidfd = open_pidfd(Pid(child.id())).unwrap();
        refused(&pidfd, 54_321, ", and the caller is user 54321");
        child.kill().unwrap();
        // Its parent has not waited for it yet.
        let is_zombie = || Process::open(Pid(child.id())).unwrap().status().unwrap().state == Some('Z');
        while !is_zombie() {
            std::thread::yield_now();
        }
        refused(&pidfd, 0, "it has ended");
        child.wait().unwrap();
        refused(&pidfd, 0, "the process has ended");
        let (send, tid) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || (send.send(rustix::thread::gettid()), ended.recv()).0);
        // A thread's own (PIDFD_THREAD, which is O_EXCL).
        match pidfd_open(tid.recv().unwrap(), PidfdFlags::from_bits_retain(0o200)) {
            Ok(of_thread) => refused(&of_thread, 0, "it is a thread of another process"),
            // Before Linux 6.9 there is none to refuse.
            Err(error) => assert_eq!(error, Errno::INVAL),
        }
        drop(end);
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn groups_that_cannot_become_grants_are_named_with_the_reason() {
        let root = saved_files::SavedFiles::new();
        root.put("proc/self/mountinfo", "35 34 0:32 / /cgroup rw shared:5 - cgroup2 cgroup2 rw\n");
        for group in ["", "none/", "batch/", "batch/inner/", "nearside-grant-7/"] {
            root.put(&format!("cgroup/{group}cgroup.procs"), "");
        }
        for group in ["batch", "batch/inner"] {
            root.put(&format!("cgroup/{group}/cpuset.cpus"), "\n");
        }
        let own = linux::parse_cgroup(&std::fs::read_to_string("/proc/self/cgroup").unwrap());
        let own = own.filter(|own| own != "/").unwrap_or_else(|| "/own".to_owned());
        let cgroups = Cgroups::find_in(root.path()).unwrap();
        let refused = |group: &str| may_adopt(group, true, &cgroups).unwrap_err();
        for (group, why) in [
            ("/", "it is the topmost one, or its name has `..`"),
            ("batch", "it is named from the topmost one, such as /batch.slice"),
            ("/batch/../none", "it is the topmost one, or its name has `..`"),
            ("/nowhere", "there is no such control group"),
            ("/nearside-grant-7", "it is a grant's own"),
            ("/none", "it has no cpuset: write +cpuset to cgroup.subtree_control of the one above it"),
            ("/batch/inner", "the kernel makes partitions of topmost groups: leave --isolate core and cache out"),
        ] {
            assert_eq!(refused(group), format!("control group {group} cannot become a grant: {why}"));
        }
        let group = may_adopt("/batch", true, &cgroups).unwrap();
        assert!(check_member("/batch", &group).is_ok() && may_adopt("/batch/inner", false, &cgroups).is_ok());
        root.put("cgroup/batch/cpuset.cpus.partition", "root\n");
        let said = check_member("/batch", &group).unwrap_err();
        assert!(said.ends_with("cannot give back: write member to its cpuset.cpus.partition"), "{said}");
        // The group of this process, which stands for the agent.
        for file in ["cgroup.procs", "cpuset.cpus"] {
            root.put(&format!("cgroup{own}/{file}"), "");
        }
        if own != "/own" {
            let said = may_adopt(&own, false, &cgroups).unwrap_err();
            assert!(said.ends_with("it has the first process of the system, or the agent"), "{said}");
        }
    }

    #[test]
    fn a_handle_of_another_user_makes_no_grant() {
        let request = |cores| Action::Request(Request { cores, ..Request::default() });
        let id = GrantId(1);
        let may = |owners: &[u32], action| check_by_handle(7, &owners.iter().copied().collect(), &[action]);
        for change in [request(Cores::Of(id)), Action::Guard(id, true), Action::Release(id, Share::All)] {
            assert_eq!(may(&[7], change.clone()), Ok(()));
            assert!(may(&[7, 8], change).unwrap_err().contains("changes no grants of others"));
        }
        for further in [Cores::Any(1), Cores::OnCacheOf(id, 1), Cores::These("0".parse().unwrap())] {
            assert!(may(&[7], request(further)).unwrap_err().ends_with("makes none"));
        }
    }

    #[test]
    fn users_have_what_they_or_their_largest_group_have() {
        let quota = |grants, cores| Quota { grants, cores, ..Quota::default() };
        let quotas = Quotas {
            users: BTreeMap::from([(7, quota(1, 1)), (8, quota(0, 0))]),
            groups: BTreeMap::from([(100, quota(2, 4)), (101, quota(3, 3))]),
        };
        assert_eq!(quotas.of(0, &[]), None);
        assert_eq!(quotas.of(7, &[100]), Some(quota(1, 1)));
        assert_eq!(quotas.of(8, &[100]), Some(quota(0, 0)));
        assert_eq!(quotas.of(9, &[100, 101, 5]), Some(quota(3, 3)));
        assert_eq!(quotas.of(9, &[5]), Some(quota(0, 0)));
        // Of groups that differ in memory only, the one without a limit.
        let limited = Quota { bytes: Some(7), controllers: Some(0), ..quota(3, 3) };
        let groups = BTreeMap::from([(101, quota(3, 3)), (102, limited)]);
        let quotas = Quotas { groups, ..quotas };
        assert_eq!(quotas.of(9, &[102, 101]), Some(quota(3, 3)));
        // Whose groups are not known has the least of any.
        let least = Quota { bytes: Some(7), controllers: Some(0), ..Quota::default() };
        assert_eq!([0, 7, 9].map(|uid| quotas.by_handle(uid)), [None, Some(quota(1, 1)), Some(least)]);
    }
}
