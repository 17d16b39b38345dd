//! Grants of an agent that was killed.

use crate::broker::held::Held;
use crate::broker::zone_group::{ZoneGroup, base_of};
use crate::broker::{BrokerError, Settings};
use crate::grants::{Shape, left_records};
use reserve::{Grant, ServiceLevel};

/// Grants of an agent that was killed, which go on: those that stay until they are released, and those that have processes.
/// Dropping them ends them.
#[derive(Debug, Default)]
pub struct Left {
    pub(super) grants: Vec<(Grant, Held, Option<ServiceLevel>)>,
    /// Their zone, if it is isolated.
    pub(super) zone: Option<ZoneGroup>,
}

impl Left {
    /// Takes their journals, before another process opens a journal in their folder and so ends them. What is not as its
    /// record says is left to that.
    pub fn take(settings: &Settings) -> Self {
        let facts = &settings.ledger.facts;
        let mut records = left_records(&settings.records);
        records.retain(|record| record.grant.is_of(facts));
        let mut ledger = settings.ledger.clone();
        for record in &records {
            ledger.adopt(record.grant.clone());
        }
        let failed = |error: BrokerError| (settings.note)(&machine::chain(&error));
        let zone = ZoneGroup::take_up(settings).unwrap_or_else(|error| {
            failed(error);
            None
        });
        if zone.is_none() && settings.isolated_zone().is_some() && !records.is_empty() {
            (settings.note)("the zone is isolated from now on: grants of an agent that was killed end");
            return Self::default();
        }
        let base = match base_of(zone.as_ref()) {
            Ok(base) => base,
            Err(error) => {
                failed(error);
                return Self::default();
            }
        };
        let mut taken = Vec::new();
        for record in records {
            let Some(grant) = ledger.grant(record.grant.id).cloned() else { continue };
            match Held::take_up(&record, &Shape::of(&grant, &ledger), &settings.folder, base.clone()) {
                Ok(Some(held)) => taken.push((grant, held, record.service)),
                Ok(None) => {}
                Err(error) => (settings.note)(&format!("{}: {}", grant.title(), machine::chain(&error))),
            }
        }
        Self { grants: taken, zone }
    }
}
