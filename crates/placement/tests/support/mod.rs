//! Observations of small synthetic rounds.

use machine::{CpuSet, Machine, NodeId, NodeSet, Pid, SMALL_PAGE, Tid, presets};
use placement::{
    Action, Decision, Few, NodeAccesses, NodeMemory, Observation, Page, Policy, Process, Rule, Settings, Step, Thread,
    Traffic,
};

pub const PID: Pid = Pid(7);

/// Machine A of the thesis: four nodes whose controllers carry 7.58 GB/s each.
pub fn machine() -> Machine {
    presets::find("opteron-8380x4").unwrap()
}

pub fn policy(name: &str) -> Policy {
    policy_on(name, &machine())
}

pub fn policy_on(name: &str, machine: &Machine) -> Policy {
    Policy::new(name.parse().unwrap(), machine, Settings::default()).unwrap()
}

pub fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

pub fn nodes(text: &str) -> NodeSet {
    text.parse().unwrap()
}

/// A process that keeps this many CPUs busy, and may use all of machine A.
pub fn process(pid: u32, cpu_share: f64) -> Process {
    Process { cpu_share, ..Process::new(Pid(pid), cpus("0-15"), nodes("0-3")) }
}

pub fn thread(pid: u32, tid: u32) -> Thread {
    Thread { cpu_share: 1.0, ..Thread::new(Pid(pid), Tid(tid)) }
}

/// A page of process 7 by its number, with samples by node.
pub fn page(number: u64, node: u32, accesses: &[(u32, u64)]) -> Page {
    Page {
        pid: PID,
        address: number * SMALL_PAGE,
        page_bytes: SMALL_PAGE,
        node: NodeId(node),
        accesses: accesses.iter().map(|&(node, accesses)| NodeAccesses { node: NodeId(node), accesses }).collect(),
        writes: 0,
        threads: Few::new(),
        is_falsely_shared: false,
        frame: None,
        is_bound: false,
        is_replicable: false,
    }
}

/// Traffic of a one-second round: accesses per microsecond, from each node's CPUs to each node's memory.
pub fn traffic(per_us: &[[f64; 4]; 4]) -> Vec<Traffic> {
    let nodes = || (0..4).map(NodeId);
    let pairs = nodes().flat_map(|from| nodes().map(move |to| (from, to)));
    pairs
        .map(|(from, to)| Traffic { from, to, accesses: 1e6 * per_us[from.0 as usize][to.0 as usize] })
        .filter(|traffic| traffic.accesses > 0.0)
        .collect()
}

/// Evenly loaded controllers, with this many accesses per microsecond, this part of them local.
pub fn even_traffic(per_us: f64, local: f64) -> Vec<Traffic> {
    let share = |from: usize, to: usize| if from == to { local / 4.0 } else { (1.0 - local) / 12.0 };
    traffic(&std::array::from_fn(|from| std::array::from_fn(|to| per_us * share(from, to))))
}

/// These accesses per microsecond to each node, all from CPUs of node 1.
pub fn traffic_to(per_us: [f64; 4]) -> Vec<Traffic> {
    traffic(&[[0.0; 4], per_us, [0.0; 4], [0.0; 4]])
}

/// A second of one busy process, with memory for all.
pub fn observation(round: u64, traffic: Vec<Traffic>, pages: Vec<Page>) -> Observation {
    let memory = |node| NodeMemory { node: NodeId(node), total_bytes: 8 << 30, free_bytes: 7 << 30 };
    Observation {
        round,
        length_s: 1.0,
        traffic,
        memory: (0..4).map(memory).collect(),
        processes: vec![process(7, 4.0)],
        pages,
        ..Observation::default()
    }
}

pub fn actions(decision: &Decision) -> Vec<&Action> {
    decision.steps.iter().map(|step| &step.action).collect()
}

/// All steps except setting the sampling rate and doing nothing.
pub fn real_steps(decision: &Decision) -> Vec<&Step> {
    let is_real = |step: &&Step| !matches!(step.action, Action::SetSampling(_) | Action::Nothing);
    decision.steps.iter().filter(is_real).collect()
}

/// Pages that move, with their targets, in order of address.
pub fn moves(decision: &Decision) -> Vec<(u64, u32)> {
    fn of(action: &Action) -> Vec<(u64, u32)> {
        match action {
            Action::MovePages { node, pages, .. } => pages.iter().map(|page| (page / SMALL_PAGE, node.0)).collect(),
            Action::InterleavePages { pages, .. } => {
                pages.iter().map(|page| (page.address / SMALL_PAGE, page.node.0)).collect()
            }
            Action::Replicate { instead: Some(instead), .. } => of(instead),
            _ => Vec::new(),
        }
    }
    let mut moves: Vec<_> = actions(decision).into_iter().flat_map(of).collect();
    moves.sort_unstable();
    moves
}

/// A page on node 0 with two samples from node 2.
pub fn misplaced() -> Page {
    page(1, 0, &[(2, 2)])
}

/// Decides about pages for this traffic.
pub fn decide(observation: &Observation) -> Decision {
    policy("carrefour").decide(observation)
}

pub fn rules(decision: &Decision) -> Vec<Rule> {
    decision.steps.iter().map(|step| step.reason.rule).collect()
}

/// Traffic with migration on and interleaving off.
pub fn remote() -> Vec<Traffic> {
    even_traffic(100.0, 0.25)
}

/// Traffic with migration and interleaving on.
pub fn contended() -> Vec<Traffic> {
    traffic_to([100.0, 5.0, 5.0, 5.0])
}

/// Adds this share of modified lines to the threads.
pub fn with_modified(mut observation: Observation, share: f64) -> Observation {
    observation.threads = vec![Thread { modified_share: Some(share), ..thread(7, 8) }];
    observation
}

/// Many pages that two nodes read, enough for a first replication.
pub fn read_shared() -> Vec<Page> {
    (0..500).map(|number| page(number, 0, &[(0, 1), (1, 1)])).collect()
}

pub fn written(page: Page) -> Page {
    Page { writes: 1, ..page }
}

pub fn replicates(decision: &Decision) -> bool {
    actions(decision).iter().any(|action| matches!(action, Action::Replicate { .. }))
}

pub fn memory(policy: &mut Policy, pid: u32) -> String {
    let start = policy.admit(&process(pid, 1.0), &thread(pid, pid));
    start.memory.map_or("none".to_owned(), |memory| memory.to_string())
}

/// A round of these processes, each with these threads.
pub fn round(number: u64, processes: Vec<Process>, threads: Vec<Thread>) -> Observation {
    Observation { processes, threads, ..observation(number, vec![], vec![]) }
}

/// Where threads were sent, with the reason's rule.
pub fn sent(decision: &Decision) -> Vec<(u32, String, Rule)> {
    let of = |step: &&placement::Step| match &step.action {
        Action::MoveThread { tid, cpus, .. } => Some((tid.0, cpus.to_string(), step.reason.rule)),
        Action::MoveProcess { pid, cpus } => Some((pid.0, cpus.to_string(), step.reason.rule)),
        _ => None,
    };
    decision.steps.iter().filter_map(|step| of(&step)).collect()
}

pub fn far_thread(pid: u32, tid: u32, to: &[(u32, u64)]) -> Thread {
    let accesses = to.iter().map(|&(node, accesses)| NodeAccesses { node: NodeId(node), accesses }).collect();
    Thread { accesses, ..thread(pid, tid) }
}
