//! Pages of a process by node, kind and size, for JSON and text.

use crate::columns;
use linux::{Mapping, NodePages, PageKind};
use machine::{NodeId, size};
use serde::{Serialize, Serializer};
use std::collections::BTreeSet;

/// Most nodes for which a column each fits a terminal.
pub(crate) const MOST_COLUMNS: usize = 8;

/// The kind of a page, as in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Of base size.
    Base,
    /// A transparent huge page.
    TransparentHuge,
    /// From a hugetlb pool.
    Hugetlb,
}

impl From<PageKind> for Kind {
    fn from(kind: PageKind) -> Self {
        match kind {
            PageKind::Base => Self::Base,
            PageKind::TransparentHuge => Self::TransparentHuge,
            PageKind::Hugetlb => Self::Hugetlb,
        }
    }
}

/// Pages of one kind and size on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PagesOnNode {
    /// The node.
    pub node: NodeId,
    /// The kind of the pages.
    pub kind: Kind,
    /// Size of each, bytes.
    pub page_bytes: u64,
    /// Number of pages.
    pub pages: u64,
    /// Total size, bytes.
    pub bytes: u64,
}

impl From<&NodePages> for PagesOnNode {
    fn from(pages: &NodePages) -> Self {
        let &NodePages { node, kind, page_bytes, pages: count } = pages;
        Self { node, kind: kind.into(), page_bytes, pages: count, bytes: pages.bytes() }
    }
}

/// An address, in JSON as text such as `0x7f2a40000000`: many JSON readers round numbers of more than 53 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address(pub u64);

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:#x}", self.0))
    }
}

impl PagesOnNode {
    fn size(&self) -> Size {
        (self.kind, self.page_bytes)
    }
}

/// Kind and size of a page.
pub(crate) type Size = (Kind, u64);

/// `4 KiB`, `2 MiB THP`, `1 GiB hugetlb`.
pub(crate) fn size_name((kind, page_bytes): Size) -> String {
    let name = match kind {
        Kind::Base => "",
        Kind::TransparentHuge => " THP",
        Kind::Hugetlb => " hugetlb",
    };
    size::format(page_bytes) + name
}

/// `rw-p`, as in /proc/PID/maps.
pub(crate) fn rights(mapping: &Mapping) -> String {
    let letter = |has, letter| if has { letter } else { '-' };
    let Mapping { read, write, execute, shared, .. } = *mapping;
    let shared = if shared { 's' } else { 'p' };
    [letter(read, 'r'), letter(write, 'w'), letter(execute, 'x'), shared].iter().collect()
}

/// The kinds and sizes of pages, in order.
pub(crate) fn sizes(pages: &[PagesOnNode]) -> BTreeSet<Size> {
    pages.iter().map(PagesOnNode::size).collect()
}

/// Total size of the pages of one kind and size.
pub(crate) fn bytes_of(pages: &[PagesOnNode], size: Size) -> u64 {
    pages.iter().filter(|pages| pages.size() == size).fold(0, |sum, pages| pages.bytes.saturating_add(sum))
}

/// The value of the pages of one size on each node: a cell per node or, with many nodes, one cell that
/// lists the nodes that have any.
pub(crate) fn cells(
    pages: &[PagesOnNode],
    size: Size,
    nodes: &[NodeId],
    value: fn(&PagesOnNode) -> String,
) -> Vec<String> {
    let alike = || pages.iter().filter(|pages| pages.size() == size);
    if nodes.len() <= MOST_COLUMNS {
        let on = |node: &NodeId| alike().find(|pages| pages.node == *node).map_or_else(|| "-".to_owned(), value);
        return nodes.iter().map(on).collect();
    }
    vec![alike().map(|pages| format!("{}:{}", pages.node, value(pages))).collect::<Vec<_>>().join(" ")]
}

/// Headings for [`cells`].
pub(crate) fn node_headings(nodes: &[NodeId]) -> Vec<String> {
    if nodes.len() <= MOST_COLUMNS {
        return nodes.iter().map(|node| format!("node {node}")).collect();
    }
    vec!["by node".to_owned()]
}

/// The end of a text, at most `most` columns wide.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    if columns::width(text) <= most { text.to_owned() } else { format!("…{}", columns::end(text, most - 1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_nodes_share_a_cell() {
        let on = |node, pages| PagesOnNode { node: NodeId(node), kind: Kind::Base, page_bytes: 4096, pages, bytes: 0 };
        let pages = [on(1, 7), on(300, 2)];
        let nodes: Vec<NodeId> = (0..=300).map(NodeId).collect();
        let shown = |nodes: &[NodeId]| cells(&pages, (Kind::Base, 4096), nodes, |pages| pages.pages.to_string());
        assert_eq!(shown(&nodes[..3]), ["-", "7", "-"]);
        assert_eq!(shown(&nodes), ["1:7 300:2"]);
        assert_eq!(node_headings(&nodes).len(), 1);
    }

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!((shortened("/a/b", 4).as_str(), shortened("/a/bc", 4).as_str()), ("/a/b", "…/bc"));
    }

    #[test]
    fn addresses_survive_readers_with_53_bits() {
        assert_eq!(serde_json::to_string(&Address(u64::MAX)).unwrap(), "\"0xffffffffffffffff\"");
    }
}
