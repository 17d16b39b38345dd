//! Control hardware: ways of caches and limits of bandwidth. What grants need of it is decided here, and becomes settings
//! like the others, which are journalled and undone.

use super::idle_cpus;
use super::lab_control::{LabControl, LabWord, limit_text, ways_text};
use machine::{CpuId, CpuSet, NodeId, NodeSet, chain};
use model::{ControlHardware, Controls};
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
    #[error("{0}: ask for more with --most-slowdown, or for --throttle duty")]
    TooFine(TooFine),
    /// The description of the machine has another cache.
    #[error(
        "{grant} has ways of the last-level cache of CPUs {cpus} by the machine's description, and the hardware has no such level 3 cache: --machine or the agent's configuration names another machine"
    )]
    NoSuchCache {
        /// The grant.
        grant: String,
        /// The CPUs of the cache.
        cpus: CpuSet,
    },
    /// Another process has changed what the rest of the machine has.
    #[error(
        "another process's grant has set {} of the control hardware to {value}, and only one process can change and undo what the rest of the machine has: let an agent make both grants, or use --throttle duty", .word.display()
    )]
    InUse {
        /// The control word.
        word: PathBuf,
        /// Its value.
        value: String,
    },
    /// A limit would be another process's grant's, too.
    #[error(
        "{grant} has CPUs {cpus}, which the limits of the rest would slow, and only its own process can take it out of the rest: let an agent make both grants, or use --throttle duty"
    )]
    Beside {
        /// The other grant.
        grant: String,
        /// Its CPUs.
        cpus: CpuSet,
    },
    /// No class is left.
    #[error("all {0} classes of CPUs are in use")]
    NoClass(u8),
}

/// A limit that is finer than the hardware's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the forecast leaves {left} bytes/s to each CPU of node {node} that no grant has, and the hardware's least limit is {least}"
)]
pub struct TooFine {
    /// The guarded node.
    pub node: NodeId,
    /// What is left, bytes/s.
    pub left: u64,
    /// The least limit, bytes/s.
    pub least: u64,
}

impl TooFine {
    /// The first that is new, or by which still less is left.
    pub(crate) fn worse(before: &[Self], after: &[Self]) -> Option<Self> {
        let had = |fine: &Self| before.iter().any(|had| had.node == fine.node && had.left <= fine.left);
        after.iter().copied().find(|fine| !had(fine))
    }
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

    /// The settings that the grants of a ledger need, with the classes of those that this process carries out. What the
    /// forecast leaves to the rest may be too little for the hardware: the rest then has its least limits.
    pub(crate) fn settings(self, ledger: &Ledger, own: &[Grant]) -> Result<BTreeMap<PathBuf, String>, HardwareError> {
        let Interface::Lab(device) = self.0;
        Ok(by_path(Wanted::new(&device.hardware, ledger).words(own, &now(device)?)?))
    }

    /// The settings that a process needs for its only grant. Fails where another process's grants need others.
    pub(crate) fn settings_alone(
        self,
        ledger: &Ledger,
        grant: &Grant,
    ) -> Result<BTreeMap<PathBuf, String>, HardwareError> {
        let Interface::Lab(device) = self.0;
        Ok(by_path(Wanted::new(&device.hardware, ledger).words_alone(grant, &now(device)?)?))
    }

    /// Where the forecast leaves less to the rest than the hardware's least limit, which the rest then has.
    pub(crate) fn too_fine(self, ledger: &Ledger) -> Vec<TooFine> {
        Wanted::new(self.words(), ledger).limits().1
    }
}

fn now(device: &LabControl) -> Result<Controls, HardwareError> {
    device.controls().map_err(|error| HardwareError::Unreadable(chain(&error)))
}

fn by_path(words: BTreeMap<LabWord, String>) -> BTreeMap<PathBuf, String> {
    words.into_iter().map(|(word, text)| (word.path(), text)).collect()
}

