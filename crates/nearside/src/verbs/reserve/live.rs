//! `nearside reserve list` and `explain`: grants that are carried out on this machine.

use super::machine_options::MachineOptions;
use super::run::{records_folder, with_grants};
use super::through_agent::find;
use crate::output::terminal::Terminal;
use crate::output::{self, json};
use agent::grants::{GrantRecord, GrantState, LiveState, read_records};
use clap::Args;
use report::{GrantReport, Table, limited_text, service_text};
use reserve::{Asker, GrantId, ReadWrite, Refusal, Throttle};
use serde::Serialize;
use serde_json::json;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

/// List the grants of this machine
#[derive(Debug, Args)]
pub struct List {
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

/// Show a grant, and what it is forecast to suffer
#[derive(Debug, Args)]
pub struct Explain {
    /// Its number or name
    #[arg(value_name = "GRANT")]
    grant: String,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    machine: MachineOptions,
}

/// The columns of the list. Bandwidths are GB/s read and written.
const HEADING: [&str; 12] = [
    "grant",
    "owner",
    "CPUs",
    "idle",
    "nodes",
    "ways",
    "guarded",
    "promised",
    "drawn",
    "forecast",
    "since",
    "program or name",
];

/// A grant with what is known of it at present.
#[derive(Serialize)]
struct ListedGrant<'a> {
    #[serde(flatten)]
    record: &'a GrantRecord,
    forecast_slowdown: Option<f64>,
    times_above_bound: u64,
    /// What it has drawn from memory in the last period, bytes/s.
    drawn: Option<ReadWrite>,
}

pub fn list(arguments: &List, asker: &Asker, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let records = read_records(&records_folder());
    let state = LiveState::read(&records_folder());
    let of = |id: GrantId| state.as_ref().and_then(|state| state.grants.get(&id)).cloned().unwrap_or_default();
    let drawn = |of: Option<GrantId>| state.as_ref().and_then(|state| state.drawn_by(of));
    if arguments.json {
        let grants = records.iter().map(|record| {
            let GrantState { forecast_slowdown, times_above_bound } = of(record.grant.id);
            let drawn = drawn(Some(record.grant.id));
            ListedGrant { record, forecast_slowdown, times_above_bound, drawn }
        });
        let grants: Vec<ListedGrant<'_>> = grants.collect();
        output::write(&json::document(&json!({ "grants": grants, "rest_drawn": drawn(None) }))?, None)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(HEADING);
    for GrantRecord { grant, command, by_agent, throttle, .. } in &records {
        let guarded = guarded(grant.request.isolate.controller, *throttle);
        let ways = if grant.ways == 0 { "-".to_owned() } else { format!("{:#x}", grant.ways) };
        let since = format!("{} s", asker.now_s.saturating_sub(grant.since_s));
        table.row([
            grant.id.to_string(),
            grant.owner.to_string(),
            grant.cpus.to_string(),
            grant.idle_siblings.to_string(),
            grant.memory.to_string(),
            ways,
            guarded.to_owned(),
            rates(grant.request.bandwidth),
            rates(drawn(Some(grant.id))),
            of(grant.id).forecast_slowdown.map_or_else(|| "-".to_owned(), |by| format!("+{:.1} %", 100.0 * by)),
            since,
            linux::printable(if *by_agent { grant.request.name.as_deref().unwrap_or("-") } else { command }),
        ]);
    }
    let mut text = if records.is_empty() { "no grants\n".to_owned() } else { terminal.text(&table) };
    if let Some(rest) = drawn(None).filter(|_| !records.is_empty()) {
        text.extend(["all other CPUs draw ", &rates(Some(rest)), " GB/s (read/written)\n"]);
    }
    for GrantRecord { grant, lost, service, .. } in &records {
        text.extend(lost.iter().map(|why| format!("{}\n", withdrawn(grant.id, why))));
        text.extend(service.iter().map(|level| format!("grant {}: {}\n", grant.id, service_text(level, asker.now_s))));
    }
    output::write(&text, None)?;
    Ok(ExitCode::SUCCESS)
}

/// Bytes/s as a column has them: GB/s read and written.
fn rates(of: Option<ReadWrite>) -> String {
    of.map_or_else(|| "-".to_owned(), |of| format!("{:.1}/{:.1}", of.read / 1e9, of.write / 1e9))
}

/// Whether and how the controllers of a grant are guarded. Records of earlier versions do not say how.
fn guarded(is_guarded: bool, throttle: Option<Throttle>) -> &'static str {
    match throttle {
        _ if !is_guarded => "no",
        None | Some(Throttle::None) => "yes",
        Some(Throttle::Duty) => "by CPU time",
        Some(Throttle::Hardware) => "by hardware",
    }
}

