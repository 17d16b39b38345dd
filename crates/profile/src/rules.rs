//! The rules of the advice, from access patterns: the `MemProf` study's table of evidence and remedies.

use crate::evidence::{Action, Evidence, RuledOut};
use crate::flow::Flow;
use crate::huge_pages::{HugePage, may_have_huge_pages};
use crate::object::ObjectKind;
use crate::pattern::{FEW_REMOTE, Home, MOST_WRITES, PartOf, Pattern, ProcessUse, threads_at_once};
use crate::statistics::{Confidence, FEWEST, Share};
use crate::verdict::{MOSTLY_FROM_CORES, SATURATED_ALONE};
use machine::{Machine, NodeId};

/// Share from which on accesses count as by one thread or from one node.
const MOSTLY: f64 = 0.9;
/// Share from which on the memory of several nodes counts as concentrated on one.
const CONCENTRATED: f64 = 0.5;
/// An application counts as several processes if none has more than this share.
const ONE_PROCESS: f64 = 0.8;
/// Imbalance of controllers from which on interleaving helps.
const IMBALANCED: f64 = 0.35;
/// Standard errors by which a mean must exceed a threshold.
const STANDARD_ERRORS: f64 = 1.96;

/// What the evidence of lines that other cores' caches have is called.
pub(crate) const FROM_CORES: &str = "from_cores";
/// What the evidence of writes to what was initialised is called.
const WRITES: &str = "writes_after_initialisation";
/// What the evidence of the latency of a node's memory is called.
const LATENCY_OVER_IDLE: &str = "latency_over_idle";

/// The context of a decision.
pub(crate) struct Situation<'a> {
    pub kind: ObjectKind,
    pub machine: &'a Machine,
    /// Latency over idle latency from which on memory is saturated.
    pub factor: f64,
    /// The pattern of all accesses.
    pub all: &'a Pattern,
    /// The accesses to saturated memory at times at which other memory is not.
    pub saturated_alone: Share,
    pub flow: &'a Flow<'a>,
}

impl Situation<'_> {
    /// That the most used node's memory is saturated, if it is.
    pub fn saturated_home(&self, pattern: &Pattern) -> Option<Evidence> {
        let (node, home) = slow_home(pattern, self)?;
        latency_over_idle(node, home, self)
    }
}

/// An action with its reasons.
pub(crate) struct Decision {
    pub action: Action,
    pub evidence: Vec<Evidence>,
    pub confidence: Confidence,
    pub ruled_out: Vec<RuledOut>,
    /// For [`Action::SplitHugePages`]: the falsely shared huge pages.
    pub huge_pages: Vec<HugePage>,
}

impl Decision {
    /// What is decided without looking at pages, as where they are does not matter.
    pub fn without_pages(action: Action, evidence: Evidence) -> Self {
        let confidence = if evidence.samples < FEWEST { Confidence::Low } else { Confidence::High };
        let (evidence, ruled_out, huge_pages) = (vec![evidence], Vec::new(), Vec::new());
        Self { action, evidence, confidence, ruled_out, huge_pages }
    }
}

/// The facts tested so far, and their joint confidence.
struct Case {
    evidence: Vec<Evidence>,
    confidence: Confidence,
    ruled_out: Vec<RuledOut>,
}

impl Case {
    fn note(&mut self, evidence: Evidence, confidence: Confidence) {
        self.evidence.push(evidence);
        self.confidence = self.confidence.min(confidence);
    }

    /// Tests whether a share reaches its threshold.
    fn test(&mut self, what: &'static str, (part, of): PartOf, threshold: f64, words: &str) -> bool {
        let share = Share { part, of, threshold };
        self.note(share.evidence(what, words), share.confidence());
        share.is_reached()
    }

    fn rule_out(&mut self, action: Action, because: Evidence) {
        self.ruled_out.push(RuledOut { action, because });
    }

    fn decide(self, action: Action) -> Decision {
        let Self { evidence, confidence, ruled_out } = self;
        Decision { action, evidence, confidence, ruled_out, huge_pages: Vec::new() }
    }
}

impl Share {
    fn evidence(&self, what: &'static str, words: &str) -> Evidence {
        let (value, percent) = (self.value(), 100.0 * self.value());
        let text = format!("{percent:.1} % of {} {words} (threshold {:.0} %)", self.of, 100.0 * self.threshold);
        Evidence { what, value, threshold: self.threshold, samples: self.of, text }
    }
}

