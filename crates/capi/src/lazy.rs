//! Memory that moves when it is touched.

use crate::boundary::{ErrorOut, Out, call, give, given, store};
use crate::memory::{memory_of, ns_tally};
use crate::policies::known;
use library::{Faults, LazyMove};
use machine::SMALL_PAGE;
use std::ffi::{c_int, c_uint, c_void};

/// `NS_PROGRAM_ONLY` of the header.
const PROGRAM_ONLY: c_uint = 1;

/// A memory of `ns_alloc` whose pages move when they are touched.
pub struct ns_lazy_move(LazyMove);

/// From now on, each page of a memory of `ns_alloc` moves when it is touched next.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_move_lazily(
    memory: *mut c_void,
    bytes: usize,
    flags: c_uint,
    lazy: Out<'_, Box<ns_lazy_move>>,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        let lazy = given(lazy, "move")?;
        known(flags, PROGRAM_ONLY)?;
        let whose = if flags == PROGRAM_ONLY { Faults::Program } else { Faults::All };
        // SAFETY: by the contract of all calls it comes from `ns_alloc` with this size, and has not been freed.
        let memory = unsafe { memory_of(memory, bytes, "move") }?;
        match library::move_lazily(memory, whose) {
            Ok(moving) => give(Some(lazy), "move", ns_lazy_move(moving)),
            Err((memory, refused)) => {
                // It stays the caller's.
                memory.into_raw();
                Err(refused)
            }
        }
    })
}

/// Ends it: what was not touched stays where it is.
#[unsafe(no_mangle)]
pub extern "C" fn ns_lazy_move_end(
    lazy: Option<Box<ns_lazy_move>>,
    tally: Out<'_, ns_tally>,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        let lost = || library::Error::Argument {
            attempt: "end a lazy move".to_owned(),
            why: "its thread has ended: please report this defect of libnearside".to_owned(),
        };
        let (memory, pages) = given(lazy, "move")?.0.end().ok_or_else(lost)?;
        memory.into_raw();
        let stayed = pages.untouched + pages.no_room;
        store(
            tally,
            ns_tally {
                moved_pages: pages.moved,
                moved_bytes: pages.moved * SMALL_PAGE,
                there_pages: pages.there,
                elsewhere_pages: 0,
                stayed_pages: stayed,
                stayed_bytes: stayed * SMALL_PAGE,
            },
        );
        Ok(0)
    })
}
