//! The grants that this process carries out, and what is done with them.

use crate::broker::caller::{Quotas, may_adopt, may_enter};
use crate::broker::protocol::{Answer, Call};
use crate::broker::shared_settings::SharedSettings;
use crate::broker::{BrokerError, Settings};
use crate::grants::{Records, RecordsError, make_groups, read_records};
use crate::journal::Journal;
use linux::{CgroupGroup, Cgroups, Peer, Pid, Process, Switch, message_pair};
use machine::chain;
use reserve::{Action, Admitted, Asker, Cores, Grant, GrantId, Ledger, Moved, Refusal, Request};
use rustix::net::sockopt::socket_cookie;
use rustix::net::{Shutdown, shutdown};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// An answer, and the handle of a new grant.
pub(super) type Answered = (Answer, Option<OwnedFd>);

/// The grants.
pub(super) struct Book {
    settings: Settings,
    ledger: Ledger,
    shared: SharedSettings,
    held: BTreeMap<GrantId, Held>,
}

/// A grant that is carried out.
#[derive(Debug)]
struct Held {
    /// Its groups; what it shares with other grants has a journal of its own.
    journal: Journal,
    group: CgroupGroup,
    /// Whether the group was there before, so that changes of its settings are journalled.
    is_adopted: bool,
    /// None for a grant that stays.
    handle: Option<Handle>,
}

/// What a new grant's programs are in, and how it ends.
enum Form {
    /// A group of its own, until the last holder is gone.
    Held,
    /// A group of its own, until it is released.
    Named,
    /// A group that is there already, until it is released.
    Adopted(CgroupGroup),
}

/// This process's end of a pair of sockets. The other is the grant's handle: only this process makes such sockets, the
/// kernel counts the copies, and after the last one this end has hung up.
#[derive(Debug)]
struct Handle {
    end: OwnedFd,
    /// The kernel's number of the other end, which no other socket ever has.
    cookie: u64,
}

impl Book {
    pub fn open(settings: Settings) -> Result<Self, BrokerError> {
        let (journal, put_back) = Journal::open(&settings.folder, "reserve")?;
        if !put_back.is_nothing() {
            (settings.note)(&format!("{}:\n{put_back}", put_back.heading()));
        }
        Records::lock(&settings.records)?.sweep().map_err(RecordsError::Write)?;
        let shared = SharedSettings::new(journal, settings.limited.clone());
        Ok(Self { ledger: settings.ledger.clone(), settings, shared, held: BTreeMap::new() })
    }

    /// The ends of all handles. One that has hung up has no holder any more.
    pub fn handles(&self) -> impl Iterator<Item = (GrantId, &OwnedFd)> {
        self.held.iter().filter_map(|(id, held)| Some((*id, &held.handle.as_ref()?.end)))
    }

    /// Seconds until the next lease ends.
    pub fn next_end_s(&self) -> Option<u64> {
        let ends = self.held.keys().filter_map(|id| self.ledger.grant(*id)?.until_s);
        Some(ends.min()?.saturating_sub(now_s()))
    }

    /// Ends the grants whose leases are over.
    pub fn end_leases(&mut self) {
        let now = now_s();
        let is_over =
            |id: &GrantId| self.ledger.grant(*id).and_then(|grant| grant.until_s).is_some_and(|end| end <= now);
        let over: Vec<GrantId> = self.held.keys().copied().filter(is_over).collect();
        for id in over {
            self.end(id);
        }
    }

    /// Answers a call.
    pub fn answer(&mut self, call: &Call, files: &[OwnedFd], peer: &Peer) -> Answered {
        let answered = match call {
            Call::Create { request, stays: false } => self.create(request, &Form::Held, peer),
            Call::Create { request, stays: true } => self.create(request, &Form::Named, peer),
            Call::Adopt { request, cgroup } => self.adopt(request, cgroup, peer),
            Call::Enter { grant } => self.enter(grant.as_deref(), files, peer),
            Call::Upgrade { grant, memory, controller } => {
                self.whose(grant.as_deref(), files, peer).and_then(|(id, uid)| {
                    let guard = controller.map(|guarded| Action::Guard(id, guarded));
                    let more = memory.map(|memory| {
                        let request = Request { cores: Cores::Of(id), memory, ..Request::default() };
                        Action::Request(request)
                    });
                    self.upgrade(id, &more.into_iter().chain(guard).collect::<Vec<_>>(), uid)
                })
            }
            Call::Release { grant } => self.whose(grant.as_deref(), files, peer).map(|(id, _)| {
                self.end(id);
                (Answer::Done { grant: id }, None)
            }),
        };
        answered.unwrap_or_else(|error| (error.answer(), None))
    }

