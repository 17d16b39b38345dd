//! A grant that is carried out: its groups, and how they follow it when it changes.

use crate::broker::BrokerError;
use crate::grants::{
    Base, Carrier, GrantRecord, Records, RecordsError, Shape, Watch, fill, make, make_groups, make_idle,
};
use crate::journal::{Journal, PutBack};
use linux::{CgroupGroup, Partition, message_pair};
use machine::CpuSet;
use reserve::{Grant, GrantId, Ledger};
use rustix::net::sockopt::socket_cookie;
use rustix::net::{Shutdown, shutdown};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A grant that is carried out.
#[derive(Debug)]
pub(super) struct Held {
    id: GrantId,
    /// Its groups; what it shares with other grants has a journal of its own.
    journal: Journal,
    pub group: CgroupGroup,
    /// The group that new ones are made in.
    base: Base,
    /// Where its processes go in the end.
    back: PathBuf,
    /// Whether the group was there before, so that changes of its settings are journalled.
    is_adopted: bool,
    /// What ends it.
    pub end: End,
    /// Whether its CPUs are still its own.
    pub watch: Watch,
    /// Whether others slow it by more than its bound, by forecast, and how often that began.
    pub is_above_bound: bool,
    pub times_above_bound: u64,
}

/// What ends a grant, beside its release.
#[derive(Debug)]
pub(super) enum End {
    /// Nothing: it stays.
    Release,
    /// That of its last holder.
    LastHolder(Handle),
    /// That of its last process: its agent was killed, and its handle is none any more.
    LastProcess,
}

/// This process's end of a pair of sockets. The other is the grant's handle: only this process makes such sockets, the
/// kernel counts the copies, and after the last one this end has hung up.
#[derive(Debug)]
pub(super) struct Handle {
    pub end: OwnedFd,
    /// The kernel's number of the other end, which no other socket ever has.
    pub cookie: u64,
}

impl Held {
    /// Makes the groups of a new grant, or none. An adopted group exists already.
    pub fn make(
        id: GrantId,
        shape: &Shape,
        mut journal: Journal,
        (base, back): (Base, PathBuf),
        adopted: Option<&CgroupGroup>,
    ) -> Result<Self, Box<(BrokerError, Journal)>> {
        let made = make_groups(&mut journal, &base, id, shape, &back, adopted).map_err(BrokerError::from);
        let made = made.and_then(|group| {
            let watch = Watch::new(&group, base.idle_group(id), shape).map_err(BrokerError::Watch)?;
            Ok((group, watch))
        });
        match made {
            Ok((group, watch)) => {
                Ok(Self::new(id, journal, group, (base, back), adopted.is_some(), End::Release, watch))
            }
            Err(error) => Err(Box::new((error, journal))),
        }
    }

    fn new(
        id: GrantId,
        journal: Journal,
        group: CgroupGroup,
        (base, back): (Base, PathBuf),
        is_adopted: bool,
        end: End,
        watch: Watch,
    ) -> Self {
        Self { id, journal, group, base, back, is_adopted, end, watch, is_above_bound: false, times_above_bound: 0 }
    }

    /// The grant of an agent that was killed, if its groups are as they must be.
    pub fn take_up(
        record: &GrantRecord,
        shape: &Shape,
        folder: &Path,
        base: Base,
    ) -> Result<Option<Self>, BrokerError> {
        let id = record.grant.id;
        let group = match &record.adopted {
            Some(folder) => CgroupGroup::at(folder.clone()),
            None if shape.cpus.is_some() => base.group(id, ""),
            None => base.shared_group(id),
        };
        let is_left = record.stays || group.has_processes();
        if !is_left || !is_whole(&group, shape, record.adopted.is_some()) || !is_idle(&base.idle_group(id), shape) {
            return Ok(None);
        }
        let Some(journal) = Journal::take_up(folder, &format!("grant-{id}"))? else { return Ok(None) };
        let back = journal.back().map_or_else(|| base.folder.clone(), Path::to_owned);
        let end = if record.stays { End::Release } else { End::LastProcess };
        let watch = Watch::new(&group, base.idle_group(id), shape).map_err(BrokerError::Watch)?;
        Ok(Some(Self::new(id, journal, group, (base, back), record.adopted.is_some(), end, watch)))
    }

    /// Writes the grant's record, in which other processes see it.
    pub fn record(&self, records: &Records, grant: &Grant, ledger: &Ledger) -> Result<(), RecordsError> {
        let adopted = self.is_adopted.then(|| self.group.folder());
        let carrier = Carrier::Agent { stays: matches!(self.end, End::Release), adopted };
        let (throttle, level) = (ledger.facts.control.throttle, ledger.levels.get(&grant.id).copied());
        records.add(grant, carrier, throttle, self.watch.lost(), level)
    }

    /// Its handle, if it has one.
    pub fn handle(&self) -> Option<&Handle> {
        if let End::LastHolder(handle) = &self.end { Some(handle) } else { None }
    }

    /// Whether its last process has ended, if that ends it.
    pub fn is_over(&self) -> bool {
        matches!(self.end, End::LastProcess) && !self.group.has_processes()
    }

    /// Undoes all: its processes go on among the others.
    pub fn undo(self) -> PutBack {
        self.journal.restore()
    }