/// Decides.
pub(crate) fn decide(pattern: &Pattern, situation: &Situation) -> Decision {
    let mut case = Case { evidence: Vec::new(), confidence: Confidence::High, ruled_out: Vec::new() };
    if let Some(action) = for_lines_of_cores(&mut case, pattern, situation) {
        return case.decide(action);
    }
    let reached: u64 = pattern.remote.1;
    if reached < FEWEST {
        let text = format!("only {reached} samples reached memory; a decision needs at least {FEWEST}");
        let few = Evidence { what: "samples", value: reached as f64, threshold: FEWEST as f64, samples: reached, text };
        case.note(few, Confidence::Low);
        return case.decide(Action::LeaveAlone);
    }
    let slow_home = slow_home(pattern, situation);
    if !case.test("remote", pattern.remote, FEW_REMOTE, "accesses that reach memory are remote") {
        // What is where it is used can only be spread.
        return match slow_home {
            Some(_) => interleave(case, slow_home, pattern, situation),
            None => case.decide(Action::LeaveAlone),
        };
    }
    if pattern.is_of_several_processes {
        case.note(sharers(pattern, |count| format!("{count} processes map the same memory")), Confidence::High);
    }
    if situation.kind == ObjectKind::Stacks && are_private(&mut case, pattern) {
        return case.decide(Action::PinThreads);
    }
    if pattern.own.1 > 0
        && case.test(
            "by_allocating_thread",
            pattern.own,
            MOSTLY,
            "accesses are of the thread that allocated the object",
        )
    {
        let moved = pattern.moved.1 > 0
            && Share { part: pattern.moved.0, of: pattern.moved.1, threshold: CONCENTRATED }.is_reached();
        if moved {
            case.test(
                "threads_moved",
                pattern.moved,
                CONCENTRATED,
                "remote accesses of that thread are from another node than it allocated on",
            );
            return case.decide(Action::PinThreads);
        }
        return case.decide(Action::AllocateLocally);
    }
    // Threads sweep their parts of a falsely shared page in bursts, which looks like one user after another.
    if let Some(huge_pages) = split_huge_pages(&mut case, pattern, situation) {
        return Decision { huge_pages, ..case.decide(Action::SplitHugePages) };
    }
    let succession = "successive accesses to one object come from one node";
    let alternates = pattern.from.len() < 2 || case.test("same_node", pattern.same_node, MOSTLY, succession);
    if alternates {
        test_leading_node(&mut case, pattern);
        return case.decide(Action::Migrate);
    }
    // Not what several processes map: each part would have to be theirs alone.
    let (part, of) = pattern.in_parts;
    let is_divided = of > 0 && (Share { part, of, threshold: MOSTLY }).is_reached();
    if is_divided && !pattern.is_of_several_processes {
        let words = "accesses to a part of an object come from the node that uses that part most";
        case.test("node_of_part", pattern.in_parts, MOSTLY, words);
        return case.decide(Action::Migrate);
    }
    let (part, of) = pattern.same_node;
    case.rule_out(Action::Migrate, Share { part, of, threshold: MOSTLY }.evidence("same_node", succession));
    // Wherever the processes run, they have the same memory.
    if !pattern.is_of_several_processes && processes_fit_nodes(&mut case, pattern, situation) {
        return case.decide(Action::PinThreads);
    }
    let writes = Share { part: pattern.writes_after.0, of: pattern.writes_after.1, threshold: MOST_WRITES };
    let words = "accesses after initialisation write";
    let is_read_only = writes.of > 0 && !writes.is_reached();
    // Copies of what is written after all cost more than they save: where that is not sure, memory is spread if it can be.
    // So it is where each process would need its own copy.
    let is_sure = writes.confidence() > Confidence::Low && !pattern.is_of_several_processes;
    if is_read_only && (is_sure || slow_home.is_none()) {
        case.test(WRITES, pattern.writes_after, MOST_WRITES, words);
        return case.decide(Action::Replicate);
    }
    case.rule_out(Action::Replicate, why_no_copies(pattern, writes, words));
    interleave(case, slow_home, pattern, situation)
}

/// Why copies would not help.
fn why_no_copies(pattern: &Pattern, writes: Share, words: &str) -> Evidence {
    let evidence = writes.evidence(WRITES, words);
    if writes.of == 0 {
        return Evidence { text: "it is not known whether accesses after initialisation write".to_owned(), ..evidence };
    }
    if !writes.is_reached() && pattern.is_of_several_processes {
        return sharers(pattern, |count| format!("each of the {count} processes would need a copy of its own"));
    }
    evidence
}