    /// Ends a grant: its programs go on among the others.
    pub fn end(&mut self, id: GrantId) {
        let Some(held) = self.held.remove(&id) else { return };
        self.ledger.release(id);
        let mut failed: Vec<String> =
            self.follow(&self.ledger.clone()).err().map(|error| chain(&error)).into_iter().collect();
        failed.extend(held.journal.restore().failed);
        let removed = Records::lock(&self.settings.records).map(|records| records.remove(id));
        failed.extend(removed.err().map(|error| chain(&error)));
        for text in failed {
            (self.settings.note)(&format!("grant {id}: {text}"));
        }
    }

    /// Ends all grants.
    pub fn end_all(mut self) {
        while let Some((&id, _)) = self.held.last_key_value() {
            self.end(id);
        }
        self.shared.restore().iter().for_each(|text| (self.settings.note)(text));
    }

    fn adopt(&mut self, request: &Request, cgroup: &str, peer: &Peer) -> Result<Answered, BrokerError> {
        if peer.uid != 0 {
            return Err(BrokerError::Process("only root may make a control group a grant".to_owned()));
        }
        let isolates = request.clone().complete().isolate.core;
        let group = may_adopt(cgroup, isolates, &Cgroups::find()?).map_err(BrokerError::Process)?;
        if self.held.values().any(|held| held.group == group) {
            return Err(BrokerError::Process(format!("control group {cgroup} is a grant already")));
        }
        self.create(request, &Form::Adopted(group), peer)
    }

    fn create(&mut self, request: &Request, form: &Form, peer: &Peer) -> Result<Answered, BrokerError> {
        let request = request.clone().complete();
        let broken: Vec<String> = request.violations().into_iter().map(|broken| broken.rule).collect();
        if !broken.is_empty() {
            return Err(BrokerError::Wrong(broken.join("; ")));
        }
        if matches!(request.cores, Cores::Of(_)) {
            return Err(BrokerError::Wrong("a grant that is there gets more memory by `upgrade`".to_owned()));
        }
        if matches!(form, Form::Named) && request.name.is_none() {
            return Err(BrokerError::Wrong("a grant that stays needs a name".to_owned()));
        }
        let records = Records::lock(&self.settings.records)?;
        self.see_others();
        let decided = self.decide(&[Action::Request(request)], peer.uid, Some(&peer.groups))?;
        let (text, document) = (self.settings.report)(&self.ledger.facts, &decided);
        let Ok(admitted) = decided else {
            return Ok((Answer::Decided { grant: None, text, document }, None));
        };
        let [grant] = &admitted.grants[..] else { return Err(BrokerError::Wrong("one request, one grant".to_owned())) };
        let handle = if matches!(form, Form::Held) { Some(handle()?) } else { None };
        let mut held = self.carry_out(&admitted, grant, form, peer)?;
        let id = grant.id;
        let moved = admitted.moved.iter().filter_map(|moved| admitted.after.grant(moved.id));
        if let Err(error) = moved.chain([grant]).try_for_each(|changed| records.add(changed, None)) {
            self.undo(held.journal, &admitted.moved);
            let tenants = admitted.moved.iter().filter_map(|moved| self.ledger.grant(moved.id));
            // What cannot be written now was perhaps not written before either.
            tenants.for_each(|tenant| drop(records.add(tenant, None)));
            let _ = records.remove(id);
            return Err(error.into());
        }
        let other = handle.map(|(own, other)| {
            held.handle = Some(own);
            other
        });
        self.held.insert(id, held);
        self.ledger = admitted.after;
        Ok((Answer::Decided { grant: Some(id), text, document }, other))
    }

    /// Decides. Programs that other processes hold cannot be moved from here.
    fn decide(
        &self,
        actions: &[Action],
        uid: u32,
        groups: Option<&[u32]>,
    ) -> Result<Result<Admitted, Refusal>, BrokerError> {
        let quota = groups.and_then(|groups| self.settings.quotas.of(uid, groups));
        let asker = Asker { uid, now_s: now_s(), quota };
        let mut decided = self.ledger.apply(actions, &asker);
        if decided.as_ref().is_ok_and(|admitted| admitted.moved.iter().any(|moved| !self.held.contains_key(&moved.id)))
        {
            let mut all_stay = self.ledger.clone();
            all_stay.rules.keep_tenants = true;
            decided = all_stay.apply(actions, &asker);
            if let Ok(admitted) = &mut decided {
                admitted.after.rules.keep_tenants = self.ledger.rules.keep_tenants;
            }
        }
        match decided {
            Err(Refusal::Unknown(text)) => Err(BrokerError::Wrong(text)),
            Err(refusal @ (Refusal::UnknownGrant(_) | Refusal::NotYours(_))) => {
                Err(BrokerError::NoGrant(refusal.to_string()))
            }
            decided => Ok(decided),
        }
    }

