//! The grants that this process carries out, and what is done with them.

use crate::broker::caller::{Quotas, check_by_handle, check_member, may_adopt, may_enter};
use crate::broker::held::{End, Held};
use crate::broker::left::Left;
use crate::broker::shared_settings::SharedSettings;
use crate::broker::transaction::Rights;
use crate::broker::usage::Usage;
use crate::broker::zone_group::ZoneGroup;
use crate::broker::{BrokerError, Settings};
use crate::grants::{LiveState, MemoryMonitor, Records, RecordsError, Watch, read_records};
use crate::journal::Journal;
use linux::{CgroupGroup, Cgroups, Peer, Pid, PrivateFolder, Process, Switch, Trust, printable};
use machine::chain;
use reserve::protocol::{Answer, Call, Message};
use reserve::{Action, Cores, Grant, GrantId, Ledger, Refusal, Request, Service, Share};
use rustix::net::sockopt::socket_cookie;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// An answer, and the handles of new grants.
pub(super) type Answered = (Answer, Vec<OwnedFd>);

/// The grants.
pub(super) struct Book {
    pub settings: Settings,
    pub ledger: Ledger,
    pub shared: SharedSettings,
    pub held: BTreeMap<GrantId, Held>,
    /// How often it has changed: what waits is tried again then.
    pub changes: u64,
    /// What is drawn from memory, where that is counted.
    pub usage: Option<Usage>,
    /// Why others cannot see what is known of the grants.
    pub unwritten: Option<String>,
    /// Why what is drawn cannot be counted.
    pub uncounted: Option<String>,
    /// Why the rest's limits are not those of what is drawn.
    pub unfollowed: Option<String>,
    /// The zone, if it is isolated.
    pub zone: Option<ZoneGroup>,
}

/// What new grants' programs are in, and how they end.
pub(super) enum Form {
    /// A group of its own, until the last holder is gone.
    Held,
    /// A group of its own, until it is released.
    Named,
    /// A group that is there already, until it is released.
    Adopted(CgroupGroup),
}

impl Book {
    /// Begins with the grants that a killed agent left and that go on.
    pub fn open(mut settings: Settings, left: Left) -> Result<Self, BrokerError> {
        let (journal, put_back) = Journal::open(&settings.folder, "reserve")?;
        if !put_back.is_nothing() {
            (settings.note)(&format!("{}:\n{put_back}", put_back.heading()));
        }
        let records = Records::lock(&settings.records)?;
        let shared = SharedSettings::new(journal, settings.limited.clone(), settings.hardware);
        let zone = left.zone.map_or_else(|| ZoneGroup::make(&settings), |zone| Ok(Some(zone)))?;
        let usage = settings.monitor.take().map(|(monitor, period)| Usage::new(monitor, period));
        if usage.is_none() {
            // What an agent with a monitor left.
            let _ = MemoryMonitor::find().map(|monitor| monitor.iter().for_each(MemoryMonitor::remove_left));
        }
        let (ledger, held) = (settings.ledger.clone(), BTreeMap::new());
        let mut book = Self {
            settings,
            ledger,
            shared,
            held,
            changes: 0,
            usage,
            unwritten: None,
            uncounted: None,
            unfollowed: None,
            zone,
        };
        for (grant, held, level) in left.grants {
            (book.settings.note)(&format!("{} of an agent that was killed goes on", grant.title()));
            book.ledger.levels.extend(level.map(|level| (grant.id, level.taken_up(Instant::now()))));
            held.record(&records, &grant, &book.ledger)?;
            book.held.insert(grant.id, held);
            book.ledger.adopt(grant);
        }
        records.sweep().map_err(RecordsError::Write)?;
        book.see_others();
        let ledger = book.ledger.clone();
        // The grants are there already: the agent goes on with them as well as it can.
        let failed = book.follow(&ledger).err().map(|error| chain(&error));
        failed.into_iter().chain(book.shared.too_fine(&ledger)).for_each(|text| (book.settings.note)(&text));
        book.publish();
        Ok(book)
    }

    /// The ends of all handles. One that has hung up has no holder any more.
    pub fn handles(&self) -> impl Iterator<Item = (GrantId, &OwnedFd)> {
        self.held.iter().filter_map(|(id, held)| Some((*id, &held.handle()?.end)))
    }