/// What to do about objects whose lines are mostly in other cores' caches: their memory can be anywhere, and only threads that
/// share lines can come nearer to each other. None of other objects.
fn for_lines_of_cores(case: &mut Case, pattern: &Pattern, situation: &Situation) -> Option<Action> {
    let (part, of) = pattern.peers;
    if of < FEWEST || !(Share { part, of, threshold: MOSTLY_FROM_CORES }).is_reached() {
        return None;
    }
    let words = "accesses that leave a core's caches take a line that another core has, wherever its memory is";
    case.test(FROM_CORES, pattern.peers, MOSTLY_FROM_CORES, words);
    let fits = !pattern.is_of_several_processes && processes_fit_nodes(case, pattern, situation);
    Some(if fits { Action::PinThreads } else { Action::LeaveAlone })
}

/// Where the user of objects changes, they are where it is for a part of the time only once they are moved.
fn test_leading_node(case: &mut Case, pattern: &Pattern) {
    let words = "accesses come from the node that uses the object most";
    if !case.test("leading_node", pattern.leading, MOSTLY, words) {
        case.confidence = Confidence::Low;
    }
}

/// The processes that map the same memory, as evidence.
fn sharers(pattern: &Pattern, text: impl FnOnce(usize) -> String) -> Evidence {
    let count = pattern.processes.len();
    Evidence { what: "processes", value: count as f64, threshold: 2.0, samples: pattern.samples, text: text(count) }
}

/// The most used node's memory, if it is saturated.
fn slow_home<'a>(pattern: &'a Pattern, situation: &Situation) -> Option<(NodeId, &'a Home)> {
    let (&node, home) = pattern.homes.iter().max_by_key(|(_, home)| home.samples)?;
    home.is_slower(situation.factor, 0.0).then_some((node, home))
}

/// How long accesses to a node take, if it is known, and from when on its memory is saturated.
fn latency_over_idle(node: NodeId, home: &Home, situation: &Situation) -> Option<Evidence> {
    let (latency_ns, idle_ns) = home.latency_ns()?;
    let factor = latency_ns / idle_ns;
    Some(Evidence {
        what: LATENCY_OVER_IDLE,
        value: factor,
        threshold: situation.factor,
        samples: home.samples,
        text: format!(
            "accesses to node {node} take {latency_ns:.0} ns on average, {factor:.2} times those of an idle machine \
             (saturated from {:.2} times on)",
            situation.factor
        ),
    })
}

fn interleave(
    mut case: Case,
    slow_home: Option<(NodeId, &Home)>,
    pattern: &Pattern,
    situation: &Situation,
) -> Decision {
    let Some((&node, home)) = pattern.homes.iter().max_by_key(|(_, home)| home.samples) else {
        return case.decide(Action::LeaveAlone);
    };
    let reached: u64 = pattern.homes.values().map(|home| home.samples).sum();
    let concentrated = Share { part: home.samples, of: reached, threshold: CONCENTRATED };
    // Nodes that serve half each by chance are saturated at the same time, or one after the other.
    let is_concentrated = concentrated.is_reached() && concentrated.confidence() > Confidence::Low;
    if is_concentrated || home.latency_ns().is_none() {
        case.test("home_node", (home.samples, reached), CONCENTRATED, &format!("accesses go to node {node}"));
    }
    if let Some(evidence) = latency_over_idle(node, home, situation) {
        if slow_home.is_none() {
            case.rule_out(Action::Interleave, evidence.clone());
        }
        let sure = home.is_slower(situation.factor, STANDARD_ERRORS) == home.is_slower(situation.factor, 0.0);
        case.note(evidence, if sure { Confidence::High } else { Confidence::Low });
        if slow_home.is_none() || is_concentrated {
            return case.decide(if slow_home.is_some() { Action::Interleave } else { Action::LeaveAlone });
        }
        return if_room(case, reached, situation);
    }
    // Without latencies, the number of accesses per node has to do.
    let counts = situation
        .machine
        .nodes
        .iter()
        .filter(|node| node.memory_bytes > 0)
        .map(|node| situation.all.homes.get(&node.id).map_or(0.0, |home| home.samples as f64));
    let imbalance = machine::imbalance(counts).unwrap_or(0.0);
    let text = format!(
        "the imbalance of the nodes' accesses is {imbalance:.2} (threshold {IMBALANCED}); latencies are unknown"
    );
    let samples = situation.all.remote.1;
    case.note(Evidence { what: "imbalance", value: imbalance, threshold: IMBALANCED, samples, text }, Confidence::Low);
    let busiest = situation.all.homes.iter().max_by_key(|(_, home)| home.samples).map(|(node, _)| *node);
    let helps = concentrated.is_reached() && imbalance >= IMBALANCED && busiest == Some(node);
    case.decide(if helps { Action::Interleave } else { Action::LeaveAlone })
}

