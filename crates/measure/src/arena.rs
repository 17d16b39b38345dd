//! The memory of one node under measurement, placed before anything else happens.

use crate::chase::{Line, lay, shuffle};
use crate::error::MeasureError;
use crate::host::Host;
use crate::plan::{Arrays, Plan};
use crate::stream::Words;
use crate::team::on;
use linux::{MemoryPolicy, Pages, node_at, node_of};
use machine::{CpuId, NodeId, Random};
use std::fs;

const SEED: u64 = 1;

/// Lines for chases and words for streams, on one node.
pub(crate) struct Arena {
    pub node: NodeId,
    /// The CPU that initialized it: one of the node's own or, if it has none, any.
    pub cpu: CpuId,
    lines: &'static [Line],
    pub words: &'static mut [Words],
    /// Number of lines in the cycle.
    laid: usize,
    /// Where the next chase continues: the lines ahead were least recently used, so no cache has them.
    pub next: Option<&'static Line>,
}

impl Arena {
    /// Allocates memory on the node and initializes it there. If the kernel forbids binding memory to nodes, first
    /// touch by the node's own CPU places it.
    pub fn new(host: &Host, plan: &Plan, Arrays { node, bytes }: Arrays) -> Result<Self, MeasureError> {
        let any = host.nodes.iter().find_map(|node| node.cores.first());
        let cpu = host.cores(node).first().or(any).copied().ok_or(MeasureError::NoMemory(node))?;
        let pages = |wanted: bool| -> Result<Option<Pages>, MeasureError> {
            let failed = |error| MeasureError::Memory { bytes: bytes as u64, node, error };
            if !wanted {
                return Ok(None);
            }
            let mut pages = Pages::reserve(bytes).map_err(failed)?;
            if let Err(error) = pages.bind(&MemoryPolicy::bind(node)) {
                // Forbidden (as in many containers), or a kernel without NUMA: rely on first touch.
                let forbidden = [std::io::ErrorKind::PermissionDenied, std::io::ErrorKind::Unsupported];
                if !forbidden.contains(&error.kind()) {
                    return Err(failed(error));
                }
            }
            // Huge pages are preferred, not required: the results report their share.
            let _ = pages.advise_huge(plan.options.huge_pages);
            Ok(Some(pages))
        };
        let (mut lines, mut words) = (pages(plan.chase)?, pages(plan.stream)?);
        // A kernel that does not report the location of memory has one node, or forbids the query.
        let check = |found: Option<NodeId>| match found {
            Some(found) if found != node => {
                let why = "the kernel forbids binding memory to a node, as in some containers, or ignores it";
                Err(MeasureError::Misplaced { wanted: node, found, why })
            }
            _ => Ok(()),
        };
        // What is filled stays for the rest of the process, and would fill another node.
        let first = |pages: &mut Pages| {
            pages.touch(0);
            node_at(pages.range().start as usize).ok()
        };
        let touched = on(cpu, || [&mut lines, &mut words].into_iter().flatten().map(first).collect::<Vec<_>>())?;
        touched.into_iter().try_for_each(check)?;
        let fill = || {
            let lines: &'static [Line] = lines.map_or(&[], |pages| pages.fill(|_| Line::new()));
            let words: &'static mut [Words] = words.map_or(&mut [], |pages| pages.fill(|i| Words([i as u64; 8])));
            (lines, words)
        };
        let (lines, words) = on(cpu, fill)?;
        let ends = [
            lines.first().map(node_of),
            lines.last().map(node_of),
            words.first().map(node_of),
            words.last().map(node_of),
        ];
        ends.into_iter().flatten().map(Result::ok).try_for_each(check)?;
        Ok(Self { node, cpu, lines, words, laid: 0, next: None })
    }

    /// Bytes of its arrays.
    pub fn bytes(&self) -> u64 {
        (size_of_val(self.lines) + size_of_val(&*self.words)) as u64
    }

    /// The number of lines.
    pub fn line_count(&self) -> usize {
        self.lines.len()
    }

    /// The position from which to continue in a cycle through the first `count` lines; the cycle is created on `cpu` if
    /// it does not exist yet.
    pub fn cycle(&mut self, count: usize, cpu: CpuId) -> Result<&'static Line, MeasureError> {
        let count = count.min(self.lines.len());
        let first = self.lines.first().ok_or(MeasureError::NoMemory(self.node))?;
        if self.laid != count {
            let lines = self.lines;
            let start = on(cpu, move || {
                let mut order: Vec<u32> = (0..count as u32).collect();
                shuffle(&mut order, &mut Random(SEED));
                lay(lines, &order);
                order.first().and_then(|&start| lines.get(start as usize))
            })?;
            self.next = start;
            self.laid = count;
        }
        Ok(self.next.unwrap_or(first))
    }
}

/// The share of this process's memory on huge pages, of this many bytes; `None` if the kernel does not report it.
pub(crate) fn huge_page_share(bytes: u64) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some((kib as f64 * 1024.0 / bytes.max(1) as f64).min(1.0))
}
