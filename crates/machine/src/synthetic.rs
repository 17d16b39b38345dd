//! Machines from one line, as hwloc has them: `package:2 node:2 l3:1 core:4 pu:2`.

use crate::description::{Cache, CacheKind, Distances, Machine, Node, Package, Sharing};
use crate::ids::{CpuId, NodeId, PackageId};
use crate::nearest::nearest;
use crate::set::CpuSet;
use crate::size;
use crate::violation::Violations;

/// Most CPUs and most nodes.
const MOST_CPUS: u32 = 1 << 16;
const MOST_NODES: u32 = 1 << 10;
/// Memory of a node and size of a cache without one of their own: hwloc's defaults.
const MEMORY_BYTES: u64 = 1 << 30;
const CACHE_BYTES: [u64; 3] = [32 << 10, 256 << 10, 4 << 20];
/// Distances of firmware that has none: Linux's `LOCAL_DISTANCE` and `REMOTE_DISTANCE`.
const LOCAL: u32 = 10;
const REMOTE: u32 = 20;
const LINE_BYTES: u32 = 64;

/// Why a line describes no machine.
#[derive(Debug, thiserror::Error)]
pub enum SyntheticError {
    /// A word has another form.
    #[error("`{0}` is not of the form TYPE:COUNT, such as node:2, or TYPE:COUNT(SIZE), such as l3:1(32M)")]
    Form(String),
    /// An unknown type.
    #[error("there is no type `{name}`{}; the types are {}", nearest.map(|nearest| format!(" (did you mean `{nearest}`?)")).unwrap_or_default(), NAMES.join(", "))]
    Type {
        /// The type.
        name: String,
        /// The most similar one.
        nearest: Option<&'static str>,
    },
    /// A type that comes twice or in another order.
    #[error("`{0}` is out of order: package and node come first, then l3, l2, l1, core and pu, each at most once")]
    Order(String),
    /// A size where there is none.
    #[error("`{0}` has a size: only nodes and caches have one")]
    Size(String),
    /// A wrong size.
    #[error("{0}")]
    WrongSize(String),
    /// Too much.
    #[error("this is a machine of more than {MOST_CPUS} CPUs or {MOST_NODES} nodes")]
    TooLarge,
    /// The machine breaks a rule.
    #[error("{0}")]
    Rules(Violations),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Package,
    Node,
    Cache(u8),
    Core,
    Pu,
}

/// The types, and hwloc's other names of them.
const NAMES: [&str; 7] = ["package", "node", "l3", "l2", "l1", "core", "pu"];
const KINDS: [(&str, Kind); 12] = [
    ("package", Kind::Package),
    ("pack", Kind::Package),
    ("socket", Kind::Package),
    ("node", Kind::Node),
    ("numa", Kind::Node),
    ("numanode", Kind::Node),
    ("l3", Kind::Cache(3)),
    ("l2", Kind::Cache(2)),
    ("l1", Kind::Cache(1)),
    ("l1d", Kind::Cache(1)),
    ("core", Kind::Core),
    ("pu", Kind::Pu),
];

/// A level of the machine.
struct Level {
    kind: Kind,
    /// Objects of this level in the whole machine.
    all: u32,
    bytes: Option<u64>,
}

/// Whether a text is meant as such a line: words with colons.
pub fn is_synthetic(text: &str) -> bool {
    let mut words = text.split_whitespace();
    text.contains(':') && !text.contains('/') && words.all(|word| word.contains(':'))
}

impl Machine {
    /// Reads a line such as `node:2 core:4 pu:2`: objects from the outermost to the innermost, with the number in each
    /// object of the level before. Nodes may have a memory size and caches a size: `node:2(4G) l3:1(32M) core:4`. CPUs
    /// are numbered in order.
    pub fn from_synthetic(text: &str) -> Result<Self, SyntheticError> {
        let mut levels: Vec<Level> = Vec::new();
        for word in text.split_whitespace() {
            let level = level(word, levels.last().map_or(1, |last| last.all))?;
            let is_twice = levels.iter().any(|before| before.kind == level.kind);
            // Packages may be in nodes, and nodes in packages.
            let is_swapped = level.kind == Kind::Package && levels.last().is_some_and(|last| last.kind == Kind::Node);
            let is_late = levels.last().is_some_and(|last| rank(last.kind) > rank(level.kind)) && !is_swapped;
            if is_twice || is_late {
                return Err(SyntheticError::Order(word.to_owned()));
            }
            levels.push(level);
        }
        let cpus = levels.last().ok_or_else(|| SyntheticError::Form(text.to_owned()))?.all;
        let machine = machine(text, &levels, cpus);
        let violations = machine.validate();
        if violations.is_empty() { Ok(machine) } else { Err(SyntheticError::Rules(Violations(violations))) }
    }
}

