//! The pages of a process as strips, for terminals and as a picture.

use crate::layout::Layout;
use crate::pages::{MappingPages, PagesReport, Run};
use crate::picture::{Place, Strip, strips_to_svg};
use crate::residence::{Address, Size, shortened, size_name, sizes};
use machine::{NodeSet, size};
use std::fmt::{self, Write};

/// Cells per row of a strip, in a picture and at most.
const ROW_CELLS: usize = 64;
/// Columns before the cells of a row: its address.
const ADDRESS_WIDTH: usize = 20;
/// Most characters of a mapping's name in a picture.
const TITLE_WIDTH: usize = 56;
/// Most nodes whose pages are counted next to a strip.
const MOST_NODES: usize = 16;

/// The report for a terminal: strips, and runs if requested.
#[derive(Clone, Copy, Debug)]
pub struct PagesText<'a> {
    /// The report.
    pub report: &'a PagesReport,
    /// Whether to show runs of pages too.
    pub runs: bool,
    /// Whether the terminal has colours.
    pub colours: bool,
}

impl fmt::Display for PagesText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PagesReport { pid, name, mappings, notes } = self.report;
        let layout = Layout::of(f);
        f.write_str(&layout.wrapped("", &format!("process {pid} ({name})")))?;
        notes.iter().try_for_each(|note| f.write_str(&layout.wrapped("note: ", note)))?;
        for mapping in mappings {
            let cell = size::format(mapping.cell_bytes);
            write!(f, "\n{}", layout.wrapped("", &mapping.heading(None)))?;
            f.write_str(&layout.wrapped("  ", &format!("{}; a cell is {cell}", mapping.amounts())))?;
            for (address, cells) in mapping.rows(row_cells(layout)) {
                writeln!(f, "  {address:<16}  {}", self.cells(cells))?;
            }
            if self.runs {
                write_runs(f, &mapping.runs)?;
            }
        }
        Ok(())
    }
}

impl PagesText<'_> {
    fn cells(&self, cells: &[Option<Place>]) -> String {
        let mut text = String::new();
        for same in cells.chunk_by(|one, next| one == next) {
            let place = same.first().copied().flatten();
            let letters: String = same.iter().map(|_| letter(place)).collect();
            match place {
                // Black letters on one of the colours that every terminal has.
                Some(Place::Node(node)) if self.colours => {
                    let _ = write!(text, "\x1b[30;{}m{letters}\x1b[0m", 102 + node.0 % 5);
                }
                _ => text += &letters,
            }
        }
        text
    }
}

/// The cells of a row: a power of two, so that addresses of rows are round.
fn row_cells(layout: Layout) -> usize {
    let fitting = layout.width().saturating_sub(ADDRESS_WIDTH).clamp(1, ROW_CELLS);
    1 << fitting.ilog2()
}

fn write_runs(f: &mut fmt::Formatter<'_>, runs: &[Run]) -> fmt::Result {
    let layout = Layout::of(f);
    writeln!(f, "  {:<16}  {:>8}  {:<8}  {:>4}  flags", "address", "pages", "of", "node")?;
    for run in runs {
        let node = run.node.map_or_else(|| "-".to_owned(), |node| node.to_string());
        let flags = run.traits.words().collect::<Vec<_>>().join(",");
        let (Address(start), size) = (run.start, size::format(run.page_bytes));
        let place = format!("  {start:<16x}  {:>8}  {size:<8}  {node:>4}  ", run.pages);
        f.write_str(&layout.wrapped(&place, &flags))?;
    }
    Ok(())
}

/// A node as one letter: 0 to 9, a to z, A to Z, and `#` for all others.
fn letter(place: Option<Place>) -> char {
    let node = match place {
        None => return '.',
        Some(Place::Mixed) => return '*',
        Some(Place::Node(node)) => node,
    };
    let letters = ('0'..='9').chain('a'..='z').chain('A'..='Z');
    letters.into_iter().nth(node.0 as usize).unwrap_or('#')
}

/// Most mappings in a picture: those with the most pages.
const MOST_STRIPS: usize = 64;

/// The strips as a picture.
pub fn pages_svg(report: &PagesReport) -> String {
    let bytes = |mapping: &MappingPages| mapping.pages.iter().fold(0, |sum: u64, on| sum.saturating_add(on.bytes));
    let mut sizes: Vec<u64> = report.mappings.iter().map(bytes).collect();
    sizes.sort_unstable_by(|one, other| other.cmp(one));
    let least = sizes.get(MOST_STRIPS).map_or(0, |bytes| bytes + 1);
    let shown: Vec<Strip> = report.mappings.iter().filter(|mapping| bytes(mapping) >= least).map(strip).collect();
    let nodes: NodeSet = report.mappings.iter().flat_map(|mapping| &mapping.pages).map(|on| on.node).collect();
    let total = sizes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    let left_out = match report.mappings.len() - shown.len() {
        0 => String::new(),
        count => format!("; {count} smaller mappings are left out"),
    };
    let summary = format!("{} on nodes {nodes}, in {} mappings{left_out}", size::rounded(total), report.mappings.len());
    strips_to_svg(&format!("process {} ({})", report.pid, report.name), &summary, &shown)
}

