//! Why the kernel refused to open a perf event, and what to do.

use super::Target;
use linux::{Attempt, Capability, Cause, Diagnosis, Pid, Process, SystemState, diagnose, with_capability};
use rustix::io::Errno;
use std::fs;
use std::io::{self, ErrorKind};

const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// Why a source cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {what}: {diagnosis}")]
pub struct LiveError {
    /// What was tried.
    pub what: String,
    /// Why it failed, and what to do.
    pub diagnosis: Box<Diagnosis>,
}

/// What an event shows. The more it shows, the lower `kernel.perf_event_paranoid` has to be for callers without
/// privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// User-space activity of one's own processes.
    Own,
    /// Their activity in the kernel as well.
    Kernel,
    /// The activity of all processes on a CPU.
    Cpu,
    /// The kernel's tracepoints.
    Tracepoint,
}

/// Which step failed.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Opening the event, for a process or a CPU.
    Event(Option<Pid>, io::Error),
    /// Mapping its ring, of this size in bytes.
    Ring(usize, io::Error),
}

/// What determines the caller's permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permission {
    /// `kernel.perf_event_paranoid`; `None` if the kernel has no perf.
    pub paranoid: Option<i32>,
    pub capable: bool,
}

impl Scope {
    /// The highest level that needs no privileges.
    fn level(self) -> i32 {
        match self {
            Self::Own => 2,
            Self::Kernel => 1,
            Self::Cpu => 0,
            Self::Tracepoint => -1,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Own => "observing one's own programs",
            Self::Kernel => "observing what programs do in the kernel",
            Self::Cpu => "observing all programs of a CPU",
            Self::Tracepoint => "observing tracepoints of the kernel",
        }
    }

    /// The least scope that a target needs.
    pub fn new(target: &Target) -> Self {
        if *target == Target::System { Self::Cpu } else { Self::Own }
    }
}

impl Permission {
    /// The permissions of this process.
    pub fn own() -> Self {
        let status = Process::open(Pid(std::process::id())).and_then(|own| own.status()).unwrap_or_default();
        let paranoid = fs::read_to_string(PARANOID).ok().and_then(|text| text.trim().parse().ok());
        Self { paranoid, capable: Capability::Perfmon.is_of(&status) || Capability::SysAdmin.is_of(&status) }
    }
}

impl LiveError {
    pub(super) fn new(what: impl Into<String>, diagnosis: impl Into<Diagnosis>) -> Self {
        Self { what: what.into(), diagnosis: Box::new(diagnosis.into()) }
    }

    /// Explains why an event could not be opened.
    pub(super) fn refused(what: impl Into<String>, refusal: &Refusal, scope: Scope) -> Self {
        Self::new(what, explain(refusal, scope, Permission::own()))
    }
}

pub(super) fn with_remedy(why: impl Into<String>, remedy: impl Into<String>) -> Diagnosis {
    Diagnosis { cause: Cause::Other(why.into()), remedy: Some(remedy.into()) }
}

