//! Grants of the agent: cores, caches, memory and bandwidth of this program's own.

use crate::error::{EIO, EPERM, Error};
use linux::{Cause, MessageClient, Pid, copy_own_file, open_pidfd};
use reserve::protocol::{self, Answer, FOLDER, GRANT, HANDLE, MOST_ANSWER_BYTES, SOCKET, message};
use reserve::{Call, GrantId, Memory, Performance, Share, WrittenRequest};
use serde::Serialize;
use std::env;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Longest wait for an answer: a grant moves the pages of the programs that are in its way.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

const NO_AGENT: &str = "no agent makes grants on this machine: `nearside agent` does with `enabled = true` below [reserve] \
                        in its configuration";

/// What a program wants for itself, in the words of the isolation study (Razavi, 2011).
#[derive(Clone, Copy, Debug)]
pub struct GrantRequest<'a> {
    /// Its last-level cache, with all cores that share it.
    pub exclusive_cache: bool,
    /// Its cores, and the links to its memory.
    pub core_memory_isolated: bool,
    /// Others do not slow it by more than its bound.
    pub memory_controller_isolated: bool,
    /// By what its cores and memory are chosen.
    pub performance: Performance,
    /// The node of its memory.
    pub memory: Memory,
    /// What the study's calls lack, as JSON with the keys of plan files (docs/reserve.md): `name`, `cores`, `bytes`,
    /// `bandwidth`, `write_bandwidth`, `most_slowdown_percent`, `strict`, `lease_s`; empty for none.
    pub more: &'a str,
}

/// A grant that this program holds. Dropping it closes this copy of its handle: the grant ends with the last copy.
#[derive(Debug)]
pub struct Grant {
    id: GrantId,
    handle: OwnedFd,
    text: String,
}

impl Default for GrantRequest<'_> {
    fn default() -> Self {
        Self {
            exclusive_cache: false,
            core_memory_isolated: false,
            memory_controller_isolated: false,
            performance: Performance::NoPreference,
            memory: Memory::Any,
            more: "",
        }
    }
}

impl GrantRequest<'_> {
    fn more(&self) -> Result<Option<Box<WrittenRequest>>, Error> {
        if self.more.is_empty() {
            return Ok(None);
        }
        let more = serde_json::from_str(self.more);
        more.map(Some).map_err(|error| Error::argument(REQUEST, format!("its further wishes: {error}")))
    }
}

const REQUEST: &str = "get a grant";

impl Grant {
    /// Asks the agent for cores and memory: the study's calls 1 to 3. This process goes on where it is until it
    /// [enters](Self::enter) the grant. Needs a quota in the agent's configuration.
    pub fn new(request: &GrantRequest<'_>) -> Result<Self, Error> {
        let GrantRequest { exclusive_cache, core_memory_isolated, memory_controller_isolated, performance, .. } =
            *request;
        let (memory_performance, with) = (performance, request.more()?);
        let call = match request.memory {
            Memory::Any => Call::CoredMemd {
                exclusive_cache,
                core_memory_isolated,
                memory_controller_isolated,
                memory_performance,
                with,
            },
            Memory::Node(numa) => Call::CoredNuma {
                exclusive_cache,
                core_memory_isolated,
                memory_controller_isolated,
                memory_performance,
                numa,
                with,
            },
            Memory::Local => Call::CoredLocal {
                exclusive_cache,
                core_memory_isolated,
                memory_controller_isolated,
                memory_performance,
                with,
            },
        };
        Self::made(&call, None)
    }

    /// The grant of the program that started this one, as `nearside reserve run` passes it on in the environment.
    pub fn inherited() -> Result<Self, Error> {
        let number = |name: &str| env::var(name).ok().and_then(|text| text.parse().ok());
        let (Some(id), Some(handle)) = (number(GRANT), number(HANDLE)) else {
            let why = format!("{GRANT} and {HANDLE} are not set: it was not started by `nearside reserve run`");
            return Err(Error::Unknown { attempt: "find the grant of this program".to_owned(), why });
        };
        let handle = i32::try_from(handle).map_err(io::Error::other).and_then(copy_own_file);
        let handle = handle.map_err(|answer| Error::plain("copy the handle of this grant", "pidfd_getfd", &answer))?;
        Ok(Self { id: GrantId(id), handle, text: String::new() })
    }

