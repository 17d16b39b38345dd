//! Catches panics on hostile input. Parquet's reader panics on some files that contradict themselves; these should be
//! ordinary errors.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static CATCHES: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Runs `work`. Returns `None`, and prints nothing, if it panics; the state that it touched must not be used after
/// that.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !CATCHES.get() {
                before(panic);
            }
        }));
    });
    CATCHES.set(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    CATCHES.set(false);
    done.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_and_others_are_not_silenced() {
        assert_eq!(catch_panic(|| 7), Some(7));
        assert_eq!(catch_panic(|| -> u32 { panic!("caught") }), None);
        assert!(!CATCHES.get());
    }
}
