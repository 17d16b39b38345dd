//! Aggregates a round's samples: pages and their users, threads and their accesses, and memory traffic where it is not
//! counted.

use crate::nodes::NodeMap;
use machine::{CpuId, NodeId, Pid, SMALL_PAGE, Tid, is_kernel_address};
use placement::{NodeAccesses, Page, PageSample, PageTally, Traffic};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use trace::{AccessKind, Sample, Served};

/// Samples of a round.
#[derive(Debug)]
pub(crate) struct SampleTally {
    pages: PageTally,
    /// Samples of pages whose node the source does not report.
    unplaced: Vec<PageSample>,
    threads: FxHashMap<(Pid, Tid), ThreadSamples>,
    traffic: FxHashMap<(NodeId, NodeId), f64>,
    /// Samples that do not report what served them, by node of the CPU and of the page: shares, not amounts.
    uses: FxHashMap<(NodeId, NodeId), f64>,
    /// When memory served accesses, ns, and which node's.
    served: Vec<(u64, NodeId)>,
    /// Of accesses that memory served, where the source reports latency.
    latency: Latency,
    count: u64,
}

/// What a round's samples show about a thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadSamples {
    /// The CPU where it last ran.
    pub cpu: Option<CpuId>,
    /// Accesses that memory served, by node.
    pub served: Vec<(NodeId, f64)>,
    /// The part of these that are writes.
    pub writes: f64,
    /// Time spent waiting for accesses, ns.
    pub waited_ns: f64,
    /// Samples.
    pub samples: u64,
}

/// Parts of a round that samples are counted in: more would have too few of them.
const SLICES: usize = 8;
/// Fewest samples whose spread says how exact their mean is.
const FEWEST: f64 = 10.0;

/// Sums over sampled latencies, each with a weight.
#[derive(Clone, Copy, Debug, Default)]
struct Latency {
    samples: f64,
    weight: f64,
    weighted_ns: f64,
    /// Sums of squared weights, with the powers 0, 1 and 2 of the latency.
    squares: [f64; 3],
}

impl Latency {
    fn add(&mut self, ns: f64, weight: f64) {
        self.samples += 1.0;
        self.weight += weight;
        self.weighted_ns += weight * ns;
        let square = weight * weight;
        for (sum, power) in self.squares.iter_mut().zip([1.0, ns, ns * ns]) {
            *sum += square * power;
        }
    }

    /// The mean and its standard error; none without samples. With few samples the error is as large as the mean.
    fn mean_and_error_ns(self) -> Option<(f64, f64)> {
        let mean = (self.weight > 0.0).then(|| self.weighted_ns / self.weight)?;
        if self.samples < FEWEST {
            return Some((mean, mean));
        }
        let [weights, latencies, squares] = self.squares;
        let spread = (squares - 2.0 * mean * latencies + mean * mean * weights).max(0.0);
        let error = (spread * self.samples / (self.samples - 1.0)).sqrt() / self.weight;
        Some((mean, error))
    }
}

/// A round's samples, in the form of observations.
#[derive(Debug, Default)]
pub(crate) struct RoundSamples {
    pub pages: Vec<Page>,
    pub missed: u64,
    pub threads: FxHashMap<(Pid, Tid), ThreadSamples>,
    pub traffic: Vec<Traffic>,
    pub slices: Vec<Vec<NodeAccesses>>,
    /// Where samples do not report memory accesses: which nodes use which nodes' pages, as shares.
    pub uses: Vec<Traffic>,
    pub latency_mean_ns: Option<f64>,
    pub latency_error_ns: Option<f64>,
    pub count: u64,
}

impl ThreadSamples {
    pub fn all_served(&self) -> f64 {
        self.served.iter().map(|(_, accesses)| accesses).sum()
    }

    pub fn accesses(&self) -> Vec<NodeAccesses> {
        let whole = |&(node, accesses): &(NodeId, f64)| NodeAccesses { node, accesses: accesses.round() as u64 };
        let mut accesses: Vec<NodeAccesses> = self.served.iter().map(whole).collect();
        accesses.sort_unstable_by_key(|by| by.node);
        accesses
    }
}