/// What a grant's record says of a partition that is none.
fn withdrawn(id: GrantId, why: &str) -> String {
    format!(
        "grant {id}: its CPUs or nodes are not its own at present, and nothing is promised: {}",
        linux::printable(why)
    )
}

pub fn explain(arguments: &Explain, asker: &Asker, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let mut ledger = arguments.machine.ledger(asker)?;
    // A plan's grants come first: they are what its numbers mean.
    let number = arguments.grant.parse().ok().map(GrantId);
    let planned = number
        .filter(|id| ledger.grant(*id).is_some())
        .or_else(|| ledger.named(&arguments.grant).map(|grant| grant.id));
    let (id, throttle, lost, service) = if let Some(id) = planned {
        (id, ledger.facts.control.throttle, None, None)
    } else {
        let GrantRecord { grant, throttle, lost, service, .. } = find(&arguments.grant)?;
        ledger = with_grants(ledger);
        let levels = |record: GrantRecord| Some((record.grant.id, record.service?));
        ledger.levels.extend(read_records(&records_folder()).into_iter().filter_map(levels));
        let control = &mut Arc::make_mut(&mut ledger.facts).control;
        control.throttle = throttle.unwrap_or(control.throttle);
        (grant.id, control.throttle, lost, service)
    };
    let grant = ledger.grant(id).ok_or_else(|| Refusal::UnknownGrant(id).to_string())?;
    let forecast = ledger.forecast();
    let by = forecast.slowdown.get(&id).copied().filter(|_| lost.is_none());
    let limits = forecast.rest_limit_of(grant);
    let report = GrantReport::new(grant, &ledger.facts);
    let state = if planned.is_none() { LiveState::read(&records_folder()) } else { None };
    let drawn = state.and_then(|state| state.drawn_by(Some(id)));
    if arguments.json {
        let document = json!({
            "grant": report, "forecast_slowdown": by, "throttle": throttle, "rest_limit": limits, "service": service,
            "lost": lost, "drawn": drawn,
        });
        output::write(&json::document(&document)?, None)?;
    } else {
        let limits = report.limits_text(&limits);
        let service = service.map_or_else(String::new, |level| format!("  {}\n", service_text(&level, asker.now_s)));
        let by = by.map_or_else(String::new, |by| format!("  forecast +{:.1} % at worst\n", 100.0 * by));
        let drawn = drawn.map_or_else(String::new, |of| {
            let [read, written] = [of.read, of.write].map(|rate| rate / 1e9);
            format!("  draws {read:.2} GB/s in reads and {written:.2} GB/s in writes at present\n")
        });
        let limited = grant.request.isolate.controller.then(|| limited_text(throttle)).flatten();
        let limited = limited.map_or_else(String::new, |text| format!("  {text}\n"));
        let lost = lost.map_or_else(String::new, |why| format!("{}\n", withdrawn(id, &why)));
        terminal.print_lines(&format!("{report}\n{limits}{by}{drawn}{service}{limited}{lost}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_guarded_also_where_its_record_does_not_say_how() {
        let of = |throttle| [false, true].map(|is_guarded| guarded(is_guarded, throttle));
        assert_eq!(of(None), ["no", "yes"]);
        assert_eq!(of(Some(Throttle::Duty)), ["no", "by CPU time"]);
        assert_eq!(of(Some(Throttle::Hardware)), ["no", "by hardware"]);
    }
}
