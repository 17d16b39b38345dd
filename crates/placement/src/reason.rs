//! Why something is decided: the rule, and the numbers that it used.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Why something is decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// The rule.
    pub rule: Rule,
    /// The numbers that it used.
    #[serde(default)]
    pub facts: Vec<Fact>,
}

/// A number that a decision rests on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// What it measures.
    pub quantity: Quantity,
    /// The value, in the quantity's unit.
    pub value: f64,
    /// The threshold, in the same unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
}

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)+) => {
        /// The rules that decide.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::IntoStaticStr)]
        #[cfg_attr(test, derive(strum::VariantArray))]
        #[serde(rename_all = "snake_case")]
        #[strum(serialize_all = "snake_case")]
        pub enum Rule {
            $($(#[$doc])* $name,)+
        }

        /// As part of a sentence.
        impl fmt::Display for Rule {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text,)+ })
            }
        }
    };
}

impl Rule {
    /// Its name in the decision log.
    pub fn name(self) -> impl fmt::Display {
        RuleName(self)
    }
}

struct RuleName(Rule);

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.serialize(f)
    }
}

rules! {
    /// Nothing can be placed.
    OneNode = "the machine has one node with memory: there is nothing to place";
    /// The policy has nothing more to do.
    Settled = "everything is where the policy places it";
    /// No counters to decide by.
    NoTraffic = "accesses were not counted, so memory traffic is not known";
    /// Counters were multiplexed and ran for too short a time.
    CountersRanTooLittle = "counters ran for too small a part of the round to be reliable";
    /// `predict`: samples.
    FewSamples = "there are too few samples to choose a placement by";
    /// `predict`: the machine.
    NoLatencies = "the machine's latencies are not known: `nearside measure` measures them";
    /// `predict`: mappings are read only now and then, as that takes time.
    MappingsNotRead = "the processes' mappings were not read in this round";
    /// `predict`: memory that stays unless it is to be shared.
    OfSeveralProcesses = "most accesses are to memory that several processes map, which is placed with --shared only";
    /// `predict`: the search.
    NothingFaster = "no other placement is predicted to be faster";
    /// `predict`: the cost.
    MovingCostsMore = "moving takes longer than the better placement would have saved so far";
    /// `predict`: dealt memory.
    FasterDealt = "spread over these nodes it is predicted to be faster";
    /// `predict`: memory of one node's threads.
    FasterAtUsers = "on its users' node, or the nearest that may have it, it is predicted to be faster";
    /// `predict`: threads near their memory.
    KeptNear = "most of the memory that it uses is there";
    /// `predict`: kept threads have too little room.
    ThreadsWait = "threads that are kept on nodes wait for CPUs";
    /// `predict`: threads were kept near the memory of another program, or phase.
    ProgramChanged = "the process uses other memory since it executed another program, or began another phase";
    /// `predict`: new threads and processes inherit the CPUs of kept ones.
    MayRunAnywhere = "it is new, and only threads that are near their memory are kept";
    /// `predict`: the round after moves.
    MovesSettle = "the last moves have just been made";
    /// `predict`: nothing to compare.
    GainUnknown = "what the last moves gained cannot be measured, so nothing moves for some rounds";
    /// `predict`: the comparison.
    MovesCompared = "the last moves are kept";
    /// `predict`: a comparison whose gain is less than forecasts are trusted for.
    GainedLittle = "the last moves are kept but gained far less than predicted, so nothing moves for some rounds";
    /// Carrefour's first gate.
    FewAccesses = "there are too few accesses for memory to be contended";
    /// Carrefour's second gate: applications.
    NoBusyProcess = "no process uses enough of a CPU";
    /// Carrefour's gates of the three techniques.
    AllGatesShut = "migration, replication and interleaving are all off for every process";
    /// Gates are open, but no page is better elsewhere.
    NothingMisplaced = "no observed page is better elsewhere";
    /// Pages are better elsewhere, but exceed the budget, or nodes are full.
    NoRoom = "the budget and the nodes' free memory leave no room for pages that are better elsewhere";
    /// Moving has to pay.
    SavedTooLittle = "earlier moves have not yet saved the time that further moves take";
    /// Pages used from one node.
    OneNodeUses = "only that node uses them";
    /// Pages used from several nodes.
    SeveralNodesUse = "several nodes use them, and controllers are loaded unevenly";
    /// Pages that are read from several nodes.
    SeveralNodesRead = "several nodes read them and none writes";
    /// Huge pages whose parts are used by one node each.
    FalselyShared = "each node uses its own part of them";
    /// Huge pages that are too hot to be dealt to nodes whole.
    TooHotToBalance = "each has too large a share of all accesses to be balanced whole";
    /// Copies that are written.
    CopiesAreWritten = "the copies are written again and again";
    /// Moves made accesses slower.
    MadeWorse = "accesses take longer since they were moved here";
    /// The pause after such moves, and after those that gained little.
    Resting = "nothing moves for some rounds: the last moves made accesses slower or gained too little, or their gain is unknown";
    /// Few operations.
    FewOperations = "few pages were worth an operation";
    /// Many operations.
    ManyOperations = "many pages were worth an operation";
    /// A request to the agent.
    Requested = "a request to the agent placed the process there";
    /// A hint of the program.
    Hinted = "the program's own hint placed the process there";
    /// A place of a named range.
    Region = "a named range was given this place";
    /// Policies that decide at the start: memory that existed before.
    PolicyOfStart = "the policy would have placed them there";
    /// `fixed`.
    FixedCpu = "the policy has all threads on one CPU";
    /// `rr-threads`.
    NextCpu = "each thread gets the next CPU";
    /// `rr-tasks`.
    NextCpuOfProcess = "each process gets the next CPU, for all its threads";
    /// `balanced`.
    FewestProcesses = "the node has the fewest processes for its CPUs";
    /// `bind`.
    NodesAsked = "these nodes were asked for";
    /// `auto`, step 1: a core without other threads.
    FreeCore = "it is the process's node, and no other thread has this core";
    /// `auto`, step 1: a sibling.
    FreeSibling = "it is the process's node; all its cores have a thread, and this sibling has none";
    /// `auto`, step 1: more threads than CPUs.
    NodeIsFull = "it is the process's node, which has a thread on every CPU";
    /// `auto`: more threads than a node has CPUs.
    TooWide = "its threads keep more CPUs busy than a node has, so the kernel places them";
    /// `auto`, step 2.
    CachePressure = "the node's caches are under more pressure than the other's, and this makes them more alike";
    /// `auto`, step 3.
    RemoteAccesses = "many of the process's accesses are remote";
    /// `thread-clustering`.
    SharedPages = "these threads use the same pages, most of them on this node";
    /// `thread-clustering`, afterwards.
    NoLongerClustered = "it no longer uses the same pages as others";
}

