//! Parts of a machine, named as in hwloc: `l3:0`, `package:1.core:2`, `node:1-`.
//!
//! The numbers count, as hwloc's logical ones do: `core:2` is the third core, in the order of the machine's parts and
//! not of the kernel's numbers, and `package:1.core:2` the third of the second package.

use crate::description::{CacheKind, Machine, Node};
use crate::ids::CpuId;
use crate::set::{CpuSet, MAX_ID, NodeSet};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A comma-separated list of chains of objects. Each object of a chain is counted within the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objects(Vec<Vec<Step>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    kind: Kind,
    which: Which,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Machine,
    Package,
    Node,
    /// The level, from the memory to the cores.
    Cache(u8),
    Core,
    Pu,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    All,
    Odd,
    Even,
    /// From the first to the last of these; to the end without a last.
    Range(usize, Option<usize>),
    /// This number of objects from the first of these on; after the last comes the first again.
    Count(usize, usize),
}

/// The part of a machine that objects name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Their CPUs; none of nodes that have memory only.
    pub cpus: CpuSet,
    /// The nodes of these CPUs, and those that are named.
    pub nodes: NodeSet,
}

/// Why a text names no objects, or a machine does not have them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// A word that names no kind of objects.
    #[error(
        "`{0}` is neither a kind of objects (machine, package, node, l1 to l9, core, pu) nor of devices (netdev, ip, file, block, pci)"
    )]
    Kind(String),
    /// The part behind the colon.
    #[error("`{0}` does not say which: write N, N-M, N-, N:COUNT, all, odd or even")]
    Which(String),
    /// The machine has less.
    #[error("no {step}{within}: this machine has {has}")]
    Missing {
        /// The object that is missing.
        step: String,
        /// The object in which it was counted, with a space and a word before it.
        within: String,
        /// What there is, in words.
        has: String,
    },
}

/// An object of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    cpus: CpuSet,
    /// The node, for one.
    nodes: NodeSet,
}

impl Objects {
    /// The part of this machine that the objects name.
    pub fn part(&self, machine: &Machine) -> Result<Part, ObjectError> {
        let all = objects(machine);
        let mut named = Part { cpus: CpuSet::new(), nodes: NodeSet::new() };
        for chain in &self.0 {
            for object in part_of_chain(chain, &all)? {
                named.cpus.extend(object.cpus.iter());
                named.nodes.extend(object.nodes.iter());
            }
        }
        let nodes = machine.nodes.iter().filter(|node| !node.cpus.intersection(&named.cpus).is_empty());
        named.nodes.extend(nodes.map(|node| node.id));
        Ok(named)
    }
}

fn part_of_chain(chain: &[Step], all: &BTreeMap<Kind, Vec<Object>>) -> Result<Vec<Object>, ObjectError> {
    let mut outer: Vec<Object> = Vec::new();
    for (index, step) in chain.iter().enumerate() {
        let of_kind: &[Object] = all.get(&step.kind).map_or(&[], Vec::as_slice);
        let groups: Vec<Vec<Object>> = if index == 0 {
            vec![of_kind.to_vec()]
        } else {
            let within = |outer: &Object| {
                let inside = |object: &&Object| !object.cpus.is_empty() && object.cpus.is_subset(&outer.cpus);
                of_kind.iter().filter(inside).cloned().collect()
            };
            outer.iter().map(within).collect()
        };
        let mut found = Vec::new();
        for group in groups {
            let places = step.which.places(group.len()).ok_or_else(|| missing(chain, index, group.len(), all))?;
            found.extend(places.into_iter().filter_map(|place| group.get(place).cloned()));
        }
        outer = found;
    }
    Ok(outer)
}

fn missing(chain: &[Step], index: usize, count: usize, all: &BTreeMap<Kind, Vec<Object>>) -> ObjectError {
    let words = |(kind, count): (Kind, usize)| format!("{kind}:0-{}", count.saturating_sub(1));
    let (within, has) = if index == 0 {
        let counts = all.iter().filter(|(_, objects)| !objects.is_empty());
        let counts: Vec<String> = counts.map(|(kind, objects)| words((*kind, objects.len()))).collect();
        (String::new(), counts.join(", "))
    } else {
        let outer: Vec<String> = chain[..index].iter().map(Step::to_string).collect();
        let has =
            if count == 0 { "none there".to_owned() } else { format!("{} there", words((chain[index].kind, count))) };
        (format!(" in {}", outer.join(".")), has)
    };
    ObjectError::Missing { step: chain[index].to_string(), within, has }
}

impl Which {
    /// The places among `count` objects; `None` if one of them, or every one, is missing.
    fn places(self, count: usize) -> Option<Vec<usize>> {
        let places: Vec<usize> = match self {
            Self::All => (0..count).collect(),
            Self::Even => (0..count).step_by(2).collect(),
            Self::Odd => (1..count).step_by(2).collect(),
            Self::Range(first, last) => {
                let last = last.unwrap_or(count.saturating_sub(1));
                if last >= count || first > last {
                    return None;
                }
                (first..=last).collect()
            }
            Self::Count(first, number) => {
                if first >= count || number > count {
                    return None;
                }
                (first..first + number).map(|place| place % count).collect()
            }
        };
        Some(places).filter(|places| !places.is_empty())
    }
}

