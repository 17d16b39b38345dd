//! `/proc/PID/numa_maps`: the policy of each mapping, and its pages on each node.

use crate::processes::process::MalformedLine;
use machine::NodeId;
use std::str::FromStr;

/// Policy names that contain a space, which otherwise separates the fields of a line.
const NAMES_WITH_SPACES: [&str; 2] = ["weighted interleave", "prefer (many)"];

/// Length in bytes of the longest policy that kernels write in full: one this long may have lost the end of its node
/// list.
const LONGEST_POLICY: usize = 63;

/// A mapping, as a line of `numa_maps` (`CONFIG_NUMA`, Linux 2.6.14; page sizes since 4.0).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaMapping {
    /// Start address. The end is in /proc/PID/maps.
    pub start: u64,
    /// The effective policy: the mapping's own, or that of the thread that `numa_maps` belongs to. In the kernel's
    /// words, such as `default`, `bind:0-1` or `weighted interleave:0,2`.
    pub policy: String,
    /// Whether the mapping is of hugetlb pages.
    pub hugetlb: bool,
    /// Size of a counted page in bytes. Hugetlb mappings count huge pages; others count base pages, with a transparent
    /// huge page counted as the base pages in it.
    pub page_bytes: u64,
    /// Present pages by node, ascending; nodes without any are left out. Zero pages and swapped pages are not counted.
    pub pages: Vec<(NodeId, u64)>,
    /// Present pages that are not backed by a file.
    pub anonymous_pages: u64,
    /// Present pages written since their last write-back.
    pub dirty_pages: u64,
    /// The largest number of mappings of any one page: 1 if no page is shared, 0 if none is present.
    pub most_mappings: u64,
}

impl NumaMapping {
    /// Present bytes on all nodes.
    pub fn resident_bytes(&self) -> u64 {
        self.pages.iter().fold(0, |sum, (_, pages)| pages.saturating_mul(self.page_bytes).saturating_add(sum))
    }
}

/// Whether a policy's node list may be truncated: the kernel writes at most 63 bytes of a policy.
pub fn policy_may_be_cut(policy: &str) -> bool {
    policy.len() >= LONGEST_POLICY
}

/// Parses the text of `/proc/PID/numa_maps`.
pub fn parse_numa_maps(text: &str) -> Result<Vec<NumaMapping>, MalformedLine> {
    text.lines().map(str::parse).collect()
}

impl FromStr for NumaMapping {
    type Err = MalformedLine;

    fn from_str(line: &str) -> Result<Self, MalformedLine> {
        parse_line(line).ok_or_else(|| MalformedLine(line.to_owned()))
    }
}

/// `7f1c0000 bind:0-1 file=/a\040path dirty=3 mapmax=2 N0=2 N1=1 kernelpagesize_kB=4`. Unknown words are ignored: newer
/// kernels add some.
fn parse_line(line: &str) -> Option<NumaMapping> {
    let (start, rest) = line.split_once(' ')?;
    let (policy, rest) = split_policy(rest);
    let mut mapping = NumaMapping {
        start: u64::from_str_radix(start, 16).ok()?,
        policy: policy.to_owned(),
        hugetlb: false,
        page_bytes: 0,
        pages: Vec::new(),
        anonymous_pages: 0,
        dirty_pages: 0,
        most_mappings: 0,
    };
    for word in rest.split_ascii_whitespace() {
        let Some((name, value)) = word.split_once('=') else {
            mapping.hugetlb |= word == "huge";
            continue;
        };
        let number = || value.parse::<u64>().ok();
        match name {
            "anon" => mapping.anonymous_pages = number()?,
            "dirty" => mapping.dirty_pages = number()?,
            "mapmax" => mapping.most_mappings = number()?,
            "kernelpagesize_kB" => mapping.page_bytes = number()?.checked_mul(1024)?,
            _ => {
                if let Some(node) = name.strip_prefix('N').and_then(|node| node.parse().ok()) {
                    mapping.pages.push((NodeId(node), number()?));
                }
            }
        }
    }
    if mapping.pages.is_empty() {
        return Some(mapping);
    }
    // Without a page size the counts cannot be converted to bytes.
    if mapping.page_bytes == 0 {
        return None;
    }
    mapping.pages.sort_unstable();
    mapping.pages.dedup_by_key(|(node, _)| *node);
    // The kernel omits `mapmax` if it is 1.
    mapping.most_mappings = mapping.most_mappings.max(1);
    Some(mapping)
}

