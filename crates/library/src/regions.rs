//! Names of ranges of memory.

use crate::error::Error;
use crate::policies::named;
use std::ffi::CString;
use std::ops::Range;

/// Gives a range of this process a name: `nearside record` and `report` show its accesses under this name, and while it is
/// recorded, `nearside pages` and `migrate` find whole pages of it by the name, if the kernel names anonymous memory
/// (`CONFIG_ANON_VMA_NAME`). The range may be any part of the process's memory, such as one
/// table of a large block. The name holds until [`end_region`], or until another range with the same start and size gets
/// one. Returns whether the program is being recorded: if not, the call tests an address and does nothing. Names have at
/// most 255 bytes. Needs no privileges.
///
/// ```
/// let weights = vec![0.0_f32; 1 << 20];
/// let range = weights.as_ptr_range();
/// library::name_region(&(range.start.addr()..range.end.addr()), "weights")?;
/// # Ok::<(), library::Error>(())
/// ```
pub fn name_region(range: &Range<usize>, name: &str) -> Result<bool, Error> {
    let wrong = |why: &str| Err(Error::argument(format!("name {} `{name}`", named(range)), why));
    if range.start == 0 || range.is_empty() {
        return wrong("the range is empty");
    }
    match CString::new(name) {
        Ok(text) if (1..=255).contains(&name.len()) => Ok(linux::name_region(range, Some(&text))),
        _ => wrong("a name has 1 to 255 bytes, none of them 0"),
    }
}

/// Ends the name of the range that begins here. Returns whether the program is being recorded. Needs no privileges.
pub fn end_region(start: usize) -> bool {
    linux::name_region(&(start..start), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_do_nothing_without_a_recorder() {
        let memory = [0_u8; 100];
        let start = memory.as_ptr().addr();
        assert!(!name_region(&(start..start + 100), "table").unwrap());
        assert!(!end_region(start));
        for (range, name) in [(start..start, "a"), (0..100, "a"), (start..start + 1, ""), (start..start + 1, "a\0b")] {
            assert_eq!(name_region(&range, name).unwrap_err().errno(), 22, "{range:?} {name:?}");
        }
        assert!(name_region(&(start..start + 1), &"a".repeat(256)).is_err());
    }
}
