//! Control hardware: ways of caches and limits of bandwidth. What grants need of it is decided here, and becomes settings
//! like the others, which are journalled and undone.

use super::idle_cpus;
use super::lab_control::{LabControl, LabWord, limit_text, ways_text};
use machine::{CpuSet, NodeId, chain};
use model::ControlHardware;
use reserve::{Facts, Grant, Ledger, Throttle, Ways};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The class of all CPUs that no grant has.
const REST: usize = 0;
/// The class of grants that share the rest's ways, but not its limits.
const UNLIMITED: usize = 1;

/// The control hardware of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Hardware(Interface);

/// How it is reached.
#[derive(Clone, Copy, Debug)]
enum Interface {
    /// By control words of the lab.
    Lab(&'static LabControl),
}

/// Why the hardware cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HardwareError {
    /// Its registers cannot be read.
    #[error("cannot use the control words of the lab: {0}")]
    Unreadable(String),
    /// The limit that the forecast leaves to each CPU is finer than the hardware's.
    #[error(
        "the forecast leaves {left} bytes/s to each CPU of node {node} that no grant has, and the hardware's least limit is {least}: ask for more with --most-slowdown, or for --throttle duty"
    )]
    TooFine {
        /// The guarded node.
        node: NodeId,
        /// What is left, bytes/s.
        left: u64,
        /// The least limit, bytes/s.
        least: u64,
    },
    /// No class is left.
    #[error("all {0} classes of CPUs are in use")]
    NoClass(u8),
}

impl Hardware {
    /// That of this machine, if it has some that can be used. Needs root.
    pub fn find() -> Result<Option<Self>, HardwareError> {
        match LabControl::find() {
            Ok(found) => Ok(found.map(|device| Self(Interface::Lab(device)))),
            Err(error) => Err(HardwareError::Unreadable(chain(&error))),
        }
    }

    fn words(self) -> &'static ControlHardware {
        let Interface::Lab(device) = self.0;
        &device.hardware
    }

    /// What grants may have of the last-level caches. One class is for those that share the rest's ways.
    pub fn ways(self) -> Option<Ways> {
        let ways = self.words().ways?;
        let (all, classes) = (ways.all.count_ones(), u32::from(self.words().classes).saturating_sub(1));
        Some(Ways { all, least: ways.least, classes })
    }

    /// Whether it limits bandwidth.
    pub fn has_limits(self) -> bool {
        self.words().step_bytes_per_s.is_some()
    }

    /// The settings that the grants of a ledger need, with the classes of those that this process carries out.
    pub(crate) fn settings(self, ledger: &Ledger, own: &[Grant]) -> Result<BTreeMap<PathBuf, String>, HardwareError> {
        let Interface::Lab(device) = self.0;
        let now = device.classes().map_err(|error| HardwareError::Unreadable(chain(&error)))?;
        let words = Wanted::new(&device.hardware, ledger).words(own, &now)?;
        Ok(words.into_iter().map(|(word, text)| (word.path(), text)).collect())
    }
}

/// What the grants of a ledger need.
struct Wanted<'a> {
    hardware: &'a ControlHardware,
    grants: Vec<&'a Grant>,
    facts: &'a Facts,
    /// What the rest may draw from guarded controllers, if the hardware limits it.
    rest: BTreeMap<NodeId, f64>,
}

impl<'a> Wanted<'a> {
    fn new(hardware: &'a ControlHardware, ledger: &'a Ledger) -> Self {
        let is_limited = ledger.facts.control.throttle == Throttle::Hardware;
        let rest = if is_limited { ledger.forecast().rest_limit } else { BTreeMap::new() };
        Self { hardware, grants: ledger.grants().collect(), facts: &ledger.facts, rest }
    }

