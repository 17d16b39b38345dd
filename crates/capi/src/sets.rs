//! Sets of nodes and CPUs.

use crate::boundary::{ErrorOut, Out, call, free, give, given, text};
use library::{Error, IdSet, NodeId};
use machine::MAX_ID;
use std::ffi::{c_char, c_int, c_long, c_uint};
use std::path::Path;

/// Numbers of nodes or CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ns_set(IdSet<u32>);

impl ns_set {
    pub(crate) fn of<T: From<u32> + Into<u32>>(set: &IdSet<T>) -> Self {
        Self(set.iter().map(Into::into).collect())
    }

    pub(crate) fn as_ids<T: From<u32> + Into<u32>>(&self) -> IdSet<T> {
        self.0.iter().map(T::from).collect()
    }
}

/// The set as IDs of a kind; null is refused.
pub(crate) fn ids<T: From<u32> + Into<u32>>(set: Option<&ns_set>, name: &str) -> Result<IdSet<T>, Error> {
    given(set, name).map(ns_set::as_ids)
}

/// A new empty set.
#[unsafe(no_mangle)]
pub extern "C" fn ns_set_new() -> Box<ns_set> {
    Box::default()
}

/// A copy of a set; an empty one for null.
#[unsafe(no_mangle)]
pub extern "C" fn ns_set_copy(set: Option<&ns_set>) -> Box<ns_set> {
    Box::new(set.cloned().unwrap_or_default())
}

/// Frees a set; null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn ns_set_free(set: Option<Box<ns_set>>) {
    free(set);
}

/// Nodes from text in numactl's grammar.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_nodes(nodes: *const c_char, set: Out<'_, Box<ns_set>>, error: ErrorOut<'_>) -> c_int {
    call(error, || {
        // SAFETY: by the contract of all calls.
        let text = unsafe { text(nodes, "text") }?;
        give(set, "set", ns_set::of(&library::nodes(&text)?))
    })
}

/// CPUs from text in numactl's grammar.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_cpus(cpus: *const c_char, set: Out<'_, Box<ns_set>>, error: ErrorOut<'_>) -> c_int {
    call(error, || {
        // SAFETY: by the contract of all calls.
        let text = unsafe { text(cpus, "text") }?;
        give(set, "set", ns_set::of(&library::cpus(&text)?))
    })
}

/// The CPUs of these nodes.
#[unsafe(no_mangle)]
pub extern "C" fn ns_cpus_of(nodes: Option<&ns_set>, set: Out<'_, Box<ns_set>>, error: ErrorOut<'_>) -> c_int {
    call(error, || give(set, "set", ns_set::of(&library::cpus_of(&ids(nodes, "nodes")?)?)))
}

/// All online nodes, also those without memory, without CPUs, or outside the cpuset.
#[unsafe(no_mangle)]
pub extern "C" fn ns_online_nodes(set: Out<'_, Box<ns_set>>, error: ErrorOut<'_>) -> c_int {
    call(error, || {
        let unknown = |why: linux::NodeError| Error::Unknown {
            attempt: "find the nodes of this machine".to_owned(),
            why: machine::chain(&why),
        };
        let online: IdSet<NodeId> = linux::online_nodes(Path::new("/sys")).map_err(unknown)?;
        give(set, "set", ns_set::of(&online))
    })
}

/// Adds a number.
#[unsafe(no_mangle)]
pub extern "C" fn ns_set_add(set: Option<&mut ns_set>, id: c_uint, error: ErrorOut<'_>) -> c_int {
    call(error, || {
        let set = given(set, "set")?;
        if id > MAX_ID {
            let why = format!("the largest number of a node or CPU is {MAX_ID}");
            return Err(Error::Argument { attempt: format!("add {id} to a set"), why });
        }
        set.0.insert(id);
        Ok(0)
    })
}

/// Removes a number. Returns 1 if the set had it.
#[unsafe(no_mangle)]
pub extern "C" fn ns_set_remove(set: Option<&mut ns_set>, id: c_uint) -> c_int {
    given(set, "set").is_ok_and(|set| set.0.remove(id)).into()
}

/// 1 if the set has this number.
#[unsafe(no_mangle)]
pub extern "C" fn ns_set_has(set: Option<&ns_set>, id: c_uint) -> c_int {
    set.is_some_and(|set| set.0.contains(id)).into()
}

/// The count of its numbers.
#[unsafe(no_mangle)]
pub extern "C" fn ns_set_count(set: Option<&ns_set>) -> usize {
    set.map_or(0, |set| set.0.len())
}

/// The lowest number above `after`, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn ns_set_next(set: Option<&ns_set>, after: c_long) -> c_long {
    let next = |set: &ns_set| set.0.iter().map(c_long::from).find(|id| *id > after);
    set.and_then(next).unwrap_or(-1)
}

/// 1 if both have the same numbers; null is empty.
#[unsafe(no_mangle)]
pub extern "C" fn ns_set_equal(one: Option<&ns_set>, other: Option<&ns_set>) -> c_int {
    (one.cloned().unwrap_or_default() == other.cloned().unwrap_or_default()).into()
}

/// Writes the set in the kernel's list format, as snprintf does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_set_text(set: Option<&ns_set>, buffer: *mut c_char, bytes: usize) -> usize {
    let text = set.map_or_else(String::new, |set| set.0.to_string());
    if !buffer.is_null() && bytes > 0 {
        let fitting = text.len().min(bytes - 1);
        // SAFETY: the buffer has `bytes` bytes by the contract of all calls, and at most that many are written.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, fitting);
            buffer.add(fitting).write(0);
        }
    }
    text.len()
}
