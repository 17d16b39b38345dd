//! Aggregates a round's samples: pages and their users, threads and their accesses, and memory traffic where it is not
//! counted.

use crate::nodes::NodeMap;
use machine::{CpuId, NodeId, Pid, SMALL_PAGE, Tid, is_kernel_address};
use placement::{NodeAccesses, Page, PageSample, PageTally, Traffic};
use rustc_hash::FxHashMap;
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
    /// Of accesses that memory served: sum of latency times weight, and of weight; only where latency is reported.
    latency_ns: (f64, f64),
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

/// A round's samples, in the form of observations.
#[derive(Debug, Default)]
pub(crate) struct RoundSamples {
    pub pages: Vec<Page>,
    pub missed: u64,
    pub threads: FxHashMap<(Pid, Tid), ThreadSamples>,
    pub traffic: Vec<Traffic>,
    /// Where samples do not report memory accesses: which nodes use which nodes' pages, as shares.
    pub uses: Vec<Traffic>,
    pub latency_mean_ns: Option<f64>,
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
            latency_ns: (0.0, 0.0),
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
        let page = PageSample {
            pid: sample.pid,
            tid: sample.tid,
            address: sample.address,
            page_bytes: page_bytes(),
            node: home.unwrap_or(from),
            from,
            is_write,
            frame: sample.physical.map(|address| address / SMALL_PAGE),
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
        if let Some(ns) = sample.latency_ns {
            self.latency_ns = (self.latency_ns.0 + f64::from(ns) * weight, self.latency_ns.1 + weight);
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
        let (latency_ns, count) = (std::mem::take(&mut self.latency_ns), std::mem::take(&mut self.count));
        let latency_mean_ns = (latency_ns.1 > 0.0).then(|| latency_ns.0 / latency_ns.1);
        RoundSamples { pages, missed, threads, traffic, uses, latency_mean_ns, count }
    }
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
    use machine::presets;
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
    fn pages_that_several_processes_map_have_a_frame() {
        let (nodes, mut sampled) = (nodes(), SampleTally::new(100));
        for (pid, address, frame) in [(7, 0x1000, 5), (8, 0x9000, 5), (8, 0x2000, 6)] {
            let sample = Sample { physical: Some(frame << 12), ..sample(pid, address, Served::Dram, 3) };
            sampled.add(&sample, &nodes, || 4096);
        }
        let frames: Vec<_> = sampled.take(100, |_| ()).pages.iter().map(|page| page.frame).collect();
        assert_eq!(frames, [Some(5), None, Some(5)]);
    }
}
