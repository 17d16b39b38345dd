//! Why the kernel refused: derived from errno, the attempted operation, and the state of the system. Pure: the state is
//! gathered by [`SystemState::read`].

use crate::memory::memory_policy::Whose;
use crate::migration::page_batch::PageRefusal;
use crate::processes::process::{Pid, ProcessError, Status};
use crate::refusals::refusal::{Capability, Cause, Diagnosis, with_capability};
use crate::refusals::system_state::{Subject, SystemState};
use machine::{CpuSet, MemoryMode, MemoryPolicy, NodeId, NodeSet, chain};

/// What helps where even `CAP_SYS_PTRACE` does not.
const OUTSIDE: &str = "run it on the host, outside containers and other user namespaces; if it is there already, \
                       `sudo journalctl -k --grep denied` shows which security module refused";

/// An operation that the kernel may refuse.
#[derive(Clone, Copy, Debug)]
pub enum Attempt<'a> {
    /// Setting a memory policy of the caller or of a range of it (`set_mempolicy`, `mbind`).
    Policy(&'a MemoryPolicy),
    /// Moving pages (`move_pages`).
    Move {
        /// The target nodes.
        to: &'a NodeSet,
        /// Which pages.
        whose: Whose,
    },
    /// Inspecting a process's memory (`/proc/PID/maps`, `/proc/PID/pagemap`).
    Look,
    /// Setting the affinity of a thread (`sched_setaffinity`).
    Run(&'a CpuSet),
}

/// Why the kernel refused an attempt with this errno.
pub fn diagnose(attempt: Attempt<'_>, errno: i32, system: &SystemState) -> Diagnosis {
    let other = || Cause::Other(std::io::Error::from_raw_os_error(errno).to_string());
    let process = || hidden_process(system);
    match (attempt, errno) {
        (_, libc::ESRCH) => match &system.subject {
            Subject::Other(pid, _) | Subject::Gone(pid) => Cause::Gone(*pid).into(),
            Subject::Hidden(pid) => hidden(*pid),
            Subject::Caller => other().into(),
        },
        (_, libc::ENOMEM) => Cause::OutOfMemory.into(),
        (Attempt::Policy(policy), libc::EINVAL) => {
            nodes_in_the_way(&policy.nodes, system).unwrap_or_else(|| refused_policy(policy, &other()))
        }
        (Attempt::Policy(_), libc::EIO) => Cause::Misplaced.into(),
        (Attempt::Policy(_), libc::EPERM | libc::ENOSYS) => Cause::Filtered.into(),
        (Attempt::Move { to, .. }, libc::EACCES | libc::ENODEV | libc::EINVAL) => {
            nodes_in_the_way(to, system).unwrap_or_else(|| other().into())
        }
        (Attempt::Move { whose: Whose::All, .. }, libc::EPERM) if !Capability::SysNice.is_of(&system.caller) => {
            needs("moving pages that other processes map too", Capability::SysNice)
        }
        (Attempt::Move { .. } | Attempt::Look, libc::EPERM | libc::EACCES) => {
            process().unwrap_or_else(|| Cause::Filtered.into())
        }
        (Attempt::Run(cpus), libc::EINVAL) => cpus_in_the_way(cpus, system).unwrap_or_else(|| other().into()),
        (Attempt::Run(_), libc::EPERM) => foreign(system, Capability::SysNice).unwrap_or_else(|| other().into()),
        _ => other().into(),
    }
}

/// Why a process has no memory to inspect, if it has none.
pub fn without_memory(pid: Pid, status: &Status) -> Option<Cause> {
    match status {
        Status { state: Some('Z' | 'X'), threads: 2.., .. } => Some(Cause::FirstThreadEnded(pid)),
        Status { state: Some('Z' | 'X'), .. } => Some(Cause::Zombie(pid)),
        Status { has_memory: false, is_kernel_thread: true, .. } => Some(Cause::KernelThread(pid)),
        // It is exiting, and has released its memory.
        Status { has_memory: false, .. } => Some(Cause::Gone(pid)),
        _ => None,
    }
}

/// Why a process cannot be inspected, as far as its error shows.
pub fn diagnose_process(error: &ProcessError, system: &SystemState) -> Diagnosis {
    match error {
        ProcessError::Gone(pid) if system.subject == Subject::Hidden(*pid) => hidden(*pid),
        ProcessError::Gone(pid) => Cause::Gone(*pid).into(),
        ProcessError::Read { source, .. } => diagnose(Attempt::Look, source.raw_os_error().unwrap_or_default(), system),
        ProcessError::Malformed { .. } => Cause::Other(chain(error)).into(),
    }
}

fn hidden(pid: Pid) -> Diagnosis {
    Diagnosis { cause: Cause::HiddenProcess(pid), remedy: Some(with_capability(Capability::SysPtrace)) }
}

fn needs(what: &'static str, capability: Capability) -> Diagnosis {
    Diagnosis { cause: Cause::Needs { what, capability }, remedy: Some(with_capability(capability)) }
}

fn foreign(system: &SystemState, capability: Capability) -> Option<Diagnosis> {
    let Subject::Other(pid, status) = &system.subject else { return None };
    let (owner, caller) = (status.uids[0], system.caller.uids[1]);
    let foreign = owner != caller && !capability.is_of(&system.caller);
    let cause = Cause::OtherUser { pid: *pid, owner, caller, capability };
    foreign.then(|| Diagnosis { cause, remedy: Some(with_capability(capability)) })
}

fn hidden_process(system: &SystemState) -> Option<Diagnosis> {
    let Subject::Other(pid, status) = &system.subject else { return None };
    let guarded = || {
        let has = |capability: Capability| capability.is_of(&system.caller);
        let traces = has(Capability::SysPtrace);
        let is_own = status.uids[0] == system.caller.uids[1];
        if traces && !is_own && !has(Capability::DacReadSearch) && !has(Capability::DacOverride) {
            return needs("reading all files of another user's process", Capability::DacReadSearch);
        }
        if traces {
            return Diagnosis { cause: Cause::Confined(*pid), remedy: Some(OUTSIDE.to_owned()) };
        }
        Diagnosis { cause: Cause::Guarded(*pid), remedy: Some(with_capability(Capability::SysPtrace)) }
    };
    Some(foreign(system, Capability::SysPtrace).unwrap_or_else(guarded))
}

/// Which of these nodes do not exist, if any. None if it cannot be read which do.
pub fn missing_nodes(nodes: &NodeSet, system: &SystemState) -> Option<Diagnosis> {
    let online = &system.nodes.online;
    let missing: NodeSet = nodes.iter().filter(|node| !online.contains(*node)).collect();
    let is_known = !online.is_empty() && !missing.is_empty();
    is_known.then(|| Cause::NoSuchNode { missing, online: online.clone() }.into())
}

/// Which of these nodes are unavailable, if any: missing, without memory, or outside the cpuset. None if that cannot be
/// read.
pub fn nodes_in_the_way(nodes: &NodeSet, system: &SystemState) -> Option<Diagnosis> {
    let state = &system.nodes;
    if state.online.is_empty() {
        return None;
    }
    let without = |set: &NodeSet| -> NodeSet { nodes.iter().filter(|node| !set.contains(*node)).collect() };
    if let Some(missing) = missing_nodes(nodes, system) {
        return Some(missing);
    }
    let empty = without(&state.with_memory);
    if !empty.is_empty() {
        return Some(Cause::NoMemory { without: empty, with: state.with_memory.clone() }.into());
    }
    let allowed = &system.status().nodes;
    let outside = without(allowed);
    if outside.is_empty() {
        return None;
    }
    let cpuset = system.outermost(|cpuset| !outside.is_subset(&cpuset.nodes));
    let wanted: NodeSet = allowed.iter().chain(outside.iter()).collect();
    let remedy = cpuset.as_deref().map(|group| wider(group, "cpuset.mems", &wanted.to_string()));
    Some(Diagnosis { cause: Cause::NodeOutsideCpuset { outside, allowed: allowed.clone(), cpuset }, remedy })
}

/// Which of these CPUs are unavailable, if any: missing, or outside the cpuset.
pub fn cpus_in_the_way(cpus: &CpuSet, system: &SystemState) -> Option<Diagnosis> {
    let online = system.nodes.cpus_of(&system.nodes.online);
    let without = |set: &CpuSet| -> CpuSet { cpus.iter().filter(|cpu| !set.contains(*cpu)).collect() };
    let missing = without(&online);
    if !missing.is_empty() {
        return Some(Cause::NoSuchCpu { missing, online }.into());
    }
    let cpuset = system.cpusets.first()?;
    let outside = without(&cpuset.cpus);
    if outside.is_empty() {
        return None;
    }
    let allowed = cpuset.cpus.clone();
    let cpuset = system.outermost(|cpuset| !outside.is_subset(&cpuset.cpus));
    let wanted: CpuSet = allowed.iter().chain(outside.iter()).collect();
    let remedy = cpuset.as_deref().map(|group| wider(group, "cpuset.cpus", &wanted.to_string()));
    Some(Diagnosis { cause: Cause::CpuOutsideCpuset { outside, allowed, cpuset }, remedy })
}

/// The command that widens a control group's cpuset or limit.
pub(crate) fn wider(group: &str, file: &str, wanted: &str) -> String {
    let mut from_innermost = group.rsplit('/');
    let unit = from_innermost
        .next()
        .filter(|name| [".service", ".scope", ".slice"].iter().any(|ending| name.ends_with(ending)));
    if let Some(unit) = unit {
        // Units below a user's manager are unknown to that of the system.
        let is_users = from_innermost.any(|name| name.starts_with("user@") && name.ends_with(".service"));
        let command = if is_users { "systemctl --user" } else { "sudo systemctl" };
        let property = match file {
            "cpuset.mems" => "AllowedMemoryNodes",
            "cpuset.cpus" => "AllowedCPUs",
            _ => "MemoryMax",
        };
        return format!("to widen it: {command} set-property --runtime {unit} {property}={wanted}");
    }
    let folder = group.trim_end_matches('/');
    format!("to widen it: echo {wanted} | sudo tee /sys/fs/cgroup{folder}/{file}")
}

fn refused_policy(policy: &MemoryPolicy, other: &Cause) -> Diagnosis {
    let on_nodes = !matches!(policy.mode, MemoryMode::Default | MemoryMode::Local);
    let balanced = matches!(policy.mode, MemoryMode::Bind | MemoryMode::PreferredMany);
    let cause = match policy.mode {
        _ if on_nodes && policy.nodes.is_empty() => Cause::Contradiction("the policy needs a node, and got none"),
        _ if !on_nodes && !policy.nodes.is_empty() => Cause::Contradiction("the policy takes no nodes, and got some"),
        _ if policy.balancing && !balanced => {
            Cause::Contradiction("NUMA balancing works with bind and preferred-many only")
        }
        MemoryMode::PreferredMany if policy.balancing => {
            Cause::Unknown { what: "NUMA balancing under preferred-many", since: "6.13" }
        }
        MemoryMode::Bind if policy.balancing => Cause::Unknown { what: "NUMA balancing under bind", since: "5.12" },
        MemoryMode::PreferredMany => Cause::Unknown { what: "preferred-many", since: "5.15" },
        MemoryMode::WeightedInterleave => Cause::Unknown { what: "weighted interleave", since: "6.9" },
        _ => other.clone(),
    };
    cause.into()
}

/// Why pages were not moved, and the remedy. `free_bytes` is the free memory of the target node.
pub fn diagnose_pages(refusal: PageRefusal, node: NodeId, free_bytes: Option<u64>) -> (String, Option<&'static str>) {
    // The kernel reserves some memory on every node.
    let full = free_bytes.filter(|bytes| *bytes < 64 << 20);
    match (refusal, full) {
        (PageRefusal::Shared, _) => {
            ("other processes map them too".to_owned(), Some("--shared moves them, with CAP_SYS_NICE"))
        }
        (PageRefusal::Stayed | PageRefusal::NoMemory, Some(free)) => (
            format!("node {node} is full: {} are free", machine::size::rounded(free)),
            Some("free memory there, or choose another"),
        ),
        (PageRefusal::NoMemory, None) => (format!("the kernel found no free page on node {node}"), None),
        (PageRefusal::Stayed, None) => {
            ("they are in use by direct I/O or a device, or a process has pinned them".to_owned(), None)
        }
        (PageRefusal::Busy, _) => {
            let why = "they cannot be moved now, or at all: pinned, or of an unmovable kind";
            (why.to_owned(), Some("try again"))
        }
        (PageRefusal::WriteBack, _) => ("they could not be written back to their file".to_owned(), None),
        (PageRefusal::NotPresent, _) => ("they are no longer in memory".to_owned(), None),
        (PageRefusal::ZeroOrUnmapped, _) => ("nothing is mapped there any longer".to_owned(), None),
        (PageRefusal::Other(errno), _) => (std::io::Error::from_raw_os_error(errno).to_string(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::node_state::NodeState;
    use crate::processes::cgroup::EffectiveCpuset;
    use proptest::prelude::*;

    fn nodes(text: &str) -> NodeSet {
        text.parse().unwrap()
    }

    /// Four nodes of two CPUs; node 3 has no memory; the caller may use 0, 1 and 3.
    fn system() -> SystemState {
        let pair = |node: u32| (NodeId(node), format!("{}-{}", node * 2, node * 2 + 1).parse().unwrap());
        let cpuset = |cgroup: &str, set: &str, cpus: &str| EffectiveCpuset {
            cgroup: cgroup.to_owned(),
            cpus: cpus.parse().unwrap(),
            nodes: nodes(set),
        };
        let cpus = (0..4).map(pair).collect();
        SystemState {
            nodes: NodeState { online: nodes("0-3"), with_memory: nodes("0-2"), cpus },
            caller: Status { uids: [1000; 3], nodes: nodes("0-1"), has_memory: true, ..Status::default() },
            subject: Subject::Caller,
            cpusets: vec![
                cpuset("/a.slice/b", "0-1", "0-3"),
                cpuset("/a.slice", "0-1", "0-5"),
                cpuset("/", "0-2", "0-7"),
            ],
        }
    }

    fn on(status: Status) -> SystemState {
        SystemState { subject: Subject::Other(Pid(7), status), ..system() }
    }

    fn policy(mode: MemoryMode, set: &str) -> MemoryPolicy {
        MemoryPolicy::new(mode, nodes(set))
    }

    fn told(attempt: Attempt<'_>, errno: i32, system: &SystemState) -> String {
        diagnose(attempt, errno, system).to_string()
    }

    #[test]
    fn a_refused_policy_names_the_node_and_what_is_in_its_way() {
        let bind = |set: &str| told(Attempt::Policy(&policy(MemoryMode::Bind, set)), libc::EINVAL, &system());
        assert_eq!(bind("1,4-5"), "there is no node 4-5: this machine has nodes 0-3");
        assert_eq!(bind("0,3"), "node 3 has no memory: memory is on 0-2");
        let cpuset = "node 2 is outside the cpuset of control group /a.slice, which allows memory of 0-1 only; \
                      to widen it: sudo systemctl set-property --runtime a.slice AllowedMemoryNodes=0-2";
        assert_eq!(bind("2"), cpuset);
        assert_eq!(bind(""), "the policy needs a node, and got none");
        let unknown = policy(MemoryMode::WeightedInterleave, "0-1");
        let unknown = told(Attempt::Policy(&unknown), libc::EINVAL, &system());
        assert_eq!(unknown, "this kernel does not support weighted interleave, which needs Linux 6.9");
        let mut balancing = policy(MemoryMode::Interleave, "0");
        balancing.balancing = true;
        let told = told(Attempt::Policy(&balancing), libc::EINVAL, &system());
        assert_eq!(told, "NUMA balancing works with bind and preferred-many only");
    }

    #[test]
    fn a_unit_is_widened_by_the_manager_that_has_it() {
        let command = |group: &str| wider(group, "cpuset.cpus", "0-3");
        let own = command("/user.slice/user-1000.slice/user@1000.service/app.slice/run-7.scope");
        assert_eq!(own, "to widen it: systemctl --user set-property --runtime run-7.scope AllowedCPUs=0-3");
        let manager = command("/user.slice/user-1000.slice/user@1000.service");
        assert_eq!(manager, "to widen it: sudo systemctl set-property --runtime user@1000.service AllowedCPUs=0-3");
        assert!(command("/batch/job").ends_with("sudo tee /sys/fs/cgroup/batch/job/cpuset.cpus"));
    }

    #[test]
    fn refused_threads_name_the_cpu() {
        let run = |cpus: &str| told(Attempt::Run(&cpus.parse().unwrap()), libc::EINVAL, &system());
        assert_eq!(run("7-9"), "there is no CPU 8-9: this machine has CPUs 0-7");
        let narrow = "CPU 4 is outside the cpuset of control group /a.slice/b, which allows 0-3 only; to widen it: echo 0-4 \
                      | sudo tee /sys/fs/cgroup/a.slice/b/cpuset.cpus";
        assert_eq!(run("4"), narrow);
    }

    #[test]
    fn a_process_of_another_user_names_the_owner_and_the_capability() {
        let other = on(Status { uids: [0; 3], has_memory: true, ..Status::default() });
        let told_move = told(Attempt::Move { to: &nodes("0"), whose: Whose::Private }, libc::EPERM, &other);
        assert!(
            told_move.starts_with("process 7 runs as user 0, and user 1000 may not access it without CAP_SYS_PTRACE")
        );
        assert!(
            told_move.ends_with("sudo setcap cap_dac_read_search,cap_sys_ptrace+ep \"$(command -v nearside)\""),
            "{told_move}"
        );
        let own = on(Status { uids: [1000; 3], has_memory: true, ..Status::default() });
        assert!(told(Attempt::Look, libc::EACCES, &own).contains("more privileges than you"));
        // Root of a container, which has the capability there, but not over processes of the host.
        let mut root = on(Status { uids: [0; 3], has_memory: true, ..Status::default() });
        root.caller = Status { uids: [0; 3], capabilities: u64::MAX, ..root.caller };
        let confined = told(Attempt::Look, libc::EACCES, &root);
        assert!(confined.starts_with("process 7 is in another user namespace, or a security module"), "{confined}");
        assert!(confined.contains("; run it on the host, outside containers"), "{confined}");
        let all = told(Attempt::Move { to: &nodes("0"), whose: Whose::All }, libc::EPERM, &own);
        assert!(all.starts_with("moving pages that other processes map too needs CAP_SYS_NICE"), "{all}");
        assert!(told(Attempt::Run(&"0".parse().unwrap()), libc::EPERM, &other).contains("CAP_SYS_NICE"));
        assert_eq!(
            told(Attempt::Look, libc::ESRCH, &own),
            "there is no process 7: it has ended, or the number is wrong"
        );
    }

    #[test]
    fn processes_without_memory_are_distinguished() {
        let zombie = Status { state: Some('Z'), ..Status::default() };
        assert_eq!(without_memory(Pid(7), &zombie), Some(Cause::Zombie(Pid(7))));
        let led = Status { threads: 2, ..zombie };
        assert_eq!(without_memory(Pid(7), &led), Some(Cause::FirstThreadEnded(Pid(7))));
        let kernel = Status { is_kernel_thread: true, ..Status::default() };
        assert_eq!(without_memory(Pid(2), &kernel), Some(Cause::KernelThread(Pid(2))));
        assert_eq!(without_memory(Pid(7), &Status::default()), Some(Cause::Gone(Pid(7))));
        assert_eq!(without_memory(Pid(1), &Status { has_memory: true, ..Status::default() }), None);
    }

    #[test]
    fn a_full_node_is_distinguished_from_pages_in_use() {
        let why = |refusal, free| diagnose_pages(refusal, NodeId(1), free).0;
        assert_eq!(why(PageRefusal::Stayed, Some(5 << 20)), "node 1 is full: 5 MiB are free");
        assert!(why(PageRefusal::Stayed, Some(5 << 30)).contains("in use by direct I/O"));
        assert!(why(PageRefusal::Shared, None).contains("other processes"));
    }

    #[test]
    fn this_system_can_be_described() {
        let own = SystemState::read(None);
        assert!(own.subject == Subject::Caller && own.caller.has_memory);
        let gone = Pid(u32::MAX >> 1);
        assert_eq!(SystemState::read(Some(gone)).subject, Subject::Gone(gone));
        let hidden = SystemState { subject: Subject::Hidden(Pid(7)), ..system() };
        let told = diagnose_process(&ProcessError::Gone(Pid(7)), &hidden).to_string();
        assert!(told.contains("hidepid") && told.contains("cap_sys_ptrace"), "{told}");
    }

    proptest! {
        #[test]
        fn every_error_has_a_diagnosis(errno in 1..200_i32, set in "[0-9]{1,2}", all: bool, own: bool) {
            let set = nodes(&set);
            let whose = if all { Whose::All } else { Whose::Private };
            let subject = if own { system() } else { on(Status::default()) };
            for mode in MemoryMode::ALL {
                let policy = &MemoryPolicy::new(mode, set.clone());
                prop_assert!(!told(Attempt::Policy(policy), errno, &subject).is_empty());
            }
            let cpus: CpuSet = set.iter().map(|node| machine::CpuId(node.0)).collect();
            for attempt in [Attempt::Move { to: &set, whose }, Attempt::Look, Attempt::Run(&cpus)] {
                prop_assert!(!told(attempt, errno, &subject).is_empty());
            }
        }
    }
}
