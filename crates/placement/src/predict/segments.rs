//! Parts of mappings whose pages are used alike, so that they can be placed as one.

use super::Matrix;
use super::sharing::{Sharing, resident};
use super::significance::are_different;
use crate::action::AddressRange;
use crate::costs::{Costs, NodeCosts};
use crate::observation::{NodeBytes, Observation, Page, Process, Range};
use crate::settings::Settings;
use machine::{HUGE_PAGE, Pid};
use rustc_hash::{FxHashMap, FxHashSet};

/// Least share of all samples for a mapping to be placed: others cost a walk of their pages and gain nothing.
const LEAST_SHARE: f64 = 0.005;
/// Fewest samples of each half for a test whether its users differ from the other's.
const ENOUGH: f64 = 64.0;

/// Part of a mapping.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub pid: Pid,
    /// Whether it is part of a shared mapping.
    pub is_shared: bool,
    /// Other processes that have the same memory at the same addresses.
    pub others: Vec<Pid>,
    pub range: AddressRange,
    /// Bytes by node index, at most: as its sampled pages are spread.
    pub bytes: Vec<f64>,
    /// Samples, by the index of the CPU's node and of the memory's.
    pub uses: Matrix,
    /// The part of dealt memory that each node gets, by index: 0 where the process may have none.
    pub dealt: Vec<f64>,
}

impl Segment {
    pub fn all_bytes(&self) -> f64 {
        self.bytes.iter().sum()
    }
}

/// Who uses what: segments, and samples of pages that must stay. With counters alone, accesses stand for samples.
pub(crate) struct Sampled {
    pub segments: Vec<Segment>,
    pub fixed: Matrix,
    /// The part of the samples that are of processes whose mappings were not read in this round, 0 to 1.
    pub unread: f64,
    /// The part of the samples that are in memory that several processes map, which stays, 0 to 1.
    pub of_several: f64,
}

/// The mappings whose pages may be placed, in order of address, and the parts of dealt memory of their processes.
/// Mappings of other processes, and what owners placed, stay.
struct Placed<'a> {
    ranges: Vec<&'a Range>,
    dealt: FxHashMap<Pid, Vec<f64>>,
    /// Mappings, in order of address, that stay as several processes have their memory.
    of_several: Vec<&'a Range>,
    /// Empty unless shared memory is placed, too.
    sharing: Sharing<'a>,
}

/// A sampled page, and its address in the process that stands for all that map it.
struct PlacedPage<'a> {
    address: u64,
    page: &'a Page,
}

impl<'a> Placed<'a> {
    fn new(observation: &'a Observation, costs: &Costs, settings: &Settings) -> Self {
        let is_free = |process: &&Process| process.memory_policy.is_none() || !settings.respect_owner;
        let free = observation.processes.iter().filter(is_free);
        let dealt = free.filter_map(|process| Some((process.pid, dealt(process, costs)?)));
        let dealt: FxHashMap<Pid, Vec<f64>> = dealt.collect();
        let is_placed = |range: &&Range| {
            let is_resident = range.start < range.end && range.bytes.iter().any(|on| on.bytes > 0);
            let is_owned = range.memory_policy.is_some() && settings.respect_owner;
            dealt.contains_key(&range.pid) && is_resident && !is_owned
        };
        let mut ranges: Vec<&Range> = observation.ranges.iter().filter(is_placed).collect();
        ranges.sort_by_key(|range| (range.pid, range.start));
        let (mut sharing, mut of_several) = (Sharing::new(&ranges), Vec::new());
        if !settings.shared {
            // The kernel would refuse to move them for one process.
            (of_several, ranges) = ranges.into_iter().partition(|range| sharing.are_several(range));
            sharing = Sharing::default();
        }
        Self { ranges, dealt, of_several, sharing }
    }

    /// Whether a page stays that would be placed if shared memory was.
    fn is_of_several(&self, page: &Page) -> bool {
        let index = range_of(&self.of_several, page.pid, page.address);
        index.is_some_and(|index| self.of_several[index].shared.is_some())
    }