    /// Seconds until the next lease ends.
    pub fn next_end_s(&self) -> Option<u64> {
        let ends = self.held.keys().filter_map(|id| self.ledger.grant(*id)?.until_s);
        Some(ends.min()?.saturating_add(1).saturating_sub(now_s()))
    }

    /// Ends the grants whose leases are over.
    pub fn end_leases(&mut self) {
        let now = now_s();
        let is_over = |id: &GrantId| self.ledger.grant(*id).is_some_and(|grant| grant.is_over(now));
        let over: Vec<GrantId> = self.held.keys().copied().filter(is_over).collect();
        for id in over {
            self.end(id);
        }
    }

    /// Whether grants end with their last processes, which nothing tells.
    pub fn has_to_look(&self) -> bool {
        self.held.values().any(|held| matches!(held.end, End::LastProcess))
    }

    /// Ends those whose last process has ended.
    pub fn end_empty(&mut self) {
        let over: Vec<GrantId> = self.held.iter().filter(|(_, held)| held.is_over()).map(|(id, _)| *id).collect();
        for id in over {
            self.end(id);
        }
    }

    /// Files that are ready for `PRI` when a partition has changed, and when to look although none is.
    pub fn partitions(&self) -> (impl Iterator<Item = BorrowedFd<'_>>, Option<Instant>) {
        let watches = || self.zone.iter().map(|zone| &zone.watch).chain(self.held.values().map(|held| &held.watch));
        (watches().flat_map(Watch::files), watches().filter_map(Watch::next).min())
    }

    /// Looks whether all partitions are still there. The promise of a grant that has lost its CPUs is withdrawn until they
    /// are its own again.
    pub fn look_at_partitions(&mut self, now: Instant) {
        // The partitions of grants are within the zone's.
        if let Some(said) = self.zone.as_mut().and_then(|zone| zone.watch.look(now)) {
            (self.settings.note)(&format!("zone: {said}"));
        }
        let look = |(id, held): (&GrantId, &mut Held)| Some((*id, held.watch.look(now)?));
        let changed: Vec<(GrantId, String)> = self.held.iter_mut().filter_map(look).collect();
        for (id, said) in &changed {
            (self.settings.note)(&format!("grant {id}: {said}"));
            self.record(*id);
        }
        if !changed.is_empty() {
            self.publish();
        }
    }

    /// Corrects limits by what is measured.
    pub fn correct_limits(&mut self, now: Instant) {
        if let Err(error) = self.shared.correct(&self.ledger, now) {
            (self.settings.note)(&chain(&error));
        }
    }

    /// Answers a message.
    pub fn answer(&mut self, message: &Message, files: &[OwnedFd], peer: &Peer) -> Answered {
        let answered = match message {
            Message::Call(call) => self.answer_call(call, files, peer),
            Message::Study(actions) => self.study(actions, files, peer),
        };
        answered.unwrap_or_else(|error| (error.answer(), Vec::new()))
    }

    fn answer_call(&mut self, call: &Call, files: &[OwnedFd], peer: &Peer) -> Result<Answered, BrokerError> {
        match call {
            Call::Create { request, stays: false, .. } => self.create(request, &Form::Held, peer),
            Call::Create { request, stays: true, .. } => self.create(request, &Form::Named, peer),
            Call::Adopt { request, cgroup } => self.adopt(request, cgroup, peer),
            Call::Enter { grant } => self.enter(grant.as_deref(), files, peer),
            Call::Upgrade { grant, memory, controller } => {
                let (id, uid) = self.whose(grant.as_deref(), files, peer)?;
                let guard = controller.map(|guarded| Action::Guard(id, guarded));
                let more = memory
                    .map(|memory| Action::Request(Request { cores: Cores::Of(id), memory, ..Request::default() }));
                let actions: Vec<Action> = more.into_iter().chain(guard).collect();
                if actions.is_empty() {
                    return Err(BrokerError::Wrong("an upgrade names memory or a controller".to_owned()));
                }
                self.apply(&actions, &Rights::of(uid, peer), &Form::Held, peer)
            }
            Call::Report { grant, latency_ms, target_ms } => {
                let (id, uid) = self.whose(grant.as_deref(), files, peer)?;
                let quota = self.asker(&Rights::of(uid, peer)).quota;
                if quota.is_some_and(|quota| quota.controllers == Some(0)) {
                    return Err(BrokerError::NoGrant("the user may guard no controller".to_owned()));
                }
                self.hear(id, Service { latency_ms: *latency_ms, target_ms: *target_ms })?;
                Ok((Answer::Done { grant: id }, Vec::new()))
            }
            Call::Release { grant, only: None | Some(Share::All) } => {
                let (id, _) = self.whose(grant.as_deref(), files, peer)?;
                self.end(id);
                Ok((Answer::Done { grant: id }, Vec::new()))
            }
            Call::Release { grant, only: Some(share) } => {
                let (id, uid) = self.whose(grant.as_deref(), files, peer)?;
                self.apply(&[Action::Release(id, *share)], &Rights::of(uid, peer), &Form::Held, peer)
            }
        }
    }