/// Several nodes may be saturated. Where all are at the same time, there is nothing to be spread to.
fn if_room(mut case: Case, reached: u64, situation: &Situation) -> Decision {
    let alone = situation.saturated_alone;
    if alone.of >= FEWEST {
        let words = "accesses to saturated memory are made while the memory of another node is not saturated";
        if case.test(SATURATED_ALONE, (alone.part, alone.of), alone.threshold, words) {
            return case.decide(Action::Interleave);
        }
        case.rule_out(Action::Interleave, alone.evidence(SATURATED_ALONE, words));
        return case.decide(Action::LeaveAlone);
    }
    // Too few accesses for times of their own: the means over all of the time have to do.
    let memory: Vec<NodeId> =
        situation.machine.nodes.iter().filter(|node| node.memory_bytes > 0).map(|node| node.id).collect();
    let is_slow = |home: &Home| home.is_slower(situation.factor, 0.0);
    let has_room = |node: &&NodeId| !situation.all.homes.get(node).is_some_and(is_slow);
    let with_room = memory.iter().filter(has_room).count();
    let evidence = Evidence {
        what: "nodes_with_room",
        value: with_room as f64,
        threshold: 1.0,
        samples: reached,
        text: format!("the memory of {with_room} of {} nodes is not saturated", memory.len()),
    };
    if with_room == 0 {
        case.rule_out(Action::Interleave, evidence.clone());
    }
    case.note(evidence, Confidence::High);
    case.decide(if with_room > 0 { Action::Interleave } else { Action::LeaveAlone })
}

/// Whether stacks are used by one thread each, and so are remote where the thread was moved. Others may use a variable on a
/// stack, too.
fn are_private(case: &mut Case, pattern: &Pattern) -> bool {
    let words = "successive accesses to a page of a stack are of one thread";
    pattern.of_own_stack.1 == 0 || case.test("own_stack", pattern.of_own_stack, MOSTLY, words)
}

/// The falsely shared huge pages, if most of the remote accesses are to them and small pages would save time.
fn split_huge_pages(case: &mut Case, pattern: &Pattern, situation: &Situation) -> Option<Vec<HugePage>> {
    if pattern.from.len() < 2 || !may_have_huge_pages(situation.flow) {
        return None;
    }
    let mut pages = situation.flow.huge_pages();
    let remote = |pages: &[HugePage]| pages.iter().map(|page| page.remote_samples).sum::<u64>();
    let all = remote(&pages);
    pages.retain(|page| page.is_huge && page.is_falsely_shared());
    let inside = remote(&pages);
    let saved_ns: f64 = pages.iter().filter_map(|page| page.saving).map(|saving| saving.low_ns).sum();
    let helps = saved_ns > 0.0 || pages.iter().all(|page| page.saving.is_none());
    if !helps || !(Share { part: inside, of: all, threshold: CONCENTRATED }).is_reached() {
        return None;
    }
    case.test("falsely_shared", (inside, all), CONCENTRATED, "remote accesses are in falsely shared huge pages");
    let samples: u64 = pages.iter().map(|page| page.samples).sum();
    let held = pages.iter().map(|page| page.held * page.samples as f64).sum::<f64>().round() as u64;
    let words = "accesses to them are from the node that uses that part";
    let evidence = Share { part: held, of: samples, threshold: MOSTLY }.evidence("same_node_in_parts", words);
    let confidence = pages.iter().map(|page| page.confidence).min().unwrap_or(Confidence::Low);
    case.note(evidence, confidence);
    Some(pages)
}

/// Whether several processes share objects only among their own threads, so that each fits on a node.
fn processes_fit_nodes(case: &mut Case, pattern: &Pattern, situation: &Situation) -> bool {
    let most_cpus = situation.machine.nodes.iter().map(|node| node.cpus.len()).max().unwrap_or(0);
    let from_one = |process: &ProcessUse| process.from.values().max().copied().unwrap_or(0);
    let (spread, all) = pattern
        .processes
        .values()
        .fold((0, 0), |(spread, all), process| (spread + process.samples - from_one(process), all + process.samples));
    let largest = pattern.processes.values().map(|process| process.samples).max().unwrap_or(0);
    let several = Share { part: largest, of: all, threshold: ONE_PROCESS };
    let is_spread = Share { part: spread, of: all, threshold: FEW_REMOTE };
    if several.is_reached() || !is_spread.is_reached() {
        return false;
    }
    if threads_at_once(situation.flow).values().any(|&threads| threads > most_cpus) {
        return false;
    }
    case.test(
        "largest_process",
        (largest, all),
        ONE_PROCESS,
        "accesses are of one process; the objects are each process's own",
    );
    case.test(
        "threads_apart",
        (spread, all),
        FEW_REMOTE,
        "accesses are of threads on another node than most of their process",
    );
    true
}
