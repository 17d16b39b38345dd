//! The steps of a grant.

use crate::grants::{Corrections, Hardware, HardwareError, Setting, Shape, Watch};
use crate::journal::{GROUP, Journal, JournalError};
use linux::{CgroupError, CgroupGroup, CgroupGroupError, Cgroups, Partition, Pid, Process, Switch, interrupts};
use machine::{CpuSet, NodeId, NodeSet};
use reserve::{CacheIsolation, Facts, Grant, GrantId, Ledger, ServiceLevel};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Length of the periods in which a limited group gets its share, µs: longer periods are longer moments at full speed.
const PERIOD_US: f64 = 10_000.0;
/// Shortest share that the kernel takes, µs. Less of the time is this share of a longer period.
const LEAST_US: f64 = 1_000.0;
/// Longest period that the kernel takes, µs.
const MOST_PERIOD_US: f64 = 1_000_000.0;
/// Part of the forecast's limit that is given. The limit is for traffic that does not vary, but programs get their CPU
/// time at once: while they run, a guarded reader of magny-cours-4p loses 12 to 14 % for each of them by the model, and
/// as much of a period costs it 5 % in all. Measured in docs/isolation.md.
const CAUTION: f64 = 0.45;
/// Fewest CPUs' worth of time for a limited group: programs that get nothing hold locks for ever.
const LEAST_CPUS: f64 = 0.01;

/// Why a grant cannot be carried out. What was done of it is in the journal.
#[derive(Debug, thiserror::Error)]
pub enum CarryOutError {
    /// There are no control groups of version 2.
    #[error("grants need control groups of version 2")]
    NoCgroups(#[from] CgroupError),
    /// A group cannot be made.
    #[error(transparent)]
    Group(#[from] CgroupGroupError),
    /// A change cannot be recorded, and is not made.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A limit cannot be set.
    #[error(transparent)]
    Switch(#[from] linux::SwitchError),
    /// The control hardware cannot do it.
    #[error(transparent)]
    Hardware(#[from] HardwareError),
    /// A group that is to be limited does not exist.
    #[error("there is no control group {0} to limit: groups are named from the topmost one, such as /system.slice")]
    NoSuchGroup(String),
    /// A group that is made with them would end another partition.
    #[error(
        "CPUs {0} are offline or do not exist, or another partition of CPUs has them: look at cpuset.cpus.partition of the control groups"
    )]
    NotFree(CpuSet),
    /// A group above has not all nodes.
    #[error(
        "the kernel gives memory of nodes `{nodes}` instead of {wanted}: look at cpuset.mems of the groups above, and whether the nodes are online"
    )]
    OtherNodes {
        /// The grant's.
        wanted: NodeSet,
        /// What the kernel gives.
        nodes: String,
    },
    /// The kernel would end programs.
    #[error(
        "the programs of {group} have {used} bytes, and the grant {most}: ask for more with --bytes, or let them have less first"
    )]
    MoreMemory {
        /// The group's folder.
        group: PathBuf,
        /// What its programs have.
        used: u64,
        /// What the grant allows.
        most: u64,
    },
    /// A partition cannot be watched.
    #[error("cannot watch the partition of a grant")]
    Watch(#[source] io::Error),
    /// The kernel keeps one for the topmost group.
    #[error("no CPU would be left for the rest of the machine")]
    NoneLeft,
}

/// CPU time of a control group, for bandwidth that its programs may draw.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// The group, from the topmost one.
    pub cgroup: String,
    /// CPUs' worth of time.
    pub cpus: f64,
}

impl Limit {
    /// The same share for each of some groups, such that together they draw what the forecast leaves to the rest from
    /// the fullest guarded controller. Nothing where no controller is guarded.
    pub fn of(cgroups: &[String], rest: &BTreeMap<NodeId, f64>, facts: &Facts) -> Vec<Self> {
        let least = rest.values().copied().reduce(f64::min);
        let Some((bytes_per_s, core)) = least.zip(facts.core_most_bytes_per_s()) else { return Vec::new() };
        let cpus = (CAUTION * bytes_per_s / core / cgroups.len() as f64).max(LEAST_CPUS);
        cgroups.iter().map(|cgroup| Self { cgroup: cgroup.clone(), cpus }).collect()
    }

    /// Its file.
    pub(crate) fn file(&self, cgroups: &Cgroups) -> PathBuf {
        Self::file_of(&self.cgroup, cgroups)
    }

    /// The file of a group, named from the topmost one.
    pub(crate) fn file_of(cgroup: &str, cgroups: &Cgroups) -> PathBuf {
        cgroups.folder_of(cgroup).join("cpu.max")
    }