fn split_policy(text: &str) -> (&str, &str) {
    let name = NAMES_WITH_SPACES.into_iter().find(|name| text.starts_with(name)).map_or(0, str::len);
    let end = text.get(name..).and_then(|rest| rest.find(' ')).map_or(text.len(), |end| name + end);
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::btree_map;
    use proptest::prelude::*;

    /// As written by Linux 6.12, with other names.
    const NUMA_MAPS: &str = "\
55b776c02000 default file=/usr/bin/a\\040program mapped=2 active=0 N0=2 kernelpagesize_kB=4
55b795ddf000 default heap anon=4 dirty=4 active=0 N0=3 N2=1 kernelpagesize_kB=4
7f0000000000 bind:1 file=/anon_hugepage\\040(deleted) huge anon=10 dirty=10 N1=10 kernelpagesize_kB=2048
7f1000000000 weighted interleave:0-1 anon=1024 dirty=1024 swapcache=3 active=0 N0=512 N1=512 kernelpagesize_kB=4
7f2000000000 prefer (many):0-1 file=/lib/N3=7 mapped=37 mapmax=3 N1=37 kernelpagesize_kB=4
7f3000000000 bind=static|balancing:0-1
7f4000000000 default
";

    #[test]
    fn policies_pages_and_their_size_are_read() {
        let maps = parse_numa_maps(NUMA_MAPS).unwrap();
        let policies: Vec<_> = maps.iter().map(|mapping| mapping.policy.as_str()).collect();
        assert_eq!(policies[..4], ["default", "default", "bind:1", "weighted interleave:0-1"]);
        assert_eq!(policies[4..], ["prefer (many):0-1", "bind=static|balancing:0-1", "default"]);
        assert_eq!(maps[1].pages, [(NodeId(0), 3), (NodeId(2), 1)]);
        assert_eq!((maps[1].anonymous_pages, maps[1].dirty_pages, maps[1].most_mappings), (4, 4, 1));
        assert_eq!((maps[4].most_mappings, maps[4].pages.as_slice()), (3, &[(NodeId(1), 37)][..]));
        assert_eq!((maps[6].most_mappings, maps[6].page_bytes), (0, 0));
    }

    /// numastat's bug (numactl issue 147): it assumes the default size for every huge page.
    #[test]
    fn bytes_are_of_each_mappings_own_page_size() {
        let maps = parse_numa_maps(NUMA_MAPS).unwrap();
        assert_eq!((maps[2].hugetlb, maps[2].page_bytes, maps[2].resident_bytes()), (true, 2 << 20, 20 << 20));
        assert_eq!((maps[3].hugetlb, maps[3].resident_bytes()), (false, 4 << 20));
    }

    #[test]
    fn what_the_kernel_does_not_write_is_refused() {
        for line in ["", "1", "g default", "1 default N0=x kernelpagesize_kB=4", "1 default N0=1", "1 default anon=-1"]
        {
            assert!(line.parse::<NumaMapping>().is_err(), "{line}");
        }
        let long = format!("1 bind:{}", "0,2,4,6,8".repeat(8));
        assert!(policy_may_be_cut(&long.parse::<NumaMapping>().unwrap().policy));
        assert!(!policy_may_be_cut("bind:0-1023"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = parse_numa_maps(&text);
        }

        #[test]
        fn any_counts_are_read(start: u64, nodes in btree_map(0..1024u32, 1..1_000_000u64, 1..9)) {
            let words: Vec<String> = nodes.iter().map(|(node, pages)| format!("N{node}={pages}")).collect();
            let line = format!("{start:x} default anon=1 {} kernelpagesize_kB=4", words.join(" "));
            let mapping: NumaMapping = line.parse()?;
            prop_assert_eq!(mapping.start, start);
            prop_assert_eq!(mapping.resident_bytes(), nodes.values().sum::<u64>() * 4096);
            prop_assert!(mapping.pages.iter().map(|(node, pages)| (node.0, *pages)).eq(nodes));
        }
    }
}
