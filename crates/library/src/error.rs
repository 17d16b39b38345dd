//! Why a call did nothing, in words and as an error number.

use linux::{Attempt, Cause, Diagnosis, Pid, SystemState, diagnose};
use machine::MachineError;
use std::io;

/// Numbers of `errno.h`, which Linux never changes.
pub(crate) const EPERM: i32 = 1;
pub(crate) const ESRCH: i32 = 3;
pub(crate) const EIO: i32 = 5;
pub(crate) const EFAULT: i32 = 14;
pub(crate) const EBUSY: i32 = 16;
pub(crate) const ENODATA: i32 = 61;
pub(crate) const EINVAL: i32 = 22;

/// Why a call did nothing. Its text is complete: what was tried, the answer, why, and what helps.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An argument has no meaning, on any machine.
    #[error("cannot {attempt}: {why}")]
    Argument {
        /// What was tried.
        attempt: String,
        /// What is wrong with the argument.
        why: String,
    },
    /// The kernel refused, or this machine has not what was asked for.
    #[error("cannot {attempt} ({call}: {}): {diagnosis}", io::Error::from_raw_os_error(*errno))]
    Refused {
        /// What was tried.
        attempt: String,
        /// The kernel's call.
        call: &'static str,
        /// The kernel's answer, a number of `errno.h`.
        errno: i32,
        /// Why, and what helps.
        diagnosis: Box<Diagnosis>,
    },
    /// A machine file cannot be read, or has mistakes.
    #[error("cannot read a machine file: {}", machine::chain(.0))]
    Machine(Box<MachineError>),
    /// What others have is in the way.
    #[error("cannot {attempt}: {why}")]
    NotAdmitted {
        /// What was tried.
        attempt: String,
        /// What is in the way, and the nearest request that would be granted.
        why: String,
    },
    /// The system has no such value.
    #[error("cannot {attempt}: {why}")]
    Unknown {
        /// What was tried.
        attempt: String,
        /// Why there is no value, and what helps.
        why: String,
    },
}

/// The process that a diagnosis is about: none for the caller itself, whom no other user's rights stand in the way of.
pub(crate) fn subject(pid: Pid) -> Option<Pid> {
    (pid.0 != std::process::id()).then_some(pid)
}

impl Error {
    /// The number of `errno.h` that is nearest: the kernel's own where it refused, EINVAL for arguments, EIO for machine
    /// files, EBUSY for grants that others are in the way of, ENODATA for values that the system does not have.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Argument { .. } => EINVAL,
            Self::Refused { errno, .. } => *errno,
            Self::Machine(_) => EIO,
            Self::NotAdmitted { .. } => EBUSY,
            Self::Unknown { .. } => ENODATA,
        }
    }

    pub(crate) fn argument(attempt: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Argument { attempt: attempt.into(), why: why.into() }
    }

    /// The kernel's answer, diagnosed from the state of the system and of the process that was acted on.
    pub(crate) fn of_kernel(
        attempt: impl Into<String>,
        call: &'static str,
        answer: &io::Error,
        pid: Option<Pid>,
        what: Attempt<'_>,
    ) -> Self {
        let errno = answer.raw_os_error().unwrap_or(EIO);
        let diagnosis = match answer.raw_os_error() {
            Some(errno) => diagnose(what, errno, &SystemState::read(pid)),
            None => Cause::Other(answer.to_string()).into(),
        };
        Self::refused(attempt, call, errno, diagnosis)
    }

    pub(crate) fn refused(
        attempt: impl Into<String>,
        call: &'static str,
        errno: i32,
        diagnosis: impl Into<Diagnosis>,
    ) -> Self {
        Self::Refused { attempt: attempt.into(), call, errno, diagnosis: Box::new(diagnosis.into()) }
    }

    /// An answer that needs no more words than the kernel's.
    pub(crate) fn plain(attempt: impl Into<String>, call: &'static str, answer: &io::Error) -> Self {
        let cause = Cause::Other(answer.to_string());
        Self::refused(attempt, call, answer.raw_os_error().unwrap_or(EIO), cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::NodeSet;

    #[test]
    fn an_error_says_what_was_tried_the_answer_and_why() {
        let online: NodeSet = "0-3".parse().unwrap();
        let cause = Cause::NoSuchNode { missing: "7".parse().unwrap(), online };
        let error = Error::refused("bind memory to node 7", "mbind", EINVAL, cause);
        let text = "cannot bind memory to node 7 (mbind: Invalid argument (os error 22)): there is no node 7: this \
                    machine has nodes 0-3";
        assert_eq!((error.to_string().as_str(), error.errno()), (text, 22));
        assert_eq!(Error::argument("x", "y").errno(), EINVAL);
        let answer = io::Error::from_raw_os_error(EPERM);
        assert_eq!(Error::plain("x", "y", &answer).errno(), EPERM);
    }
}
