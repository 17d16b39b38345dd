//! Policy names as users write them: a part for threads, a part for memory, or both.

use machine::{CpuId, NodeId, Selection, did_you_mean};
use serde::{Deserialize, Serialize, de};
use std::fmt;
use std::str::FromStr;

/// The policy that places threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ThreadPolicy {
    /// `kernel`: the kernel's scheduler, unchanged.
    #[default]
    Kernel,
    /// `fixed` or `fixed:CPU`: all threads on one CPU; by default the first allowed one.
    Fixed(Option<CpuId>),
    /// `rr-threads`: each new thread gets the next CPU.
    RrThreads,
    /// `rr-tasks`: each new process gets the next CPU, for all its threads.
    RrTasks,
    /// `balanced`: each new process gets the node with the fewest processes for its CPUs.
    Balanced,
    /// `auto`: as `balanced`, then processes move between nodes to even out cache pressure, and memory follows.
    Auto,
    /// `auto-threads`: as `auto`, but memory stays.
    AutoThreads,
    /// `thread-clustering`: threads that use the same pages share a node.
    ThreadClustering,
    /// `bind:NODES`: CPUs of these nodes.
    Bind(Selection<NodeId>),
}

/// The policy that places memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MemoryPlacement {
    /// `default`: as the program asks.
    #[default]
    Default,
    /// `first-touch`: on the node of the CPU that touches a page first, whatever policy it inherits.
    FirstTouch,
    /// `local`: on the node of the process, or of the thread where the process has none.
    Local,
    /// `remote`: on the node farthest from there, to show what that costs.
    Remote,
    /// `interleave` or `interleave:NODES`, also `interleaved`: on all nodes in turn.
    Interleave(Option<Selection<NodeId>>),
    /// `weighted-interleave` or `weighted-interleave:NODES`: the same, with more pages on nodes with more bandwidth.
    WeightedInterleave(Option<Selection<NodeId>>),
    /// `bind:NODES`: on these nodes only.
    Bind(Selection<NodeId>),
    /// `carrefour`: pages are migrated, interleaved or replicated according to use.
    Carrefour,
    /// `carrefour-published`: the same without nearside's additions.
    CarrefourPublished,
    /// `predict`: segments are placed by a forecast of what that changes.
    Predict,
}

impl MemoryPlacement {
    /// Whether it is Carrefour, with or without additions.
    pub fn is_carrefour(&self) -> bool {
        matches!(self, Self::Carrefour | Self::CarrefourPublished)
    }
}

/// A policy by its name: `carrefour`, `balanced+local`, `bind:0-1`.
///
/// A name with one part leaves the other to the kernel, except that `auto` and `auto-threads` alone imply `local`
/// memory, and `bind` alone binds both. Two parts are joined by `+`, in any order; of two `bind` parts the first is for
/// threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyName {
    /// The part for threads.
    pub threads: ThreadPolicy,
    /// The part for memory.
    pub memory: MemoryPlacement,
}

/// All names with descriptions, for help texts.
pub const POLICIES: [(&str, &str); 19] = [
    ("first-touch", "memory on the node of the CPU that touches it first"),
    ("interleave[:NODES]", "memory interleaved over all nodes, or over these"),
    (
        "weighted-interleave[:NODES]",
        "memory interleaved over all nodes, or these, in proportion to their measured bandwidth",
    ),
    ("bind:NODES", "memory on these nodes only, and threads on their CPUs"),
    ("carrefour", "pages are migrated, interleaved or replicated, by counters and samples"),
    ("carrefour-published", "as carrefour, as it was published: without what nearside added to it"),
    ("predict", "memory goes where a model predicts the most speed, once that pays, or threads to their memory"),
    ("auto", "processes and their memory move between nodes to even out the pressure on caches"),
    ("auto-threads", "as auto, but memory stays"),
    ("fixed[:CPU]", "all threads on one CPU"),
    ("rr-threads", "each thread on the next CPU"),
    ("rr-tasks", "each process on the next CPU"),
    ("balanced", "each process on the node with the fewest"),
    ("thread-clustering", "threads that use the same pages on one node"),
    ("kernel", "threads where the kernel puts them"),
    ("default", "memory by the program's own policies"),
    ("local", "memory on the node of the process, or else of the thread"),
    ("remote", "memory on the node farthest from there"),
    ("THREADS+MEMORY", "both, such as balanced+local or thread-clustering+carrefour"),
];

