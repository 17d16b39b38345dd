//! Pinnings: on which CPUs the threads of a program run, in order, as OpenMP's places.

use crate::{CpuId, CpuSet, Machine, Node, SetError};
use std::fmt;
use std::str::FromStr;

/// A rule that assigns threads to CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pinning {
    /// One thread per core; all cores of the first node, then those of the next.
    Sockorder,
    /// As many threads, which may move within their node.
    Sockets,
    /// One thread per core; the first core of every node, then the second of every node.
    Sequential,
    /// The kernel places threads.
    None,
}

/// All rules with their names.
const NAMES: [(&str, Pinning); 4] = [
    ("sockorder", Pinning::Sockorder),
    ("sockets", Pinning::Sockets),
    ("sequential", Pinning::Sequential),
    ("none", Pinning::None),
];

impl FromStr for Pinning {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text).map(|(_, pinning)| *pinning);
        found.ok_or_else(|| format!("`{text}` is no pinning: these are {}", NAMES.map(|(name, _)| name).join(", ")))
    }
}

impl fmt::Display for Pinning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, pinning)| pinning == self).map_or("", |(name, _)| name);
        f.pad(name)
    }
}

/// Where threads run: sets of CPUs, in the order of the threads. As text, the value of `OMP_PLACES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places(pub Vec<CpuSet>);

impl Pinning {
    /// The places on a machine, of the CPUs that are allowed; `None` where threads are not pinned. Of each core, the
    /// first allowed CPU is used.
    pub fn places(self, machine: &Machine, allowed: &CpuSet) -> Option<Places> {
        let nodes = one_cpu_per_core(machine, allowed);
        let alone = |cpu: CpuId| CpuSet::from_iter([cpu]);
        Some(Places(match self {
            Self::None => return None,
            Self::Sockorder => nodes.into_iter().flatten().map(alone).collect(),
            Self::Sockets => {
                nodes.into_iter().filter(|cpus| !cpus.is_empty()).map(|cpus| cpus.into_iter().collect()).collect()
            }
            Self::Sequential => {
                let most = nodes.iter().map(Vec::len).max().unwrap_or(0);
                let nodes = &nodes;
                let turn = |turn: usize| nodes.iter().filter_map(move |cpus| cpus.get(turn).copied());
                (0..most).flat_map(turn).map(alone).collect()
            }
        }))
    }
}

/// The first allowed CPU of each core, node by node.
fn one_cpu_per_core(machine: &Machine, allowed: &CpuSet) -> Vec<Vec<CpuId>> {
    let first = |core: &CpuSet| core.intersection(allowed).first();
    let cores: Vec<CpuId> = machine.cores().iter().filter_map(first).collect();
    let of_node = |node: &Node| cores.iter().copied().filter(|cpu| node.cpus.contains(*cpu)).collect();
    machine.nodes.iter().map(of_node).collect()
}

impl Places {
    /// Number of CPUs in all places.
    pub fn cpus(&self) -> usize {
        self.0.iter().map(CpuSet::len).sum()
    }

    /// The value of `GOMP_CPU_AFFINITY`, an ordered list of CPUs; `None` where a thread has several.
    pub fn gomp_cpu_affinity(&self) -> Option<String> {
        let one = |place: &CpuSet| place.first().filter(|_| place.len() == 1).map(|cpu| cpu.to_string());
        Some(self.0.iter().map(one).collect::<Option<Vec<_>>>()?.join(" "))
    }

    /// The place of one of `threads` threads: in turn where there are enough places, and otherwise the same number of
    /// successive threads in each, as `OMP_PROC_BIND=close` has it.
    pub fn of_thread(&self, thread: usize, threads: usize) -> Option<&CpuSet> {
        let places = self.0.len();
        self.0.get(if threads <= places { thread } else { thread * places / threads })
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = |place: &CpuSet| place.iter().map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",");
        let places: Vec<String> = self.0.iter().map(|place| format!("{{{}}}", ids(place))).collect();
        f.write_str(&places.join(","))
    }
}

/// Why a text is no list of places.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacesError {
    /// It is neither explicit places nor a list of CPUs.
    #[error(
        "`{0}` is no list of places such as {{0}},{{4}} or {{0-3}},{{4-7}}; abstract names and intervals are not read"
    )]
    Grammar(String),
    /// A set is wrong.
    #[error("`{text}`")]
    Set {
        /// The set.
        text: String,
        /// What is wrong with it.
        source: SetError,
    },
    /// A place has no CPU.
    #[error("`{0}` has a place without a CPU")]
    Empty(String),
}