    fn words(&self, own: &[Grant], now: &[u64]) -> Result<BTreeMap<LabWord, String>, HardwareError> {
        let mut words = BTreeMap::new();
        for (cache, taken) in self.taken() {
            let left = self.hardware.ways.map_or(0, |ways| ways.all & !taken);
            for class in [REST, UNLIMITED] {
                words.insert(LabWord::Ways { class, cache }, ways_text(left));
            }
        }
        let limits = self.limits()?;
        for (&cache, &limit) in &limits {
            words.insert(LabWord::Limit { class: REST, cache }, limit_text(limit));
        }
        for (grant, class) in self.classes(own, now)? {
            if let Some(cache) = self.cache(grant).filter(|_| grant.ways != 0) {
                words.insert(LabWord::Ways { class, cache }, ways_text(grant.ways));
            }
            let is_limited = |cpu: usize| self.hardware.cache_of(cpu).is_some_and(|cache| limits.contains_key(&cache));
            for cpu in grant.cpus.iter().map(|cpu| cpu.0 as usize).filter(|&cpu| class != UNLIMITED || is_limited(cpu))
            {
                words.insert(LabWord::Class { cpu }, class.to_string());
            }
        }
        Ok(words)
    }

    /// The L3 cache that a grant holds, whole or in part.
    fn cache(&self, grant: &Grant) -> Option<usize> {
        let cpus = self.facts.caches.get(grant.cache?)?;
        self.hardware.caches.iter().position(|cache| cache == cpus)
    }

    /// Ways that are grants', by cache.
    fn taken(&self) -> BTreeMap<usize, u64> {
        let mut taken = BTreeMap::new();
        for grant in self.grants.iter().filter(|grant| grant.ways != 0) {
            if let Some(cache) = self.cache(grant) {
                *taken.entry(cache).or_default() |= grant.ways;
            }
        }
        taken
    }

    /// The limit of each CPU of the rest, bytes/s, by its L3 cache: CPUs of a guarded node share what the rest may draw.
    fn limits(&self) -> Result<BTreeMap<usize, u64>, HardwareError> {
        let mut limits = BTreeMap::new();
        let Some(least) = self.hardware.step_bytes_per_s else { return Ok(limits) };
        let idle: Vec<CpuSet> = self.grants.iter().map(|grant| idle_cpus(grant, self.facts)).collect();
        let is_granted =
            |cpu| self.grants.iter().zip(&idle).any(|(grant, idle)| grant.has_cpu(cpu) || idle.contains(cpu));
        for (&node, &bytes_per_s) in &self.rest {
            let cpus = self.facts.machine.node(node).map(|node| node.cpus.clone()).unwrap_or_default();
            let cpus: CpuSet = cpus.iter().filter(|&cpu| !is_granted(cpu)).collect();
            let left = (bytes_per_s / cpus.len().max(1) as f64) as u64;
            if left < least && !cpus.is_empty() {
                return Err(HardwareError::TooFine { node, left, least });
            }
            for cache in cpus.iter().filter_map(|cpu| self.hardware.cache_of(cpu.0 as usize)) {
                let limit = limits.entry(cache).or_insert(u64::MAX);
                *limit = (*limit).min(left / least * least);
            }
        }
        Ok(limits)
    }