    /// Further cores on the exclusive cache of this grant, as a grant of their own: calls 4 and 5. Its cores, cache and links
    /// need no isolation of their own; memory is anywhere or of a node.
    pub fn on_cache(&self, request: &GrantRequest<'_>) -> Result<Self, Error> {
        let GrantRequest { memory_controller_isolated, performance: memory_performance, .. } = *request;
        if request.exclusive_cache || request.core_memory_isolated {
            return Err(Error::argument(
                REQUEST,
                "cores on a cache that is held are isolated by the grant that holds it",
            ));
        }
        let (core_with_cache, with) = (self.id, request.more()?);
        let call = match request.memory {
            Memory::Any => {
                Call::CoreOnCacheMemd { memory_controller_isolated, core_with_cache, memory_performance, with }
            }
            Memory::Node(numa) => {
                Call::CoreOnCacheNuma { memory_controller_isolated, core_with_cache, memory_performance, numa, with }
            }
            Memory::Local => return Err(only_nodes(REQUEST)),
        };
        Self::made(&call, Some(self))
    }

    /// More memory for the same cores, anywhere or of a node: calls 6 and 7. `memory_isolated` is that of the links to it.
    pub fn add_memory(
        &self,
        memory: Memory,
        memory_isolated: bool,
        memory_controller_isolated: bool,
        memory_performance: Performance,
    ) -> Result<(), Error> {
        let core = self.id;
        let call = match memory {
            Memory::Any => {
                Call::CoreGivenMemd { memory_isolated, memory_controller_isolated, core, memory_performance }
            }
            Memory::Node(numa) => {
                Call::CoreGivenNuma { memory_isolated, memory_controller_isolated, core, numa, memory_performance }
            }
            Memory::Local => return Err(only_nodes("add memory to a grant")),
        };
        self.change(&format!("add memory to grant {core}"), &call)
    }

    /// From now on others do not slow it by more than its bound, or it has no bound: calls 8 and 12.
    pub fn guard(&self, is_guarded: bool) -> Result<(), Error> {
        let (mem, mem_isolated) = (self.id, self.id);
        let call = if is_guarded { Call::Guard { mem } } else { Call::Unguard { mem_isolated } };
        let what = if is_guarded { "guard" } else { "share" };
        self.change(&format!("{what} the memory controllers of grant {mem}"), &call)
    }

    /// Gives the grant back, or a part of it: calls 9 to 11. Its programs go on among the others; with neither cores nor
    /// memory the grant has ended.
    pub fn release(&self, share: Share) -> Result<(), Error> {
        let (core, mem) = (self.id, self.id);
        let (what, call) = match share {
            Share::Cores => ("the cores of ", Call::ReleaseCore { core }),
            Share::Memory => ("the memory of ", Call::ReleaseMemory { mem }),
            Share::All => ("", Call::ReleaseBoth { core, mem }),
        };
        self.change(&format!("release {what}grant {core}"), &call)
    }

    /// Lets a process of the same user join the grant: it gets the CPUs, and its memory moves to the nodes. Programs that it
    /// starts are in the grant too.
    pub fn enter(&self, pid: Pid) -> Result<(), Error> {
        let attempt = || format!("let process {pid} join grant {}", self.id);
        let process = open_pidfd(pid).map_err(|answer| Error::plain(attempt(), "pidfd_open", &answer))?;
        let call = protocol::Call::Enter { grant: Some(self.id.to_string()) };
        ask(attempt, &call, &[process.as_fd(), self.handle.as_fd()]).map(drop)
    }

    /// Its number, by which `nearside reserve` knows it.
    pub fn id(&self) -> u32 {
        self.id.0
    }

