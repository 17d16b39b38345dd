//! Control hardware: ways of caches and limits of bandwidth. What grants need of it is decided here, and becomes settings
//! like the others, which are journalled and undone.

use super::control_word::{ControlWord, Interface, limit_text, ways_text};
use super::devices::device;
use super::idle_cpus;
use super::limit_loop::Corrections;
use super::offer::{ControlDevice, Offer, REST, Share, UNLIMITED, Words, longest_run};
use machine::{CpuId, CpuSet, NodeId, NodeSet, chain};
use reserve::{Facts, Grant, Ledger, Resource, Throttle, Ways};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::Instant;

/// The control hardware of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Hardware(&'static dyn ControlDevice);

/// Why the hardware cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HardwareError {
    /// Its settings cannot be read.
    #[error("cannot read the settings of the control hardware: {0}")]
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
    NoClass(u32),
    /// Another program has changed the hardware's settings.
    #[error("{0}")]
    InTheWay(String),
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
        // Where it is mounted, the lab's kernel gives CPUs the classes of resctrl at each change of threads.
        let found = device(Interface::Resctrl).and_then(|found| Ok(found.or(device(Interface::Lab)?)));
        found.map(|found| found.map(Self)).map_err(unreadable)
    }

    /// What the kernel's resctrl offers on this machine, which needs no privileges.
    pub fn of_kernel() -> Option<Self> {
        device(Interface::Resctrl).ok().flatten().map(Self)
    }

    /// What grants may have of the last-level caches. One class is for those that share the rest's ways.
    pub fn ways(self) -> Option<Ways> {
        let ways = self.0.offer().ways?;
        let others = self.0.others_classes().unwrap_or(0);
        let classes = self.0.offer().classes.saturating_sub(1).saturating_sub(others);
        Some(Ways { all: ways.all.count_ones(), least: ways.least, classes })
    }

    /// Whether it limits bandwidth.
    pub fn has_limits(self) -> bool {
        self.0.offer().limits.is_some()
    }

    /// The settings that the grants of a ledger need, with the classes of those that this process carries out. What the
    /// forecast leaves to the rest may be too little for the hardware: the rest then has its least limits.
    pub(crate) fn settings(self, ledger: &Ledger, own: &[Grant]) -> Result<BTreeMap<PathBuf, String>, HardwareError> {
        let now = self.0.values().map_err(unreadable)?;
        Ok(self.by_path(Wanted::new(self.0.offer(), ledger).words(own, &now)?))
    }

    /// The settings that a process needs for its only grant. Fails where another process's grants need others.
    pub(crate) fn settings_alone(
        self,
        ledger: &Ledger,
        grant: &Grant,
    ) -> Result<BTreeMap<PathBuf, String>, HardwareError> {
        let mut before = ledger.clone();
        before.release(grant.id);
        self.check(&before, ledger)?;
        let now = self.0.values().map_err(unreadable)?;
        let words = Wanted::new(self.0.offer(), ledger).words_alone(grant, &now, self.0.interface())?;
        Ok(self.by_path(words))
    }

    /// Whether another program has changed what new grants of a ledger need.
    pub(crate) fn check(self, before: &Ledger, after: &Ledger) -> Result<(), HardwareError> {
        let new = || after.grants().filter(|grant| before.grant(grant.id).is_none());
        let is_limited =
            || after.facts.control.throttle == Throttle::Hardware && !after.forecast().rest_limit.is_empty();
        if new().all(|grant| grant.ways == 0) && !is_limited() {
            return Ok(());
        }
        let known: CpuSet = controlled_cpus(before.grants()).collect();
        let wanted: CpuSet = controlled_cpus(new()).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let found = self.0.in_the_way(&known, &wanted).map_err(unreadable)?;
        found.map_or(Ok(()), |why| Err(HardwareError::InTheWay(why)))
    }

    /// Where the forecast leaves less to the rest than the hardware's least limit, which the rest then has.
    pub(crate) fn too_fine(self, ledger: &Ledger) -> Vec<TooFine> {
        Wanted::new(self.0.offer(), ledger).limits().1
    }

    /// What the closed loop sets, where limits are in percent: the next value of each that changes.
    pub(crate) fn correct(
        self,
        ledger: &Ledger,
        corrections: &mut Corrections,
        now: Instant,
    ) -> Result<BTreeMap<PathBuf, String>, HardwareError> {
        let Some((least, step)) = self.0.offer().corrected().filter(|_| corrections.is_time(now)) else {
            return Ok(BTreeMap::new());
        };
        let wanted = Wanted::new(self.0.offer(), ledger).limits().0;
        if wanted.is_empty() {
            *corrections = Corrections::default();
            return Ok(BTreeMap::new());
        }
        let values = self.0.values().map_err(unreadable)?;
        let next = |(cache, share): (usize, Share)| {
            let word = ControlWord::Limit { class: REST, cache };
            let percent = word.parse(values.get(&word)?).map(|percent| if percent == 0 { 100 } else { percent })?;
            let bytes_per_s = corrections.rate(cache, self.0.rest_bytes(cache), now)?;
            let next = corrections.next(cache, percent, bytes_per_s / share.bytes_per_s(), least, step);
            (next != percent).then(|| (word, limit_text(if next < 100 { next } else { 0 })))
        };
        Ok(self.by_path(wanted.into_iter().filter_map(next).collect()))
    }

    fn by_path(self, words: Words) -> BTreeMap<PathBuf, String> {
        words.into_iter().map(|(word, text)| (word.path(self.0.interface()), text)).collect()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreadable(error: io::Error) -> HardwareError {
    HardwareError::Unreadable(chain(&error))
}

/// The CPUs that have the classes of grants: also siblings that idle, because processors limit cores, by the stricter
/// limit of their CPUs.
fn controlled_cpus<'a>(grants: impl Iterator<Item = &'a Grant>) -> impl Iterator<Item = CpuId> {
    grants
        .filter(|grant| grant.request.isolate.core)
        .flat_map(|grant| grant.cpus.iter().chain(grant.idle_siblings.iter()))
}

