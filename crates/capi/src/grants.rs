//! Grants of the agent.

use crate::boundary::{ErrorOut, Out, call, free, give, given, text};
use crate::policies::known;
use library::{Error, Grant, GrantRequest, Memory, NodeId, Performance, Pid, Share};
use std::ffi::{CString, c_char, c_int, c_uint};
use std::os::fd::{AsFd, AsRawFd};

/// `NS_GRANT_` of the header: what a grant does not share.
const CORE: c_uint = 1;
const CACHE: c_uint = 2;
const CONTROLLER: c_uint = 4;
/// `NS_GRANT_CORES` and `NS_GRANT_MEMORY`: what is released.
const CORES: c_uint = 1;
const MEMORY: c_uint = 2;
/// `NS_ANY_NODE` and `NS_CORES_NODE`.
const ANY_NODE: c_int = -1;
const CORES_NODE: c_int = -2;

/// A grant, and what was decided about it, in words.
pub struct ns_grant(Grant, CString);

impl ns_grant {
    fn new(grant: Grant) -> Self {
        let text = CString::new(grant.text().replace('\0', " ")).unwrap_or_default();
        Self(grant, text)
    }
}

fn performance(number: c_uint) -> Result<Performance, Error> {
    match number {
        0 => Ok(Performance::NoPreference),
        1 => Ok(Performance::MemoryLatencySensitive),
        2 => Ok(Performance::MemoryReadBandwidthSensitive),
        3 => Ok(Performance::MemoryWriteBandwidthSensitive),
        _ => Err(wrong(format!("there is no preference {number}"))),
    }
}

fn memory(node: c_int) -> Result<Memory, Error> {
    match node {
        ANY_NODE => Ok(Memory::Any),
        CORES_NODE => Ok(Memory::Local),
        node => u32::try_from(node)
            .map(|node| Memory::Node(NodeId(node)))
            .map_err(|_| wrong(format!("there is no node {node}"))),
    }
}

fn wrong(why: String) -> Error {
    Error::Argument { attempt: "get a grant".to_owned(), why }
}

/// # Safety
///
/// `more` is null, or ends with a zero byte.
unsafe fn more(more: *const c_char) -> Result<String, Error> {
    if more.is_null() {
        return Ok(String::new());
    }
    // SAFETY: it ends with a zero byte.
    unsafe { text(more, "more") }
}

/// Asks for cores and memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_grant_new(
    flags: c_uint,
    preference: c_uint,
    node: c_int,
    wishes: *const c_char,
    grant: Out<'_, Box<ns_grant>>,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        let grant = given(grant, "grant")?;
        known(flags, CORE | CACHE | CONTROLLER)?;
        // SAFETY: by the contract of all calls it is null or ends with a zero byte.
        let more = unsafe { more(wishes) }?;
        let request = GrantRequest {
            exclusive_cache: flags & CACHE != 0,
            core_memory_isolated: flags & CORE != 0,
            memory_controller_isolated: flags & CONTROLLER != 0,
            performance: performance(preference)?,
            memory: memory(node)?,
            more: &more,
        };
        give(Some(grant), "grant", ns_grant::new(Grant::new(&request)?))
    })
}

/// Asks for further cores on the cache that a grant holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_grant_on_cache(
    holder: Option<&ns_grant>,
    flags: c_uint,
    preference: c_uint,
    node: c_int,
    wishes: *const c_char,
    grant: Out<'_, Box<ns_grant>>,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        let (holder, grant) = (given(holder, "holder")?, given(grant, "grant")?);
        known(flags, CONTROLLER)?;
        // SAFETY: by the contract of all calls it is null or ends with a zero byte.
        let more = unsafe { more(wishes) }?;
        let request = GrantRequest {
            memory_controller_isolated: flags & CONTROLLER != 0,
            performance: performance(preference)?,
            memory: memory(node)?,
            more: &more,
            ..GrantRequest::default()
        };
        give(Some(grant), "grant", ns_grant::new(holder.0.on_cache(&request)?))
    })
}

/// Asks for more memory for the same cores.
#[unsafe(no_mangle)]
pub extern "C" fn ns_grant_add_memory(
    grant: Option<&ns_grant>,
    flags: c_uint,
    preference: c_uint,
    node: c_int,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        let grant = given(grant, "grant")?;
        known(flags, CORE | CONTROLLER)?;
        let (links, controller) = (flags & CORE != 0, flags & CONTROLLER != 0);
        grant.0.add_memory(memory(node)?, links, controller, performance(preference)?).map(|()| 0)
    })
}

/// Guards its controllers, or no longer.
#[unsafe(no_mangle)]
pub extern "C" fn ns_grant_guard(grant: Option<&ns_grant>, guarded: c_int, error: ErrorOut<'_>) -> c_int {
    call(error, || given(grant, "grant")?.0.guard(guarded != 0).map(|()| 0))
}

/// Gives its cores or memory back, or both.
#[unsafe(no_mangle)]
pub extern "C" fn ns_grant_release(grant: Option<&ns_grant>, what: c_uint, error: ErrorOut<'_>) -> c_int {
    call(error, || {
        let grant = given(grant, "grant")?;
        let share = match what {
            CORES => Share::Cores,
            MEMORY => Share::Memory,
            what if what == CORES | MEMORY => Share::All,
            _ => {
                let attempt = format!("release grant {}", grant.0.id());
                return Err(Error::Argument { attempt, why: "it has cores and memory, and nothing else".to_owned() });
            }
        };
        grant.0.release(share).map(|()| 0)
    })
}

/// Lets a process join.
#[unsafe(no_mangle)]
pub extern "C" fn ns_grant_enter(grant: Option<&ns_grant>, pid: c_int, error: ErrorOut<'_>) -> c_int {
    call(error, || {
        let grant = given(grant, "grant")?;
        let no_process = || Error::Argument {
            attempt: format!("let process {pid} join grant {}", grant.0.id()),
            why: "numbers of processes are above 0, and 0 is the caller".to_owned(),
        };
        let pid = if pid == 0 { std::process::id() } else { u32::try_from(pid).map_err(|_| no_process())? };
        grant.0.enter(Pid(pid)).map(|()| 0)
    })
}

/// The grant of the program that started this one.
#[unsafe(no_mangle)]
pub extern "C" fn ns_grant_inherited(grant: Out<'_, Box<ns_grant>>, error: ErrorOut<'_>) -> c_int {
    call(error, || {
        let grant = given(grant, "grant")?;
        give(Some(grant), "grant", ns_grant::new(Grant::inherited()?))
    })
}

/// Its number; 0 for null.
#[unsafe(no_mangle)]
pub extern "C" fn ns_grant_id(grant: Option<&ns_grant>) -> c_uint {
    grant.map_or(0, |grant| grant.0.id())
}

/// Its handle, which the grant keeps; -1 for null.
#[unsafe(no_mangle)]
pub extern "C" fn ns_grant_handle(grant: Option<&ns_grant>) -> c_int {
    grant.map_or(-1, |grant| grant.0.as_fd().as_raw_fd())
}

/// What was decided, in words. Valid until the grant is freed; empty for null.
#[unsafe(no_mangle)]
pub extern "C" fn ns_grant_text(grant: Option<&ns_grant>) -> *const c_char {
    grant.map_or(c"".as_ptr(), |grant| grant.1.as_ptr())
}

/// Closes this copy of the handle; null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn ns_grant_free(grant: Option<Box<ns_grant>>) {
    free(grant);
}