/// Outer objects come first; of caches, the one with the highest level.
fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::Package => 0,
        Kind::Node => 1,
        Kind::Cache(level) => 5 - level,
        Kind::Core => 5,
        Kind::Pu => 6,
    }
}

/// Reads a word; there are `outer` objects of the level before.
fn level(word: &str, outer: u32) -> Result<Level, SyntheticError> {
    let form = || SyntheticError::Form(word.to_owned());
    let (name, rest) = word.split_once(':').ok_or_else(form)?;
    let (count, bytes) = match rest.split_once('(') {
        Some((count, bytes)) => (count, Some(bytes.strip_suffix(')').ok_or_else(form)?)),
        None => (rest, None),
    };
    let lower = name.to_ascii_lowercase();
    let unknown = || SyntheticError::Type { name: name.to_owned(), nearest: nearest(&lower, NAMES) };
    let (_, kind) = KINDS.into_iter().find(|(known, _)| *known == lower).ok_or_else(unknown)?;
    let count: u32 = count.parse().ok().filter(|count| *count > 0).ok_or_else(form)?;
    let most = if kind == Kind::Node { MOST_NODES } else { MOST_CPUS };
    let all = outer.checked_mul(count).filter(|all| *all <= most).ok_or(SyntheticError::TooLarge)?;
    let bytes = bytes.map(size::parse).transpose().map_err(SyntheticError::WrongSize)?;
    if bytes.is_some() && !matches!(kind, Kind::Node | Kind::Cache(_)) {
        return Err(SyntheticError::Size(word.to_owned()));
    }
    Ok(Level { kind, all, bytes })
}