/// Why a text is not a policy name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// There is no such policy.
    #[error("there is no policy `{name}`{}; the policies are:\n{}", did_you_mean(*.nearest), list(&POLICIES))]
    Unknown {
        /// The name.
        name: String,
        /// The policy with the most similar name.
        nearest: Option<&'static str>,
    },
    /// Nodes or a CPU are missing or wrong.
    #[error("`{name}` is not a policy: {why}")]
    Argument {
        /// The text.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// Both parts place the same.
    #[error(
        "`{first}` and `{second}` both place {what}: join one for threads and one for memory, such as balanced+local"
    )]
    SameHalf {
        /// The first.
        first: String,
        /// The second.
        second: String,
        /// `threads` or `memory`.
        what: &'static str,
    },
    /// More than two parts.
    #[error("`{0}` has more than two parts: one places threads and one memory, such as balanced+local")]
    TooMany(String),
}

impl PolicyName {
    /// Whether it is `predict` with threads left to the kernel.
    pub fn is_predict_alone(&self) -> bool {
        self.memory == MemoryPlacement::Predict && self.threads == ThreadPolicy::Kernel
    }

    /// From a thread policy, by its full name or thread part, and a separate memory policy: `bind:0` with `bind:1` has
    /// threads on the CPUs of node 0, and memory on node 1.
    pub fn with_memory(threads: &str, memory: &str) -> Result<Self, NameError> {
        let has_both = halves(threads.trim()).len() > 1;
        let first = if has_both { threads.parse::<Self>()?.into() } else { threads.trim().parse::<Half>()? };
        let second: Half = memory.trim().parse()?;
        let same = |what| NameError::SameHalf { first: threads.to_owned(), second: memory.to_owned(), what };
        match (first.threads, second.memory) {
            (None, _) => Err(same("memory")),
            (_, None) => Err(same("threads")),
            _ if has_both => Err(same("memory")),
            (Some(threads), Some(memory)) => Ok(Self { threads, memory }),
        }
    }
}

/// Names with what each does, one a line, for help texts and messages.
pub fn list(policies: &[(&str, &str)]) -> String {
    let width = policies.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<String> = policies.iter().map(|(name, what)| format!("  {name:width$}  {what}")).collect();
    lines.join("\n")
}

/// What a part places: threads, memory, or either.
#[derive(Default)]
struct Half {
    threads: Option<ThreadPolicy>,
    memory: Option<MemoryPlacement>,
}

impl From<PolicyName> for Half {
    fn from(PolicyName { threads, memory }: PolicyName) -> Self {
        Self { threads: Some(threads), memory: Some(memory) }
    }
}

impl FromStr for Half {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (name, argument) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let wrong = |why: String| NameError::Argument { name: text.to_owned(), why };
        let nodes = || {
            let read = |nodes: &str| nodes.parse::<Selection<NodeId>>().map_err(|error| wrong(error.to_string()));
            let nodes = argument.map(read).transpose()?;
            let is_there = nodes.as_ref().is_some_and(Selection::is_same);
            if is_there { Err(wrong("there is no option before it".to_owned())) } else { Ok(nodes) }
        };
        let threads = |policy| Self { threads: Some(policy), memory: None };
        let memory = |policy| Self { threads: None, memory: Some(policy) };
        let half = match name {
            "fixed" => {
                let cpu = argument.map(|cpu| cpu.parse().map_err(|_| wrong(format!("`{cpu}` is not a CPU's number"))));
                return Ok(threads(ThreadPolicy::Fixed(cpu.transpose()?.map(CpuId))));
            }
            "interleave" | "interleaved" => return Ok(memory(MemoryPlacement::Interleave(nodes()?))),
            "weighted-interleave" => return Ok(memory(MemoryPlacement::WeightedInterleave(nodes()?))),
            "bind" => {
                let missing = || wrong("it needs nodes, such as bind:0-1".to_owned());
                let nodes = nodes()?.ok_or_else(missing)?;
                let threads = Some(ThreadPolicy::Bind(nodes.clone()));
                return Ok(Self { threads, memory: Some(MemoryPlacement::Bind(nodes)) });
            }
            "kernel" => threads(ThreadPolicy::Kernel),
            "rr-threads" => threads(ThreadPolicy::RrThreads),
            "rr-tasks" => threads(ThreadPolicy::RrTasks),
            "balanced" => threads(ThreadPolicy::Balanced),
            "auto" => threads(ThreadPolicy::Auto),
            "auto-threads" => threads(ThreadPolicy::AutoThreads),
            "thread-clustering" => threads(ThreadPolicy::ThreadClustering),
            "default" => memory(MemoryPlacement::Default),
            "first-touch" => memory(MemoryPlacement::FirstTouch),
            "local" => memory(MemoryPlacement::Local),
            "remote" => memory(MemoryPlacement::Remote),
            "carrefour" => memory(MemoryPlacement::Carrefour),
            "carrefour-published" => memory(MemoryPlacement::CarrefourPublished),
            "predict" => memory(MemoryPlacement::Predict),
            _ => return Err(NameError::Unknown { name: name.to_owned(), nearest: nearest(name) }),
        };
        if argument.is_some() { Err(wrong(format!("`{name}` takes no argument"))) } else { Ok(half) }
    }
}