/// What the grants of a ledger need.
struct Wanted<'a> {
    offer: &'a Offer,
    /// Those with cores of their own. Others run on CPUs of the rest, and have what it has.
    grants: Vec<&'a Grant>,
    facts: &'a Facts,
    /// What the rest may draw from guarded controllers, if the hardware limits it.
    rest: BTreeMap<NodeId, f64>,
}

impl<'a> Wanted<'a> {
    fn new(offer: &'a Offer, ledger: &'a Ledger) -> Self {
        let is_limited = ledger.facts.control.throttle == Throttle::Hardware;
        let rest = if is_limited { ledger.forecast().rest_limit } else { BTreeMap::new() };
        let grants = ledger.grants().filter(|grant| grant.request.isolate.core).collect();
        Self { offer, grants, facts: &ledger.facts, rest }
    }

    fn words(&self, own: &[Grant], now: &Words) -> Result<Words, HardwareError> {
        let mut words = BTreeMap::new();
        for (cache, taken) in self.taken() {
            let left = self.offer.ways.map_or(0, |ways| {
                let left = ways.all & !taken;
                if ways.may_have_gaps { left } else { longest_run(left) }
            });
            for class in [REST, UNLIMITED] {
                words.insert(ControlWord::Ways { class, cache }, ways_text(left));
            }
        }
        let (limits, _) = self.limits();
        for (&cache, share) in &limits {
            let word = ControlWord::Limit { class: REST, cache };
            words.insert(word, self.limit(share, now.get(&word).and_then(|text| word.parse(text))));
        }
        for (grant, class) in self.classes(own, now)? {
            if grant.ways != 0 {
                let cache = self.cache(grant).ok_or_else(|| self.no_such_cache(grant))?;
                words.insert(ControlWord::Ways { class, cache }, ways_text(grant.ways));
            }
            let is_limited = |cpu: usize| self.offer.cache_of(cpu).is_some_and(|cache| limits.contains_key(&cache));
            let cpus = controlled_cpus([grant].into_iter()).map(|cpu| cpu.0 as usize);
            for cpu in cpus.filter(|&cpu| class != UNLIMITED || is_limited(cpu)) {
                words.insert(ControlWord::Class { cpu }, class.to_string());
                // Another tool may have limited the class.
                let limit = self.offer.cache_of(cpu).map(|cache| ControlWord::Limit { class, cache });
                let limit = limit.filter(|word| now.get(word).and_then(|text| word.parse(text)).unwrap_or(0) != 0);
                words.extend(limit.map(|word| (word, limit_text(0))));
            }
        }
        Ok(words)
    }

    /// The text of the limit for a share. One that the closed loop has made stricter stays.
    fn limit(&self, share: &Share, now: Option<u64>) -> String {
        let limit = self.offer.limits.map_or(0, |unit| unit.limit(share));
        let stricter = now.filter(|&now| now != 0 && (limit == 0 || now < limit) && self.offer.corrected().is_some());
        limit_text(stricter.unwrap_or(limit))
    }

