//! The residence of a process's memory: for each mapping, the number of pages of each size on each node. Pure.

use crate::processes::process::Mapping;
use crate::residence::numa_maps::NumaMapping;
use crate::residence::smaps::MappingUse;
use machine::NodeId;

/// How the kernel maps a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageKind {
    /// Base size, or part of a larger folio that is mapped page by page.
    Base,
    /// A transparent huge page, mapped as a whole.
    TransparentHuge,
    /// A page of a hugetlb pool.
    Hugetlb,
}

/// Pages of one kind and size on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodePages {
    /// The node.
    pub node: NodeId,
    /// Their kind.
    pub kind: PageKind,
    /// Page size in bytes.
    pub page_bytes: u64,
    /// The number of pages.
    pub pages: u64,
}

impl NodePages {
    /// Their total bytes.
    pub fn bytes(&self) -> u64 {
        self.pages.saturating_mul(self.page_bytes)
    }
}

/// A mapping and the nodes of its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Residence {
    /// The mapping.
    pub mapping: Mapping,
    /// The effective policy, in the kernel's words: the mapping's own or that of the process's first thread. `None` if
    /// the mapping appeared or changed during the read.
    pub policy: Option<String>,
    /// Its pages by node, kind and size, ascending.
    pub pages: Vec<NodePages>,
    /// Whether [`pages`](Self::pages) shows transparent huge pages as such. Otherwise each is counted as base pages:
    /// the kernel reports the bytes of a mapping in such pages, but not their nodes.
    pub huge_pages_told: bool,
    /// Bytes in transparent huge pages.
    pub transparent_huge_bytes: u64,
    /// Bytes that other processes map too.
    pub shared_bytes: u64,
    /// Bytes in swap.
    pub swapped_bytes: u64,
    /// The largest number of mappings of any one page; 0 if no page is present.
    pub most_mappings: u64,
}

/// All mappings of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residences {
    /// In order of address.
    pub mappings: Vec<Residence>,
    /// Mappings that are missing, or whose pages are missing, as they changed between two reads.
    pub changed: usize,
}

/// Combines smaps and `numa_maps`. `huge_page_bytes` is the size of a transparent huge page.
pub fn residences(uses: Vec<MappingUse>, numa: Vec<NumaMapping>, huge_page_bytes: u64) -> Residences {
    let mut numa = numa.into_iter().peekable();
    let mut all = Residences::default();
    for used in uses {
        // Both are sorted by address.
        while numa.next_if(|other| other.start < used.mapping.range.start).is_some() {
            all.changed += 1;
        }
        let of_nodes = numa.next_if(|other| other.start == used.mapping.range.start);
        all.changed += usize::from(of_nodes.is_none() && used.resident_bytes.max(used.hugetlb_bytes) > 0);
        all.mappings.push(residence(used, of_nodes, huge_page_bytes));
    }
    all.changed += numa.count();
    all
}

fn residence(used: MappingUse, of_nodes: Option<NumaMapping>, huge_page_bytes: u64) -> Residence {
    let mut residence = Residence {
        mapping: used.mapping,
        policy: None,
        pages: Vec::new(),
        huge_pages_told: used.transparent_huge_bytes == 0,
        transparent_huge_bytes: used.transparent_huge_bytes,
        shared_bytes: used.shared_bytes,
        swapped_bytes: used.swapped_bytes,
        most_mappings: 0,
    };
    if let Some(NumaMapping { policy, hugetlb, page_bytes, pages, most_mappings, .. }) = of_nodes {
        let kind = if hugetlb { PageKind::Hugetlb } else { PageKind::Base };
        residence.policy = Some(policy);
        residence.pages = pages.into_iter().map(|(node, pages)| NodePages { node, kind, page_bytes, pages }).collect();
        residence.most_mappings = most_mappings;
    }
    let total = residence.bytes();
    // The vdso and the zero page are shared, but have no node.
    residence.shared_bytes = residence.shared_bytes.min(total);
    let nodes: Vec<NodeId> = residence.pages.iter().map(|pages| pages.node).collect();
    if let (false, [node]) = (residence.huge_pages_told, &nodes[..]) {
        residence.set_huge_pages(huge_page_bytes, &[(*node, used.transparent_huge_bytes / huge_page_bytes.max(1))]);
    } else if !residence.huge_pages_told && total == used.transparent_huge_bytes {
        let all = |pages: &NodePages| (pages.node, pages.bytes() / huge_page_bytes.max(1));
        let all: Vec<_> = residence.pages.iter().map(all).collect();
        residence.set_huge_pages(huge_page_bytes, &all);
    }
    residence
}