macro_rules! quantities {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $unit:ident;)+) => {
        /// A quantity.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Quantity {
            $($(#[$doc])* $name,)+
        }

        impl Quantity {
            /// Its name, as text.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            fn unit(self) -> Unit {
                match self { $(Self::$name => Unit::$unit,)+ }
            }
        }
    };
}

enum Unit {
    /// A factor.
    Times,
    /// Milliseconds.
    Ms,
    /// 0 to 1, shown in percent.
    Share,
    Count,
    Number,
    Ns,
    PerUs,
}

quantities! {
    /// Accesses that memory served, 1/µs.
    AccessesPerUs = "memory accesses", PerUs;
    /// Utilisation of the busiest direction of a link by memory traffic, 0 to 1.
    LinkUtilisation = "busiest link", Share;
    /// Local accesses over all, 0 to 1.
    LocalAccessRatio = "local access ratio", Share;
    /// The same with threads near their memory.
    LocalAccessRatioNear = "near its memory", Share;
    /// Standard deviation of the controllers' loads over their mean.
    Imbalance = "imbalance", Share;
    /// Modified lines over all that were filled, 0 to 1; the highest among the threads.
    ModifiedShare = "modified lines", Share;
    /// Reads over all accesses to memory, 0 to 1.
    ReadRatio = "reads", Share;
    /// Used over total memory, 0 to 1.
    MemoryUsed = "memory in use", Share;
    /// The part of the round that counters ran for, 0 to 1.
    CountersRunning = "counters ran for", Share;
    /// CPU time over time; 1 is one CPU.
    CpuShare = "of a CPU", Share;
    /// Pages.
    Pages = "pages", Count;
    /// Samples.
    Samples = "samples", Count;
    /// Operations on pages in a round.
    Operations = "operations", Count;
    /// Accesses of one node in small pages over all of a huge page, 0 to 1.
    SameNodeInSmallPages = "one node's in each small page", Share;
    /// Samples of a page over all, 0 to 1: the hottest.
    ShareOfAccesses = "share of all samples", Share;
    /// Mean cost of an access, ns.
    AccessNs = "an access took", Ns;
    /// Mean cost of an access before, ns.
    AccessNsBefore = "before that", Ns;
    /// Predicted time as it is over that of the chosen placement.
    PredictedSpeedup = "predicted speedup", Times;
    /// The same as it came out: by what accesses take since, and how long the forecast had threads wait for them.
    MeasuredSpeedup = "measured speedup", Times;
    /// What moving takes.
    MoveMs = "moving takes", Ms;
    /// What the placement would have saved since the program began, or since the last moves.
    SavedMs = "it would have saved", Ms;
    /// Rounds left of a pause.
    Rounds = "rounds left", Count;
    /// Threads.
    Threads = "threads", Count;
    /// Processes on the node.
    Processes = "processes on the node", Count;
    /// Number of CPUs that runnable threads would keep busy.
    BusyCpus = "CPUs wanted", Number;
    /// Last-level cache misses per thousand instructions, summed over busy threads.
    CachePressure = "cache pressure", Number;
    /// Difference of two nodes' cache pressure.
    CachePressureGap = "difference of cache pressure", Number;
    /// The same after the action.
    CachePressureGapAfter = "difference after it", Number;
    /// Remote accesses over all, 0 to 1.
    RemoteRatio = "remote accesses", Share;
    /// Extra cost of remote accesses, over the cost of all accesses if they were local.
    RemoteCost = "what they cost more", Share;
    /// Samples of memory that several processes map over all, 0 to 1.
    OfSeveralProcesses = "to such memory", Share;
    /// Accesses to the same pages.
    SharedAccesses = "accesses to the same pages", Count;
}

