//! `nearside reserve list`, `explain` and `release`: grants that are carried out on this machine.

use super::machine_options::MachineOptions;
use super::run::{records_folder, with_grants};
use crate::output::{self, json};
use agent::grants::{GrantRecord, Records, read_records};
use clap::Args;
use report::{GrantReport, Table};
use reserve::{Asker, GrantId, Refusal};
use serde_json::json;
use std::error::Error;
use std::process::ExitCode;

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
    /// Its number
    #[arg(value_name = "GRANT")]
    grant: u32,
    #[command(flatten)]
    machine: MachineOptions,
}

/// End a grant, as root; its program goes on among the others
#[derive(Debug, Args)]
pub struct Release {
    /// Its number
    #[arg(value_name = "GRANT")]
    grant: u32,
}

pub fn list(arguments: &List, asker: &Asker) -> Result<ExitCode, Box<dyn Error>> {
    let records = read_records(&records_folder());
    if arguments.json {
        output::write(&json::document(&json!({ "grants": records }))?, None)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["grant", "owner", "CPUs", "idle", "nodes", "guarded", "since", "program"]);
    for GrantRecord { grant, command, .. } in &records {
        let guarded = if grant.request.isolate.controller { "yes" } else { "no" };
        let since = format!("{} s", asker.now_s.saturating_sub(grant.since_s));
        table.row([
            grant.id.to_string(),
            grant.owner.to_string(),
            grant.cpus.to_string(),
            grant.idle_siblings.to_string(),
            grant.memory.to_string(),
            guarded.to_owned(),
            since,
            linux::printable(command),
        ]);
    }
    let text = if records.is_empty() { "no grants\n".to_owned() } else { table.to_string() };
    output::write(&text, None)?;
    Ok(ExitCode::SUCCESS)
}

pub fn explain(arguments: &Explain, asker: &Asker) -> Result<ExitCode, Box<dyn Error>> {
    let ledger = with_grants(arguments.machine.ledger(asker)?);
    let id = GrantId(arguments.grant);
    let grant = ledger.grant(id).ok_or_else(|| Refusal::UnknownGrant(id).to_string())?;
    let by = ledger.forecast().slowdown.get(&id).copied();
    let by = by.map_or_else(String::new, |by| format!("  forecast +{:.1} % at worst\n", 100.0 * by));
    output::write(&format!("{}\n{by}", GrantReport::new(grant, &ledger.facts)), None)?;
    Ok(ExitCode::SUCCESS)
}

pub fn release(arguments: &Release) -> Result<ExitCode, Box<dyn Error>> {
    let id = GrantId(arguments.grant);
    let folder = records_folder();
    if !read_records(&folder).iter().any(|record| record.grant.id == id) {
        return Err(Refusal::UnknownGrant(id).to_string().into());
    }
    let removed = Records::lock(&folder)?.remove(id);
    removed.map_err(|error| format!("cannot release grant {id}: {error}"))?;
    Ok(ExitCode::SUCCESS)
}