fn nearest(name: &str) -> Option<&'static str> {
    let plain = POLICIES.iter().map(|(policy, _)| policy.split(['[', ':']).next().unwrap_or(policy));
    machine::nearest(&name.to_lowercase(), plain)
}

/// Splits a name at each `+` that precedes a letter; before a number it belongs to a node set (`bind:+0`).
fn halves(text: &str) -> Vec<&str> {
    let parts = |(at, _): &(usize, &str)| text[at + 1..].starts_with(|next: char| !next.is_ascii_digit());
    let mut halves = Vec::new();
    let mut begin = 0;
    for (at, _) in text.match_indices('+').filter(parts) {
        halves.push(&text[begin..at]);
        begin = at + 1;
    }
    halves.push(&text[begin..]);
    halves
}

impl FromStr for PolicyName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let halves = halves(text.trim());
        let (first, second) = match halves[..] {
            [one] => {
                let half: Half = one.trim().parse()?;
                let is_auto = matches!(half.threads, Some(ThreadPolicy::Auto | ThreadPolicy::AutoThreads));
                let memory = if is_auto { MemoryPlacement::Local } else { MemoryPlacement::Default };
                return Ok(Self { threads: half.threads.unwrap_or_default(), memory: half.memory.unwrap_or(memory) });
            }
            [first, second] => (first.trim(), second.trim()),
            _ => return Err(NameError::TooMany(text.to_owned())),
        };
        let (a, b): (Half, Half) = (first.parse()?, second.parse()?);
        let same = |what| NameError::SameHalf { first: first.to_owned(), second: second.to_owned(), what };
        match (a, b) {
            (Half { threads: Some(threads), .. }, Half { memory: Some(memory), .. })
            | (Half { memory: Some(memory), .. }, Half { threads: Some(threads), .. }) => Ok(Self { threads, memory }),
            (Half { threads: Some(_), .. }, _) => Err(same("threads")),
            _ => Err(same("memory")),
        }
    }
}

impl fmt::Display for ThreadPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel => f.write_str("kernel"),
            Self::Fixed(None) => f.write_str("fixed"),
            Self::Fixed(Some(cpu)) => write!(f, "fixed:{cpu}"),
            Self::RrThreads => f.write_str("rr-threads"),
            Self::RrTasks => f.write_str("rr-tasks"),
            Self::Balanced => f.write_str("balanced"),
            Self::Auto => f.write_str("auto"),
            Self::AutoThreads => f.write_str("auto-threads"),
            Self::ThreadClustering => f.write_str("thread-clustering"),
            Self::Bind(nodes) => write!(f, "bind:{nodes}"),
        }
    }
}

impl fmt::Display for MemoryPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::FirstTouch => f.write_str("first-touch"),
            Self::Local => f.write_str("local"),
            Self::Remote => f.write_str("remote"),
            Self::Interleave(None) => f.write_str("interleave"),
            Self::Interleave(Some(nodes)) => write!(f, "interleave:{nodes}"),
            Self::WeightedInterleave(None) => f.write_str("weighted-interleave"),
            Self::WeightedInterleave(Some(nodes)) => write!(f, "weighted-interleave:{nodes}"),
            Self::Bind(nodes) => write!(f, "bind:{nodes}"),
            Self::Carrefour => f.write_str("carrefour"),
            Self::CarrefourPublished => f.write_str("carrefour-published"),
            Self::Predict => f.write_str("predict"),
        }
    }
}