/// What the grants of a ledger need.
struct Wanted<'a> {
    hardware: &'a ControlHardware,
    /// Those with cores of their own. Others run on CPUs of the rest, and have what it has.
    grants: Vec<&'a Grant>,
    facts: &'a Facts,
    /// What the rest may draw from guarded controllers, if the hardware limits it.
    rest: BTreeMap<NodeId, f64>,
}

impl<'a> Wanted<'a> {
    fn new(hardware: &'a ControlHardware, ledger: &'a Ledger) -> Self {
        let is_limited = ledger.facts.control.throttle == Throttle::Hardware;
        let rest = if is_limited { ledger.forecast().rest_limit } else { BTreeMap::new() };
        let grants = ledger.grants().filter(|grant| grant.request.isolate.core).collect();
        Self { hardware, grants, facts: &ledger.facts, rest }
    }

    fn words(&self, own: &[Grant], now: &Controls) -> Result<BTreeMap<LabWord, String>, HardwareError> {
        let mut words = BTreeMap::new();
        for (cache, taken) in self.taken() {
            let left = self.hardware.ways.map_or(0, |ways| ways.all & !taken);
            for class in [REST, UNLIMITED] {
                words.insert(LabWord::Ways { class, cache }, ways_text(left));
            }
        }
        let (limits, _) = self.limits();
        for (&cache, &limit) in &limits {
            words.insert(LabWord::Limit { class: REST, cache }, limit_text(limit));
        }
        for (grant, class) in self.classes(own, &now.classes)? {
            if grant.ways != 0 {
                let cache = self.cache(grant).ok_or_else(|| self.no_such_cache(grant))?;
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

    /// The words of a process's only grant. It changes none of the rest's that another process has changed, because each
    /// undoes its own at its end, in any order.
    fn words_alone(&self, grant: &Grant, now: &Controls) -> Result<BTreeMap<LabWord, String>, HardwareError> {
        if !grant.request.isolate.core {
            return Ok(BTreeMap::new());
        }
        let guarded = if grant.request.isolate.controller { grant.memory.clone() } else { NodeSet::new() };
        if let Some(too_fine) = self.limits().1.into_iter().find(|fine| guarded.contains(fine.node)) {
            return Err(HardwareError::TooFine(too_fine));
        }
        let cpus = guarded.iter().filter_map(|node| self.facts.machine.node(node)).flat_map(|node| node.cpus.iter());
        let limited: BTreeSet<usize> = cpus.filter_map(|cpu| self.hardware.cache_of(cpu.0 as usize)).collect();
        let is_own_limit = |word| matches!(word, LabWord::Limit { cache, .. } if limited.contains(&cache));
        let start = self.hardware.at_start();
        let mut words = self.words(std::slice::from_ref(grant), now)?;
        for (&word, wanted) in &words {
            let is_of_rest = matches!(word, LabWord::Ways { class: REST | UNLIMITED, .. } | LabWord::Limit { .. });
            let changed = word.text(now).filter(|value| is_of_rest && word.text(&start).as_ref() != Some(value));
            if let Some(value) = changed.filter(|value| is_own_limit(word) || value != wanted) {
                return Err(HardwareError::InUse { word: word.path(), value });
            }
        }
        // Another guarded node's limit is its grant's, or that grant does without.
        words.retain(|&word, _| is_own_limit(word) || !matches!(word, LabWord::Limit { .. }));
        let is_limited =
            |cpu: CpuId| self.hardware.cache_of(cpu.0 as usize).is_some_and(|cache| limited.contains(&cache));
        let is_beside = |other: &&&Grant| other.id != grant.id && other.cpus.iter().any(is_limited);
        match self.grants.iter().find(is_beside).filter(|_| !self.rest.is_empty()) {
            Some(other) => Err(HardwareError::Beside { grant: other.title(), cpus: other.cpus.clone() }),
            None => Ok(words),
        }
    }

    fn no_such_cache(&self, grant: &Grant) -> HardwareError {
        let cpus = grant.cache.and_then(|cache| self.facts.caches.get(cache)).cloned().unwrap_or_default();
        HardwareError::NoSuchCache { grant: grant.title(), cpus }
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

    /// The limit of each CPU of the rest, bytes/s, by its L3 cache: CPUs of a guarded node share what the rest may draw. With
    /// the nodes where each of them would have less than the hardware's least limit, which it then has.
    fn limits(&self) -> (BTreeMap<usize, u64>, Vec<TooFine>) {
        let (mut limits, mut too_fine) = (BTreeMap::new(), Vec::new());
        let Some(least) = self.hardware.step_bytes_per_s else { return (limits, too_fine) };
        let idle: Vec<CpuSet> = self.grants.iter().map(|grant| idle_cpus(grant, self.facts)).collect();
        let is_granted =
            |cpu| self.grants.iter().zip(&idle).any(|(grant, idle)| grant.has_cpu(cpu) || idle.contains(cpu));
        for (&node, &bytes_per_s) in &self.rest {
            let cpus = self.facts.machine.node(node).map(|node| node.cpus.clone()).unwrap_or_default();
            let cpus: CpuSet = cpus.iter().filter(|&cpu| !is_granted(cpu)).collect();
            let left = (bytes_per_s / cpus.len().max(1) as f64) as u64;
            if left < least && !cpus.is_empty() {
                too_fine.push(TooFine { node, left, least });
            }
            for cache in cpus.iter().filter_map(|cpu| self.hardware.cache_of(cpu.0 as usize)) {
                let limit = limits.entry(cache).or_insert(u64::MAX);
                *limit = (*limit).min((left / least * least).max(least));
            }
        }
        (limits, too_fine)
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
        for grant in own.iter().filter(|grant| grant.request.isolate.core && !grant.cpus.is_empty()) {
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
        let mut controls = hardware.at_start();
        controls.classes = now.to_vec();
        let words = Wanted::new(&hardware, ledger).words(&own, &controls).unwrap();
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

    fn hardware() -> ControlHardware {
        ControlHardware::of(&machine()).unwrap()
    }

    fn on(cpu: &str, node: u32, isolate: Isolation) -> Request {
        Request {
            isolate,
            memory: Memory::Node(NodeId(node)),
            cores: reserve::Cores::These(cpu.parse().unwrap()),
            bandwidth: Some(ReadWrite { read: 0.3e9, write: 0.0 }),
            ..Request::default()
        }
    }

    const CORE: Isolation = Isolation { core: true, cache: CacheIsolation::Shared, controller: false, route: false };

    #[test]
    fn a_grant_that_shares_its_cpus_has_what_the_rest_has() {
        let guarded = ledger(None).admit(&[on_node_0(CacheIsolation::Shared, true)], &Asker::default()).unwrap().after;
        let shared = guarded.admit(&[on("1", 0, Isolation::default())], &Asker::default()).unwrap().after;
        let words = words(&shared, &[0; 48]);
        assert!(words.iter().any(|word| word.contains("class-0/limit-0")), "{words:?}");
        assert!(words.iter().all(|word| !word.contains("cpu-1/")), "{words:?}");
        let (rest, _) = Wanted::new(&hardware(), &shared).limits();
        let left = shared.forecast().rest_limit[&NodeId(0)] / 5.0;
        assert_eq!(rest[&0], left as u64 / 125_000_000 * 125_000_000);
    }

    /// What a process writes for the last of these grants, where others have written the words of those before, or limit
    /// CPU time.
    fn alone(requests: &[Request], by_hardware: bool) -> Result<Vec<String>, HardwareError> {
        let (hardware, mut ledger) = (hardware(), ledger(None));
        let mut now = hardware.at_start();
        for (index, request) in requests.iter().enumerate() {
            let admitted = ledger.admit(std::slice::from_ref(request), &Asker::default()).unwrap();
            ledger = admitted.after;
            let wanted = Wanted::new(&hardware, &ledger).words_alone(&admitted.grants[0], &now);
            if index + 1 == requests.len() {
                return Ok(wanted?
                    .into_iter()
                    .map(|(word, text)| format!("{} {text}", word.path().display()))
                    .collect());
            }
            for (word, text) in wanted.unwrap().into_iter().filter(|_| by_hardware) {
                word.write(&mut now, &text).unwrap();
            }
        }
        Ok(Vec::new())
    }

    #[test]
    fn a_process_without_an_agent_writes_only_what_it_alone_changes() {
        let guarded = on_node_0(CacheIsolation::Shared, true);
        let own = ["/lab-control/cpu-0/class 1", "/lab-control/class-0/limit-0 750000000"];
        assert_eq!(alone(std::slice::from_ref(&guarded), true).unwrap(), own);
        // Nothing of others' limits: not of this node, whichever ends first, and not of another one.
        assert_eq!(alone(&[guarded.clone(), on("1", 0, Isolation::default())], true).unwrap(), [""; 0]);
        let of_node_1 = alone(&[guarded.clone(), on("6", 1, Isolation { controller: true, ..CORE })], true).unwrap();
        assert!(of_node_1.iter().any(|word| word.contains("class-0/limit-1 ")), "{of_node_1:?}");
        assert!(of_node_1.iter().all(|word| !word.contains("limit-0 ")), "{of_node_1:?}");
        // Nor the limit of a grant whose process limits CPU time.
        let beside = alone(&[guarded.clone(), on("1", 0, CORE)], false).unwrap();
        assert!(beside.iter().all(|word| !word.contains("limit")), "{beside:?}");
        let refused = |requests: &[Request]| alone(requests, true).unwrap_err().to_string();
        for isolate in [CORE, Isolation { controller: true, ..CORE }] {
            let refused = refused(&[guarded.clone(), on("1", 0, isolate)]);
            assert!(
                refused.contains("has set /lab-control/class-0/limit-0 of the control hardware to 750"),
                "{refused}"
            );
        }
        let refused = refused(&[on("1", 0, CORE), guarded]);
        assert!(refused.contains("grant 1 has CPUs 1, which the limits of the rest would slow"), "{refused}");
    }

    #[test]
    fn ways_of_a_cache_that_the_hardware_does_not_have_are_refused() {
        let ledger = ledger(None);
        let after = ledger.admit(&[on_node_0(CacheIsolation::Ways(8), false)], &Asker::default()).unwrap().after;
        let mut other = hardware();
        other.caches = vec!["0-11".parse().unwrap()];
        let own: Vec<Grant> = after.grants().cloned().collect();
        let refused = Wanted::new(&other, &after).words(&own, &other.at_start()).unwrap_err().to_string();
        assert!(refused.starts_with("grant 1 has ways of the last-level cache of CPUs 0-5"), "{refused}");
    }

    #[test]
    fn where_the_hardwares_limits_are_too_coarse_the_rest_has_the_least() {
        let mut machine = machine();
        machine.control.as_mut().unwrap().bandwidth_step_bytes_per_s = Some(2e9);
        let hardware = ControlHardware::of(&machine).unwrap();
        let admitted = ledger(None).admit(&[on_node_0(CacheIsolation::Shared, true)], &Asker::default()).unwrap();
        let wanted = Wanted::new(&hardware, &admitted.after);
        let words = wanted.words(&[], &hardware.at_start()).unwrap();
        assert_eq!(words[&LabWord::Limit { class: REST, cache: 0 }], "2000000000");
        let TooFine { node, least, .. } = wanted.limits().1[0];
        assert_eq!((node, least), (NodeId(0), 2_000_000_000));
        let on = |node, left| TooFine { node: NodeId(node), left, least };
        let had = [on(0, 5), on(1, 5)];
        assert_eq!(TooFine::worse(&had, &[on(0, 5), on(1, 6)]), None);
        assert_eq!(TooFine::worse(&had, &[on(0, 5), on(1, 4)]), Some(on(1, 4)));
        assert_eq!(TooFine::worse(&had, &[on(2, 5)]), Some(on(2, 5)));
        // A new grant is refused.
        let refused = wanted.words_alone(&admitted.grants[0], &hardware.at_start()).unwrap_err().to_string();
        assert!(refused.contains("each CPU of node 0") && refused.contains("least limit is 2000000000"), "{refused}");
    }
}