/// `{0},{4}`: explicit places of OpenMP; or `0,4,1-3`: one place for each CPU, in this order.
impl FromStr for Places {
    type Err = PlacesError;

    fn from_str(text: &str) -> Result<Self, PlacesError> {
        let set = |part: &str| {
            part.trim().parse::<CpuSet>().map_err(|source| PlacesError::Set { text: part.trim().to_owned(), source })
        };
        let grammar = || PlacesError::Grammar(text.to_owned());
        let mut places = Vec::new();
        if text.contains('{') {
            let mut rest = text.trim();
            loop {
                let inside = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
                let (inside, after) = inside.ok_or_else(grammar)?;
                places.push(set(inside)?);
                rest = match after.trim_start() {
                    "" => break,
                    more => more.strip_prefix(',').ok_or_else(grammar)?.trim_start(),
                };
            }
        } else {
            for part in text.split(',') {
                places.extend(set(part)?.iter().map(|cpu| CpuSet::from_iter([cpu])));
            }
        }
        if places.is_empty() || places.iter().any(CpuSet::is_empty) {
            return Err(PlacesError::Empty(text.to_owned()));
        }
        Ok(Self(places))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;
    use proptest::prelude::*;

    fn places(pinning: &str, machine: &Machine) -> String {
        let places = pinning.parse::<Pinning>().unwrap().places(machine, &machine.cpus());
        places.map_or_else(String::new, |places| places.to_string())
    }

    /// T15 (Gachod 2024, 4.1): node `i` of four has the cores `i` and `i + 4`.
    #[test]
    fn pinnings_are_those_of_the_study() {
        let mut machine = presets::find("small-4x2").unwrap();
        for (index, node) in (0..).zip(&mut machine.nodes) {
            node.cpus = [CpuId(index), CpuId(index + 4)].into_iter().collect();
        }
        assert_eq!(places("sockorder", &machine), "{0},{4},{1},{5},{2},{6},{3},{7}");
        assert_eq!(places("sequential", &machine), "{0},{1},{2},{3},{4},{5},{6},{7}");
        assert_eq!(places("sockets", &machine), "{0,4},{1,5},{2,6},{3,7}");
        assert_eq!(places("none", &machine), "");
        let sockorder = Pinning::Sockorder.places(&machine, &machine.cpus()).unwrap();
        assert_eq!(sockorder.gomp_cpu_affinity().unwrap(), "0 4 1 5 2 6 3 7");
        let sockets = Pinning::Sockets.places(&machine, &machine.cpus()).unwrap();
        assert_eq!((sockets.gomp_cpu_affinity(), sockets.cpus()), (None, 8));
    }

    #[test]
    fn only_allowed_cpus_of_different_cores_are_used() {
        let mut machine = presets::find("small-4x2").unwrap();
        assert_eq!(places("sequential", &machine), "{0},{2},{4},{6},{1},{3},{5},{7}");
        machine.smt_cores = vec!["0-1".parse().unwrap(), "2-3".parse().unwrap()];
        let allowed = "1-5".parse().unwrap();
        let of = |pinning: Pinning| pinning.places(&machine, &allowed).unwrap().to_string();
        assert_eq!(of(Pinning::Sequential), "{1},{2},{4},{5}");
        assert_eq!(of(Pinning::Sockets), "{1},{2},{4,5}");
    }

    #[test]
    fn threads_beyond_the_places_share_them_in_blocks() {
        let places: &Places = &"{0,1},{2,3}".parse().unwrap();
        let of =
            |threads| (0..threads).map(move |thread| places.of_thread(thread, threads).unwrap().first().unwrap().0);
        assert_eq!(of(4).collect::<Vec<_>>(), [0, 0, 2, 2]);
        assert_eq!(of(2).collect::<Vec<_>>(), [0, 2]);
        assert_eq!("4,0,2-3".parse::<Places>().unwrap().to_string(), "{4},{0},{2},{3}");
    }

    #[test]
    fn what_is_no_list_of_places_is_refused() {
        for text in ["", "{", "{0}{1}", "{0},", "{}", "sockets", "{0}:4", "{0:4}", "{0},1", ","] {
            assert!(text.parse::<Places>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn places_are_read_as_written(sets in prop::collection::vec(prop::collection::btree_set(0..512_u32, 1..5), 1..9)) {
            let places = Places(sets.into_iter().map(|set| set.into_iter().map(CpuId).collect()).collect());
            prop_assert_eq!(places.to_string().parse(), Ok(places));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            let _ = text.parse::<Places>();
        }
    }
}