/// The shortest equivalent name.
impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_this = |text: &str| text.parse().is_ok_and(|name: Self| name == *self);
        let (threads, memory) = (self.threads.to_string(), self.memory.to_string());
        match (is_this(&memory), is_this(&threads)) {
            (true, _) => f.write_str(&memory),
            (_, true) => f.write_str(&threads),
            _ => write!(f, "{threads}+{memory}"),
        }
    }
}

impl Serialize for PolicyName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PolicyName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> PolicyName {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn memory_is_placed_by_the_second_name() {
        let both = |threads, memory| PolicyName::with_memory(threads, memory).map(|name| name.to_string());
        assert_eq!(both("balanced", "local").unwrap(), "balanced+local");
        assert_eq!(both("bind:0", "bind:1").unwrap(), "bind:0+bind:1");
        assert_eq!(both("bind:0", "interleave").unwrap(), "bind:0+interleave");
        for (threads, memory, both_place) in [
            ("interleave", "bind:1", "memory"),
            ("carrefour", "auto", "memory"),
            ("auto", "balanced", "threads"),
            ("balanced+local", "interleave", "memory"),
            ("balanced+local", "auto", "threads"),
        ] {
            let error = both(threads, memory).unwrap_err().to_string();
            assert!(error.contains(&format!("both place {both_place}")), "{error}");
        }
        assert!(matches!(both("balanced+locl", "local"), Err(NameError::Unknown { .. })));
        assert!(matches!(both("balanced+local+auto", "local"), Err(NameError::TooMany(_))));
    }

    #[test]
    fn every_name_of_the_list_is_read() {
        for (policy, _) in &POLICIES[..17] {
            let plain = policy.split(['[', ':']).next().unwrap();
            let text = if plain == "bind" { "bind:0" } else { plain };
            assert_eq!(name(text).to_string(), if plain == "kernel" { "default" } else { text });
        }
    }

    #[test]
    fn halves_combine_in_any_order() {
        assert_eq!(name("local+balanced"), name("balanced+local"));
        assert_eq!(name("auto"), name("auto+local"));
        assert_eq!(name("balanced"), name("balanced+default"));
        assert_eq!(name("interleaved"), name("kernel+interleave"));
        assert_eq!(name("bind:0-1"), name("bind:0-1+bind:0-1"));
        assert_eq!(name("bind:0+interleave").memory, MemoryPlacement::Interleave(None));
        assert_eq!(name("balanced+bind:+0").threads, ThreadPolicy::Balanced);
        assert_eq!(name("bind:!0+local").threads, ThreadPolicy::Bind("!0".parse().unwrap()));
        assert_eq!(name("fixed:3"), PolicyName { threads: ThreadPolicy::Fixed(Some(CpuId(3))), ..name("default") });
    }

    #[test]
    fn an_unknown_policy_is_reported_with_all_names_and_the_nearest() {
        let error = |text: &str| text.parse::<PolicyName>().unwrap_err().to_string();
        let unknown = error("carefour");
        assert!(unknown.starts_with("there is no policy `carefour` (did you mean `carrefour`?); the policies are:\n"));
        assert_eq!(unknown.lines().count(), 1 + POLICIES.len(), "{unknown}");
        assert!(POLICIES.iter().all(|(policy, _)| unknown.contains(policy)), "{unknown}");
        assert!(error("zzz").starts_with("there is no policy `zzz`; the policies are:\n  first-touch  "));
        assert!(error("Interleve").contains("did you mean `interleave`?"));
        assert!(error("balanced+auto").contains("both place threads"));
        assert!(error("carrefour+interleave").contains("both place memory"));
        assert!(error("balanced+local+auto").contains("more than two parts"));
        assert!(error("bind").contains("it needs nodes, such as bind:0-1"));
        assert!(error("bind:x").contains("neither a number nor a range"));
        assert!(error("fixed:x").contains("`x` is not a CPU's number"));
        assert!(error("balanced:3").contains("takes no argument"));
        assert!(error("").contains("there is no policy ``"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_and_written_back(
            text in "(kernel|fixed:3|auto|balanced|bind:[0-9+!-]{1,4}|.*)(\\+(local|interleave|bind:0|carrefour|.*))?",
        ) {
            if let Ok(name) = text.parse::<PolicyName>() {
                prop_assert_eq!(name.to_string().parse::<PolicyName>(), Ok(name));
            }
        }
    }
}