/// Explains a refusal from its error and the caller's permissions.
pub(super) fn explain(refusal: &Refusal, scope: Scope, permission: Permission) -> Diagnosis {
    let (pid, error) = match refusal {
        Refusal::Event(pid, error) => (*pid, error),
        Refusal::Ring(bytes, error) => return explain_ring(*bytes, error),
    };
    match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => match permission.paranoid {
            Some(level) if !permission.capable && level > scope.level() => with_remedy(
                format!(
                    "kernel.perf_event_paranoid is {level}, which leaves {} to those with {}",
                    scope.words(),
                    Capability::Perfmon
                ),
                format!(
                    "sudo sysctl kernel.perf_event_paranoid={}, or {}",
                    scope.level(),
                    with_capability(Capability::Perfmon)
                ),
            ),
            _ => match pid {
                Some(pid) => diagnose(Attempt::Look, Errno::ACCESS.raw_os_error(), &SystemState::read(Some(pid))),
                None => Cause::Filtered.into(),
            },
        },
        Some(Errno::SRCH) => pid.map_or_else(|| Cause::Other(error.to_string()), Cause::Gone).into(),
        Some(Errno::NOSYS) => with_remedy(
            "the kernel has no perf_event_open, or a system call filter (seccomp) blocks it",
            "the kernel needs CONFIG_PERF_EVENTS, and a container needs a seccomp filter that allows perf_event_open",
        ),
        Some(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP) => {
            Cause::Other(format!("the processor or the kernel does not have this event ({error})")).into()
        }
        Some(Errno::BUSY) => with_remedy(
            "another recording uses the sampling unit of this processor, which serves one at a time",
            "end that recording (perf or another nearside) first",
        ),
        Some(Errno::MFILE | Errno::NFILE) if scope == Scope::Cpu => with_remedy(
            "one open file is needed for each event on each CPU, which exceeds the limit",
            "ulimit -n \"$(ulimit -Hn)\"",
        ),
        Some(Errno::MFILE | Errno::NFILE) => with_remedy(
            "one open file is needed for each thread on each CPU, which exceeds the limit",
            "ulimit -n \"$(ulimit -Hn)\", or observe the whole system, which needs one file per CPU",
        ),
        _ if error.kind() == ErrorKind::Unsupported => {
            Cause::Other("this kernel is too old for an option of the event".to_owned()).into()
        }
        _ => Cause::Other(error.to_string()).into(),
    }
}

fn explain_ring(bytes: usize, error: &io::Error) -> Diagnosis {
    if Errno::from_io_error(error) == Some(Errno::PERM) {
        return with_remedy(
            format!(
                "rings of {} KiB per CPU exceed what this user may lock (kernel.perf_event_mlock_kb, ulimit -l)",
                bytes >> 10
            ),
            "end other recordings of this user, or: sudo sysctl kernel.perf_event_mlock_kb=2048",
        );
    }
    Cause::Other(format!("cannot map a ring of {} KiB: {error}", bytes >> 10)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(errno: Errno, scope: Scope, paranoid: Option<i32>, capable: bool) -> String {
        let refusal = Refusal::Event(None, errno.into());
        LiveError::new("open it", explain(&refusal, scope, Permission { paranoid, capable })).to_string()
    }

    #[test]
    fn what_is_forbidden_names_the_level_the_capability_and_the_way_out() {
        let system = told(Errno::ACCESS, Scope::Cpu, Some(2), false);
        let start = "cannot open it: kernel.perf_event_paranoid is 2, which leaves observing all programs of a CPU to \
                     those with CAP_PERFMON; sudo sysctl kernel.perf_event_paranoid=0, or run it with sudo";
        assert!(system.starts_with(start), "{system}");
        let own = told(Errno::ACCESS, Scope::Own, Some(4), false);
        assert!(own.contains("perf_event_paranoid=2"), "{own}");
        // A caller with permission is refused by something else.
        assert!(told(Errno::PERM, Scope::Tracepoint, Some(4), true).contains("seccomp"));
        assert!(told(Errno::PERM, Scope::Own, Some(2), false).contains("seccomp"));
    }

    #[test]
    fn other_refusals_have_their_reasons() {
        assert!(told(Errno::NODEV, Scope::Own, Some(2), true).contains("does not have this event"));
        assert!(told(Errno::BUSY, Scope::Own, Some(2), true).contains("another recording"));
        assert!(told(Errno::MFILE, Scope::Own, Some(2), true).contains("ulimit -n"));
        assert!(told(Errno::MFILE, Scope::Cpu, Some(2), true).contains("each event on each CPU"));
        assert!(told(Errno::NOSYS, Scope::Own, None, true).contains("CONFIG_PERF_EVENTS"));
        let ring = Refusal::Ring(64 << 10, Errno::PERM.into());
        let ring = explain(&ring, Scope::Own, Permission { paranoid: Some(2), capable: false }).to_string();
        assert!(ring.contains("rings of 64 KiB") && ring.contains("perf_event_mlock_kb"), "{ring}");
        let gone = Refusal::Event(Some(Pid(77)), Errno::SRCH.into());
        let gone = explain(&gone, Scope::Own, Permission { paranoid: Some(2), capable: false });
        assert_eq!(gone.cause, Cause::Gone(Pid(77)));
    }
}