    /// The text of `cpu.max`. The group's own text stays where it is the lower limit.
    pub(crate) fn cpu_max(&self, own: &str) -> String {
        let period = (LEAST_US / self.cpus).clamp(PERIOD_US, MOST_PERIOD_US);
        let quota = (self.cpus * period).max(LEAST_US);
        if cpus_of(own).is_some_and(|cpus| cpus <= quota / period) {
            return own.to_owned();
        }
        format!("{quota:.0} {period:.0}")
    }
}

/// CPUs' worth of time by a text of `cpu.max`; none without a limit.
fn cpus_of(cpu_max: &str) -> Option<f64> {
    let (quota, period) = cpu_max.trim().split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

/// Carries a grant of a ledger out, and returns the group that its program joins, with a watch of its partitions and what
/// the rest of the machine has. On failure, `journal` undoes what was done when it is dropped. Needs root.
pub fn carry_out(
    journal: &mut Journal,
    grant: &Grant,
    ledger: &Ledger,
    limits: &[Limit],
    hardware: Option<Hardware>,
) -> Result<(CgroupGroup, Watch, Rest), CarryOutError> {
    let facts = &ledger.facts;
    let cgroups = Cgroups::find()?;
    let words = hardware.map(|hardware| hardware.settings_alone(ledger, grant)).transpose()?.unwrap_or_default();
    let shape = Shape::new(grant, facts);
    let base = Base::topmost(&cgroups);
    let group = make_groups(journal, &base, grant.id, &shape, &own_group(&cgroups)?, None)?;
    let watch = Watch::new(&group, base.idle_group(grant.id), &shape).map_err(CarryOutError::Watch)?;
    if grant.request.isolate.core {
        let all: CpuSet = grant.cpus.iter().chain(idle_cpus(grant, facts).iter()).collect();
        move_interrupts(journal, &all, facts)?;
    }
    let limits: Result<_, _> = limits.iter().map(|limit| set_limit(journal, &cgroups, limit)).collect();
    let limits = limits?;
    words.iter().try_for_each(|(path, value)| set(journal, path, value))?;
    let rest = Rest {
        ledger: ledger.clone(),
        grant: grant.clone(),
        own: words.into_keys().collect(),
        limits,
        hardware,
        corrections: Corrections::default(),
    };
    Ok((group, watch, rest))
}

/// What a process's only grant takes from the rest of the machine, as it follows from what is measured.
#[derive(Debug)]
pub struct Rest {
    ledger: Ledger,
    grant: Grant,
    /// The settings that this process changes.
    own: BTreeSet<PathBuf>,
    /// Each with what its group had before.
    limits: Vec<(Limit, String)>,
    hardware: Option<Hardware>,
    corrections: Corrections,
}

impl Rest {
    /// Corrects limits in percent, once a second.
    pub fn correct(&mut self, journal: &mut Journal, now: Instant) -> Result<(), CarryOutError> {
        let Some(hardware) = self.hardware else { return Ok(()) };
        let corrected = hardware.correct(&self.ledger, &mut self.corrections, now)?;
        let own = corrected.iter().filter(|(path, _)| self.own.contains(*path));
        own.into_iter().try_for_each(|(path, value)| set(journal, path, value))
    }
}

impl Rest {
    /// The holder has said how it does: the rest has less, or more again.
    pub fn follow(&mut self, journal: &mut Journal, level: ServiceLevel) -> Result<(), CarryOutError> {
        let before = self.ledger.levels.insert(self.grant.id, level);
        if level.has_same_part(before) {
            return Ok(());
        }
        let cgroups = Cgroups::find()?;
        for (limit, own) in &self.limits {
            let limit = Limit { cpus: limit.cpus * level.part(), ..limit.clone() };
            set(journal, &limit.file(&cgroups), &limit.cpu_max(own))?;
        }
        let Some(hardware) = self.hardware else { return Ok(()) };
        let settings = hardware.settings(&self.ledger, std::slice::from_ref(&self.grant))?;
        let mut own = settings.iter().filter(|(path, _)| self.own.contains(*path));
        own.try_for_each(|(path, value)| set(journal, path, value))
    }
}

/// Changes a setting, which the journal has first.
fn set(journal: &mut Journal, path: &Path, value: &str) -> Result<(), CarryOutError> {
    if Setting::at(path).value()? != value {
        journal.will_write(path, value)?;
        Setting::at(path).set(value)?;
    }
    Ok(())
}

/// The control group below which grants have theirs: the topmost one, or that of an isolated zone.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    /// Its folder.
    pub folder: PathBuf,
    /// Whether it is that of a zone, in which other programs are only by grants.
    pub is_zone: bool,
}

impl Base {
    pub fn topmost(cgroups: &Cgroups) -> Self {
        Self { folder: cgroups.folder().to_owned(), is_zone: false }
    }