    /// The index of the mapping that a page counts for, and its address there; none if it stays.
    fn mapping_of(&self, page: &Page, settings: &Settings) -> Option<(usize, u64)> {
        let is_owned = page.is_bound && settings.respect_owner;
        let range = self.ranges[self.index_of(page.pid, page.address).filter(|_| !is_owned)?];
        let is_shared = page.frame.is_some() && !(settings.shared && range.shared.is_some());
        let (range, address) = self.sharing.stand_in(range, page).filter(|_| !is_shared)?;
        Some((self.index_of(range.pid, address)?, address))
    }

    /// The other processes that carry out what is decided for this mapping, and the resident bytes of all, at most.
    fn others(&self, range: &Range) -> (Vec<Pid>, u64) {
        let (mut others, resident_bytes) = self.sharing.others(range);
        others.retain(|other| self.dealt.get(other) == self.dealt.get(&range.pid));
        (others, resident_bytes)
    }

    fn index_of(&self, pid: Pid, address: u64) -> Option<usize> {
        range_of(&self.ranges, pid, address)
    }
}

/// The index of the range with an address, of ranges in order of address.
fn range_of(ranges: &[&Range], pid: Pid, address: u64) -> Option<usize> {
    let after = ranges.partition_point(|range| (range.pid, range.start) <= (pid, address));
    let index = after.checked_sub(1)?;
    let range = ranges[index];
    (range.pid == pid && address < range.end).then_some(index)
}

impl Sampled {
    /// By the samples of pages. Shared pages stay, unless the settings say otherwise.
    pub fn new(observation: &Observation, costs: &Costs, settings: &Settings) -> Self {
        let placed = Placed::new(observation, costs, settings);
        let mut of_ranges: Vec<Vec<PlacedPage>> = placed.ranges.iter().map(|_| Vec::new()).collect();
        let read: FxHashSet<Pid> = observation.ranges.iter().map(|range| range.pid).collect();
        let mut fixed = Matrix::new(costs.nodes().len());
        let (mut all, mut unread, mut of_several) = (0.0, 0.0, 0.0);
        for page in &observation.pages {
            all += samples(page);
            unread += if read.contains(&page.pid) { 0.0 } else { samples(page) };
            if let Some((index, address)) = placed.mapping_of(page, settings) {
                of_ranges[index].push(PlacedPage { address, page });
            } else {
                of_several += if placed.is_of_several(page) { samples(page) } else { 0.0 };
                add(&mut fixed, page, costs);
            }
        }
        let part = |samples: f64| if all > 0.0 { samples / all } else { 0.0 };
        let mut segments = Vec::new();
        for (range, mut pages) in placed.ranges.iter().zip(of_ranges) {
            if pages.iter().map(|page| samples(page.page)).sum::<f64>() <= LEAST_SHARE * all {
                for page in pages {
                    add(&mut fixed, page.page, costs);
                }
                continue;
            }
            pages.sort_by_key(|page| page.address);
            let Some(dealt) = placed.dealt.get(&range.pid) else { continue };
            let (others, resident_bytes) = placed.others(range);
            let (is_shared, resident_bytes) = (range.shared.is_some(), resident_bytes as f64);
            let whole = Whole { pid: range.pid, is_shared, others: &others, resident_bytes, dealt };
            halve(&whole, span(range, &pages), &pages, costs, &mut segments);
        }
        Self { segments, fixed, unread: part(unread), of_several: part(of_several) }
    }

