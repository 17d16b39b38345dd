//! /proc/PID/smaps: how much of each mapping is present, in which form, and how much is shared.

use crate::processes::process::{MalformedLine, Mapping};

/// A mapping and its memory, in bytes. Fields that the kernel does not write are 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingUse {
    /// The mapping, as in /proc/PID/maps.
    pub mapping: Mapping,
    /// Page size in bytes apart from transparent huge pages: of base pages, or of hugetlb pages.
    pub page_bytes: u64,
    /// Present, without hugetlb pages.
    pub resident_bytes: u64,
    /// In pages that other processes map too, including hugetlb pages.
    pub shared_bytes: u64,
    /// In hugetlb pages.
    pub hugetlb_bytes: u64,
    /// Mapped as PMD-sized transparent huge pages, whatever they hold (Linux 2.6.38; for files 5.4).
    pub transparent_huge_bytes: u64,
    /// Swapped out.
    pub swapped_bytes: u64,
}

/// Parses the text of /proc/PID/smaps.
pub fn parse_smaps(text: &str) -> Result<Vec<MappingUse>, MalformedLine> {
    let mut mappings: Vec<MappingUse> = Vec::new();
    for line in text.lines() {
        // Headings begin with an address in lower case; field names begin with a capital letter.
        if !line.starts_with(|first: char| first.is_ascii_uppercase()) {
            mappings.push(MappingUse::new(line.parse()?));
        } else if let Some(mapping) = mappings.last_mut() {
            mapping.add(line).ok_or_else(|| MalformedLine(line.to_owned()))?;
        } else {
            return Err(MalformedLine(line.to_owned()));
        }
    }
    Ok(mappings)
}

impl MappingUse {
    /// A mapping with nothing present.
    fn new(mapping: Mapping) -> Self {
        Self {
            mapping,
            page_bytes: 0,
            resident_bytes: 0,
            shared_bytes: 0,
            hugetlb_bytes: 0,
            transparent_huge_bytes: 0,
            swapped_bytes: 0,
        }
    }

    /// `Rss:                   8 kB`.
    fn add(&mut self, line: &str) -> Option<()> {
        let (name, value) = line.split_once(':')?;
        let field = match name {
            "KernelPageSize" => &mut self.page_bytes,
            "Rss" => &mut self.resident_bytes,
            "Shared_Clean" | "Shared_Dirty" => &mut self.shared_bytes,
            "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => &mut self.transparent_huge_bytes,
            "Private_Hugetlb" | "Shared_Hugetlb" => {
                let bytes = kilobytes(value)?;
                self.hugetlb_bytes = self.hugetlb_bytes.checked_add(bytes)?;
                if name == "Shared_Hugetlb" {
                    self.shared_bytes = self.shared_bytes.checked_add(bytes)?;
                }
                return Some(());
            }
            "Swap" => &mut self.swapped_bytes,
            _ => return Some(()),
        };
        *field = field.checked_add(kilobytes(value)?)?;
        Some(())
    }
}

fn kilobytes(value: &str) -> Option<u64> {
    value.trim().strip_suffix(" kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As written by Linux 6.12, with other names.
    const SMAPS: &str = "\
55b795ddf000-55b795e00000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:                  16 kB
Pss:                  16 kB
Shared_Clean:          4 kB
Shared_Dirty:          8 kB
Private_Dirty:         4 kB
Swap:                 12 kB
THPeligible:           0
VmFlags: rd wr mr mw me ac sd
7f0000000000-7f0002800000 rw-p 00000000 00:10 2052                       /anon_hugepage (deleted)
KernelPageSize:     2048 kB
Rss:                   0 kB
Shared_Hugetlb:     4096 kB
Private_Hugetlb:   16384 kB
7f1000000000-7f1000400000 rw-p 00000000 00:00 0
KernelPageSize:        4 kB
Rss:                4096 kB
AnonHugePages:      2048 kB
";

    #[test]
    fn what_is_there_is_read_by_kind() {
        let [heap, hugetlb, huge] = &parse_smaps(SMAPS).unwrap()[..] else { panic!("three mappings") };
        assert_eq!((heap.mapping.name.as_str(), heap.page_bytes, heap.resident_bytes), ("[heap]", 4096, 16 << 10));
        assert_eq!((heap.shared_bytes, heap.swapped_bytes, heap.transparent_huge_bytes), (12 << 10, 12 << 10, 0));
        assert_eq!((hugetlb.page_bytes, hugetlb.resident_bytes), (2 << 20, 0));
        assert_eq!((hugetlb.hugetlb_bytes, hugetlb.shared_bytes), (20 << 20, 4 << 20));
        assert_eq!((huge.resident_bytes, huge.transparent_huge_bytes), (4 << 20, 2 << 20));
    }

    #[test]
    fn what_the_kernel_does_not_write_is_refused() {
        let heading = SMAPS.lines().next().unwrap();
        for text in ["Rss: 4 kB", "x", &format!("{heading}\nRss: 4"), &format!("{heading}\nRss: {} kB", u64::MAX)] {
            assert!(parse_smaps(text).is_err(), "{text}");
        }
        assert_eq!(parse_smaps(""), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(
            heading in "([0-9a-f]{1,16}-[0-9a-f]{1,16} rw-p 0 0:0 0\n)?",
            fields in "(Rss: *[0-9]{0,21} kB\n|.*\n)*",
        ) {
            let _ = parse_smaps(&(heading + &fields));
        }
    }
}