/// The objects of every kind, each kind in the order of the machine's parts.
fn objects(machine: &Machine) -> BTreeMap<Kind, Vec<Object>> {
    let plain = |cpus: CpuSet| Object { cpus, nodes: NodeSet::new() };
    let mut all: BTreeMap<Kind, Vec<Object>> = BTreeMap::new();
    let every = machine.nodes.iter().map(|node| node.id).collect();
    all.insert(Kind::Machine, vec![Object { cpus: machine.cpus(), nodes: every }]);
    all.insert(Kind::Package, machine.packages.iter().map(|package| plain(package.cpus.clone())).collect());
    let node = |node: &Node| Object { cpus: node.cpus.clone(), nodes: [node.id].into_iter().collect() };
    all.insert(Kind::Node, machine.nodes.iter().map(node).collect());
    for cache in machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction) {
        let of_level = all.entry(Kind::Cache(u8::MAX - cache.level)).or_default();
        of_level.extend(machine.cache_instances(cache).into_iter().map(plain));
    }
    all.insert(Kind::Core, machine.cores().into_iter().map(plain).collect());
    all.insert(Kind::Pu, machine.cpus().iter().map(|cpu| plain(CpuSet::from_iter([cpu]))).collect());
    let order = order_of_cpus(machine, &all);
    let place = |object: &Object| object.cpus.iter().filter_map(|cpu| order.get(&cpu)).min().copied();
    for of_kind in all.values_mut() {
        // Nodes without CPUs come last, in the order of their numbers.
        of_kind.sort_by_key(|object| (object.cpus.is_empty(), place(object), object.nodes.first()));
    }
    all
}

/// The place of each CPU in the tree of the machine's parts, from the outermost to the innermost.
fn order_of_cpus(machine: &Machine, all: &BTreeMap<Kind, Vec<Object>>) -> BTreeMap<CpuId, usize> {
    let mut keys: BTreeMap<CpuId, Vec<CpuId>> = machine.cpus().iter().map(|cpu| (cpu, Vec::new())).collect();
    for object in all.values().flatten() {
        let Some(first) = object.cpus.first() else { continue };
        object.cpus.iter().for_each(|cpu| keys.entry(cpu).or_default().push(first));
    }
    let mut cpus: Vec<CpuId> = keys.keys().copied().collect();
    cpus.sort_by_key(|cpu| keys[cpu].clone());
    cpus.into_iter().enumerate().map(|(place, cpu)| (cpu, place)).collect()
}

impl FromStr for Objects {
    type Err = ObjectError;

    fn from_str(text: &str) -> Result<Self, ObjectError> {
        let chain = |chain: &str| chain.split('.').map(str::parse).collect::<Result<Vec<Step>, _>>();
        Ok(Self(text.split(',').map(chain).collect::<Result<_, _>>()?))
    }
}

impl FromStr for Step {
    type Err = ObjectError;

    fn from_str(text: &str) -> Result<Self, ObjectError> {
        let (kind, which) = text.split_once(':').ok_or_else(|| ObjectError::Which(text.to_owned()))?;
        Ok(Self { kind: kind.parse()?, which: which.parse()? })
    }
}

impl FromStr for Kind {
    type Err = ObjectError;

    fn from_str(text: &str) -> Result<Self, ObjectError> {
        let lower = text.to_ascii_lowercase();
        let level = || {
            let level = lower.strip_prefix('l')?;
            let level = level.strip_suffix("cache").unwrap_or(level);
            let level = level.strip_suffix('d').unwrap_or(level).parse::<u8>().ok()?;
            (1..=9).contains(&level).then_some(Self::Cache(u8::MAX - level))
        };
        Ok(match lower.as_str() {
            "machine" => Self::Machine,
            "package" | "socket" => Self::Package,
            "node" | "numanode" => Self::Node,
            "core" => Self::Core,
            "pu" => Self::Pu,
            _ => return level().ok_or_else(|| ObjectError::Kind(text.to_owned())),
        })
    }
}

impl FromStr for Which {
    type Err = ObjectError;

