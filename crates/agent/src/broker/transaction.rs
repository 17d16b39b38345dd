//! Transactions: what a decision changes is carried out as a whole, or not at all.

use crate::broker::BrokerError;
use crate::broker::book::{Answered, Book, Form, checked, group_of, now_s};
use crate::broker::held::{End, Handle, Held};
use crate::broker::zone_group::base_of;
use crate::grants::{Records, Shape};
use crate::journal::Journal;
use linux::{Cgroups, MOST_FILES, Peer};
use machine::chain;
use reserve::protocol::{Answer, Call};
use reserve::{Action, Admitted, Asker, Cores, Grant, GrantId, Ledger, Refusal, Request};
use std::os::fd::OwnedFd;

/// By whose rights something is done.
pub(super) struct Rights<'a> {
    pub uid: u32,
    /// The user's groups; none if another user asks by the handle of a grant.
    pub groups: Option<&'a [u32]>,
}

impl<'a> Rights<'a> {
    /// A caller's own, or those of the owner of a grant.
    pub fn of(uid: u32, peer: &'a Peer) -> Self {
        Self { uid, groups: (uid == peer.uid).then_some(&peer.groups) }
    }
}

/// What is carried out of a transaction.
#[derive(Default)]
struct Begun {
    /// Grants whose groups have changed, perhaps not wholly.
    reshaped: Vec<(GrantId, Shape, Shape)>,
    made: Vec<(GrantId, Held, Option<OwnedFd>)>,
}

impl Book {
    /// What is answered at once, although the caller would wait: a request that would not be granted without any other
    /// grant either.
    pub(super) fn never(&self, call: &Call, peer: &Peer) -> Option<Answer> {
        let Call::Create { request, stays, .. } = call else { return None };
        let request = match checked(request, *stays) {
            // The grant whose cache it shares is not there without the others.
            Ok(Request { cores: Cores::OnCacheOf(..), .. }) => return None,
            Ok(request) => request,
            Err(error) => return Some(error.answer()),
        };
        let rights = Rights::of(peer.uid, peer);
        let empty = &self.settings.ledger;
        match decide(empty, &[Action::Request(request)], &self.asker(&rights)) {
            Ok(Ok(_)) => None,
            Ok(decided) => {
                let (text, document) = (self.settings.report)(&empty.facts, &decided);
                Some(Answer::NotAdmitted { text, document, is_of_user: true })
            }
            Err(error) => Some(error.answer()),
        }
    }

    /// Decides, and carries out what is granted.
    pub(super) fn apply(
        &mut self,
        actions: &[Action],
        rights: &Rights<'_>,
        form: &Form,
        peer: &Peer,
    ) -> Result<Answered, BrokerError> {
        let records = Records::lock(&self.settings.records)?;
        self.see_others();
        let decided = self.decide(actions, &self.asker(rights))?;
        let (text, document) = (self.settings.report)(&self.ledger.facts, &decided);
        let Admitted { after, grants, .. } = match decided {
            Ok(admitted) => admitted,
            Err(refusal) => {
                let is_of_user = matches!(refusal, Refusal::Quota { .. } | Refusal::NameTaken(_));
                return Ok((Answer::NotAdmitted { text, document, is_of_user }, Vec::new()));
            }
        };
        if grants.iter().filter(|grant| self.ledger.grant(grant.id).is_none()).count() > MOST_FILES {
            let why = format!("a transaction makes at most {MOST_FILES} grants: one answer has their handles");
            return Err(BrokerError::Wrong(why));
        }
        // What is given back is never refused.
        let gives_back = |action: &Action| matches!(action, Action::Release(..) | Action::Guard(_, false));
        if !actions.iter().all(gives_back) {
            self.shared.check(&self.ledger, &after)?;
        }
        let mut begun = Begun::default();
        match self.begin(&after, form, peer, &records, &mut begun) {
            Ok(()) => {
                let handles = self.commit(after, begun, &records);
                Ok((Answer::Granted { grants: grants.iter().map(|grant| grant.id).collect(), text, document }, handles))
            }
            Err(error) => {
                self.take_back(&after, begun, &records);
                Err(error)
            }
        }
    }