impl Residences {
    /// A note about mappings that changed during the read; `None` if none did.
    pub fn changes(&self) -> Option<String> {
        let count = self.changed;
        (count > 0).then(|| format!("{count} mappings changed during the read and are not counted"))
    }
}

impl Residence {
    /// Present bytes on all nodes.
    pub fn bytes(&self) -> u64 {
        self.pages.iter().fold(0, |sum, pages| pages.bytes().saturating_add(sum))
    }

    /// Counts these transparent huge pages by node as such. No effect unless they are consistent: their number with
    /// smaps, and on each node with the present pages.
    pub fn set_huge_pages(&mut self, huge_page_bytes: u64, huge: &[(NodeId, u64)]) {
        let bytes = |pages: u64| pages.saturating_mul(huge_page_bytes);
        let total = huge.iter().fold(0, |sum: u64, (_, pages)| sum.saturating_add(bytes(*pages)));
        if self.huge_pages_told || total != self.transparent_huge_bytes {
            return;
        }
        let mut told = self.pages.clone();
        for &(node, pages) in huge.iter().filter(|(_, pages)| *pages > 0) {
            let base = told.iter_mut().find(|base| base.node == node && base.kind == PageKind::Base);
            let Some(base) = base.filter(|base| base.page_bytes > 0) else { return };
            let Some(rest) = base.pages.checked_sub(bytes(pages) / base.page_bytes) else { return };
            base.pages = rest;
            told.push(NodePages { node, kind: PageKind::TransparentHuge, page_bytes: huge_page_bytes, pages });
        }
        told.retain(|pages| pages.pages > 0);
        told.sort_unstable();
        self.pages = told;
        self.huge_pages_told = true;
    }
}