    /// Gives its groups another shape. What a failure leaves of it is taken back by the way to `from`. `all` is what an
    /// adopted group has whose cores are given back, as the kernel makes no list of CPUs empty while there are processes.
    pub fn reshape(&mut self, from: &Shape, to: &Shape, all: &str) -> Result<(), BrokerError> {
        self.change(from, to, all)?;
        self.watch.follow(&self.group, self.base.idle_group(self.id), to).map_err(BrokerError::Watch)
    }

    fn change(&mut self, from: &Shape, to: &Shape, all: &str) -> Result<(), BrokerError> {
        match (&from.cpus, &to.cpus) {
            (Some(_), None) => self.give_cores(from, all)?,
            (None, Some(_)) => return self.take_cores(to),
            (Some(had), Some(has)) if had != has => self.set("cpuset.cpus", &has.to_string())?,
            _ => {}
        }
        if from.idle != to.idle && to.cpus.is_some() {
            self.base.idle_group(self.id).remove(&self.back)?;
            make_idle(&mut self.journal, &self.base, self.id, &to.idle, &self.back)?;
        }
        if from.nodes != to.nodes {
            self.set("cpuset.mems", &to.nodes.to_string())?;
        }
        if from.most_bytes != to.most_bytes {
            self.set("memory.max", &to.memory_max())?;
        }
        Ok(())
    }

    fn give_cores(&mut self, from: &Shape, all: &str) -> Result<(), BrokerError> {
        self.base.idle_group(self.id).remove(&self.back)?;
        if self.is_adopted {
            if from.partition.is_some() {
                self.set("cpuset.cpus.partition", "member")?;
            }
            return self.set("cpuset.cpus", all);
        }
        // Its processes get a group without a list of CPUs: no list can be emptied while they are there.
        let shared = self.base.shared_group(self.id);
        make(&mut self.journal, &shared, &self.back)?;
        fill(None, &shared, &from.without_cores())?;
        self.group.remove(shared.folder())?;
        self.group = shared;
        Ok(())
    }

    /// Also where only a part of the cores was given.
    fn take_cores(&mut self, to: &Shape) -> Result<(), BrokerError> {
        self.base.idle_group(self.id).remove(&self.back)?;
        if self.is_adopted {
            fill(Some(&mut self.journal), &self.group, to)?;
            return Ok(make_idle(&mut self.journal, &self.base, self.id, &to.idle, &self.back)?);
        }
        let own = self.base.group(self.id, "");
        let shared = self.base.shared_group(self.id);
        if !own.folder().exists() {
            make(&mut self.journal, &own, &self.back)?;
        }
        fill(None, &own, to)?;
        make_idle(&mut self.journal, &self.base, self.id, &to.idle, &self.back)?;
        shared.remove(own.folder())?;
        self.group = own;
        Ok(())
    }

    /// Sets a value of its group.
    fn set(&mut self, file: &str, value: &str) -> Result<(), BrokerError> {
        if self.is_adopted {
            self.journal.will_write(&self.group.folder().join(file), value)?;
        }
        Ok(self.group.set(file, value)?)
    }
}

/// Whether a group has what it must have. An adopted group without cores has all CPUs.
fn is_whole(group: &CgroupGroup, shape: &Shape, is_adopted: bool) -> bool {
    let cpus = group.value("cpuset.cpus").ok().and_then(|text| text.parse::<CpuSet>().ok());
    let has_cpus = match &shape.cpus {
        Some(wanted) => cpus.as_ref() == Some(wanted),
        None => is_adopted || cpus.is_some_and(|cpus| cpus.is_empty()),
    };
    let has_nodes = group.value("cpuset.mems").ok().and_then(|text| text.parse().ok()).as_ref() == Some(&shape.nodes);
    let partition = group.value("cpuset.cpus.partition").unwrap_or_default();
    has_cpus && has_nodes && partition == shape.partition.map_or("member", Partition::name)
}

fn is_idle(group: &CgroupGroup, shape: &Shape) -> bool {
    if shape.idle.is_empty() {
        return !group.folder().exists();
    }
    let cpus = group.value("cpuset.cpus").ok().and_then(|text| text.parse::<CpuSet>().ok());
    cpus.as_ref() == Some(&shape.idle) && group.value("cpuset.cpus.partition").is_ok_and(|text| text == "isolated")
}

impl Handle {
    /// A new one, with the end for its holder.
    pub fn new() -> Result<(Self, OwnedFd), BrokerError> {
        let (end, other) = message_pair().map_err(BrokerError::Handle)?;
        let cookie = socket_cookie(&other).map_err(|error| BrokerError::Handle(error.into()))?;
        // Nothing can be sent to it: a copy of the handle in its own queue would have no holder, and never be closed.
        shutdown(&end, Shutdown::Read).map_err(|error| BrokerError::Handle(error.into()))?;
        Ok((Self { end, cookie }, other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::send;
    use std::os::fd::AsFd;

    #[test]
    fn a_handle_cannot_be_kept_open_by_its_own_queue() {
        let (own, handle) = Handle::new().unwrap();
        assert!(send(&handle, b"x", &[handle.as_fd()]).is_err());
        drop(handle);
        let mut ends = [rustix::event::PollFd::new(&own.end, rustix::event::PollFlags::empty())];
        // A process that another test starts at this moment has a copy until it executes its program.
        let limit = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut ends, Some(&limit)).unwrap(), 1, "the last copy is closed");
    }
}
