//! Names of ranges of memory.

use crate::error::Error;
use crate::policies::named;
use linux::{GivenRegion, MOST_REGION_NAME_BYTES};
use std::ops::Range;

/// Gives a range of this process a name, until the result is dropped, the process ends, or it executes another program.
/// `nearside record`, `report` and `top` show its accesses under this name; `pages`, `migrate` and `place` find its whole
/// pages by it. The range may be any part of the process's memory, such as one table of a large block. Processes that are
/// forked meanwhile have the name, too. A name has at most 190 bytes, and takes one of the process's mappings
/// (`vm.max_map_count`, 65,530 by default): it is for some large ranges, not for each object. Needs no privileges.
///
/// ```
/// let weights = vec![0.0_f32; 1 << 20];
/// let range = weights.as_ptr_range();
/// let name = library::region(&(range.start.addr()..range.end.addr()), "weights")?;
/// # drop(name);
/// # Ok::<(), library::Error>(())
/// ```
pub fn region(range: &Range<usize>, name: &str) -> Result<GivenRegion, Error> {
    let attempt = || format!("name {} `{name}`", named(range));
    if range.start == 0 || range.is_empty() {
        return Err(Error::argument(attempt(), "the range is empty"));
    }
    if !(1..=MOST_REGION_NAME_BYTES).contains(&name.len()) || name.contains('\0') {
        return Err(Error::argument(attempt(), "a name has 1 to 190 bytes, none of them 0"));
    }
    GivenRegion::new(range, name).map_err(|answer| Error::plain(attempt(), "memfd_create", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        let start = 0x1000;
        assert!(region(&(start..start + 100), "table").is_ok());
        for (range, name) in [(start..start, "a"), (0..100, "a"), (start..start + 1, ""), (start..start + 1, "a\0b")] {
            assert_eq!(region(&range, name).unwrap_err().errno(), 22, "{range:?} {name:?}");
        }
        assert!(region(&(start..start + 1), &"a".repeat(190)).is_ok());
        assert!(region(&(start..start + 1), &"a".repeat(191)).is_err());
    }
}