fn machine(text: &str, levels: &[Level], cpus: u32) -> Machine {
    let of = |kind: Kind| levels.iter().find(|level| level.kind == kind);
    // Each object has as many CPUs in order.
    let sets = |all: u32| -> Vec<CpuSet> {
        let each = cpus / all;
        (0..all).map(|number| (number * each..(number + 1) * each).map(CpuId).collect()).collect()
    };
    let nodes = of(Kind::Node).map_or(1, |level| level.all);
    let memory_bytes = of(Kind::Node).and_then(|level| level.bytes).unwrap_or(MEMORY_BYTES);
    let node = |(cpus, id): (CpuSet, u32)| Node {
        id: NodeId(id),
        cpus,
        memory_bytes,
        bandwidth_bytes_per_s: None,
        write_cost: None,
        source: None,
    };
    let packages = of(Kind::Package).map_or_else(Vec::new, |level| sets(level.all));
    let cores = of(Kind::Core).map_or_else(Vec::new, |level| sets(level.all));
    let cache = |level: &Level| {
        let Kind::Cache(number) = level.kind else { return None };
        let shared_by = match level.all {
            all if Some(all) == of(Kind::Core).map(|level| level.all) => Sharing::Core,
            all if all == nodes => Sharing::Node,
            all => Sharing::Cpus(sets(all)),
        };
        let kind = if number == 1 { CacheKind::Data } else { CacheKind::Unified };
        let size_bytes = level.bytes.unwrap_or(CACHE_BYTES[usize::from(number) - 1]);
        Some(Cache {
            level: number,
            kind,
            size_bytes,
            ways: 0,
            line_bytes: LINE_BYTES,
            latency_ns: None,
            shared_by,
            source: None,
        })
    };
    let distance = |from: u32, to: u32| if from == to { LOCAL } else { REMOTE };
    let row = |from: u32| (0..nodes).map(|to| distance(from, to)).collect();
    let distances = (nodes > 1).then(|| Distances { matrix: (0..nodes).map(row).collect(), source: None });
    Machine {
        name: "synthetic".to_owned(),
        description: text.split_whitespace().collect::<Vec<_>>().join(" "),
        sources: [].into(),
        smt_cores: cores.into_iter().filter(|core| core.len() > 1).collect(),
        core: None,
        coherence: None,
        control: None,
        disk: None,
        latency: None,
        distances,
        packages: packages.into_iter().zip(0..).map(|(cpus, id)| Package { id: PackageId(id), cpus }).collect(),
        nodes: sets(nodes).into_iter().zip(0..).map(node).collect(),
        caches: levels.iter().filter_map(cache).collect(),
        tlbs: Vec::new(),
        links: Vec::new(),
        routes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    fn read(text: &str) -> Machine {
        Machine::from_synthetic(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn objects_are_nested_in_order() {
        let machine = read("package:2 node:2(4G) l3:1(32M) l2:2 core:2 pu:2");
        let cpus: Vec<String> = machine.nodes.iter().map(|node| node.cpus.to_string()).collect();
        assert_eq!(cpus, ["0-7", "8-15", "16-23", "24-31"]);
        assert!(machine.nodes.iter().all(|node| node.memory_bytes == 4 << 30));
        let packages: Vec<String> = machine.packages.iter().map(|package| package.cpus.to_string()).collect();
        assert_eq!(packages, ["0-15", "16-31"]);
        assert_eq!((machine.smt_cores.len(), machine.smt_cores[1].to_string().as_str()), (16, "2-3"));
        let caches: Vec<_> = machine.caches.iter().map(|cache| (cache.level, cache.size_bytes >> 10)).collect();
        assert_eq!(caches, [(3, 32 << 10), (2, 256)]);
        assert!(matches!(machine.caches[0].shared_by, Sharing::Node));
        assert!(matches!(&machine.caches[1].shared_by, Sharing::Cpus(sets) if sets.len() == 8));
        assert_eq!(machine.distances.unwrap().matrix[1], [20, 10, 20, 20]);
        // Packages in nodes, hwloc's names, and a machine without nodes of its own.
        let nested = read("NUMANode:2 Socket:2 Core:1 PU:1");
        assert_eq!((nested.nodes.len(), nested.packages.len(), nested.cpus().len()), (2, 4, 4));
        assert_eq!((read("core:4").nodes.len(), read("core:4").distances), (1, None));
    }

    #[test]
    fn mistakes_say_what_is_meant() {
        for (text, says) in [
            ("nod:2 core:4", "there is no type `nod` (did you mean `node`?); the types are package, node"),
            ("node:2 core", "`core` is not of the form TYPE:COUNT"),
            ("node:0", "`node:0` is not of the form"),
            ("node:2(4X)", "`4X` is not a size"),
            ("node:2(4G", "`node:2(4G` is not of the form"),
            ("core:2(4G)", "`core:2(4G)` has a size: only nodes and caches have one"),
            ("core:2 node:2", "`node:2` is out of order"),
            ("l2:1 l3:1", "`l3:1` is out of order"),
            ("node:2 node:2", "`node:2` is out of order"),
            ("node:2000", "more than 65536 CPUs or 1024 nodes"),
            ("node:1000 core:1000", "more than 65536 CPUs or 1024 nodes"),
            ("node:4294967295 core:4294967295", "more than"),
        ] {
            let said = Machine::from_synthetic(text).unwrap_err().to_string();
            assert!(said.contains(says), "{text}: {said}");
        }
    }

    #[test]
    fn only_words_with_colons_are_meant() {
        assert!(is_synthetic("node:2 core:4") && is_synthetic("nod:2"));
        assert!(!is_synthetic("small-4x2") && !is_synthetic("a folder:x/y") && !is_synthetic(""));
    }

    proptest! {
        #[test]
        fn any_text_is_a_valid_machine_or_refused(
            text in "((package|node|l[123]|core|pu|x)?:?[0-9]{0,3}(\\([0-9]{0,3}[KMGX]?\\)?)? ?){0,6}|.{0,40}"
        ) {
            if let Ok(machine) = Machine::from_synthetic(&text) {
                prop_assert!(machine.validate().is_empty() && machine.cpus().len() <= MOST_CPUS as usize);
                let toml = machine.to_toml().unwrap();
                prop_assert_eq!(Machine::from_toml(&toml, Path::new("synthetic.toml")).unwrap(), machine);
            }
        }
    }
}