    /// A group of a grant, which may not exist: its name ends like this.
    pub fn group(&self, id: GrantId, end: &str) -> CgroupGroup {
        CgroupGroup::at(self.folder.join(format!("{GROUP}{id}{end}")))
    }

    /// The group of a grant's programs that has no cores any more: among the rest of the machine.
    pub fn shared_group(&self, id: GrantId) -> CgroupGroup {
        let folder = if self.is_zone { self.folder.parent().unwrap_or(&self.folder) } else { &self.folder };
        CgroupGroup::at(folder.join(format!("{GROUP}{id}-shared")))
    }

    /// The group of the CPUs that idle for a grant, which may not exist.
    pub fn idle_group(&self, id: GrantId) -> CgroupGroup {
        self.group(id, "-idle")
    }
}

/// Makes the groups of a grant: that of its programs, which is returned, and that of CPUs that idle. Their processes go
/// to the group `back` in the end. An adopted group exists already, and keeps its processes.
pub(crate) fn make_groups(
    journal: &mut Journal,
    base: &Base,
    id: GrantId,
    shape: &Shape,
    back: &Path,
    adopted: Option<&CgroupGroup>,
) -> Result<CgroupGroup, CarryOutError> {
    check_free(base, &shape.all_cpus(), shape.partition.is_some())?;
    make_idle(journal, base, id, &shape.idle, back)?;
    let group = adopted.cloned().unwrap_or_else(|| base.group(id, ""));
    if adopted.is_none() {
        make(journal, &group, back)?;
    }
    fill(adopted.map(|_| journal), &group, shape)?;
    Ok(group)
}

/// Whether the CPUs of a new group are those of the rest of the machine: another group's partition becomes invalid already
/// when a group beside it gets its CPUs.
pub(crate) fn check_free(base: &Base, wanted: &CpuSet, is_partition: bool) -> Result<(), CarryOutError> {
    let free = Switch::at(base.folder.join("cpuset.cpus.effective")).value()?;
    // Where the kernel's list cannot be parsed, the partition is read back as always.
    let Ok(free) = free.parse::<CpuSet>() else { return Ok(()) };
    let missing: CpuSet = wanted.iter().filter(|&cpu| !free.contains(cpu)).collect();
    if !missing.is_empty() {
        return Err(CarryOutError::NotFree(missing));
    }
    if is_partition && !base.is_zone && free.iter().all(|cpu| wanted.contains(cpu)) {
        return Err(CarryOutError::NoneLeft);
    }
    Ok(())
}

/// Keeps CPUs idle, if there are any.
pub(crate) fn make_idle(
    journal: &mut Journal,
    base: &Base,
    id: GrantId,
    idle: &CpuSet,
    back: &Path,
) -> Result<(), CarryOutError> {
    if idle.is_empty() {
        return Ok(());
    }
    let group = base.idle_group(id);
    make(journal, &group, back)?;
    group.set("cpuset.cpus", &idle.to_string())?;
    Ok(group.make_partition(Partition::Isolated)?)
}

/// The nodes whose memory a group gets at present.
pub(crate) const MEMORY_NOW: &str = "cpuset.mems.effective";

/// Sets what a group has. A journal is only needed for a group that was there before: others are removed in the end.
pub(crate) fn fill(mut journal: Option<&mut Journal>, group: &CgroupGroup, shape: &Shape) -> Result<(), CarryOutError> {
    let cpus = shape.cpus.as_ref().map(CpuSet::to_string);
    let memory_max = shape.most_bytes.map(|_| shape.memory_max());
    let settings = [("cpuset.cpus", cpus), ("cpuset.mems", Some(shape.nodes.to_string())), ("memory.max", memory_max)];
    // A new group has no programs yet.
    let used = || {
        let stat = group.value("memory.stat").ok()?;
        // Pages of files that are not in use are let go instead.
        let files = stat.lines().filter_map(|line| line.split_once("active_file ")?.1.parse::<u64>().ok());
        let all = group.value("memory.current").ok()?.trim().parse::<u64>().ok()?;
        Some(all.saturating_sub(files.sum()))
    };
    if let Some((used, most)) = journal.as_ref().and_then(|_| used().zip(shape.most_bytes))
        && used > most
    {
        return Err(CarryOutError::MoreMemory { group: group.folder().to_owned(), used, most });
    }
    let mut will_set = |file: &str, value: &str| match &mut journal {
        Some(journal) => journal.will_write(&group.folder().join(file), value),
        None => Ok(()),
    };
    for (file, value) in settings {
        if let Some(value) = value {
            will_set(file, &value)?;
            group.set(file, &value)?;
        }
    }
    // Where a group above has none of the nodes, the kernel gives others instead.
    let nodes = group.value(MEMORY_NOW)?;
    if nodes.parse() != Ok(shape.nodes.clone()) {
        return Err(CarryOutError::OtherNodes { wanted: shape.nodes.clone(), nodes });
    }
    if let Some(kind) = shape.partition {
        will_set("cpuset.cpus.partition", kind.name())?;
        group.make_partition(kind)?;
    }
    Ok(())
}