    /// Carries out a new grant, or changes nothing.
    fn carry_out(&mut self, admitted: &Admitted, grant: &Grant, form: &Form, peer: &Peer) -> Result<Held, BrokerError> {
        let (mut journal, put_back) = Journal::open(&self.settings.folder, &format!("grant-{}", grant.id))?;
        if !put_back.is_nothing() {
            (self.settings.note)(&format!("{}:\n{put_back}", put_back.heading()));
        }
        let cgroups = Cgroups::find()?;
        let back = group_of(peer, &cgroups)?;
        let facts = &admitted.after.facts;
        let adopted = if let Form::Adopted(group) = form { Some(group) } else { None };
        let moved = self.move_tenants(&admitted.moved);
        let group = moved.and_then(|()| Ok(make_groups(&mut journal, &cgroups, grant, facts, &back, adopted)?));
        let done = group.and_then(|group| {
            let own = self.own(&admitted.after).chain([grant.clone()]).collect::<Vec<_>>();
            self.shared.follow(&admitted.after, own.into_iter())?;
            Ok(group)
        });
        match done {
            Ok(group) => Ok(Held { journal, group, is_adopted: adopted.is_some(), handle: None }),
            Err(error) => {
                self.undo(journal, &admitted.moved);
                Err(error)
            }
        }
    }

    /// Takes back what was carried out for a grant that is not in the ledger.
    fn undo(&mut self, journal: Journal, moved: &[Moved]) {
        let _ = self.follow(&self.ledger.clone());
        let mut failed = journal.restore().failed;
        failed.extend(self.move_back(moved).err().map(|error| chain(&error)));
        for text in failed {
            (self.settings.note)(&text);
        }
    }

    /// Moves programs without isolation out of the way: the kernel moves their pages as well.
    fn move_tenants(&mut self, moved: &[Moved]) -> Result<(), BrokerError> {
        for Moved { id, to, memory, .. } in moved {
            let Some(held) = self.held.get_mut(id) else { continue };
            held.set("cpuset.cpus", &to.to_string())?;
            held.set("cpuset.mems", &memory.to_string())?;
        }
        Ok(())
    }

    fn move_back(&mut self, moved: &[Moved]) -> Result<(), BrokerError> {
        let back = moved.iter().filter_map(|Moved { id, from, to, .. }| {
            let grant = self.ledger.grant(*id)?;
            Some(Moved { id: *id, from: to.clone(), to: from.clone(), memory: grant.memory.clone() })
        });
        let back: Vec<Moved> = back.collect();
        self.move_tenants(&back)
    }

    fn enter(&self, grant: Option<&str>, files: &[OwnedFd], peer: &Peer) -> Result<Answered, BrokerError> {
        let (process, handle) =
            files.split_first().ok_or_else(|| BrokerError::Wrong("enter takes a pidfd".to_owned()))?;
        let (id, _) = self.whose(grant, handle, peer)?;
        let held = self.held.get(&id).ok_or_else(|| BrokerError::NoGrant(Refusal::UnknownGrant(id).to_string()))?;
        let pid = may_enter(process, peer.uid).map_err(BrokerError::Process)?;
        let list = Switch::at(held.group.folder().join("cgroup.procs"));
        list.set(&pid.to_string()).map_err(|error| BrokerError::Setting(chain(&error)))?;
        // Its number may have become another process's only if it has ended.
        if let Err(error) = linux::process_of(process) {
            if let Err(why) = return_newcomer(&held.group, pid) {
                (self.settings.note)(&format!("process {pid} stays in grant {id}: {}", chain(&why)));
            }
            return Err(BrokerError::Process(chain(&error)));
        }
        Ok((Answer::Done { grant: id }, None))
    }