    fn from_str(text: &str) -> Result<Self, ObjectError> {
        // As for CPUs: a larger number is a mistake and must not take memory.
        let number = |text: &str| {
            let number = text.parse::<u32>().ok().filter(|&number| number <= MAX_ID && !text.starts_with('+'));
            number.map(|number| number as usize)
        };
        let range = || {
            if let Some((first, count)) = text.split_once(':') {
                return Some(Self::Count(number(first)?, number(count)?));
            }
            let Some((first, last)) = text.split_once('-') else {
                return number(text).map(|one| Self::Range(one, Some(one)));
            };
            let last = if last.is_empty() { None } else { Some(number(last)?) };
            Some(Self::Range(number(first)?, last))
        };
        match text {
            "all" => Ok(Self::All),
            "odd" => Ok(Self::Odd),
            "even" => Ok(Self::Even),
            _ => range().ok_or_else(|| ObjectError::Which(text.to_owned())),
        }
    }
}

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chain = |chain: &Vec<Step>| chain.iter().map(Step::to_string).collect::<Vec<_>>().join(".");
        f.write_str(&self.0.iter().map(chain).collect::<Vec<_>>().join(","))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.kind)?;
        match self.which {
            Which::All => f.write_str("all"),
            Which::Odd => f.write_str("odd"),
            Which::Even => f.write_str("even"),
            Which::Range(first, None) => write!(f, "{first}-"),
            Which::Range(first, Some(last)) if first == last => write!(f, "{first}"),
            Which::Range(first, Some(last)) => write!(f, "{first}-{last}"),
            Which::Count(first, count) => write!(f, "{first}:{count}"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.write_str("machine"),
            Self::Package => f.write_str("package"),
            Self::Node => f.write_str("node"),
            Self::Cache(depth) => write!(f, "l{}", u8::MAX - depth),
            Self::Core => f.write_str("core"),
            Self::Pu => f.write_str("pu"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// SMT siblings are far apart in the kernel's numbers, as on most servers: 0 and 4 are one core.
    fn machine() -> Machine {
        let mut machine = Machine::from_synthetic("package:2 l3:1(8M) core:2 pu:2").unwrap();
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        let sets = |texts: &[&str]| texts.iter().map(|text| set(text)).collect::<Vec<_>>();
        machine.smt_cores = sets(&["0,4", "1,5", "2,6", "3,7"]);
        machine.packages[0].cpus = set("0-1,4-5");
        machine.packages[1].cpus = set("2-3,6-7");
        for cache in &mut machine.caches {
            cache.shared_by = crate::description::Sharing::Cpus(sets(&["0-1,4-5", "2-3,6-7"]));
        }
        machine
    }

    fn cpus(text: &str) -> Result<String, String> {
        let objects: Objects = text.parse().map_err(|why: ObjectError| why.to_string())?;
        objects.part(&machine()).map(|part| part.cpus.to_string()).map_err(|why| why.to_string())
    }

    #[test]
    fn objects_count_in_the_order_of_the_machine() {
        for (text, named) in [
            ("l3:0", "0-1,4-5"),
            ("package:1.core:1", "3,7"),
            ("package:all.core:0", "0,2,4,6"),
            ("pu:1", "4"),
            ("core:1.pu:1", "5"),
            ("core:2-", "2-3,6-7"),
            ("core:3:2", "0,3-4,7"),
            ("core:odd,pu:0", "0-1,3,5,7"),
            ("socket:even.L3Cache:0", "0-1,4-5"),
            ("machine:0", "0-7"),
        ] {
            assert_eq!(cpus(text), Ok(named.to_owned()), "{text}");
        }
    }

    #[test]
    fn an_error_says_what_there_is() {
        for (text, says) in [
            ("l3:2", "no l3:2: this machine has machine:0-0, package:0-1, node:0-0, l3:0-1, core:0-3, pu:0-7"),
            ("package:1.core:2", "no core:2 in package:1: this machine has core:0-1 there"),
            ("core:0.package:0", "no package:0 in core:0: this machine has none there"),
            ("core:3-1", "no core:3-1: this machine has"),
            ("die:0", "`die` is neither a kind of objects"),
            ("core:x", "`x` does not say which: write N, N-M"),
            ("core:0.2", "`2` does not say which"),
            ("core:4294967295", "does not say which"),
        ] {
            let said = cpus(text).unwrap_err();
            assert!(said.starts_with(says) || said.contains(says), "{text}: {said}");
        }
    }

    #[test]
    fn nodes_without_cpus_are_the_last() {
        let machine = crate::presets::find("epyc-9224x2-cxl").unwrap();
        let part = |text: &str| text.parse::<Objects>().unwrap().part(&machine).unwrap();
        let last = machine.nodes.iter().find(|node| node.cpus.is_empty()).unwrap();
        let with_cpus = machine.nodes.iter().filter(|node| !node.cpus.is_empty()).count();
        let named = part(&format!("node:{with_cpus}"));
        assert!(named.cpus.is_empty() && named.nodes.contains(last.id) && named.nodes.len() == 1);
        assert_eq!(part("package:0").nodes.len(), with_cpus / 2);
    }

    proptest! {
        #[test]
        fn any_text_names_cpus_of_the_machine(text in "((package|node|l3|core|pu):([0-9]{1,3}[-:]?[0-9]?|all|odd|even)[.,]?){1,3}|.*") {
            if let Ok(objects) = text.parse::<Objects>() {
                let machine = machine();
                if let Ok(part) = objects.part(&machine) {
                    prop_assert!(part.cpus.is_subset(&machine.cpus()) && !part.nodes.is_empty());
                }
            }
        }
    }
}