    /// By counters alone: each byte on a node is used as often as any other there, by the nodes that were counted.
    pub fn by_residence(observation: &Observation, traffic: &Matrix, costs: &Costs, settings: &Settings) -> Self {
        let on_nodes = |bytes: &[NodeBytes]| {
            let mut on = vec![0.0; costs.nodes().len()];
            for by in bytes {
                if let Some(index) = costs.index_of(by.node) {
                    on[index] += by.bytes as f64;
                }
            }
            on
        };
        let placed = Placed::new(observation, costs, settings);
        let resident = on_nodes(&resident(&observation.ranges));
        let all: f64 = resident.iter().sum();
        let uses = |bytes: &[f64]| {
            let parts = bytes.iter().zip(&resident).map(|(on, all)| if *all > 0.0 { on / all } else { 0.0 });
            traffic.with_columns(&parts.collect::<Vec<f64>>())
        };
        let of_several = uses(&on_nodes(&self::resident(placed.of_several.iter().copied()))).all();
        let (mut fixed, mut segments) = (traffic.clone(), Vec::new());
        for range in placed.ranges.iter().filter(|range| placed.sharing.stands(range)) {
            let bytes = on_nodes(&range.bytes);
            let Some(dealt) = placed.dealt.get(&range.pid) else { continue };
            if bytes.iter().sum::<f64>() <= LEAST_SHARE * all {
                continue;
            }
            let uses = uses(&bytes);
            fixed.join(&uses, -1.0);
            let span = AddressRange { start: range.start, end: range.end };
            let (others, _) = placed.others(range);
            let (is_shared, dealt) = (range.shared.is_some(), dealt.clone());
            segments.push(Segment { pid: range.pid, is_shared, others, range: span, bytes, uses, dealt });
        }
        let (unread, counted) = (if observation.ranges.is_empty() { 1.0 } else { 0.0 }, traffic.all());
        Self { segments, fixed, unread, of_several: if counted > 0.0 { of_several / counted } else { 0.0 } }
    }

    /// All samples.
    pub fn all(&self) -> Matrix {
        let mut all = self.fixed.clone();
        for segment in &self.segments {
            all.join(&segment.uses, 1.0);
        }
        all
    }
}

/// The parts of dealt memory, by bandwidth; none if the process may have memory on no node of the machine.
fn dealt(process: &Process, costs: &Costs) -> Option<Vec<f64>> {
    let weight = |node: &NodeCosts| {
        let is_allowed = node.memory_bytes > 0 && process.nodes.contains(node.id);
        if is_allowed { node.relative_bandwidth } else { 0.0 }
    };
    let all: f64 = costs.nodes().iter().map(weight).sum();
    (all > 0.0).then(|| costs.nodes().iter().map(|node| weight(node) / all).collect())
}

fn samples(page: &Page) -> f64 {
    page.accesses.iter().map(|by| by.accesses as f64).sum()
}

/// From the first sampled page to the last, with the rest of their huge pages.
fn span(range: &Range, pages: &[PlacedPage]) -> AddressRange {
    let first = pages.first().map_or(range.start, |page| page.address / HUGE_PAGE * HUGE_PAGE);
    let last = pages.last().map_or(range.end, |page| (page.address / HUGE_PAGE + 1).saturating_mul(HUGE_PAGE));
    AddressRange { start: first.max(range.start), end: last.min(range.end) }
}

fn add(uses: &mut Matrix, page: &Page, costs: &Costs) {
    let Some(to) = costs.index_of(page.node) else { return };
    for by in &page.accesses {
        if let Some(from) = costs.index_of(by.node) {
            uses.add(from, to, by.accesses as f64);
        }
    }
}

fn uses(pages: &[PlacedPage], costs: &Costs) -> Matrix {
    let mut uses = Matrix::new(costs.nodes().len());
    for page in pages {
        add(&mut uses, page.page, costs);
    }
    uses
}

/// What all parts of a mapping have in common.
struct Whole<'a> {
    pid: Pid,
    is_shared: bool,
    others: &'a [Pid],
    resident_bytes: f64,
    dealt: &'a [f64],
}

