//! What others see of the grants at present, and what follows from what is drawn from memory.

use crate::broker::LiveGrant;
use crate::broker::book::Book;
use crate::grants::{GrantState, LiveState, RecordsError};
use linux::{PrivateFolder, Trust};
use machine::chain;
use reserve::{Flow, Forecast, Grant, GrantId};
use std::sync::PoisonError;
use std::time::Instant;

impl Book {
    /// Counts what is drawn, if it is time. Forecasts and limits of the rest follow, and a grant that others slow by more
    /// than its bound is reported.
    pub(super) fn count_usage(&mut self, now: Instant) {
        if !self.usage.as_ref().is_some_and(|usage| usage.is_due(now)) {
            return;
        }
        let before = self.ledger.forecast();
        // Grants of other processes end without a word.
        self.see_others();
        let Some(usage) = &mut self.usage else { return };
        let held = &self.held;
        // Those of other processes have their programs.
        let runs = |id: GrantId| held.get(&id).is_none_or(|held| held.group.has_processes());
        let counted = usage.count(now, &self.ledger, runs);
        let failed = counted.as_ref().err().map(|error| format!("what grants draw is not counted: {error}"));
        if failed != self.uncounted {
            if let Some(text) = &failed {
                (self.settings.note)(text);
            }
            self.uncounted = failed;
        }
        if !counted.unwrap_or(true) {
            return;
        }
        self.ledger.usage = usage.most(self.ledger.facts.core_most_bytes_per_s());
        let forecast = self.ledger.forecast();
        self.report_slow(&forecast);
        if forecast.rest_limit != before.rest_limit || self.unfollowed.is_some() {
            let ledger = self.ledger.clone();
            let failed = self.follow(&ledger).err().map(|error| chain(&error));
            if failed != self.unfollowed {
                if let Some(text) = &failed {
                    (self.settings.note)(text);
                }
                self.unfollowed = failed;
            }
        }
        self.show(&forecast);
    }

    /// Shows the grants to who watches them.
    pub(super) fn publish(&mut self) {
        self.show(&self.ledger.forecast());
    }

    fn show(&mut self, forecast: &Forecast) {
        let live: Vec<LiveGrant> = self.held.keys().filter_map(|id| self.live(*id, forecast)).collect();
        let written = self.write_state(&live).err().map(|error| chain(&error));
        if written != self.unwritten {
            if let Some(text) = &written {
                (self.settings.note)(text);
            }
            self.unwritten = written;
        }
        *self.settings.live.lock().unwrap_or_else(PoisonError::into_inner) = live;
    }

    fn live(&self, id: GrantId, forecast: &Forecast) -> Option<LiveGrant> {
        let (grant, held) = (self.ledger.grant(id)?.clone(), self.held.get(&id)?);
        let is_lost = held.watch.lost().is_some();
        let drawn = self.usage.as_ref().and_then(|usage| usage.drawn_by(id));
        Some(LiveGrant {
            rest_limit: forecast.rest_limit_of(&grant),
            forecast_slowdown: forecast.slowdown.get(&id).copied().filter(|_| !is_lost),
            is_lost,
            service: self.ledger.levels.get(&id).copied(),
            drawn,
            times_above_bound: held.times_above_bound,
            grant,
        })
    }

    fn write_state(&self, live: &[LiveGrant]) -> Result<(), RecordsError> {
        let folder = PrivateFolder::open(&self.settings.records, Trust::Owners)?;
        if live.is_empty() {
            LiveState::remove(&folder);
            return Ok(());
        }
        let of = |live: &LiveGrant| {
            let (forecast_slowdown, times_above_bound) = (live.forecast_slowdown, live.times_above_bound);
            (live.grant.id, GrantState { forecast_slowdown, times_above_bound })
        };
        let drawn = self.usage.as_ref().map_or_else(Vec::new, |usage| usage.drawn().to_vec());
        let state = LiveState::new(live.iter().map(of).collect(), drawn, self.ledger.usage.clone())?;
        state.write(&folder)
    }

    /// Notes the guarded grants that others slow by more than their bounds since the last look, and counts them.
    fn report_slow(&mut self, forecast: &Forecast) {
        for (id, held) in self.held.iter_mut().filter(|(_, held)| held.watch.lost().is_none()) {
            let guarded = self.ledger.grant(*id).filter(|grant| grant.request.isolate.controller);
            let above = guarded.zip(forecast.slowdown.get(id)).filter(|(grant, by)| **by > grant.request.most_slowdown);
            // Not by what nothing is known of.
            let said = above.and_then(|(grant, by)| slow_text(grant, *by, &self.ledger.usage));
            if let Some(text) = said.as_ref().filter(|_| !held.is_above_bound) {
                held.times_above_bound += 1;
                (self.settings.note)(text);
            }
            held.is_above_bound = said.is_some();
        }
    }
}

/// Says by how much others slow a grant, and which grant draws most from its memory. None if no other is known to draw.
fn slow_text(grant: &Grant, by: f64, usage: &[Flow]) -> Option<String> {
    let others = usage.iter().filter(|flow| grant.memory.contains(flow.to) && flow.of != Some(grant.id));
    let rate = |flow: &Flow| flow.load.read + flow.load.write;
    let others = others.filter(|flow| rate(flow) > 0.0).filter_map(|flow| Some((flow.of?, flow)));
    let (id, most) = others.max_by(|(_, a), (_, b)| rate(a).total_cmp(&rate(b)))?;
    let (title, bound, by) = (grant.title(), 100.0 * grant.request.most_slowdown, 100.0 * by);
    let (drawn, node) = (rate(most) / 1e9, most.to);
    Some(format!(
        "by the most that was drawn lately, others slow {title} by {by:.1} %, and its bound is {bound:.1} %: grant {id} draws \
         {drawn:.1} GB/s from node {node}"
    ))
}