    /// Ends all grants.
    pub fn end_all(mut self) {
        while let Some((&id, _)) = self.held.last_key_value() {
            self.end(id);
        }
        self.see_others();
        if let Ok(folder) = PrivateFolder::open(&self.settings.records, Trust::Owners) {
            LiveState::remove(&folder);
        }
        let left = self.zone.map(|zone| zone.undo().failed).unwrap_or_default();
        left.iter().chain(&self.shared.restore(&self.ledger)).for_each(|text| (self.settings.note)(text));
    }

    fn adopt(&mut self, request: &Request, cgroup: &str, peer: &Peer) -> Result<Answered, BrokerError> {
        if peer.uid != 0 {
            return Err(BrokerError::Process("only root may make a control group a grant".to_owned()));
        }
        if self.zone.is_some() {
            let why = format!("control group {} is outside of the isolated zone", printable(cgroup));
            return Err(BrokerError::Process(why));
        }
        let isolates = request.clone().complete().isolate.core;
        let group = may_adopt(cgroup, isolates, &Cgroups::find()?).map_err(BrokerError::Process)?;
        let folder = group.folder();
        let is_within = |held: &Path| held.starts_with(folder) || folder.starts_with(held);
        if let Some((id, _)) = self.groups().find(|(_, held)| is_within(held)) {
            let why =
                format!("control group {} cannot become a grant: it is, has or is in grant {id}", printable(cgroup));
            return Err(BrokerError::Process(why));
        }
        if let Some(limited) = self.shared.limited_above(cgroup) {
            let why = format!("control group {} cannot become a grant: `limit` has {limited}", printable(cgroup));
            return Err(BrokerError::Process(why));
        }
        check_member(cgroup, &group).map_err(BrokerError::Process)?;
        self.create(request, &Form::Adopted(group), peer)
    }

    fn create(&mut self, request: &Request, form: &Form, peer: &Peer) -> Result<Answered, BrokerError> {
        let request = checked(request, matches!(form, Form::Named))?;
        let rights = Rights::of(peer.uid, peer);
        self.apply(&[Action::Request(request)], &rights, form, peer)
    }

    /// Carries the study's calls out as one transaction.
    fn study(&mut self, actions: &[Action], files: &[OwnedFd], peer: &Peer) -> Result<Answered, BrokerError> {
        let presented = files.iter().map(|file| self.of_handle(file).ok_or(BrokerError::NoHandle));
        let presented: BTreeSet<GrantId> = presented.collect::<Result<_, _>>()?;
        let named: BTreeSet<GrantId> = actions.iter().filter_map(Action::grant).collect();
        if !presented.is_subset(&named) {
            return Err(BrokerError::NoHandle);
        }
        self.see_others();
        // What a call of the same transaction makes is its caller's.
        let there: Vec<&Grant> = named.iter().filter_map(|id| self.ledger.grant(*id)).collect();
        for grant in &there {
            if !self.held.contains_key(&grant.id) {
                return Err(BrokerError::NoGrant(Refusal::UnknownGrant(grant.id).to_string()));
            }
            if peer.uid != 0 && peer.uid != grant.owner && !presented.contains(&grant.id) {
                return Err(BrokerError::NoGrant(Refusal::NotYours(grant.id).to_string()));
            }
        }
        let owners: BTreeSet<u32> = there.iter().map(|grant| grant.owner).collect();
        let Some(&owner) = owners.iter().find(|owner| peer.uid != 0 && **owner != peer.uid) else {
            return self.apply(actions, &Rights::of(peer.uid, peer), &Form::Held, peer);
        };
        check_by_handle(owner, &owners, actions).map_err(BrokerError::Wrong)?;
        self.apply(actions, &Rights::of(owner, peer), &Form::Held, peer)
    }

