//! The verdicts of the detector of `profile`, as what cures of huge pages need.

use machine::{HUGE_PAGE, NodeId, Pid, SMALL_PAGE};
use placement::{BlockUse, MisplacedHugePage, SeenBlock};
use profile::{Confidence, ENOUGH_OF_BLOCK, HugePage, ProcessId, Profile, Sharing};
use std::collections::{BTreeMap, HashMap};

/// The share of the samples of a block from which on one node uses all of it.
const ONE_NODE: f64 = 0.95;

/// A block of 2 MiB that processes used.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedBlock {
    /// How it is used.
    pub seen: SeenBlock,
    /// Its cure, if it does not lie with its users: none if it is to stay as it is.
    pub cure: Option<MisplacedHugePage>,
}

/// Which processes of a recording are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JudgedProcesses {
    /// Those that had not ended: the number of one that has may be another's by now.
    Living,
    /// All of them, where nothing is done to any.
    All,
}

/// What is known of a block besides its verdict.
#[derive(Default)]
struct Accesses {
    by_node: BTreeMap<NodeId, u64>,
    latency: Latency,
}

/// The mean latency of accesses.
#[derive(Default)]
struct Latency {
    samples: u64,
    weight: f64,
    weighted_ns: f64,
}

impl Latency {
    fn add(&mut self, ns: f64, weight: f64) {
        self.samples += 1;
        self.weight += weight;
        self.weighted_ns += ns * weight;
    }

    /// None of too few samples.
    fn mean_ns(&self) -> Option<f64> {
        (self.samples >= ENOUGH_OF_BLOCK && self.weight > 0.0).then(|| self.weighted_ns / self.weight)
    }
}

/// The blocks of a recording of this length, s: of all its processes, or of those that live.
pub fn judged_blocks(profile: &Profile, pages: &[HugePage], seconds: f64, of: JudgedProcesses) -> Vec<JudgedBlock> {
    let mut accesses: HashMap<(ProcessId, u64), Accesses> = HashMap::new();
    let mut processes: HashMap<ProcessId, Latency> = HashMap::new();
    for access in profile.accesses().filter(|access| access.leaves_core() && !access.kernel) {
        let Some(thread) = profile.threads().get(access.thread.0 as usize) else { continue };
        let of = accesses.entry((thread.process, access.address / HUGE_PAGE)).or_default();
        if let Some(from) = access.from {
            *of.by_node.entry(from).or_default() += 1;
        }
        if let Some(ns) = access.latency_ns {
            let (ns, weight) = (f64::from(ns), f64::from(access.weight));
            of.latency.add(ns, weight);
            processes.entry(thread.process).or_default().add(ns, weight);
        }
    }
    let judged = |page: &HugePage| {
        let process = profile.processes().get(page.process.0 as usize)?;
        if of == JudgedProcesses::Living && process.until_ns.is_some() {
            return None;
        }
        let none = Accesses::default();
        let block = accesses.get(&(page.process, page.address / HUGE_PAGE)).unwrap_or(&none);
        let of_all = processes.get(&page.process).and_then(Latency::mean_ns);
        let most = block.by_node.iter().max_by_key(|(_, accesses)| **accesses).map(|(node, _)| *node)?;
        let seen = SeenBlock {
            pid: process.pid,
            address: page.address,
            is_huge: page.is_huge,
            used: used(page),
            relative_latency: block.latency.mean_ns().zip(of_all).map(|(own, all)| own / all),
            most,
        };
        Some(JudgedBlock { seen, cure: misplaced(process.pid, page, seconds) })
    };
    pages.iter().filter_map(judged).collect()
}

fn used(page: &HugePage) -> BlockUse {
    let is_sure = page.confidence == Confidence::High && page.saving.is_none_or(|saving| saving.low_ns > 0.0);
    match page.sharing {
        Sharing::FalselyShared if is_sure => BlockUse::Apart,
        Sharing::OneOwner if page.confidence >= Confidence::Medium && page.held >= ONE_NODE => {
            page.owners.first().map_or(BlockUse::Other, |owner| BlockUse::OneNode(owner.node))
        }
        _ => BlockUse::Other,
    }
}

