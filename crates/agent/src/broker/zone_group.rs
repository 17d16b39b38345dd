//! An isolated zone: a partition of its CPUs, in which grants have theirs, and no other programs run.

use crate::broker::{BrokerError, Settings};
use crate::grants::{Base, Watch, check_free, make};
use crate::journal::{Journal, PutBack, ZONE};
use linux::{CgroupGroup, Cgroups, Partition};
use machine::CpuSet;

/// The name of its journal, which is another one than that of grants: it goes on while they do.
const JOURNAL: &str = "zone";

/// The partition of a zone.
#[derive(Debug)]
pub(super) struct ZoneGroup {
    journal: Journal,
    group: CgroupGroup,
    /// Whether the partition is still there.
    pub watch: Watch,
}

impl ZoneGroup {
    /// That of an agent that was killed, if the zone is the same. Before another journal of the folder is opened, which
    /// would end it.
    pub fn take_up(settings: &Settings) -> Result<Option<Self>, BrokerError> {
        let Some(cpus) = settings.isolated_zone() else { return Ok(None) };
        let group = CgroupGroup::below(&Cgroups::find()?, ZONE);
        let has = |file: &str| group.value(file).unwrap_or_default();
        if has("cpuset.cpus").parse::<CpuSet>() != Ok(cpus) {
            return Ok(None);
        }
        let is_partition = has("cpuset.cpus.partition") == "root" || group.make_partition(Partition::Root).is_ok();
        let journal = if is_partition { Journal::take_up(&settings.folder, JOURNAL)? } else { None };
        journal.map(|journal| Self::new(journal, group)).transpose()
    }

    /// Makes it, if the zone is to be isolated. The programs on its CPUs go to others.
    pub fn make(settings: &Settings) -> Result<Option<Self>, BrokerError> {
        let Some(cpus) = settings.isolated_zone() else { return Ok(None) };
        let cgroups = Cgroups::find()?;
        check_free(&Base::topmost(&cgroups), &cpus, true)?;
        let group = CgroupGroup::below(&cgroups, ZONE);
        let (mut journal, _) = Journal::open(&settings.folder, JOURNAL)?;
        // One that could not be removed before, when groups were within it.
        group.remove(cgroups.folder())?;
        // On failure, dropping the journal removes the group.
        make(&mut journal, &group, cgroups.folder())?;
        group.set("cpuset.cpus", &cpus.to_string())?;
        group.make_partition(Partition::Root)?;
        Self::new(journal, group).map(Some)
    }

    fn new(journal: Journal, group: CgroupGroup) -> Result<Self, BrokerError> {
        let watch = Watch::of_zone(&group).map_err(BrokerError::Watch)?;
        Ok(Self { journal, group, watch })
    }

    fn base(&self) -> Base {
        Base { folder: self.group.folder().to_owned(), is_zone: true }
    }

    /// Removes it. The grants have ended.
    pub fn undo(self) -> PutBack {
        self.journal.restore()
    }
}

/// What grants have their groups below.
pub(super) fn base_of(zone: Option<&ZoneGroup>) -> Result<Base, BrokerError> {
    Ok(match zone {
        Some(zone) => zone.base(),
        None => Base::topmost(&Cgroups::find()?),
    })
}
