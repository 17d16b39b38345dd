//! Why the kernel refused, in words, and the remedy.

use crate::processes::cgroup::MemoryLimit;
use crate::processes::process::{Pid, Process, Status};
use machine::size::rounded;
use machine::{CpuSet, IdSet, NodeSet};
use rustix::process::geteuid;
use std::fmt;

/// A capability, by its bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Access files of other users.
    DacOverride = 1,
    /// Read files of other users, such as the `pagemap` of their processes.
    DacReadSearch = 2,
    /// Inspect and change processes of other users.
    SysPtrace = 19,
    /// Administer the system.
    SysAdmin = 21,
    /// Move threads of other users, and pages that processes share.
    SysNice = 23,
    /// Observe processes of other users, all CPUs and the kernel. Since Linux 5.8; earlier kernels need `SysAdmin`.
    Perfmon = 38,
}

impl Capability {
    /// Whether a process has it.
    pub fn is_of(self, status: &Status) -> bool {
        status.capabilities >> self as u32 & 1 == 1
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DacOverride => "CAP_DAC_OVERRIDE",
            Self::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysNice => "CAP_SYS_NICE",
            Self::Perfmon => "CAP_PERFMON",
        })
    }
}

/// Cause and remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// The cause.
    pub cause: Cause,
    /// The command or option that fixes it, if there is one.
    pub remedy: Option<String>,
}

/// Why the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The nodes do not exist.
    #[error("there is no node {missing}: this machine has {}", numbered("node", online))]
    NoSuchNode {
        /// The missing nodes.
        missing: NodeSet,
        /// The online nodes.
        online: NodeSet,
    },
    /// The nodes have no memory.
    #[error("node {without} has no memory: memory is on {with}")]
    NoMemory {
        /// Nodes without memory.
        without: NodeSet,
        /// Nodes with memory.
        with: NodeSet,
    },
    /// The cpuset does not allow the nodes.
    #[error("node {outside} is outside {}, which allows memory of {allowed} only", named(cpuset.as_deref()))]
    NodeOutsideCpuset {
        /// Nodes outside the cpuset.
        outside: NodeSet,
        /// Nodes inside the cpuset.
        allowed: NodeSet,
        /// The control group, if it is known.
        cpuset: Option<String>,
    },
    /// The CPUs do not exist or are offline.
    #[error("there is no CPU {missing}: this machine has {}", numbered("CPU", online))]
    NoSuchCpu {
        /// The missing CPUs.
        missing: CpuSet,
        /// The online CPUs.
        online: CpuSet,
    },
    /// The cpuset does not allow the CPUs.
    #[error("CPU {outside} is outside {}, which allows {allowed} only", named(cpuset.as_deref()))]
    CpuOutsideCpuset {
        /// CPUs outside the cpuset.
        outside: CpuSet,
        /// CPUs inside the cpuset.
        allowed: CpuSet,
        /// The control group, if it is known.
        cpuset: Option<String>,
    },
    /// The process belongs to another user.
    #[error("process {pid} runs as user {owner}, and user {caller} may not access it without {capability}")]
    OtherUser {
        /// The process.
        pid: Pid,
        /// Its user.
        owner: u32,
        /// The calling user.
        caller: u32,
        /// The capability that would allow it.
        capability: Capability,
    },
    /// A process of the same user that is privileged or not dumpable.
    #[error("process {0} has more privileges than you, or is not dumpable")]
    Guarded(Pid),
    /// A process that even `CAP_SYS_PTRACE` cannot access.
    #[error("process {0} is in another user namespace, or a security module (SELinux, AppArmor) guards it")]
    Confined(Pid),
    /// The operation needs a capability.
    #[error("{what} needs {capability}, which you do not have")]
    Needs {
        /// The operation.
        what: &'static str,
        /// The missing capability.
        capability: Capability,
    },
    /// A process that /proc hides.
    #[error(
        "process {0} belongs to another user, and /proc hides those (mounted with hidepid) unless you have CAP_SYS_PTRACE"
    )]
    HiddenProcess(Pid),
    /// A kernel thread.
    #[error("process {0} is a kernel thread: it has no memory of its own")]
    KernelThread(Pid),
    /// A zombie.
    #[error("process {0} has ended (it is a zombie that waits for its parent) and has no memory left")]
    Zombie(Pid),
    /// The first thread of the process has exited while others still run.
    #[error(
        "the first thread of process {0} has ended, so the kernel shows the process's memory only through the others: \
         give one of the numbers in /proc/{0}/task"
    )]
    FirstThreadEnded(Pid),
    /// No such process.
    #[error("there is no process {0}: it has ended, or the number is wrong")]
    Gone(Pid),
    /// The kernel does not support it.
    #[error("this kernel does not support {what}, which needs Linux {since}")]
    Unknown {
        /// The unsupported feature.
        what: &'static str,
        /// First kernel version that supports it.
        since: &'static str,
    },
    /// A policy that no kernel accepts.
    #[error("{0}")]
    Contradiction(&'static str),
    /// A seccomp filter forbids the call.
    #[error(
        "a system call filter (seccomp), as used by containers, forbids it: the call needs no privileges otherwise"
    )]
    Filtered,
    /// The control group's memory limit is too low.
    #[error(
        "{} more do not fit control group {}, which may have {} (memory.max) and uses {}",
        rounded(*wanted_bytes), limit.cgroup, rounded(limit.max_bytes), rounded(limit.used_bytes)
    )]
    MemoryLimit {
        /// Its limit and usage.
        limit: MemoryLimit,
        /// Requested bytes.
        wanted_bytes: u64,
    },
    /// The nodes do not have enough memory.
    #[error(
        "{} more do not fit {} room for {}",
        rounded(*wanted_bytes),
        if nodes.len() == 1 { format!("node {nodes}, which has") } else { format!("nodes {nodes}, which have") },
        rounded(*free_bytes)
    )]
    NodesFull {
        /// The nodes.
        nodes: NodeSet,
        /// Free and reclaimable bytes on the nodes.
        free_bytes: u64,
        /// Requested bytes.
        wanted_bytes: u64,
    },
    /// A strict policy found pages on other nodes.
    #[error("pages are already on other nodes")]
    Misplaced,
    /// The kernel has no memory for the call itself.
    #[error("the kernel has no memory left for it")]
    OutOfMemory,
    /// Any other cause.
    #[error("{0}")]
    Other(String),
}

