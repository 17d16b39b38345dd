//! Memory policies.

use crate::boundary::{ErrorOut, Out, call, store};
use crate::sets::ns_set;
use library::{Error, MemoryPolicy, Misplaced, NodeId, Whose};
use std::ffi::{c_int, c_uint, c_void};
use std::ops::Range;

/// Numbers of the header.
const NS_STRICT: c_uint = 1;
const NS_MOVE: c_uint = 2;
pub(crate) const NS_MOVE_ALL: c_uint = 4;

/// The policy with a number of the header; null stands for no nodes.
pub(crate) fn policy(mode: c_int, nodes: Option<&ns_set>) -> Result<MemoryPolicy, Error> {
    let nodes = nodes.map(ns_set::as_ids).unwrap_or_default();
    let unknown =
        || Error::Argument { attempt: format!("use {mode} as a mode"), why: "there is no such mode".to_owned() };
    linux::policy_with_number(mode, nodes).ok_or_else(unknown)
}

/// The range of an address and a length.
pub(crate) fn range(address: *const c_void, bytes: usize) -> Result<Range<usize>, Error> {
    let start = address as usize;
    let beyond = || Error::Argument {
        attempt: format!("use {bytes} bytes at {start:#x}"),
        why: "they end beyond the address space".to_owned(),
    };
    start.checked_add(bytes).map(|end| start..end).ok_or_else(beyond)
}

pub(crate) fn known(flags: c_uint, allowed: c_uint) -> Result<(), Error> {
    let wrong =
        || Error::Argument { attempt: format!("use the flags {flags:#x}"), why: "one is unknown here".to_owned() };
    (flags & !allowed == 0).then_some(()).ok_or_else(wrong)
}

pub(crate) fn whose(flags: c_uint) -> Result<Whose, Error> {
    known(flags, NS_MOVE_ALL)?;
    Ok(if flags & NS_MOVE_ALL != 0 { Whose::All } else { Whose::Private })
}

fn tell(policy: &MemoryPolicy, mode: Out<'_, c_int>, nodes: Out<'_, Box<ns_set>>) -> c_int {
    store(mode, linux::mode_with_flags(policy));
    store(nodes, Box::new(ns_set::of(&policy.nodes)));
    0
}

/// Sets the policy of the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn ns_policy_set(mode: c_int, nodes: Option<&ns_set>, error: ErrorOut<'_>) -> c_int {
    call(error, || library::set_policy(&policy(mode, nodes)?).map(|()| 0))
}

/// The policy of the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn ns_policy_get(mode: Out<'_, c_int>, nodes: Out<'_, Box<ns_set>>, error: ErrorOut<'_>) -> c_int {
    call(error, || Ok(tell(&library::policy()?, mode, nodes)))
}

/// The policy at an address.
#[unsafe(no_mangle)]
pub extern "C" fn ns_policy_at(
    address: *const c_void,
    mode: Out<'_, c_int>,
    nodes: Out<'_, Box<ns_set>>,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || Ok(tell(&library::policy_at(address as usize)?, mode, nodes)))
}

/// Sets the policy of a range.
#[unsafe(no_mangle)]
pub extern "C" fn ns_bind(
    address: *mut c_void,
    bytes: usize,
    mode: c_int,
    nodes: Option<&ns_set>,
    flags: c_uint,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        known(flags, NS_STRICT | NS_MOVE | NS_MOVE_ALL)?;
        let moved = match flags & (NS_MOVE | NS_MOVE_ALL) {
            0 => None,
            NS_MOVE => Some(Whose::Private),
            _ => Some(Whose::All),
        };
        let present = Misplaced { strict: flags & NS_STRICT != 0, moved };
        library::bind(&range(address, bytes)?, &policy(mode, nodes)?, present).map(|()| 0)
    })
}

/// Sets the home node of a range.
#[unsafe(no_mangle)]
pub extern "C" fn ns_home(address: *mut c_void, bytes: usize, node: c_uint, error: ErrorOut<'_>) -> c_int {
    call(error, || library::set_home_node(&range(address, bytes)?, NodeId(node)).map(|()| 0))
}
