//! Hints to the agents that place this program.

use crate::boundary::{ErrorOut, Out, call, free, give};
use library::{Error, GivenHint, Hint, NodeId};
use std::ffi::{c_int, c_uint, c_ulong};

/// A hint that is given.
pub struct ns_hint(#[allow(dead_code, reason = "it holds until it is dropped")] GivenHint);

/// Gives a hint.
#[unsafe(no_mangle)]
pub extern "C" fn ns_hint_new(
    what: c_uint,
    number: c_ulong,
    hint: Out<'_, Box<ns_hint>>,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        let wrong = |why: &str| Error::Argument { attempt: format!("give the hint {what}"), why: why.to_owned() };
        let meant = match what {
            1 => Hint::LeaveAlone,
            2 => Hint::ShortLived,
            3 => Hint::Home(NodeId(number.try_into().map_err(|_| wrong("no machine has a node of this number"))?)),
            4 => Hint::Phase(number),
            _ => return Err(wrong("there is none of this number")),
        };
        give(hint, "hint", ns_hint(library::hint(meant)?))
    })
}

/// Ends a hint; null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn ns_hint_free(hint: Option<Box<ns_hint>>) {
    free(hint);
}
