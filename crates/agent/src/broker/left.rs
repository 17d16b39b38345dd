//! Grants of an agent that was killed.

use crate::broker::Settings;
use crate::broker::held::Held;
use crate::grants::{Shape, left_records};
use reserve::{Grant, ServiceLevel};

/// Grants of an agent that was killed, which go on: those that stay until they are released, and those that have processes.
/// Dropping them ends them.
#[derive(Debug, Default)]
pub struct Left(pub(super) Vec<(Grant, Held, Option<ServiceLevel>)>);

impl Left {
    /// Takes their journals, before another process opens a journal in their folder and so ends them. What is not as its
    /// record says is left to that.
    pub fn take(settings: &Settings) -> Self {
        let facts = &settings.ledger.facts;
        let mut records = left_records(&settings.records);
        // The machine's description may have changed meanwhile.
        let is_of_machine = |grant: &Grant| {
            grant.cores.iter().all(|&core| core < facts.cores.len())
                && grant.cache.is_none_or(|cache| cache < facts.caches.len())
                && grant.memory.iter().all(|node| facts.machine.node(node).is_some())
        };
        records.retain(|record| is_of_machine(&record.grant));
        let mut ledger = settings.ledger.clone();
        for record in &records {
            ledger.adopt(record.grant.clone());
        }
        let mut taken = Vec::new();
        for record in records {
            let Some(grant) = ledger.grant(record.grant.id).cloned() else { continue };
            match Held::take_up(&record, &Shape::of(&grant, &ledger), &settings.folder) {
                Ok(Some(held)) => taken.push((grant, held, record.service)),
                Ok(None) => {}
                Err(error) => (settings.note)(&format!("{}: {}", grant.title(), machine::chain(&error))),
            }
        }
        Self(taken)
    }
}