fn strip(mapping: &MappingPages) -> Strip {
    let cell = size::format(mapping.cell_bytes);
    Strip {
        title: mapping.heading(Some(TITLE_WIDTH)),
        note: format!("{}; a cell is {cell}", mapping.amounts()),
        rows: mapping.rows(ROW_CELLS).map(|(address, cells)| (address, cells.to_vec())).collect(),
    }
}

impl MappingPages {
    /// Addresses, rights and name; the beginning of the name is cut off if it does not fit.
    fn heading(&self, most_characters: Option<usize>) -> String {
        let (Address(start), Address(end)) = (self.start, self.end);
        let name = most_characters.map_or_else(|| self.name.clone(), |most| shortened(&self.name, most));
        format!("{start:x}-{end:x} {} {name}", self.rights).trim_end().to_owned()
    }

    /// `pages of 4 KiB by node 0:12 1:3; pages of 2 MiB THP by node 1:1`.
    fn amounts(&self) -> String {
        let of = |of: Size| {
            let all = || self.pages.iter().filter(|on| (on.kind, on.page_bytes) == of);
            let pages: Vec<String> = all().take(MOST_NODES).map(|on| format!("{}:{}", on.node, on.pages)).collect();
            let more = all().count() - pages.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("pages of {} by node {}{more}", size_name(of), pages.join(" "))
        };
        sizes(&self.pages).into_iter().map(of).collect::<Vec<_>>().join("; ")
    }

    /// Rows of `count` cells, each with its first address.
    fn rows(&self, count: usize) -> impl Iterator<Item = (String, &[Option<Place>])> {
        let Address(start) = self.start;
        let row_bytes = self.cell_bytes.saturating_mul(count as u64);
        let address = move |row: usize| format!("{:x}", start.saturating_add(row_bytes.saturating_mul(row as u64)));
        self.strip.chunks(count).enumerate().map(move |(row, cells)| (address(row), cells))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_line::tests::{ANONYMOUS, FILE, page};
    use crate::pages::Detail;
    use linux::{Page, PageRefusal};
    use machine::NodeId;

    fn report() -> PagesReport {
        let mapping = "10000000-10800000 rw-p 0 0:0 0 [heap]".parse().unwrap();
        let mut heap = MappingPages::new(&mapping, &(0x1000_0000..0x1080_0000), false, Detail { cells: 128, runs: 99 });
        (0..40).for_each(|number| heap.add(&page(0x1000_0000 + number * 4096, 4096, 0, ANONYMOUS)));
        (40..60).for_each(|number| heap.add(&page(0x1000_0000 + number * 4096, 4096, 12, FILE)));
        heap.add(&Page { node: Err(PageRefusal::ZeroOrUnmapped), ..page(0x1010_0000, 4096, 0, FILE) });
        heap.add(&page(0x1020_0000, 2 << 20, 0, ANONYMOUS));
        heap.add(&page(0x1060_0000, 2 << 20, 1, ANONYMOUS));
        heap.finish();
        PagesReport { pid: 7, name: "server".into(), mappings: vec![heap], notes: vec!["one".into()] }
    }

    #[test]
    fn pages_are_shown_as_strip_and_as_runs() {
        let report = report();
        insta::assert_snapshot!(PagesText { report: &report, runs: true, colours: false });
        let coloured = PagesText { report: &report, runs: false, colours: true }.to_string();
        assert!(coloured.contains("\x1b[30;102m00\x1b[0m*") && !coloured.contains("flags"), "{coloured}");
        insta::assert_snapshot!(serde_json::to_string(&report.mappings[0].runs).unwrap());
        assert!(pages_svg(&report).contains("a cell is 64 KiB"));
    }

    #[test]
    fn a_thousand_nodes_and_long_names_fit() {
        let line = format!("10000000-10400000 rw-p 0 0:0 9 /{}", "long/".repeat(50));
        let mapping: linux::Mapping = line.parse().unwrap();
        let most = Detail { cells: 128, runs: 0 };
        let mut all = MappingPages::new(&mapping, &(0x1000_0000..0x1040_0000), false, most);
        (0..1024).for_each(|node| all.add(&page(0x1000_0000 + u64::from(node) * 4096, 4096, node, FILE)));
        all.finish();
        let report = PagesReport { pid: 7, name: "server".into(), mappings: vec![all], notes: Vec::new() };
        let text = PagesText { report: &report, runs: false, colours: false }.to_string();
        assert!(text.contains(" 15:1 and\n  1008 more; a cell is"), "{text}");
        for width in [60, 80, 120] {
            let text = format!("{:width$}", PagesText { report: &report, runs: true, colours: false });
            assert!(text.lines().all(|line| crate::columns::width(line) <= width), "{width}:\n{text}");
        }
        let svg = pages_svg(&report);
        assert!(svg.contains("rw-p …") && !svg.contains(&mapping.name), "{svg}");
    }

    #[test]
    fn nodes_have_letters() {
        assert_eq!([0, 10, 36, 61, 62].map(|node| letter(Some(Place::Node(NodeId(node))))), ['0', 'a', 'A', 'Z', '#']);
        assert_eq!((letter(None), letter(Some(Place::Mixed))), ('.', '*'));
    }
}
