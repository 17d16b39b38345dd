//! Why the kernel refused, in words, and what to do about it.

use crate::cgroup::MemoryLimit;
use crate::process::{Pid, Status};
use machine::size::rounded;
use machine::{CpuSet, NodeSet};
use std::fmt;

/// A capability that is missing, by its bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Looks at and changes other users' processes.
    SysPtrace = 19,
    /// Administers the system.
    SysAdmin = 21,
    /// Moves other users' threads and pages that processes share.
    SysNice = 23,
    /// Observes other users' processes, all CPUs and the kernel. Since Linux 5.8; before, `SysAdmin` does.
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
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysNice => "CAP_SYS_NICE",
            Self::Perfmon => "CAP_PERFMON",
        })
    }
}

/// Why, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// Why.
    pub cause: Cause,
    /// The command or option that clears it, if any does.
    pub remedy: Option<String>,
}

/// Why the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// Nodes that are not there.
    #[error("there is no node {missing}: this machine has {online}")]
    NoSuchNode {
        /// Those that were asked for in vain.
        missing: NodeSet,
        /// Those that are online.
        online: NodeSet,
    },
    /// Nodes without memory.
    #[error("node {without} has no memory: memory is on {with}")]
    NoMemory {
        /// Those without.
        without: NodeSet,
        /// Those with memory.
        with: NodeSet,
    },
    /// Nodes that the cpuset does not allow.
    #[error("node {outside} is outside {}, which allows memory of {allowed} only", named(cpuset.as_deref()))]
    NodeOutsideCpuset {
        /// Those outside.
        outside: NodeSet,
        /// Those inside.
        allowed: NodeSet,
        /// The control group, if it is known.
        cpuset: Option<String>,
    },
    /// CPUs that are not there, or offline.
    #[error("there is no CPU {missing}: this machine has {online}")]
    NoSuchCpu {
        /// Those that were asked for in vain.
        missing: CpuSet,
        /// Those that are online.
        online: CpuSet,
    },
    /// CPUs that the cpuset does not allow.
    #[error("CPU {outside} is outside {}, which allows {allowed} only", named(cpuset.as_deref()))]
    CpuOutsideCpuset {
        /// Those outside.
        outside: CpuSet,
        /// Those inside.
        allowed: CpuSet,
        /// The control group, if it is known.
        cpuset: Option<String>,
    },
    /// A process of another user.
    #[error("process {pid} runs as user {owner}, and user {caller} may not touch it without {capability}")]
    OtherUser {
        /// The process.
        pid: Pid,
        /// Its user.
        owner: u32,
        /// Who tries.
        caller: u32,
        /// What would help.
        capability: Capability,
    },
    /// A process of the same user that has rights of its own or forbids to be looked at.
    #[error("process {0} has more rights than you, or does not let itself be looked at (it is not dumpable)")]
    Guarded(Pid),
    /// A process that even `CAP_SYS_PTRACE` does not open.
    #[error("process {0} is in another user namespace, or a security module (SELinux, AppArmor) guards it")]
    Confined(Pid),
    /// A capability is missing for what was asked.
    #[error("{what} needs {capability}, which you have not")]
    Needs {
        /// What was asked.
        what: &'static str,
        /// What is missing.
        capability: Capability,
    },
    /// A process that /proc does not show.
    #[error(
        "process {0} is of another user, and /proc hides those (it is mounted with hidepid) from who has not CAP_SYS_PTRACE"
    )]
    HiddenProcess(Pid),
    /// A kernel thread.
    #[error("process {0} is a kernel thread: it has no memory of its own")]
    KernelThread(Pid),
    /// A zombie.
    #[error("process {0} has ended (it is a zombie that waits for its parent): it has no memory any more")]
    Zombie(Pid),
    /// A process whose first thread has ended while others go on.
    #[error(
        "the first thread of process {0} has ended, and the kernel shows the process's memory by the others only: give \
         one of the numbers in /proc/{0}/task"
    )]
    FirstThreadEnded(Pid),
    /// No such process.
    #[error("there is no process {0}: it has ended, or the number is wrong")]
    Gone(Pid),
    /// The kernel does not have it.
    #[error("this kernel does not know {what}, which is since Linux {since}")]
    Unknown {
        /// What it does not know.
        what: &'static str,
        /// Since when others do.
        since: &'static str,
    },
    /// A policy that no kernel takes.
    #[error("{0}")]
    Contradiction(&'static str),
    /// A filter forbids the call.
    #[error("a filter of system calls (seccomp), as containers have, forbids it: the call needs no rights otherwise")]
    Filtered,
    /// A control group that may not have so much memory.
    #[error(
        "{} more do not fit control group {}, which may have {} (memory.max) and uses {}",
        rounded(*wanted_bytes), limit.cgroup, rounded(limit.max_bytes), rounded(limit.used_bytes)
    )]
    MemoryLimit {
        /// What it may have, and has.
        limit: MemoryLimit,
        /// What was wanted, bytes.
        wanted_bytes: u64,
    },
    /// Nodes that have not so much memory.
    #[error("{} more do not fit node {nodes}, which has room for {}", rounded(*wanted_bytes), rounded(*room_bytes))]
    NodesFull {
        /// The nodes.
        nodes: NodeSet,
        /// What is free there or can be made free, bytes.
        room_bytes: u64,
        /// What was wanted, bytes.
        wanted_bytes: u64,
    },
    /// A strict policy finds pages on other nodes.
    #[error("pages lie elsewhere already")]
    Misplaced,
    /// There is not enough memory for the call itself.
    #[error("the kernel has no memory left for it")]
    OutOfMemory,
    /// Nothing above fits.
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

/// What gives a capability.
pub fn with_capability(capability: Capability) -> String {
    let name = capability.to_string().to_lowercase();
    format!("run it with sudo, or once: sudo setcap {name}+ep \"$(command -v nearside)\"")
}