/// Halves a part while different nodes use its halves, or its quarters.
fn halve<'a>(
    whole: &Whole,
    part: AddressRange,
    pages: &'a [PlacedPage<'a>],
    costs: &Costs,
    segments: &mut Vec<Segment>,
) {
    let parts = |part: AddressRange, pages: &'a [PlacedPage<'a>]| {
        let middle = part.start.midpoint(part.end) / HUGE_PAGE * HUGE_PAGE;
        let (low, high) = pages.split_at(pages.partition_point(|page| page.address < middle));
        (AddressRange { end: middle, ..part }, low, AddressRange { start: middle, ..part }, high)
    };
    let are_uneven = |part, pages| {
        let (_, low, _, high) = parts(part, pages);
        differ(&uses(low, costs).by_row(), &uses(high, costs).by_row())
    };
    let (below, low, above, high) = parts(part, pages);
    let is_wide = below.end > part.start && part.end - part.start >= 2 * HUGE_PAGE;
    if is_wide && (are_uneven(part, pages) || are_uneven(below, low) || are_uneven(above, high)) {
        halve(whole, below, low, costs, segments);
        halve(whole, above, high, costs, segments);
        return;
    }
    if pages.is_empty() {
        return;
    }
    // How much of a part is resident is not known: at most all of the mapping that is.
    let resident = whole.resident_bytes.min((part.end - part.start) as f64);
    let uses = uses(pages, costs);
    let on = uses.by_column();
    let all: f64 = on.iter().sum();
    if all <= 0.0 {
        return;
    }
    let bytes = on.iter().map(|on| resident * on / all).collect();
    let &Whole { pid, is_shared, .. } = whole;
    let (others, dealt) = (whole.others.to_vec(), whole.dealt.to_vec());
    segments.push(Segment { pid, is_shared, others, range: part, bytes, uses, dealt });
}

/// Whether two distributions over nodes differ more than by chance.
fn differ(a: &[f64], b: &[f64]) -> bool {
    let is_small = |counts: &[f64]| counts.iter().sum::<f64>() < ENOUGH;
    !is_small(a) && !is_small(b) && are_different(&[a, b])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::SharedMemory;
    use machine::{CpuSet, NodeId};

    /// Eight processes with a private and a shared GiB each, on two nodes.
    #[test]
    fn counters_alone_count_what_several_processes_map_once() {
        const GIB: u64 = 1 << 30;
        let costs = Costs::new(&machine::presets::find("small-4x2").unwrap());
        let range = |pid: u32, shared: bool| Range {
            pid: Pid(pid),
            start: if shared { GIB } else { 4 * GIB },
            end: if shared { 2 * GIB } else { 5 * GIB },
            bytes: vec![NodeBytes { node: NodeId(u32::from(shared)), bytes: GIB }],
            memory_policy: None,
            shared: shared.then_some(SharedMemory { device: 1, inode: 5, offset: 0 }),
        };
        let observation = Observation {
            processes: (1..=8).map(|pid| Process::new(Pid(pid), CpuSet::default(), costs.memory_nodes())).collect(),
            ranges: (1..=8).flat_map(|pid| [range(pid, false), range(pid, true)]).collect(),
            ..Observation::default()
        };
        let mut traffic = Matrix::new(costs.nodes().len());
        traffic.add(0, 0, 60.0);
        traffic.add(0, 1, 40.0);
        let on = |node, bytes| NodeBytes { node: NodeId(node), bytes };
        assert_eq!(resident(&observation.ranges), [on(0, 8 * GIB), on(1, GIB)]);
        let stays = Sampled::by_residence(&observation, &traffic, &costs, &Settings::default());
        assert_eq!((stays.segments.len(), stays.of_several), (8, 0.4));
        assert!((stays.fixed.all() - 40.0).abs() < 1e-9);
        let settings = Settings { shared: true, ..Settings::default() };
        let moves = Sampled::by_residence(&observation, &traffic, &costs, &settings);
        assert_eq!((moves.segments.len(), moves.of_several), (9, 0.0));
        assert!(moves.fixed.all().abs() < 1e-9, "each access is to one of them");
    }

    #[test]
    fn halves_differ_if_many_samples_say_so() {
        assert!(differ(&[100.0, 20.0], &[20.0, 100.0]));
        assert!(!differ(&[100.0, 90.0], &[90.0, 100.0]), "by chance");
        assert!(!differ(&[60.0, 0.0], &[0.0, 60.0]), "too few samples");
        assert!(!differ(&[100.0], &[300.0]), "one node");
    }
}