impl SampleTally {
    /// Keeps at most `page_cap` pages.
    pub fn new(page_cap: u64) -> Self {
        Self {
            pages: PageTally::new(page_cap),
            unplaced: Vec::new(),
            threads: FxHashMap::default(),
            traffic: FxHashMap::default(),
            uses: FxHashMap::default(),
            served: Vec::new(),
            latency: Latency::default(),
            count: 0,
        }
    }

    /// Adds a sample of a managed process; `page_bytes` returns the page size at its address.
    pub fn add(&mut self, sample: &Sample, nodes: &NodeMap, page_bytes: impl FnOnce() -> u64) {
        let Some(from) = nodes.of_cpu(sample.cpu) else { return };
        if sample.kernel || is_kernel_address(sample.address) || sample.address == 0 {
            return;
        }
        self.count += 1;
        // For cache hits, sources report the node of the cache.
        let is_served = matches!(sample.served, None | Some(Served::Dram));
        let home = sample.physical.and_then(|address| nodes.of_physical(address));
        let home = home.or(sample.node.filter(|_| is_served));
        let is_write = sample.kind == AccessKind::Store;
        self.count_thread(sample, from, home, is_write);
        let page_bytes = page_bytes();
        // That of its page, which its other samples have, too.
        let physical = sample.physical.and_then(|at| at.checked_sub(sample.address % page_bytes.max(1)));
        let page = PageSample {
            pid: sample.pid,
            tid: sample.tid,
            address: sample.address,
            page_bytes,
            node: home.unwrap_or(from),
            from,
            is_write,
            frame: physical.map(|address| address / SMALL_PAGE),
        };
        if home.is_some() { self.pages.add(&page) } else { self.unplaced.push(page) }
    }

    fn count_thread(&mut self, sample: &Sample, from: NodeId, home: Option<NodeId>, is_write: bool) {
        let weight = f64::from(sample.weight);
        let thread = self.threads.entry((sample.pid, sample.tid)).or_default();
        thread.cpu = Some(sample.cpu);
        thread.samples += 1;
        thread.waited_ns += sample.latency_ns.map_or(0.0, |ns| f64::from(ns) * weight);
        if let (None, Some(home)) = (sample.served, home) {
            *self.uses.entry((from, home)).or_default() += weight;
        }
        let (Some(Served::Dram), Some(home)) = (sample.served, home) else { return };
        thread.writes += if is_write { weight } else { 0.0 };
        match thread.served.iter_mut().find(|(node, _)| *node == home) {
            Some((_, accesses)) => *accesses += weight,
            None => thread.served.push((home, weight)),
        }
        *self.traffic.entry((from, home)).or_default() += weight;
        self.served.push((sample.time_ns, home));
        if let Some(ns) = sample.latency_ns {
            self.latency.add(f64::from(ns), weight);
        }
    }

    /// Ends a round. `locate` queries the node of pages whose source does not report it; pages that no longer exist are
    /// dropped. The next round keeps at most `page_cap` pages.
    pub fn take(&mut self, page_cap: u64, locate: impl FnOnce(&mut Vec<PageSample>)) -> RoundSamples {
        if !self.unplaced.is_empty() {
            locate(&mut self.unplaced);
            for sample in self.unplaced.drain(..) {
                self.pages.add(&sample);
                *self.uses.entry((sample.from, sample.node)).or_default() += 1.0;
            }
        }
        let (mut pages, missed) = self.pages.take(page_cap);
        keep_shared_frames(&mut pages);
        let threads = std::mem::take(&mut self.threads);
        let (traffic, uses) = (in_order(self.traffic.drain()), in_order(self.uses.drain()));
        let (latency, count) = (std::mem::take(&mut self.latency), std::mem::take(&mut self.count));
        let (latency_mean_ns, latency_error_ns) = latency.mean_and_error_ns().unzip();
        let slices = in_slices(&std::mem::take(&mut self.served));
        RoundSamples { pages, missed, threads, traffic, slices, uses, latency_mean_ns, latency_error_ns, count }
    }
}

