//! The memory of one node that is measured, placed there before anything else is done.

use crate::chase::{Line, lay, shuffle};
use crate::error::MeasureError;
use crate::host::Host;
use crate::plan::{Arrays, Plan};
use crate::random::Random;
use crate::stream::Words;
use crate::team::on;
use linux::{MemoryPolicy, Pages, node_of};
use machine::{CpuId, NodeId};
use std::fs;

const SEED: u64 = 1;

/// Lines to chase over and words to stream over, on one node.
pub(crate) struct Arena {
    pub node: NodeId,
    /// The CPU that filled it: the node's own or, where it has none, any.
    pub cpu: CpuId,
    lines: &'static [Line],
    pub words: &'static mut [Words],
    /// How many of the lines the cycle goes through.
    laid: usize,
    /// Where the next chase goes on: what it will see has not been seen for the longest time, so no cache has it.
    pub place: Option<&'static Line>,
}

impl Arena {
    /// Gets memory on the node and fills it there. Where the kernel forbids to bind memory to nodes, first touch by the
    /// node's own CPU places it.
    pub fn new(host: &Host, plan: &Plan, Arrays { node, bytes }: Arrays) -> Result<Self, MeasureError> {
        let any = host.nodes.iter().find_map(|node| node.cores.first());
        let cpu = host.cores(node).first().or(any).copied().ok_or(MeasureError::NoMemory(node))?;
        let pages = |wanted: bool| -> Result<Option<Pages>, MeasureError> {
            let failed = |source| MeasureError::Memory { bytes: bytes as u64, node, source };
            if !wanted {
                return Ok(None);
            }
            let mut pages = Pages::reserve(bytes).map_err(failed)?;
            if let Err(error) = pages.bind(&MemoryPolicy::bind(node)) {
                // Forbidden (many containers do), or a kernel without NUMA: first touch is left.
                let forbidden = [std::io::ErrorKind::PermissionDenied, std::io::ErrorKind::Unsupported];
                if !forbidden.contains(&error.kind()) {
                    return Err(failed(error));
                }
            }
            // Huge pages are wished for, not needed: what came of the wish is told.
            let _ = pages.advise_huge(plan.options.huge_pages);
            Ok(Some(pages))
        };
        let (lines, words) = (pages(plan.chase)?, pages(plan.stream)?);
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
        // A kernel that does not tell where memory lies has one node, or forbids to ask.
        for found in ends.into_iter().flatten().flatten() {
            if found != node {
                let why = "the kernel forbids to bind memory to a node, as in some containers, or does not keep to it";
                return Err(MeasureError::Misplaced { wanted: node, found, why });
            }
        }
        Ok(Self { node, cpu, lines, words, laid: 0, place: None })
    }

    /// How many lines there are.
    pub fn line_count(&self) -> usize {
        self.lines.len()
    }

    /// The place in a cycle through the first `count` lines from which to go on; laid on `cpu` if it is not there yet.
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
            self.place = start;
            self.laid = count;
        }
        Ok(self.place.unwrap_or(first))
    }
}

/// The part of this process's memory that lies on huge pages, of so many bytes; nothing where the kernel does not tell.
pub(crate) fn huge_page_share(bytes: u64) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some((kib as f64 * 1024.0 / bytes.max(1) as f64).min(1.0))
}