    /// The classes of this process's grants: those with ways of their own keep the one that they have, or get one that no
    /// other grant has.
    fn classes<'b>(&self, own: &'b [Grant], now: &[u64]) -> Result<Vec<(&'b Grant, usize)>, HardwareError> {
        let has = |grant: &Grant| {
            let class = *now.get(grant.cpus.first()?.0 as usize)? as usize;
            (grant.ways != 0 && class > UNLIMITED).then_some(class)
        };
        let mut used: BTreeSet<usize> = self.grants.iter().filter_map(|grant| has(grant)).collect();
        let mut classes = Vec::new();
        for grant in own.iter().filter(|grant| !grant.cpus.is_empty()) {
            let class = if grant.ways == 0 {
                UNLIMITED
            } else if let Some(class) = has(grant) {
                class
            } else {
                let free = (UNLIMITED + 1..self.hardware.classes.into()).find(|class| !used.contains(class));
                free.ok_or(HardwareError::NoClass(self.hardware.classes))?
            };
            used.insert(class);
            classes.push((grant, class));
        }
        Ok(classes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;
    use reserve::{Asker, CacheIsolation, Control, Isolation, Memory, ReadWrite, Request, Rules};
    use std::sync::Arc;

    fn machine() -> machine::Machine {
        presets::find("magny-cours-4p-control").unwrap()
    }

    fn ledger(throttle: Option<Throttle>) -> Ledger {
        let control = Control::of(&machine(), throttle);
        Ledger::new(Arc::new(Facts::new(machine(), control)), Rules::default())
    }

    fn on_node_0(cache: CacheIsolation, controller: bool) -> Request {
        Request {
            isolate: Isolation { core: true, cache, controller, route: false },
            memory: Memory::Node(NodeId(0)),
            cores: reserve::Cores::These("0".parse().unwrap()),
            bandwidth: Some(ReadWrite { read: 5.9e9, write: 0.0 }),
            ..Request::default()
        }
    }

    /// The words, as texts.
    fn words(ledger: &Ledger, now: &[u64]) -> Vec<String> {
        let hardware = ControlHardware::of(&machine()).unwrap();
        let own: Vec<Grant> = ledger.grants().cloned().collect();
        let words = Wanted::new(&hardware, ledger).words(&own, now).unwrap();
        words.into_iter().map(|(word, text)| format!("{} {text}", word.path().display())).collect()
    }

    #[test]
    fn ways_are_taken_from_the_rest_and_the_rest_is_limited() {
        let empty = ledger(None);
        assert_eq!(words(&empty, &[0; 48]), [""; 0]);
        let admit = |ledger: &Ledger, request| ledger.admit(&[request], &Asker::default()).unwrap().after;
        let guarded = admit(&empty, on_node_0(CacheIsolation::Shared, true));
        // 4.25 GB/s for five CPUs, in steps of 1/8 GB/s.
        assert_eq!(words(&guarded, &[0; 48]), ["/lab-control/cpu-0/class 1", "/lab-control/class-0/limit-0 750000000"]);
        let both = admit(&empty, on_node_0(CacheIsolation::Ways(20), true));
        let of_both = [
            "/lab-control/cpu-0/class 2",
            "/lab-control/class-0/ways-0 0xfffff",
            "/lab-control/class-1/ways-0 0xfffff",
            "/lab-control/class-2/ways-0 0xfffff00000",
            "/lab-control/class-0/limit-0 750000000",
        ];
        assert_eq!(words(&both, &[0; 48]), of_both);
        // It keeps its class, and another one gets the next.
        let mut now = [0; 48];
        now[0] = 3;
        assert!(words(&both, &now).contains(&"/lab-control/cpu-0/class 3".to_owned()));
        let mut other = on_node_0(CacheIsolation::Ways(8), false);
        other.cores = reserve::Cores::These("1".parse().unwrap());
        other.bandwidth = Some(ReadWrite { read: 0.3e9, write: 0.0 });
        let two = words(&admit(&both, other), &now);
        for word in ["cpu-1/class 2", "class-2/ways-0 0xff000", "class-0/ways-0 0xfff"] {
            assert!(two.contains(&format!("/lab-control/{word}")), "{word}: {two:?}");
        }
    }

    #[test]
    fn without_the_hardwares_limits_only_ways_are_set() {
        let ledger = ledger(Some(Throttle::Duty));
        let after = ledger.admit(&[on_node_0(CacheIsolation::Ways(8), true)], &Asker::default()).unwrap().after;
        assert!(words(&after, &[0; 48]).iter().all(|word| !word.contains("limit")));
    }

    #[test]
    fn a_limit_that_the_hardware_lacks_is_refused() {
        let mut machine = machine();
        machine.control.as_mut().unwrap().bandwidth_step_bytes_per_s = Some(2e9);
        let hardware = ControlHardware::of(&machine).unwrap();
        let after = ledger(None).admit(&[on_node_0(CacheIsolation::Shared, true)], &Asker::default()).unwrap().after;
        let refused = Wanted::new(&hardware, &after).words(&[], &[0; 48]).unwrap_err().to_string();
        assert!(refused.contains("each CPU of node 0") && refused.contains("least limit is 2000000000"), "{refused}");
    }
}