    /// The words of a process's only grant. It changes none of the rest's that another process has changed, because each
    /// undoes its own at its end, in any order.
    fn words_alone(&self, grant: &Grant, now: &Words, interface: Interface) -> Result<Words, HardwareError> {
        if !grant.request.isolate.core {
            return Ok(BTreeMap::new());
        }
        let guarded = if grant.request.isolate.controller { grant.memory.clone() } else { NodeSet::new() };
        if let Some(too_fine) = self.limits().1.into_iter().find(|fine| guarded.contains(fine.node)) {
            return Err(HardwareError::TooFine(too_fine));
        }
        let cpus = guarded.iter().filter_map(|node| self.facts.machine.node(node)).flat_map(|node| node.cpus.iter());
        let limited: BTreeSet<usize> = cpus.filter_map(|cpu| self.offer.cache_of(cpu.0 as usize)).collect();
        let is_own_limit = |word| matches!(word, ControlWord::Limit { cache, .. } if limited.contains(&cache));
        let mut words = self.words(std::slice::from_ref(grant), now)?;
        for (&word, wanted) in &words {
            let is_of_rest = matches!(
                word,
                ControlWord::Ways { class: REST | UNLIMITED, .. } | ControlWord::Limit { class: REST, .. }
            );
            let start = word.at_start(self.offer);
            let changed = now.get(&word).filter(|value| is_of_rest && start.as_ref() != Some(*value));
            if let Some(value) = changed.filter(|&value| is_own_limit(word) || value != wanted) {
                return Err(HardwareError::InUse { word: word.path(interface), value: value.clone() });
            }
        }
        // Another guarded node's limit is its grant's, or that grant does without.
        words.retain(|&word, _| is_own_limit(word) || !matches!(word, ControlWord::Limit { .. }));
        let is_limited = |cpu: CpuId| self.offer.cache_of(cpu.0 as usize).is_some_and(|cache| limited.contains(&cache));
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
        self.offer.caches.iter().position(|cache| cache == cpus)
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

    /// What the rest may draw through each L3 cache: CPUs of a guarded node share what it may draw from there. With the
    /// nodes where each of them would have less than the hardware's least limit, which it then has.
    fn limits(&self) -> (BTreeMap<usize, Share>, Vec<TooFine>) {
        let (mut limits, mut too_fine) = (BTreeMap::<usize, Share>::new(), Vec::new());
        let Some(unit) = self.offer.limits else { return (limits, too_fine) };
        let idle: Vec<CpuSet> = self.grants.iter().map(|grant| idle_cpus(grant, self.facts)).collect();
        let is_granted =
            |cpu| self.grants.iter().zip(&idle).any(|(grant, idle)| grant.has_cpu(cpu) || idle.contains(cpu));
        for (&node, &bytes_per_s) in &self.rest {
            let cpus = self.facts.machine.node(node).map(|node| node.cpus.clone()).unwrap_or_default();
            let cpus: CpuSet = cpus.iter().filter(|&cpu| !is_granted(cpu)).collect();
            let each_bytes_per_s = bytes_per_s / cpus.len().max(1) as f64;
            let capacity = self.facts.capacity(Resource::Controller(node)).map_or(f64::INFINITY, |both| both.read);
            let of_node = Share {
                each_bytes_per_s,
                cpus: 0,
                core_bytes_per_s: self.facts.core_most_bytes_per_s().unwrap_or(capacity),
                controller_bytes_per_s: capacity,
            };
            let caches: Vec<usize> = cpus.iter().filter_map(|cpu| self.offer.cache_of(cpu.0 as usize)).collect();
            for &cache in &caches {
                let share = limits.entry(cache).or_insert(of_node);
                share.each_bytes_per_s = share.each_bytes_per_s.min(each_bytes_per_s);
                share.controller_bytes_per_s = share.controller_bytes_per_s.min(capacity);
                share.cpus += 1;
            }
            let least = caches.iter().map(|cache| unit.least_bytes_per_s(&limits[cache])).max();
            let left = each_bytes_per_s as u64;
            if let Some(least) = least.filter(|&least| left < least) {
                too_fine.push(TooFine { node, left, least });
            }
        }
        (limits, too_fine)
    }

    /// The classes of this process's grants: those with ways of their own keep the one that they have, or get one that no
    /// other grant has.
    fn classes<'b>(&self, own: &'b [Grant], now: &Words) -> Result<Vec<(&'b Grant, usize)>, HardwareError> {
        let has = |grant: &Grant| {
            let word = ControlWord::Class { cpu: grant.cpus.first()?.0 as usize };
            let class = word.parse(now.get(&word)?)? as usize;
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
                let free = (UNLIMITED + 1..self.offer.classes as usize).find(|class| !used.contains(class));
                free.ok_or(HardwareError::NoClass(self.offer.classes))?
            };
            used.insert(class);
            classes.push((grant, class));
        }
        Ok(classes)
    }
}

#[cfg(test)]
#[path = "hardware_tests.rs"]
mod tests;
