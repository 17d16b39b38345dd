//! What holders of grants say about how they do, and what follows for the rest of the machine.

use crate::broker::BrokerError;
use crate::broker::book::{Book, now_s};
use machine::chain;
use reserve::{GrantId, Service, ServiceLevel, Throttle};
use std::time::Instant;

impl Book {
    /// A holder has said how it does.
    pub(super) fn hear(&mut self, id: GrantId, service: Service) -> Result<(), BrokerError> {
        let service = service.check().map_err(|error| BrokerError::Wrong(error.to_string()))?;
        let is_guarded = self.ledger.grant(id).is_some_and(|grant| grant.request.isolate.controller);
        if !is_guarded || self.ledger.facts.control.throttle == Throttle::None {
            let why = format!("nothing of the rest is limited for grant {id}: --isolate controller guards its memory");
            return Err(BrokerError::Wrong(why));
        }
        let before = self.ledger.levels.get(&id).copied();
        self.set_level(id, ServiceLevel::after(before, service, Instant::now(), now_s()));
        Ok(())
    }

    /// When silence of a holder changes something.
    pub(super) fn next_silence(&self) -> Option<Instant> {
        self.ledger.levels.values().filter_map(ServiceLevel::next).min()
    }

    /// Counts the periods of holders that have fallen silent.
    pub(super) fn count_silence(&mut self, now: Instant) {
        let is_due = |level: &ServiceLevel| level.next().is_some_and(|next| next <= now);
        let silent = self.ledger.levels.iter().filter(|(_, level)| is_due(level));
        let silent: Vec<(GrantId, ServiceLevel)> = silent.map(|(id, level)| (*id, *level)).collect();
        for (id, mut level) in silent {
            level.wait(now);
            self.set_level(id, level);
        }
    }

    fn set_level(&mut self, id: GrantId, level: ServiceLevel) {
        let before = self.ledger.levels.insert(id, level);
        if !level.has_same_part(before) {
            let ledger = self.ledger.clone();
            if let Err(error) = self.follow(&ledger) {
                (self.settings.note)(&format!("grant {id}: {}", chain(&error)));
            }
        }
        if level.is_news(before) {
            self.record(id);
            self.publish();
        }
    }
}