/// The folder of this process's group.
fn own_group(cgroups: &Cgroups) -> Result<PathBuf, CgroupError> {
    let own = cgroups.of(&Process::open(Pid(std::process::id()))?)?;
    Ok(cgroups.folder_of(own))
}

pub(crate) fn make(journal: &mut Journal, group: &CgroupGroup, back: &Path) -> Result<(), CarryOutError> {
    journal.will_make(group, back)?;
    Ok(group.create()?)
}

/// CPUs that no program may have beside the grant: siblings of its cores, and other cores of its exclusive cache.
pub(crate) fn idle_cpus(grant: &Grant, facts: &Facts) -> CpuSet {
    let is_exclusive = grant.request.isolate.cache == CacheIsolation::Exclusive;
    let cache = grant.cache.filter(|_| is_exclusive).map(|cache| &facts.caches[cache]);
    let others = cache.into_iter().flat_map(CpuSet::iter).filter(|&cpu| !grant.cpus.contains(cpu));
    grant.idle_siblings.iter().chain(others).collect()
}

/// Moves interrupts to other CPUs. The kernel refuses that for some, such as those of a CPU's own timer.
fn move_interrupts(journal: &mut Journal, away: &CpuSet, facts: &Facts) -> Result<(), CarryOutError> {
    let others: CpuSet = facts.machine.cpus().iter().filter(|&cpu| !away.contains(cpu)).collect();
    for interrupt in interrupts(Path::new("/proc")) {
        let left: CpuSet = interrupt.cpus.iter().filter(|&cpu| !away.contains(cpu)).collect();
        if left != interrupt.cpus {
            let cpus = if left.is_empty() { &others } else { &left };
            journal.will_write(&interrupt.path, &cpus.to_string())?;
            let _ = Switch::at(&interrupt.path).set(&cpus.to_string());
        }
    }
    Ok(())
}

/// Returns what the group had before.
fn set_limit(journal: &mut Journal, cgroups: &Cgroups, limit: &Limit) -> Result<(Limit, String), CarryOutError> {
    let file = limit.file(cgroups);
    if !file.is_file() {
        return Err(CarryOutError::NoSuchGroup(limit.cgroup.clone()));
    }
    let own = Switch::at(&file).value()?;
    set(journal, &file, &limit.cpu_max(&own))?;
    Ok((limit.clone(), own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;
    use reserve::{Asker, Control, Isolation, Request, Rules};
    use std::sync::Arc;

    #[test]
    fn a_limit_is_a_part_of_what_the_forecast_leaves() {
        let facts = Facts::new(presets::find("magny-cours-4p").unwrap(), Control::default());
        let rest = BTreeMap::from([(NodeId(0), 4.25e9), (NodeId(1), 9e9)]);
        let limits = Limit::of(&["/a".to_owned(), "/b".to_owned()], &rest, &facts);
        // 0.45 x 4.25 GB/s over 5.949 GB/s of a core, for two groups.
        assert_eq!(limits[0], Limit { cgroup: "/a".to_owned(), ..limits[1].clone() });
        assert_eq!(limits[0].cpu_max("max 100000"), "1607 10000");
        let less = |cpus| Limit { cgroup: String::new(), cpus }.cpu_max("max 100000");
        assert_eq!([less(0.01), less(0.0001), less(0.0)], ["1000 100000", "1000 1000000", "1000 1000000"]);
        // A lower limit of the group's owner stays.
        assert_eq!(limits[0].cpu_max("5000 100000"), "5000 100000");
        assert_eq!(limits[0].cpu_max("50000 100000"), "1607 10000");
        assert_eq!(Limit::of(&["/a".to_owned()], &BTreeMap::new(), &facts), []);
    }

    #[test]
    fn the_rest_of_an_exclusive_cache_and_siblings_idle() {
        let idle = |preset: &str, cache| {
            let facts = Arc::new(Facts::new(presets::find(preset).unwrap(), Control::default()));
            let isolate = Isolation { core: true, cache, ..Isolation::default() };
            let request = Request { isolate, ..Request::default() };
            let ledger = Ledger::new(facts.clone(), Rules::default());
            idle_cpus(&ledger.admit(&[request], &Asker::default()).unwrap().grants[0], &facts).len()
        };
        assert_eq!(idle("magny-cours-4p", CacheIsolation::Exclusive), 5);
        assert_eq!(idle("magny-cours-4p", CacheIsolation::Shared), 0);
        assert_eq!(idle("nehalem-ex-8p", CacheIsolation::Shared), 1);
    }
}