    /// What was decided when it was made, in words; empty for one that is inherited.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn made(call: &Call, beside: Option<&Self>) -> Result<Self, Error> {
        // What no machine can do is known without the agent.
        call.clone().action(1).map_err(|error| Error::argument(REQUEST, machine::chain(&error)))?;
        let handles: Vec<BorrowedFd<'_>> = beside.iter().map(|grant| grant.handle.as_fd()).collect();
        let (answer, mut handles) = ask(|| REQUEST.to_owned(), call, &handles)?;
        match (answer, handles.pop()) {
            (Answer::Granted { grants, text, .. }, Some(handle)) if grants.len() == 1 => {
                Ok(Self { id: grants[0], handle, text })
            }
            _ => Err(not_understood(REQUEST.to_owned())),
        }
    }

    fn change(&self, attempt: &str, call: &Call) -> Result<(), Error> {
        match ask(|| attempt.to_owned(), call, &[self.handle.as_fd()])?.0 {
            Answer::Granted { .. } => Ok(()),
            _ => Err(not_understood(attempt.to_owned())),
        }
    }
}

impl AsFd for Grant {
    /// Its handle, which gives any process that has a copy the right to the grant. It is closed on `exec`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

fn only_nodes(attempt: &str) -> Error {
    Error::argument(
        attempt,
        "its memory is anywhere or of a node: the study has no call for local memory of cores that are held",
    )
}

fn not_understood(attempt: String) -> Error {
    let why = "the agent gave another answer than was asked for: is it another version?".to_owned();
    Error::refused(attempt, "agent", EIO, Cause::Other(why))
}

/// Asks the agent.
fn ask(
    attempt: impl Fn() -> String,
    call: &impl Serialize,
    files: &[BorrowedFd<'_>],
) -> Result<(Answer, Vec<OwnedFd>), Error> {
    let agent = MessageClient::connect(&Path::new(FOLDER).join(SOCKET)).map_err(|answer| {
        let errno = answer.raw_os_error().unwrap_or(EIO);
        if matches!(answer.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) {
            return Error::refused(attempt(), "connect", errno, Cause::Other(NO_AGENT.to_owned()));
        }
        Error::plain(attempt(), "connect", &answer)
    })?;
    let received = agent.ask(&message(call), files, MOST_ANSWER_BYTES, ANSWER_TIMEOUT);
    let received = received.map_err(|answer| Error::plain(attempt(), "recvmsg", &answer))?;
    match serde_json::from_slice(&received.bytes) {
        Err(_) => Err(not_understood(attempt())),
        Ok(Answer::Wrong(why)) => Err(Error::argument(attempt(), why)),
        Ok(Answer::Refused(why)) => Err(Error::refused(attempt(), "agent", EPERM, Cause::Other(why))),
        Ok(Answer::NotAdmitted { text, .. }) => {
            let why = text.trim_end().trim_start_matches("refused: ").to_owned();
            Err(Error::NotAdmitted { attempt: attempt(), why })
        }
        Ok(answer) => Ok((answer, received.files)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_can_grant_is_refused_before_the_agent_is_asked() {
        for (more, said) in [
            ("{", "EOF while parsing"),
            (r#"{"core":2}"#, "unknown field `core`"),
            (r#"{"cores":0}"#, "a grant has 1 to 8192 cores, not 0"),
            (r#"{"bandwidth":-1}"#, "bandwidth is a positive number"),
            (r#"{"node":1}"#, "the call itself says which CPUs, node"),
            (r#"{"name":"a/b"}"#, "a name begins with a letter"),
        ] {
            let error = Grant::new(&GrantRequest { more, ..GrantRequest::default() }).unwrap_err();
            assert!(error.errno() == 22 && error.to_string().contains(said), "{error}");
        }
        let handle = std::fs::File::open("/dev/null").unwrap().into();
        let held = Grant { id: GrantId(7), handle, text: String::new() };
        let local = GrantRequest { memory: Memory::Local, ..GrantRequest::default() };
        assert!(held.on_cache(&local).unwrap_err().to_string().contains("anywhere or of a node"));
        let whole = GrantRequest { exclusive_cache: true, ..GrantRequest::default() };
        assert!(held.on_cache(&whole).unwrap_err().to_string().contains("isolated by the grant that holds it"));
        let added = held.add_memory(Memory::Local, false, false, Performance::NoPreference);
        assert_eq!(added.unwrap_err().errno(), 22);
    }
}
