//! Names of ranges of memory: given by the program itself, for recorders and for other processes.

use crate::memory::named_page::{NamedPage, page_names};
use crate::processes::process::Mapping;
use machine::SMALL_PAGE;
use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::io;
use std::ops::Range;
use std::str::FromStr;
use std::sync::OnceLock;

/// The start of the names of pages that name a range.
const NAME: &str = "nearside-region ";
/// Maximum length of a region's name in bytes. With the range it must be within the 249 bytes of a memory file's name.
pub const MOST_REGION_NAME_BYTES: usize = 190;
/// Maximum number of names that a process is believed: it may have one for each of 65,530 mappings.
const MOST_NAMES: usize = 4096;

/// `void nearside_name_region(const void *address, size_t bytes, const char *name)` of the recorder's library.
type NameRegion = unsafe extern "C" fn(*const c_void, usize, *const c_char);

/// A range of a process with a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamedRange {
    /// First address and the one after the last; not necessarily whole pages.
    pub range: Range<u64>,
    /// Its name.
    pub name: String,
}

impl NamedRange {
    /// The whole pages that it has a part of.
    pub fn pages(&self) -> Range<u64> {
        let end = self.range.end.checked_next_multiple_of(SMALL_PAGE).unwrap_or(self.range.end);
        self.range.start / SMALL_PAGE * SMALL_PAGE..end
    }
}

impl fmt::Display for NamedRange {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:x}-{:x} {}", self.range.start, self.range.end, self.name)
    }
}

/// This is no range with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoNamedRange;

impl FromStr for NamedRange {
    type Err = NoNamedRange;

    fn from_str(text: &str) -> Result<Self, NoNamedRange> {
        let hex = |text: &str| u64::from_str_radix(text, 16).map_err(|_| NoNamedRange);
        let (range, name) = text.split_once(' ').ok_or(NoNamedRange)?;
        let (start, end) = range.split_once('-').ok_or(NoNamedRange)?;
        let range = hex(start)?..hex(end)?;
        let is_one = range.start < range.end && !name.is_empty();
        is_one.then(|| Self { range, name: name.to_owned() }).ok_or(NoNamedRange)
    }
}

/// A name that this process gave to a range of its memory. It holds until it is dropped, the process ends, or it executes
/// another program. Forked processes have it, too.
#[derive(Debug)]
pub struct GivenRegion {
    start: usize,
    _page: NamedPage,
}

impl GivenRegion {
    /// Names a range, for all that read this process's mappings, and for the recorder whose library is in this process.
    /// Names have 1 to [`MOST_REGION_NAME_BYTES`] bytes. Needs no privileges.
    pub fn new(range: &Range<usize>, name: &str) -> io::Result<Self> {
        let text = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
        let named = NamedRange { range: range.start as u64..range.end as u64, name: name.to_owned() };
        let page = NamedPage::new(&format!("{NAME}{named}"))?;
        notify_recorder(range, Some(&text));
        Ok(Self { start: range.start, _page: page })
    }
}

impl Drop for GivenRegion {
    fn drop(&mut self) {
        notify_recorder(&(self.start..self.start), None);
    }
}

/// Reports the name of a range to the recorder, if its library is in this process; without a name, the end of the one
/// that begins at the range's start.
fn notify_recorder(range: &Range<usize>, name: Option<&CStr>) {
    static FUNCTION: OnceLock<Option<NameRegion>> = OnceLock::new();
    let function = FUNCTION.get_or_init(|| {
        // SAFETY: a C string; the handle stands for all libraries of this process.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"nearside_name_region".as_ptr()) };
        // SAFETY: a function of this name is the recorder's, whose type this is. Null is `None`.
        unsafe { std::mem::transmute::<*mut c_void, Option<NameRegion>>(found) }
    });
    let name = name.map_or(std::ptr::null(), CStr::as_ptr);
    if let Some(function) = function {
        // SAFETY: it reads the name only, and takes the range as numbers.
        unsafe { function(std::ptr::without_provenance(range.start), range.len(), name) };
    }
}

/// The ranges that a process has named itself, ascending: with [`GivenRegion`], or as whole mappings with
/// `PR_SET_VMA_ANON_NAME`; at most 4,096. Both are what the process says; no such memory need exist.
pub fn named_ranges(mappings: &[Mapping]) -> Vec<NamedRange> {
    let of_kernel = |mapping: &Mapping| {
        let name =
            ["[anon:", "[anon_shmem:"].iter().find_map(|kind| mapping.name.strip_prefix(kind)?.strip_suffix(']'));
        name.map(|name| NamedRange { range: mapping.range.clone(), name: name.to_owned() })
    };
    let given = page_names(mappings, NAME).filter_map(|name| name.parse().ok());
    let all = mappings.iter().filter_map(of_kernel).chain(given);
    let mut named: Vec<NamedRange> = all.take(MOST_NAMES).collect();
    named.sort_unstable_by(|a, b| (a.range.start, a.range.end, &a.name).cmp(&(b.range.start, b.range.end, &b.name)));
    named.dedup();
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::process::{Pid, Process, parse_maps};
    use proptest::prelude::*;

    fn own() -> Vec<NamedRange> {
        named_ranges(&Process::open(Pid(std::process::id())).unwrap().mappings().unwrap())
    }

    #[test]
    fn names_are_seen_until_they_are_dropped() {
        let longest = "n".repeat(MOST_REGION_NAME_BYTES);
        let (table, weights) = (0x7fff_0000_1010..0x7fff_0000_2020, usize::MAX - 5..usize::MAX);
        let given = [GivenRegion::new(&table, "a table").unwrap(), GivenRegion::new(&weights, &longest).unwrap()];
        let named = |range: &Range<usize>, name: &str| NamedRange {
            range: range.start as u64..range.end as u64,
            name: name.to_owned(),
        };
        let expected = [named(&table, "a table"), named(&weights, &longest)];
        assert!(expected.iter().all(|one| own().contains(one)), "{:?}", own());
        drop(given);
        assert!(!expected.iter().any(|one| own().contains(one)));
        assert!(GivenRegion::new(&table, "a\0b").is_err() && GivenRegion::new(&table, &"n".repeat(250)).is_err());
    }

    #[test]
    fn mappings_with_the_kernels_names_are_named() {
        let maps = "1000-2000 rw-p 0 0:0 0 [anon:weights]\n3000-4000 rw-s 0 0:0 9 /memfd:nearside-region 10-20 a b (deleted)\n\
                    5000-6000 rw-s 0 0:0 9 /memfd:nearside-region 20-10 a (deleted)\n6000-7000 rw-p 0 0:0 0 [heap]\n";
        let named: Vec<String> = named_ranges(&parse_maps(maps).unwrap()).iter().map(ToString::to_string).collect();
        assert_eq!(named, ["10-20 a b", "1000-2000 weights"]);
    }

    proptest! {
        #[test]
        fn texts_are_ranges_or_none(text in "\\PC{0,40}", start in 0_u64..u64::MAX, name in "\\PC{1,20}") {
            let one = NamedRange { range: start..u64::MAX, name };
            prop_assert_eq!(one.to_string().parse(), Ok(one));
            if let Ok(one) = text.parse::<NamedRange>() {
                prop_assert_eq!(one.to_string().parse(), Ok(one));
            }
        }
    }
}