    fn enter(&self, grant: Option<&str>, files: &[OwnedFd], peer: &Peer) -> Result<Answered, BrokerError> {
        let (process, handle) =
            files.split_first().ok_or_else(|| BrokerError::Wrong("enter takes a pidfd".to_owned()))?;
        let (id, _) = self.whose(grant, handle, peer)?;
        let held = self.held.get(&id).ok_or_else(|| BrokerError::NoGrant(Refusal::UnknownGrant(id).to_string()))?;
        let pid = may_enter(process, peer.uid, self.groups()).map_err(BrokerError::Process)?;
        let list = Switch::at(held.group.folder().join("cgroup.procs"));
        list.set(&pid.to_string()).map_err(|error| BrokerError::Setting(chain(&error)))?;
        // Its number may have become another process's only if it has ended.
        if let Err(error) = linux::process_of(process) {
            if let Err(why) = return_newcomer(&held.group, pid) {
                (self.settings.note)(&format!("process {pid} stays in grant {id}: {}", chain(&why)));
            }
            return Err(BrokerError::Process(chain(&error)));
        }
        Ok((Answer::Done { grant: id }, Vec::new()))
    }

    /// The control groups of the grants.
    fn groups(&self) -> impl Iterator<Item = (GrantId, &Path)> {
        self.held.iter().map(|(id, held)| (*id, held.group.folder()))
    }

    /// The grant that a call is about, and the user whose it is: a handle gives its owner's rights.
    fn whose(&self, name: Option<&str>, files: &[OwnedFd], peer: &Peer) -> Result<(GrantId, u32), BrokerError> {
        let presented = match files {
            [] => None,
            // A handle of an agent that was killed gives no right, and takes none from who names a grant.
            [file] => match (self.of_handle(file), name) {
                (None, None) => return Err(BrokerError::NoHandle),
                (presented, _) => presented,
            },
            _ => return Err(BrokerError::Wrong("too many descriptors: a call has one handle at most".to_owned())),
        };
        let named = match name {
            None => None,
            Some(name) => {
                Some(self.named(name).ok_or_else(|| BrokerError::NoGrant(format!("there is no grant {name:?}")))?)
            }
        };
        let id = match (named, presented) {
            (Some(named), Some(presented)) if named != presented => return Err(BrokerError::NoHandle),
            (named, presented) => named.or(presented),
        };
        let id =
            id.ok_or_else(|| BrokerError::Wrong("the call has neither the name of a grant nor a handle".to_owned()))?;
        let grant = self.ledger.grant(id).ok_or_else(|| BrokerError::NoGrant(Refusal::UnknownGrant(id).to_string()))?;
        if presented.is_some() {
            Ok((id, grant.owner))
        } else if peer.uid == 0 || peer.uid == grant.owner {
            Ok((id, peer.uid))
        } else {
            Err(BrokerError::NoGrant(Refusal::NotYours(id).to_string()))
        }
    }

    /// A held grant by its number or name.
    fn named(&self, name: &str) -> Option<GrantId> {
        let by_number = name.parse().ok().map(GrantId);
        let id = by_number.or_else(|| self.ledger.named(name).map(|grant| grant.id))?;
        self.held.contains_key(&id).then_some(id)
    }

    /// The grant whose handle a file is.
    fn of_handle(&self, file: &OwnedFd) -> Option<GrantId> {
        // Fails for all files but sockets.
        let cookie = socket_cookie(file.as_fd()).ok()?;
        let is_it = |held: &Held| held.handle().is_some_and(|handle| handle.cookie == cookie);
        self.held.iter().find(|(_, held)| is_it(held)).map(|(id, _)| *id)
    }

    /// Takes over into the ledger what other processes carry out now.
    pub fn see_others(&mut self) {
        let own = std::process::id();
        let mut others = read_records(&self.settings.records);
        others.retain(|record| record.pid.0 != own && record.grant.is_of(&self.ledger.facts));
        let is_there = |id: GrantId| self.held.contains_key(&id) || others.iter().any(|record| record.grant.id == id);
        let gone: Vec<GrantId> = self.ledger.grants().map(|grant| grant.id).filter(|id| !is_there(*id)).collect();
        for id in gone {
            self.ledger.release(id);
            self.usage.iter_mut().for_each(|usage| usage.forget(id));
        }
        for record in others {
            self.ledger.adopt(record.grant);
        }
    }