    pub(super) fn asker(&self, rights: &Rights<'_>) -> Asker {
        let (quotas, uid) = (&self.settings.quotas, rights.uid);
        let quota = rights.groups.map_or_else(|| quotas.by_handle(uid), |groups| quotas.of(uid, groups));
        Asker { uid: rights.uid, now_s: now_s(), quota }
    }

    /// Decides. Programs that other processes hold cannot be moved from here.
    fn decide(&self, actions: &[Action], asker: &Asker) -> Result<Result<Admitted, Refusal>, BrokerError> {
        let decided = decide(&self.ledger, actions, asker)?;
        let moves_others = |admitted: &Admitted| admitted.moved.iter().any(|moved| !self.held.contains_key(&moved.id));
        if !decided.as_ref().is_ok_and(moves_others) {
            return Ok(decided);
        }
        let mut all_stay = self.ledger.clone();
        all_stay.rules.keep_tenants = true;
        let mut decided = decide(&all_stay, actions, asker)?;
        if let Ok(admitted) = &mut decided {
            admitted.after.rules.keep_tenants = self.ledger.rules.keep_tenants;
        }
        Ok(decided)
    }

    /// Carries out the steps that can be taken back.
    fn begin(
        &mut self,
        after: &Ledger,
        form: &Form,
        peer: &Peer,
        records: &Records,
        begun: &mut Begun,
    ) -> Result<(), BrokerError> {
        let all = after.facts.machine.cpus().to_string();
        for (id, from, to) in self.reshapings(after) {
            let Some(held) = self.held.get_mut(&id) else { continue };
            begun.reshaped.push((id, from.clone(), to.clone()));
            held.reshape(&from, &to, &all)?;
        }
        for grant in after.grants().filter(|grant| self.ledger.grant(grant.id).is_none()) {
            let handle = if matches!(form, Form::Held) { Some(Handle::new()?) } else { None };
            let mut held = self.make(grant, after, form, peer)?;
            let (own, other) = handle.unzip();
            held.end = own.map_or(End::Release, End::LastHolder);
            begun.made.push((grant.id, held, other));
        }
        let is_here = |id: GrantId| self.held.contains_key(&id) || begun.made.iter().any(|(made, ..)| *made == id);
        let own: Vec<Grant> = after.grants().filter(|grant| is_here(grant.id)).cloned().collect();
        let changed: Vec<&Grant> = own.iter().filter(|grant| self.ledger.grant(grant.id) != Some(*grant)).collect();
        self.shared.follow(after, own.iter().cloned())?;
        Ok(changed.into_iter().try_for_each(|grant| {
            let made = begun.made.iter().find(|(id, ..)| *id == grant.id).map(|(_, held, _)| held);
            let held = made.or_else(|| self.held.get(&grant.id));
            held.map_or(Ok(()), |held| held.record(records, grant, after))
        })?)
    }

    /// The grants whose groups are others after a change of the ledger, with what these have before and after.
    fn reshapings(&self, after: &Ledger) -> Vec<(GrantId, Shape, Shape)> {
        let reshaping = |id: &GrantId| {
            let from = Shape::of(self.ledger.grant(*id)?, &self.ledger);
            let to = after.grant(*id).map_or_else(|| from.without_cores(), |has| Shape::of(has, after));
            Some((*id, from, to))
        };
        let mut all: Vec<_> = self.held.keys().filter_map(reshaping).filter(|(_, from, to)| from != to).collect();
        // The kernel ends a partition whose CPUs another one takes: those that give CPUs come first.
        all.sort_by_key(|(_, from, to)| !to.all_cpus().is_subset(&from.all_cpus()));
        all
    }

