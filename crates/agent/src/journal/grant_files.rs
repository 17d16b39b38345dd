//! The files and control groups that grants change, and so the only ones that a journal may restore or remove for them.

use crate::grants::ControlWord;
use machine::CpuSet;
use std::path::{Component, Path};

/// Beginning of the names of grants' control groups; a number follows, and `-idle` for CPUs that stay idle, `-shared` for
/// programs whose grant has no CPUs any more.
pub const GROUP: &str = "nearside-grant-";
/// The control group of an isolated zone, in which grants then have theirs.
pub const ZONE: &str = "nearside-zone";
/// Where control groups of version 2 are, in every distribution: in the second place beside those of version 1.
const CGROUPS: [&str; 2] = ["/sys/fs/cgroup/unified/", "/sys/fs/cgroup/"];

/// Whether this is the folder of a grant's control group, or of an isolated zone's.
pub(super) fn is_group(path: &Path) -> bool {
    let Some(name) = path.to_str().and_then(below_cgroups) else { return false };
    let name = match name.strip_prefix(ZONE) {
        Some("") => return true,
        Some(within) => within.strip_prefix('/').unwrap_or_default(),
        None => name,
    };
    let name = name.strip_prefix(GROUP);
    let endings = ["-idle", "-shared"];
    let number = name.map(|name| endings.into_iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The number of the grant in whose control group a group is, by its path from the topmost one. Adopted groups have names
/// of their own.
pub fn grant_of(cgroup: &str) -> Option<&str> {
    let mut names = cgroup.trim_start_matches('/').split('/');
    let first = names.next()?;
    let name = if first == ZONE { names.next()? } else { first };
    name.strip_prefix(GROUP)?.split('-').next()
}

/// A path within the control groups.
fn below_cgroups(path: &str) -> Option<&str> {
    CGROUPS.iter().find_map(|folder| path.strip_prefix(folder))
}

/// Whether a grant may have changed this file, and this can be its former value.
pub(super) fn is_setting(path: &Path, before: &str) -> bool {
    let Some(text) = path.to_str() else { return false };
    if let Some((_, word)) = ControlWord::named(path) {
        return word.parse(before).is_some();
    }
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let irq = text.strip_prefix("/proc/irq/").and_then(|rest| rest.strip_suffix("/smp_affinity_list"));
    if irq.is_some_and(is_number) {
        return before.parse::<CpuSet>().is_ok();
    }
    let stays_below = path.components().all(|part| part != Component::ParentDir);
    let is_size = |text: &str| text == "max" || is_number(text);
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    below_cgroups(text).is_some()
        && stays_below
        && match name {
            "cpu.max" => before.split_once(' ').is_some_and(|(quota, period)| is_size(quota) && is_number(period)),
            "cpuset.cpus" | "cpuset.mems" => before.parse::<CpuSet>().is_ok(),
            "cpuset.cpus.partition" => before == "member",
            "memory.max" => is_size(before),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grants_groups_are_known_by_their_names() {
        for (group, grant) in [
            ("/nearside-grant-7", Some("7")),
            ("/nearside-grant-7-shared/service", Some("7")),
            ("/nearside-zone/nearside-grant-12-idle", Some("12")),
            ("/nearside-zone", None),
            ("/user.slice/nearside-grant-7", None),
            ("/", None),
        ] {
            assert_eq!(grant_of(group), grant, "{group}");
        }
    }

    #[test]
    fn only_what_grants_change_is_restored() {
        const CGROUPS: &str = "/sys/fs/cgroup/";
        for group in ["7", "12-idle", "12-shared"].map(|end| format!("{GROUP}{end}")) {
            for folder in super::CGROUPS {
                assert!(is_group(Path::new(&format!("{folder}{group}"))), "{group}");
                assert!(is_group(Path::new(&format!("{folder}{ZONE}/{group}"))), "{group}");
            }
        }
        for other in
            ["", "x", "7/x", "../x", "7-idle/..", "-idle", "7-idle-shared"].map(|end| format!("{CGROUPS}{GROUP}{end}"))
        {
            assert!(!is_group(Path::new(&other)), "{other}");
        }
        assert!(is_group(Path::new("/sys/fs/cgroup/nearside-zone")));
        for other in ["/etc/nearside-grant-7", "/etc/nearside-zone", "/sys/fs/cgroup/nearside-zone2"] {
            assert!(!is_group(Path::new(other)), "{other}");
        }
        assert!(!is_group(Path::new("/sys/fs/cgroup/nearside-zone/../nearside-grant-7")));
        for (path, before) in [
            ("/proc/irq/9/smp_affinity_list", "0-47"),
            ("/sys/fs/cgroup/batch/cpu.max", "max 100000"),
            ("/sys/fs/cgroup/a/b/cpu.max", "5000 10000"),
            ("/sys/fs/cgroup/a/cpuset.cpus", ""),
            ("/sys/fs/cgroup/a/b/cpuset.mems", "0-1"),
            ("/sys/fs/cgroup/a/cpuset.cpus.partition", "member"),
            ("/sys/fs/cgroup/a/memory.max", "max"),
            ("/lab-control/cpu-7/class", "0"),
            ("/lab-control/class-0/ways-3", "0xfffff"),
            ("/lab-control/class-0/limit-3", "max"),
            ("/resctrl/class-0/limit-3", "max"),
        ] {
            assert!(is_setting(Path::new(path), before), "{path}");
        }
        for (path, before) in [
            ("/proc/irq/9/smp_affinity_list", "x"),
            ("/proc/irq/../smp_affinity_list", "0"),
            ("/sys/fs/cgroup/../../etc/cpu.max", "max 1"),
            ("/sys/fs/cgroup/a/cgroup.procs", "1 1"),
            ("/sys/fs/cgroup/a/cpu.max", "max"),
            ("/sys/fs/cgroup/a/cpuset.cpus", "x"),
            ("/sys/fs/cgroup/a/cpuset.cpus.partition", "root"),
            ("/sys/fs/cgroup/a/memory.max", ""),
            ("/sys/fs/cgroup/a/cgroup.kill", "1"),
            ("/lab-control/class-0/ways-3", "max"),
            ("/lab-control/../etc/passwd", "0"),
            ("/resctrl/../etc/passwd", "0"),
            ("/etc/passwd", "max 1"),
        ] {
            assert!(!is_setting(Path::new(path), before), "{path}");
        }
    }
}
