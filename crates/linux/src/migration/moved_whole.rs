//! How much of memory moves as a whole: the kernel moves a huge page with any address in it.

use crate::processes::process::{Mapping, Process};
use crate::residence::numa_maps::{NumaMapping, parse_numa_maps};
use crate::residence::present::Extent;
use machine::HUGE_PAGE;
use std::collections::BTreeMap;
use std::ops::Range;

/// Lines of `smaps_rollup` with huge pages.
const HUGE: [&str; 5] = ["AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:", "Shared_Hugetlb:", "Private_Hugetlb:"];

/// What moves as a whole in a process.
#[derive(Debug, Default)]
pub struct MovedWhole {
    /// Hugetlb mappings with larger pages than 2 MiB, by address, with the bytes of a page: [`Extent`]s have them as pages
    /// of 2 MiB.
    larger: Vec<(Range<u64>, u64)>,
    /// Whether small pages may be parts of huge ones, where the kernel does not say which are: before Linux 6.7.
    hidden: bool,
}

impl MovedWhole {
    /// That of a process now. Needs the process's user, or `CAP_SYS_PTRACE`; without, pages are as they are reported.
    pub fn of(process: &Process) -> Self {
        let has_hugetlb = process.text("status").is_ok_and(|status| has_line(&status, "HugetlbPages:"));
        let larger = if has_hugetlb { larger_pages(process) } else { Vec::new() };
        let rollup = process.text("smaps_rollup");
        Self { larger, hidden: rollup.map_or(true, |rollup| HUGE.iter().any(|line| has_line(&rollup, line))) }
    }

    /// Parts of an extent, each of pages of one size. A page is where it begins: the rest of one that begins before is left
    /// out.
    pub fn sized(&self, extent: &Extent) -> Vec<Extent> {
        if self.larger.is_empty() {
            return vec![extent.clone()];
        }
        let (mut parts, mut start) = (Vec::new(), extent.range.start);
        while start < extent.range.end {
            let next = self.larger.iter().find(|(mapping, _)| mapping.end > start);
            let (first, end, page_bytes) = match next {
                Some((mapping, bytes)) if mapping.start <= start => {
                    (start.next_multiple_of(*bytes), mapping.end.min(extent.range.end), *bytes)
                }
                Some((mapping, _)) => (start, mapping.start.min(extent.range.end), extent.page_bytes),
                None => (start, extent.range.end, extent.page_bytes),
            };
            if first < end {
                parts.push(Extent { range: first..end, page_bytes });
            }
            start = end;
        }
        parts
    }

    /// The bytes that move with a page of this size; `are_shown` is whether the kernel says which pages are huge.
    pub fn bytes(&self, page_bytes: u64, are_shown: bool) -> u64 {
        if self.hidden && !are_shown { page_bytes.max(HUGE_PAGE) } else { page_bytes }
    }
}

/// Whether such a line, as `AnonHugePages:    2048 kB`, has another number than 0.
fn has_line(text: &str, name: &str) -> bool {
    let value = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    value.split_ascii_whitespace().next().is_some_and(|number| number != "0")
}

/// All pages of a process are counted for this, so it is only for one that has hugetlb pages.
fn larger_pages(process: &Process) -> Vec<(Range<u64>, u64)> {
    let numa = process.text("numa_maps").ok().and_then(|text| parse_numa_maps(&text).ok()).unwrap_or_default();
    larger_of(&process.mappings().unwrap_or_default(), &numa)
}

fn larger_of(mappings: &[Mapping], numa: &[NumaMapping]) -> Vec<(Range<u64>, u64)> {
    let sizes: BTreeMap<u64, u64> = numa.iter().map(|mapping| (mapping.start, mapping.page_bytes)).collect();
    let size = |mapping: &Mapping| sizes.get(&mapping.range.start).copied().filter(|&bytes| bytes > HUGE_PAGE);
    mappings.iter().filter_map(|mapping| Some((mapping.range.clone(), size(mapping)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::SMALL_PAGE;

    #[test]
    fn pages_of_hugetlb_mappings_have_their_size() {
        const GIB: u64 = 1 << 30;
        let maps = crate::parse_maps(
            "40000000-c0000000 rw-p 00000000 00:0f 7 /anon_hugepage (deleted)\n\
             c0000000-c0400000 rw-p 00000000 00:00 0 \n",
        );
        let numa = "40000000 default file=/anon\\040(deleted) huge anon=2 dirty=2 N0=2 kernelpagesize_kB=1048576\n\
                    c0000000 default anon=1024 dirty=1024 N0=1024 kernelpagesize_kB=4\n";
        let larger = larger_of(&maps.unwrap(), &parse_numa_maps(numa).unwrap());
        assert_eq!(larger, [(GIB..3 * GIB, GIB)]);
        let whole = MovedWhole { larger, hidden: false };
        // The kernel may report neighbours in one region, and the rest of a page by another call.
        let extent = |range, page_bytes| Extent { range, page_bytes };
        let all = extent(GIB / 2..3 * GIB + HUGE_PAGE, HUGE_PAGE);
        let parts = [
            extent(GIB / 2..GIB, HUGE_PAGE),
            extent(GIB..3 * GIB, GIB),
            extent(3 * GIB..3 * GIB + HUGE_PAGE, HUGE_PAGE),
        ];
        assert_eq!(whole.sized(&all), parts);
        assert_eq!(whole.sized(&extent(GIB + HUGE_PAGE..2 * GIB, HUGE_PAGE)), []);
        assert_eq!(MovedWhole::default().sized(&all), [all]);
    }

    #[test]
    fn small_pages_move_alone_unless_they_may_be_parts_of_huge_ones() {
        let rollup = "Rss: 8 kB\nAnonHugePages:         0 kB\nFilePmdMapped:      2048 kB\n";
        assert!(has_line(rollup, "FilePmdMapped:") && !has_line(rollup, "AnonHugePages:") && !has_line(rollup, "Pss:"));
        let hidden = MovedWhole { hidden: true, ..MovedWhole::default() };
        assert_eq!([hidden.bytes(SMALL_PAGE, false), hidden.bytes(SMALL_PAGE, true)], [HUGE_PAGE, SMALL_PAGE]);
        assert_eq!(MovedWhole::default().bytes(SMALL_PAGE, false), SMALL_PAGE);
    }
}