/// Samples by the node of the memory, in equally long parts of the time from the first to the last.
fn in_slices(served: &[(u64, NodeId)]) -> Vec<Vec<NodeAccesses>> {
    let times = served.iter().map(|(time_ns, _)| *time_ns);
    let Some((first, last)) = times.clone().min().zip(times.max()).filter(|(first, last)| first < last) else {
        return Vec::new();
    };
    let mut slices: [BTreeMap<NodeId, u64>; SLICES] = std::array::from_fn(|_| BTreeMap::new());
    for (time_ns, node) in served {
        let index = u128::from(time_ns - first) * SLICES as u128 / (u128::from(last - first) + 1);
        *slices[index as usize].entry(*node).or_default() += 1;
    }
    let accesses = |(node, accesses)| NodeAccesses { node, accesses };
    slices.into_iter().map(|slice| slice.into_iter().map(accesses).collect()).collect()
}

fn in_order(pairs: impl Iterator<Item = ((NodeId, NodeId), f64)>) -> Vec<Traffic> {
    let mut pairs: Vec<Traffic> = pairs.map(|((from, to), accesses)| Traffic { from, to, accesses }).collect();
    pairs.sort_unstable_by_key(|pair| (pair.from, pair.to));
    pairs
}

/// Keeps physical frames only where several processes map the page.
fn keep_shared_frames(pages: &mut [Page]) {
    let is_of_one = pages.first().zip(pages.last()).is_none_or(|(first, last)| first.pid == last.pid);
    let mut users: FxHashMap<u64, (Pid, bool)> = FxHashMap::default();
    for page in pages.iter().filter(|_| !is_of_one) {
        let Some(frame) = page.frame else { continue };
        let user = users.entry(frame).or_insert((page.pid, false));
        user.1 |= user.0 != page.pid;
    }
    for page in pages {
        page.frame = page.frame.filter(|frame| users.get(frame).is_some_and(|(_, shared)| *shared));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{HUGE_PAGE, presets};
    use std::path::Path;
    use trace::Source;

    fn sample(pid: u32, address: u64, served: Served, node: u32) -> Sample {
        Sample {
            time_ns: 0,
            cpu: CpuId(2),
            pid: Pid(pid),
            tid: Tid(pid),
            instruction: 0,
            address,
            physical: None,
            kind: AccessKind::Store,
            served: Some(served),
            node: Some(NodeId(node)),
            latency_ns: Some(100.0),
            kernel: false,
            stack: None,
            weight: 10.0,
            source: Source::Lab,
        }
    }

    fn nodes() -> NodeMap {
        NodeMap::new(&presets::find("small-4x2").unwrap(), Path::new("/nowhere"))
    }

    #[test]
    fn what_memory_served_is_traffic_and_what_caches_served_is_of_a_page_whose_node_is_asked_for() {
        let (nodes, mut sampled) = (nodes(), SampleTally::new(100));
        sampled.add(&sample(7, 0x1000, Served::Dram, 3), &nodes, || 4096);
        sampled.add(&sample(7, 0x1008, Served::Dram, 3), &nodes, || 4096);
        sampled.add(&sample(7, 0x2000, Served::L2, 1), &nodes, || 4096);
        sampled.add(&sample(7, 0x5000, Served::L2, 1), &nodes, || 4096);
        sampled.add(&sample(7, 1 << 63, Served::Dram, 1), &nodes, || 4096);
        sampled.add(&Sample { kernel: true, ..sample(7, 0x2000, Served::Dram, 1) }, &nodes, || 4096);
        let unknown = Sample { served: None, node: Some(NodeId(0)), ..sample(7, 0x3000, Served::Dram, 0) };
        sampled.add(&unknown, &nodes, || 4096);
        let round = sampled.take(100, |unplaced| {
            unplaced.retain(|sample| sample.address == 0x2000);
            for sample in unplaced {
                sample.node = NodeId(2);
            }
        });
        let pages: Vec<_> = round.pages.iter().map(|page| (page.address, page.node, page.samples())).collect();
        assert_eq!(pages, [(0x1000, NodeId(3), 2), (0x2000, NodeId(2), 1), (0x3000, NodeId(0), 1)]);
        let uses = |to, accesses| Traffic { from: NodeId(1), to: NodeId(to), accesses };
        assert_eq!(round.uses, [uses(0, 10.0), uses(2, 1.0)]);
        assert_eq!(round.traffic, [Traffic { from: NodeId(1), to: NodeId(3), accesses: 20.0 }]);
        assert_eq!((round.latency_mean_ns, round.count), (Some(100.0), 5));
        let thread = &round.threads[&(Pid(7), Tid(7))];
        assert_eq!(thread.accesses(), [NodeAccesses { node: NodeId(3), accesses: 20 }]);
        assert!((thread.waited_ns - 5000.0).abs() < 1e-9);
        assert_eq!(sampled.take(100, |_| ()).pages.len(), 0);
    }

    #[test]
    fn the_parts_of_a_round_are_equally_long() {
        let (nodes, mut sampled) = (nodes(), SampleTally::new(100));
        for (time_ns, node) in [(1000, 3), (1099, 3), (1099, 2), (1100, 0), (1700, 1), (1799, 1)] {
            let sample = Sample { time_ns, ..sample(7, 0x1000, Served::Dram, node) };
            sampled.add(&sample, &nodes, || 4096);
        }
        let slices = sampled.take(100, |_| ()).slices;
        let of = |node, accesses| NodeAccesses { node: NodeId(node), accesses };
        assert_eq!(slices.len(), SLICES);
        assert_eq!((&slices[0][..], &slices[1][..]), (&[of(2, 1), of(3, 2)][..], &[of(0, 1)][..]));
        assert_eq!(slices[7], [of(1, 2)]);
        assert!(slices[2..7].iter().all(Vec::is_empty));
        sampled.add(&sample(7, 0x1000, Served::Dram, 3), &nodes, || 4096);
        assert!(sampled.take(100, |_| ()).slices.is_empty(), "one moment");
    }

    #[test]
    fn the_mean_latency_of_few_samples_is_uncertain() {
        let of = |count: u32| {
            let mut latency = Latency::default();
            (0..count).for_each(|number| latency.add(if number % 2 == 0 { 100.0 } else { 300.0 }, 10.0));
            latency.mean_and_error_ns()
        };
        assert_eq!((of(0), of(8)), (None, Some((200.0, 200.0))));
        let [few, many] = [100, 10_000].map(|count| of(count).unwrap());
        assert!((few.0 - 200.0).abs() < 1e-9 && (few.1 - 10.05).abs() < 0.01, "{few:?}");
        assert!((many.1 - 1.0).abs() < 0.001, "{many:?}");
    }

    #[test]
    fn pages_that_several_processes_map_have_a_frame() {
        let (nodes, mut sampled) = (nodes(), SampleTally::new(100));
        for (pid, address, frame) in [(7, 0x1000, 5), (8, 0x9000, 5), (8, 0x2000, 6)] {
            let sample = Sample { physical: Some(frame << 12), ..sample(pid, address, Served::Dram, 3) };
            sampled.add(&sample, &nodes, || 4096);
        }
        let frames: Vec<_> = sampled.take(100, |_| ()).pages.iter().map(|page| page.frame).collect();
        assert_eq!(frames, [Some(5), None, Some(5)]);
        // Of a huge page, each process uses another part.
        for (pid, address, physical) in
            [(7, 0x20_5008, 0x80_5008), (8, 0x40_0010, 0x80_0010), (8, 0x60_5000, 0xa0_5000)]
        {
            let sample = Sample { physical: Some(physical), ..sample(pid, address, Served::Dram, 3) };
            sampled.add(&sample, &nodes, || HUGE_PAGE);
        }
        let frames: Vec<_> = sampled.take(100, |_| ()).pages.iter().map(|page| page.frame).collect();
        assert_eq!(frames, [Some(0x800), Some(0x800), None]);
    }
}