/// What the cure needs to know of a page; none if it is to stay as it is.
fn misplaced(pid: Pid, page: &HugePage, seconds: f64) -> Option<MisplacedHugePage> {
    if !page.is_huge || page.confidence < Confidence::Medium {
        return None;
    }
    let owner = |owner: &profile::Owner| {
        let start = page.address + owner.first_page * SMALL_PAGE;
        (start..start + owner.pages * SMALL_PAGE, owner.node)
    };
    let owners = match page.remote_owner() {
        Some(node) => vec![(page.address..page.address + HUGE_PAGE, node)],
        None if page.is_falsely_shared() => page.owners.iter().map(owner).collect(),
        None => return None,
    };
    let saved_ns_per_s = page.saving.map(|saving| saving.low_ns / seconds.max(1e-9));
    Some(MisplacedHugePage {
        pid,
        address: page.address,
        owners,
        misplaced_pages: page.misplaced_pages,
        saved_ns_per_s,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use machine::{CpuId, Tid, presets};
    use profile::{Filter, NoSymbols, Recording};
    use trace::{AccessKind, Event, Sample, Served, Source, Stacks, What};

    /// A sample of a thread on a CPU of small-4x2, two of which are a node's.
    pub fn sample(time_ns: u64, cpu: u32, address: u64, node: u32) -> Sample {
        Sample {
            time_ns,
            cpu: CpuId(cpu),
            pid: Pid(7),
            tid: Tid(7 + cpu),
            instruction: 0,
            address,
            physical: None,
            kind: AccessKind::Load,
            served: Some(Served::Dram),
            node: Some(NodeId(node)),
            latency_ns: Some(if cpu / 2 == node { 100.0 } else { 150.0 }),
            kernel: false,
            stack: None,
            weight: 1000.0,
            source: Source::Lab,
        }
    }

    const START: u64 = 0x4000_0000;

    /// A recording of two blocks, and then of these events.
    fn recorded(then: impl IntoIterator<Item = Event>) -> (Profile, Vec<HugePage>) {
        let mut recording = Recording::new(presets::find("small-4x2").unwrap());
        let placed = |block: u64| Event {
            time_ns: 0,
            pid: Pid(7),
            tid: Tid(7),
            cpu: None,
            what: What::PagePlaced {
                address: START + block * HUGE_PAGE,
                bytes: HUGE_PAGE,
                node: NodeId(0),
                from: None,
            },
        };
        recording.add_events((0..2).map(placed));
        for time in 0..400 {
            // The second quarter of the first block is node 1's; all of the second block is.
            let page = time * 7919 % 512;
            let cpu = if page < 128 { 2 } else { 0 };
            recording.add_samples([
                sample(time, cpu, START + page * SMALL_PAGE + time % 64 * 64, 0),
                sample(time, 2, START + HUGE_PAGE + page * SMALL_PAGE, 0),
            ]);
        }
        recording.add_events(then);
        let profile = recording.into_profile(&Stacks::new(), &NoSymbols);
        let pages = profile.view(&Filter::default()).flow().huge_pages();
        (profile, pages)
    }

    #[test]
    fn what_has_ended_is_judged_where_nothing_is_done_to_it() {
        let ended = |tid| Event { time_ns: 500, pid: Pid(7), tid: Tid(tid), cpu: None, what: What::ThreadEnded };
        let (profile, pages) = recorded([7, 9].map(ended));
        let count = |of| judged_blocks(&profile, &pages, 1.0, of).len();
        assert_eq!((count(JudgedProcesses::Living), count(JudgedProcesses::All)), (0, 2));
    }

    #[test]
    fn verdicts_say_how_blocks_are_used_and_what_cures_them() {
        let (profile, pages) = recorded([]);
        let judged = judged_blocks(&profile, &pages, 1.0, JudgedProcesses::Living);
        let [first, second] = &judged[..] else { panic!("{judged:#?}") };
        assert_eq!((first.seen.used, first.seen.most), (BlockUse::Apart, NodeId(0)));
        // A quarter is remote, and all of the other block: 112.5 and 150 ns, of 131.25 ns on average.
        let latencies = [first, second].map(|block| block.seen.relative_latency.unwrap());
        assert!((0.83..0.89).contains(&latencies[0]) && (1.11..1.17).contains(&latencies[1]), "{latencies:?}");
        let cure = first.cure.as_ref().unwrap();
        let nodes: Vec<NodeId> = cure.owners.iter().map(|(_, node)| *node).collect();
        assert!(nodes == [NodeId(1), NodeId(0)] && cure.saved_ns_per_s > Some(0.0), "{cure:?}");
        assert_eq!(second.seen.used, BlockUse::OneNode(NodeId(1)));
        assert_eq!(second.cure.as_ref().and_then(MisplacedHugePage::whole), Some(NodeId(1)));
    }
}
