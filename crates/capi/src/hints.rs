//! Hints to the agents that place this program.

use crate::boundary::{ErrorOut, Out, call, free, give};
use library::{Error, GivenHint, Hint, NodeId};
use std::ffi::{c_int, c_uint, c_ulong};

/// `NS_HINT_` of the header.
const LEAVE_ALONE: c_uint = 1;
const SHORT_LIVED: c_uint = 2;
const HOME: c_uint = 3;
const PHASE: c_uint = 4;

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
            LEAVE_ALONE => Hint::LeaveAlone,
            SHORT_LIVED => Hint::ShortLived,
            HOME => Hint::Home(NodeId(number.try_into().map_err(|_| wrong("no machine has a node of this number"))?)),
            PHASE => Hint::Phase(number),
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