impl Reason {
    /// A rule without numbers.
    pub fn new(rule: Rule) -> Self {
        Self { rule, facts: Vec::new() }
    }

    /// Adds a number.
    #[must_use]
    pub fn with(mut self, quantity: Quantity, value: f64) -> Self {
        self.facts.push(Fact { quantity, value, threshold: None });
        self
    }

    /// Adds a number and its threshold.
    #[must_use]
    pub fn against(mut self, quantity: Quantity, value: f64, threshold: f64) -> Self {
        self.facts.push(Fact { quantity, value, threshold: Some(threshold) });
        self
    }

    /// The number of this quantity, if the rule used it.
    pub fn value(&self, quantity: Quantity) -> Option<f64> {
        self.facts.iter().find(|fact| fact.quantity == quantity).map(|fact| fact.value)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rule.fmt(f)?;
        for (index, fact) in self.facts.iter().enumerate() {
            write!(f, "{}{fact}", if index == 0 { ": " } else { ", " })?;
        }
        Ok(())
    }
}

/// Such as `local access ratio 61.0 % (threshold 80 %)`.
impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write = |f: &mut fmt::Formatter<'_>, value: f64, decimals: usize| match self.quantity.unit() {
            Unit::Share => write!(f, "{:.decimals$} %", 100.0 * value),
            Unit::Count => write!(f, "{value:.0}"),
            Unit::Number => write!(f, "{value:.1}"),
            Unit::Ns => write!(f, "{value:.0} ns"),
            Unit::Ms => write!(f, "{value:.1} ms"),
            Unit::Times => write!(f, "{value:.2} times"),
            Unit::PerUs => write!(f, "{value:.decimals$} a µs"),
        };
        write!(f, "{} ", self.quantity.name())?;
        write(f, self.value, 1)?;
        if let Some(threshold) = self.threshold {
            f.write_str(" (threshold ")?;
            write(f, threshold, 0)?;
            f.write_str(")")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strum::VariantArray;

    #[test]
    fn rules_have_one_name() -> Result<(), serde_json::Error> {
        for rule in Rule::VARIANTS {
            assert_eq!(serde_json::to_value(rule)?, <&str>::from(rule));
        }
        Ok(())
    }
}
