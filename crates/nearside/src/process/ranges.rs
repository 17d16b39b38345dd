//! Selects addresses of a process: all, by range, or by mapping name.

use linux::{Mapping, NamedRange, mapped_parts};
use machine::SMALL_PAGE;
use observe::Regions;
use std::ops::Range;

/// The selected part of a process's mappings.
#[derive(Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Mapped addresses, ascending, without overlaps.
    pub ranges: Vec<Range<u64>>,
    /// Requested but not mapped, bytes.
    pub unmapped_bytes: u64,
}

/// Parses `START-END` or `ADDRESS`, in hexadecimal with or without 0x, and rounds it to whole pages.
pub fn parse(text: &str) -> Result<Range<u64>, String> {
    let hex = |text: &str| {
        let digits = text.trim().trim_start_matches("0x");
        u64::from_str_radix(digits, 16).map_err(|_| format!("`{text}` is not a hexadecimal address"))
    };
    let page = |address: u64| address / SMALL_PAGE * SMALL_PAGE;
    let (start, last) = match text.split_once('-') {
        Some((start, end)) => (hex(start)?, hex(end)?.checked_sub(1).ok_or("the range ends at 0")?),
        None => (hex(text)?, hex(text)?),
    };
    if last < start {
        return Err("the range ends before it begins, or is empty".to_owned());
    }
    let end = page(last).checked_add(SMALL_PAGE).ok_or("the range goes beyond the last address")?;
    Ok(page(start)..end)
}

/// The parts of these mappings that are in the ranges or have one of the names, of mappings or of named ranges; all of them
/// if neither is given.
pub fn choose(
    mappings: &[Mapping],
    ranges: &[Range<u64>],
    names: &[String],
    regions: &mut Regions,
) -> Result<Chosen, String> {
    let parts =
        |ranges: Vec<Range<u64>>| joined(ranges).iter().flat_map(|range| mapped_parts(mappings, range)).collect();
    if ranges.is_empty() && names.is_empty() {
        let ranges = mappings.iter().map(|mapping| mapping.range.clone()).collect();
        return Ok(Chosen { ranges, unmapped_bytes: 0 });
    }
    if ranges.is_empty() {
        let given = regions.named(mappings);
        let mut found = Vec::new();
        for name in names {
            let before = found.len();
            let called =
                mappings.iter().filter(|mapping| is_called(mapping, name)).map(|mapping| mapping.range.clone());
            let of_name = given.iter().filter(|one| one.name == *name).map(NamedRange::pages);
            found.extend(called.chain(of_name));
            if found.len() == before {
                return Err(format!(
                    "the process has no mapping and no named range `{name}`: `nearside show PID` lists the mappings"
                ));
            }
        }
        return Ok(Chosen { ranges: parts(found), unmapped_bytes: 0 });
    }
    let asked = joined(ranges.to_vec());
    let chosen: Vec<Range<u64>> = parts(ranges.to_vec());
    if chosen.is_empty() {
        return Err("nothing is mapped there: `nearside show PID` lists the mappings".to_owned());
    }
    let bytes = |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
    Ok(Chosen { unmapped_bytes: bytes(&asked).saturating_sub(bytes(&chosen)), ranges: chosen })
}

/// All mappings but those of the kernel's own pages, which it maps into every process and which never move.
pub fn own(mappings: &[Mapping]) -> Chosen {
    let is_own =
        |mapping: &&Mapping| !matches!(mapping.name.as_str(), "[vdso]" | "[vvar]" | "[vvar_vclock]" | "[vsyscall]");
    let ranges = mappings.iter().filter(is_own).map(|mapping| mapping.range.clone()).collect();
    Chosen { ranges, unmapped_bytes: 0 }
}

fn is_called(mapping: &Mapping, name: &str) -> bool {
    let [path, name] = [&mapping.name, name].map(|name| name.trim_end_matches(" (deleted)"));
    !name.is_empty() && (path == name || path.rsplit('/').next() == Some(name))
}

/// The same addresses, ascending and without overlaps.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mappings() -> Vec<Mapping> {
        let maps = "1000-3000 rw-p 0 0:0 1 /usr/lib/a.so\n4000-6000 rw-p 0 0:0 0 [heap]\n6000-7000 rw-s 0 0:0 2 /dev/shm/x (deleted)\n9000-a000 rw-p 0 0:0 0 [anon:weights]\n";
        linux::parse_maps(maps).unwrap()
    }

    fn chosen(ranges: &[&str], names: &[&str]) -> Result<Chosen, String> {
        let ranges: Vec<_> = ranges.iter().map(|text| parse(text).unwrap()).collect();
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        choose(&mappings(), &ranges, &names, &mut Regions::default())
    }

    #[test]
    fn addresses_are_rounded_to_pages() {
        assert_eq!(parse("0x1001"), Ok(0x1000..0x2000));
        assert_eq!(parse("1fff-2001"), Ok(0x1000..0x3000));
        for text in ["", "x", "2-1", "0-0", "5-", "ffffffffffffffff", "-5"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn pages_of_the_kernel_are_not_the_programs_own() {
        let maps = "1000-2000 rw-p 0 0:0 0 [heap]\n2000-3000 r--p 0 0:0 0 [vvar]\n3000-4000 r-xp 0 0:0 0 [vdso]\n";
        let own = own(&linux::parse_maps(maps).unwrap());
        assert_eq!(own, Chosen { ranges: vec![Range { start: 0x1000, end: 0x2000 }], unmapped_bytes: 0 });
    }

    #[test]
    fn mappings_are_chosen_by_address_or_name() {
        assert_eq!(chosen(&[], &[]).unwrap().ranges, [0x1000..0x3000, 0x4000..0x6000, 0x6000..0x7000, 0x9000..0xa000]);
        for name in ["weights", "[anon:weights]"] {
            assert_eq!(chosen(&[], &[name]).unwrap().ranges, [Range { start: 0x9000, end: 0xa000 }]);
        }
        assert_eq!(chosen(&[], &["a.so", "[heap]"]).unwrap().ranges, [0x1000..0x3000, 0x4000..0x6000]);
        assert_eq!(chosen(&[], &["/dev/shm/x"]).unwrap().ranges, [Range { start: 0x6000, end: 0x7000 }]);
        assert!(chosen(&[], &["a"]).unwrap_err().contains("no mapping and no named range `a`"));
        let half = chosen(&["2000-5000", "2000-3000"], &[]).unwrap();
        assert_eq!(half, Chosen { ranges: vec![0x2000..0x3000, 0x4000..0x5000], unmapped_bytes: 0x1000 });
        assert!(chosen(&["8000"], &[]).unwrap_err().contains("nothing is mapped"));
    }
}