    /// Writes the record of a grant whose state has changed.
    pub fn record(&self, id: GrantId) {
        let Some((grant, held)) = self.ledger.grant(id).zip(self.held.get(&id)) else { return };
        let written =
            Records::lock(&self.settings.records).and_then(|records| held.record(&records, grant, &self.ledger));
        if let Err(error) = written {
            (self.settings.note)(&format!("grant {id}: {}", chain(&error)));
        }
    }

    /// Sets what follows from all grants of a ledger that are carried out here.
    pub fn follow(&mut self, ledger: &Ledger) -> Result<(), BrokerError> {
        let own: Vec<Grant> = ledger.grants().filter(|grant| self.held.contains_key(&grant.id)).cloned().collect();
        self.shared.follow(ledger, own.into_iter())
    }
}

/// The group to which a grant's processes go back: that of the process that asked for it.
pub(super) fn group_of(peer: &Peer, cgroups: &Cgroups) -> Result<PathBuf, BrokerError> {
    let group = cgroups.of(&caller(peer)?)?;
    Ok(cgroups.folder_of(group))
}

/// The process that connected. It may have passed the connection on and ended, and its number be another user's process.
fn caller(peer: &Peer) -> Result<Process, BrokerError> {
    let this = Process::open(peer.pid).ok().filter(|process| {
        // Its real, effective, saved or file system's user.
        process.status().is_ok_and(|status| status.uids.contains(&peer.uid))
    });
    this.ok_or_else(|| BrokerError::Process(format!("process {}, which connected, has ended", peer.pid)))
}

/// Moves a process out of a group that it joined because it has the number of an ended one: to the group of its parent,
/// where it was started just now. Children of the group's own processes stay.
fn return_newcomer(group: &CgroupGroup, pid: Pid) -> Result<(), BrokerError> {
    let cgroups = Cgroups::find()?;
    let folder = |process: &Process| Ok(cgroups.folder_of(cgroups.of(process)?));
    let newcomer = Process::open(pid).and_then(|process| Ok((process.start_time()?.parent, process)));
    // It has ended already, or never was.
    let Ok((parent, process)) = newcomer else { return Ok(()) };
    if folder(&process).map_err(BrokerError::Cgroups)? != group.folder() {
        return Ok(());
    }
    let home = Process::open(parent).map_or_else(|_| Ok(cgroups.folder().to_owned()), |parent| folder(&parent));
    let list = Switch::at(home.map_err(BrokerError::Cgroups)?.join("cgroup.procs"));
    list.set(&pid.to_string()).map_err(|error| BrokerError::Setting(chain(&error)))
}

pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Quotas {
    /// Whether no user but root may have a grant.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }
}

/// A request that may be made, with its defaults.
pub(super) fn checked(request: &Request, stays: bool) -> Result<Request, BrokerError> {
    let request = request.clone().complete();
    let broken: Vec<String> = request.violations().into_iter().map(|broken| broken.rule).collect();
    if !broken.is_empty() {
        return Err(BrokerError::Wrong(broken.join("; ")));
    }
    if matches!(request.cores, Cores::Of(_)) {
        return Err(BrokerError::Wrong("a grant that is there gets more memory by `upgrade`".to_owned()));
    }
    if stays && request.name.is_none() {
        return Err(BrokerError::Wrong("a grant that stays needs a name".to_owned()));
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_caller_that_has_ended_or_is_another_users_process_now_is_none() {
        let uid = rustix::process::geteuid().as_raw();
        let peer = |pid, uid| Peer { pid, uid, gid: 0, groups: Vec::new() };
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        assert!(caller(&peer(Pid(child.id()), uid)).is_ok());
        assert!(caller(&peer(Pid(child.id()), uid + 1)).is_err());
        child.kill().unwrap();
        child.wait().unwrap();
        let said = caller(&peer(Pid(child.id()), uid)).unwrap_err().to_string();
        assert!(said.ends_with(", which connected, has ended"), "{said}");
    }
}