fn named(cpuset: Option<&str>) -> String {
    cpuset.map_or_else(|| "the cpuset".to_owned(), |group| format!("the cpuset of control group {group}"))
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        self.remedy.iter().try_for_each(|remedy| write!(f, "; {remedy}"))
    }
}

impl From<Cause> for Diagnosis {
    fn from(cause: Cause) -> Self {
        Self { cause, remedy: None }
    }
}

/// What there is of nodes or CPUs: `nodes 0-3`, or `only node 0`.
fn numbered<T>(one: &str, set: &IdSet<T>) -> String {
    if set.len() == 1 { format!("only {one} {set}") } else { format!("{one}s {set}") }
}

/// The command that grants a capability, beside those that this process has: it replaces all that a program's file gives.
pub fn with_capability(capability: Capability) -> String {
    // Root has them by itself, and not from the file.
    let own = Process::open(Pid(std::process::id())).and_then(|process| process.status());
    let own = own.ok().filter(|_| !geteuid().is_root());
    // Files of other users' processes that only their owner may read need both.
    let is_beside = |one: &Capability| capability == Capability::SysPtrace && *one == Capability::DacReadSearch;
    let is_had = |one: &Capability| own.as_ref().is_some_and(|status| one.is_of(status));
    let is_named = |one: &Capability| *one == capability || is_beside(one) || is_had(one);
    let all = [
        Capability::DacReadSearch,
        Capability::SysPtrace,
        Capability::SysAdmin,
        Capability::SysNice,
        Capability::Perfmon,
    ];
    let names: Vec<String> = all.iter().filter(|one| is_named(one)).map(|one| one.to_string().to_lowercase()).collect();
    format!("run it with sudo, or once: sudo setcap {}+ep \"$(command -v nearside)\"", names.join(","))
}