/// Pages of all these mappings, by node, kind and size, ascending.
pub fn total_pages(mappings: &[Residence]) -> Vec<NodePages> {
    let mut all: Vec<NodePages> = mappings.iter().flat_map(|mapping| mapping.pages.iter().copied()).collect();
    all.sort_unstable();
    all.dedup_by(|next, kept| {
        let alike = (next.node, next.kind, next.page_bytes) == (kept.node, kept.kind, kept.page_bytes);
        if alike {
            kept.pages = kept.pages.saturating_add(next.pages);
        }
        alike
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse_numa_maps, parse_smaps};
    use proptest::collection::vec;
    use proptest::prelude::*;

    const HUGE: u64 = machine::HUGE_PAGE;

    fn read(smaps: &str, numa_maps: &str) -> Residences {
        residences(parse_smaps(smaps).unwrap(), parse_numa_maps(numa_maps).unwrap(), HUGE)
    }

    fn one(resident_kb: u64, huge_kb: u64, nodes: &str) -> Residence {
        let smaps = format!("1000-9000000 rw-p 0 0:0 0\nRss: {resident_kb} kB\nAnonHugePages: {huge_kb} kB\n");
        read(&smaps, &format!("1000 default {nodes} kernelpagesize_kB=4\n")).mappings.remove(0)
    }

    fn pages(residence: &Residence) -> Vec<(u32, PageKind, u64)> {
        residence.pages.iter().map(|pages| (pages.node.0, pages.kind, pages.pages)).collect()
    }

    #[test]
    fn huge_pages_are_placed_where_the_sums_leave_no_choice() {
        use PageKind::{Base, TransparentHuge};
        assert_eq!(pages(&one(8, 0, "N0=1 N1=1")), [(0, Base, 1), (1, Base, 1)]);
        assert_eq!(pages(&one(2056, 2048, "N1=514")), [(1, Base, 2), (1, TransparentHuge, 1)]);
        assert_eq!(pages(&one(6144, 6144, "N0=512 N1=1024")), [(0, TransparentHuge, 1), (1, TransparentHuge, 2)]);
        let mut open = one(6144, 2048, "N0=512 N1=1024");
        assert!(!open.huge_pages_told);
        assert_eq!(pages(&open), [(0, Base, 512), (1, Base, 1024)]);
        // Inconsistent counts are ignored: a sum other than that of smaps, a node with fewer pages, a node without
        // pages.
        for (node, count) in [(1, 2), (7, 1)] {
            open.set_huge_pages(HUGE, &[(NodeId(node), count)]);
            assert!(!open.huge_pages_told);
        }
        open.set_huge_pages(HUGE, &[(NodeId(1), 1)]);
        assert_eq!(pages(&open), [(0, Base, 512), (1, Base, 512), (1, TransparentHuge, 1)]);
    }

    /// numastat assumes the default size for all huge pages (numactl issue 147).
    #[test]
    fn totals_are_right_with_mixed_page_sizes() {
        let smaps = "\
1000-2000 r--p 0 0:0 1 /file\nRss: 4 kB\n\
200000-c00000 rw-p 0 0:0 2 /anon_hugepage (deleted)\nRss: 0 kB\nPrivate_Hugetlb: 10240 kB\n\
40000000-c0000000 rw-p 0 0:0 3 /anon_hugepage (deleted)\nRss: 0 kB\nPrivate_Hugetlb: 2097152 kB\n\
d0000000-d0400000 rw-p 0 0:0 0\nRss: 4096 kB\nAnonHugePages: 2048 kB\n";
        let numa_maps = "\
1000 default file=/file mapped=1 N0=1 kernelpagesize_kB=4
200000 bind:1 file=/anon_hugepage\\040(deleted) huge anon=5 dirty=5 N1=5 kernelpagesize_kB=2048
40000000 default file=/anon_hugepage\\040(deleted) huge anon=2 dirty=2 N0=1 N1=1 kernelpagesize_kB=1048576
d0000000 default anon=1024 dirty=1024 N0=1024 kernelpagesize_kB=4
";
        let all = read(smaps, numa_maps);
        assert_eq!(all.changed, 0);
        let bytes = |node| -> u64 {
            let of_node = |pages: &NodePages| pages.node == NodeId(node);
            total_pages(&all.mappings).iter().filter(|pages| of_node(pages)).map(NodePages::bytes).sum()
        };
        assert_eq!((bytes(0), bytes(1)), (4096 + (1 << 30) + (4 << 20), (10 << 20) + (1 << 30)));
        assert_eq!(total_pages(&all.mappings).len(), 5);
    }

    #[test]
    fn mappings_that_changed_between_two_looks_are_counted() {
        let smaps = "1000-2000 rw-p 0 0:0 0\nRss: 4 kB\n3000-4000 rw-p 0 0:0 0\nRss: 0 kB\n";
        let all = read(smaps, "0 default\n2000 default N0=1 kernelpagesize_kB=4\n9000 default\n");
        assert_eq!((all.changed, all.mappings.len()), (4, 2));
        assert!(all.mappings.iter().all(|mapping| mapping.policy.is_none() && mapping.pages.is_empty()));
    }

    proptest! {
        #[test]
        fn setting_huge_pages_never_changes_a_sum(base in vec(0..4000u64, 1..5), huge_kb in 0..9000u64) {
            let words: Vec<_> = base.iter().enumerate().map(|(node, pages)| format!("N{node}={pages}")).collect();
            let residence = one(base.iter().sum::<u64>() * 4, huge_kb, &words.join(" "));
            for (node, pages) in base.iter().enumerate() {
                let of_node = |pages: &&NodePages| pages.node.0 as usize == node;
                let bytes: u64 = residence.pages.iter().filter(of_node).map(NodePages::bytes).sum();
                prop_assert_eq!(bytes, pages * 4096);
            }
        }
    }
}