    /// Ends a grant: its programs go on among the others.
    pub fn end(&mut self, id: GrantId) {
        self.see_others();
        let Some(held) = self.held.remove(&id) else { return };
        self.usage.iter_mut().for_each(|usage| usage.forget(id));
        let mut after = self.ledger.clone();
        after.release(id);
        let mut failed: Vec<String> = self.follow(&after).err().map(|error| chain(&error)).into_iter().collect();
        failed.extend(self.shared.too_fine(&after));
        failed.extend(held.undo().failed);
        let all = after.facts.machine.cpus().to_string();
        for (id, from, to) in self.reshapings(&after) {
            let reshaped = self.held.get_mut(&id).map(|held| held.reshape(&from, &to, &all));
            failed.extend(reshaped.and_then(Result::err).map(|error| chain(&error)));
        }
        self.ledger = after;
        self.changes += 1;
        self.publish();
        let removed = Records::lock(&self.settings.records).map(|records| records.remove(id));
        failed.extend(removed.err().map(|error| chain(&error)));
        let failed = failed.into_iter().map(|text| format!("grant {id}: {text}"));
        self.note_all(&failed.collect::<Vec<_>>());
    }

    fn make(&self, grant: &Grant, after: &Ledger, form: &Form, peer: &Peer) -> Result<Held, BrokerError> {
        let places = (base_of(self.zone.as_ref())?, group_of(peer, &Cgroups::find()?)?);
        let (journal, put_back) = Journal::open(&self.settings.folder, &format!("grant-{}", grant.id))?;
        if !put_back.is_nothing() {
            (self.settings.note)(&format!("{}:\n{put_back}", put_back.heading()));
        }
        let adopted = if let Form::Adopted(group) = form { Some(group) } else { None };
        Held::make(grant.id, &Shape::of(grant, after), journal, places, adopted).map_err(|failed| {
            let (error, journal) = *failed;
            self.note_all(&journal.restore().failed);
            error
        })
    }

    /// The rest, which cannot fail as a whole. Returns the handles of new grants.
    fn commit(&mut self, after: Ledger, begun: Begun, records: &Records) -> Vec<OwnedFd> {
        let gone: Vec<GrantId> = self.held.keys().copied().filter(|id| after.grant(*id).is_none()).collect();
        for id in gone {
            let Some(held) = self.held.remove(&id) else { continue };
            self.usage.iter_mut().for_each(|usage| usage.forget(id));
            let mut failed = held.undo().failed;
            failed.extend(records.remove(id).err().map(|error| error.to_string()));
            self.note_all(&failed);
        }
        self.ledger = after;
        self.changes += 1;
        let mut handles = Vec::new();
        for (id, held, handle) in begun.made {
            self.held.insert(id, held);
            handles.extend(handle);
        }
        self.publish();
        handles
    }

    /// Takes back what was begun, in reverse.
    fn take_back(&mut self, after: &Ledger, begun: Begun, records: &Records) {
        let before = self.ledger.clone();
        let mut failed = Vec::new();
        for (id, held, _) in begun.made.into_iter().rev() {
            failed.extend(held.undo().failed);
            // Perhaps it was not written yet.
            let _ = records.remove(id);
        }
        let all = before.facts.machine.cpus().to_string();
        for (id, from, to) in begun.reshaped.into_iter().rev() {
            let Some(held) = self.held.get_mut(&id) else { continue };
            failed.extend(held.reshape(&to, &from, &all).err().map(|error| chain(&error)));
        }
        for had in before.grants().filter(|had| after.grant(had.id) != Some(*had)) {
            // What cannot be written now was perhaps not written before either.
            let _ = self.held.get(&had.id).map(|held| held.record(records, had, &before));
        }
        failed.extend(self.follow(&before).err().map(|error| chain(&error)));
        self.note_all(&failed);
    }

    fn note_all(&self, failed: &[String]) {
        for text in failed {
            (self.settings.note)(text);
        }
    }
}

/// Decides. What names something that does not exist, or is another user's, is an error.
fn decide(ledger: &Ledger, actions: &[Action], asker: &Asker) -> Result<Result<Admitted, Refusal>, BrokerError> {
    match ledger.apply(actions, asker) {
        Err(Refusal::Unknown(text)) => Err(BrokerError::Wrong(text)),
        Err(refusal @ (Refusal::UnknownGrant(_) | Refusal::NotYours(_))) => {
            Err(BrokerError::NoGrant(refusal.to_string()))
        }
        decided => Ok(decided),
    }
}