    fn upgrade(&mut self, id: GrantId, actions: &[Action], uid: u32) -> Result<Answered, BrokerError> {
        if actions.is_empty() {
            return Err(BrokerError::Wrong("an upgrade names memory or a controller".to_owned()));
        }
        let records = Records::lock(&self.settings.records)?;
        self.see_others();
        let decided = self.decide(actions, uid, None)?;
        let (text, document) = (self.settings.report)(&self.ledger.facts, &decided);
        let Ok(Admitted { after, .. }) = decided else {
            return Ok((Answer::Decided { grant: None, text, document }, None));
        };
        let held = self.held.get_mut(&id).ok_or_else(|| BrokerError::NoGrant(Refusal::UnknownGrant(id).to_string()))?;
        let nodes = |ledger: &Ledger| ledger.grant(id).map(|grant| grant.memory.to_string()).unwrap_or_default();
        held.set("cpuset.mems", &nodes(&after))?;
        let record = |ledger: &Ledger| ledger.grant(id).map_or(Ok(()), |grant| records.add(grant, None));
        if let Err(error) = self.follow(&after).and_then(|()| Ok(record(&after)?)) {
            let before = self.ledger.clone();
            let _ = self.follow(&before);
            // What cannot be written now was perhaps not written before either.
            let _ = record(&before);
            if let Some(held) = self.held.get_mut(&id) {
                held.set("cpuset.mems", &nodes(&before))?;
            }
            return Err(error);
        }
        self.ledger = after;
        Ok((Answer::Decided { grant: Some(id), text, document }, None))
    }

    /// The grant that a call is about, and the user whose it is: a handle gives its owner's rights.
    fn whose(&self, name: Option<&str>, files: &[OwnedFd], peer: &Peer) -> Result<(GrantId, u32), BrokerError> {
        let presented = match files {
            [] => None,
            [file] => Some(self.of_handle(file).ok_or(BrokerError::NoHandle)?),
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
        let is_it = |held: &Held| held.handle.as_ref().is_some_and(|handle| handle.cookie == cookie);
        self.held.iter().find(|(_, held)| is_it(held)).map(|(id, _)| *id)
    }

    /// Takes over into the ledger what other processes carry out now.
    fn see_others(&mut self) {
        let others: Vec<GrantId> =
            self.ledger.grants().map(|grant| grant.id).filter(|id| !self.held.contains_key(id)).collect();
        for id in others {
            self.ledger.release(id);
        }
        let own = std::process::id();
        for record in read_records(&self.settings.records).into_iter().filter(|record| record.pid.0 != own) {
            if record.grant.cores.iter().all(|&core| core < self.ledger.facts.cores.len()) {
                self.ledger.adopt(record.grant);
            }
        }
    }

    fn own<'a>(&'a self, ledger: &'a Ledger) -> impl Iterator<Item = Grant> + 'a {
        ledger.grants().filter(|grant| self.held.contains_key(&grant.id)).cloned()
    }

    fn follow(&mut self, ledger: &Ledger) -> Result<(), BrokerError> {
        let own: Vec<Grant> = self.own(ledger).collect();
        self.shared.follow(ledger, own.into_iter())
    }
}

impl Held {
    /// Sets a value of its group.
    fn set(&mut self, file: &str, value: &str) -> Result<(), BrokerError> {
        if self.is_adopted {
            self.journal.will_write(&self.group.folder().join(file), value)?;
        }
        Ok(self.group.set(file, value)?)
    }
}

/// The group to which a grant's processes go back: that of the process that asked for it.
fn group_of(peer: &Peer, cgroups: &Cgroups) -> Result<PathBuf, BrokerError> {
    let group = cgroups.of(&caller(peer)?)?;
    Ok(cgroups.folder().join(group.trim_start_matches('/')))
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
    let folder = |process: &Process| Ok(cgroups.folder().join(cgroups.of(process)?.trim_start_matches('/')));
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

fn handle() -> Result<(Handle, OwnedFd), BrokerError> {
    let (end, other) = message_pair().map_err(BrokerError::Handle)?;
    let cookie = socket_cookie(&other).map_err(|error| BrokerError::Handle(error.into()))?;
    // Nothing can be sent to it: a copy of the handle in its own queue would have no holder, and never be closed.
    shutdown(&end, Shutdown::Read).map_err(|error| BrokerError::Handle(error.into()))?;
    Ok((Handle { end, cookie }, other))
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Quotas {
    /// Whether no user but root may have a grant.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::send;
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

    #[test]
    fn a_handle_cannot_be_kept_open_by_its_own_queue() {
        let (own, handle) = handle().unwrap();
        assert!(send(&handle, b"x", &[handle.as_fd()]).is_err());
        drop(handle);
        let mut ends = [rustix::event::PollFd::new(&own.end, rustix::event::PollFlags::empty())];
        // A process that another test starts at this moment has a copy until it executes its program.
        let limit = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut ends, Some(&limit)).unwrap(), 1, "the last copy is closed");
    }
}
