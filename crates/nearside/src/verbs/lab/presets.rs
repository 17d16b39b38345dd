//! `nearside lab list` and `nearside lab show`: the available machines.

use crate::options::candidates;
use crate::output;
use crate::output::json;
use crate::output::terminal::Terminal;
use clap::Args;
use clap_complete::ArgValueCompleter;
use machine::{Machine, presets};
use report::{MachineText, Table};
use serde::Serialize;
use std::error::Error;
use std::process::ExitCode;

/// List the machines that the lab can simulate
#[derive(Debug, Args)]
pub struct ListArguments {
    /// Print JSON: name, description, nodes and cpus of each
    #[arg(long)]
    json: bool,
}

/// Show one of the machines: as `nearside topology --from`, with the source of each number
#[derive(Debug, Args)]
pub struct ShowArguments {
    /// A preset, or a machine file (a path with a / or ending in .toml)
    #[arg(value_name = "PRESET|FILE", add = ArgValueCompleter::new(candidates::lab_machines))]
    machine: String,
    /// Print the machine description as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listed {
    name: String,
    description: String,
    nodes: usize,
    cpus: usize,
}

/// The JSON form.
#[derive(Serialize)]
struct Listing<'a> {
    machines: &'a [Listed],
}

pub fn list(arguments: &ListArguments, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let machines: Result<Vec<Machine>, _> = presets::names().into_iter().map(presets::find).collect();
    let listed = |machine: Machine| Listed {
        nodes: machine.nodes.len(),
        cpus: machine.cpus().len(),
        name: machine.name,
        description: machine.description,
    };
    let listed: Vec<Listed> = machines?.into_iter().map(listed).collect();
    let text = if arguments.json {
        json::document(&Listing { machines: &listed })?
    } else {
        let mut table = Table::new(["machine", "nodes", "CPUs"]);
        for machine in &listed {
            let cells = [machine.name.clone(), machine.nodes.to_string(), machine.cpus.to_string()];
            table.noted(cells, machine.description.clone());
        }
        terminal.text(&table)
    };
    output::write(&text, None)?;
    Ok(ExitCode::SUCCESS)
}

pub fn show(arguments: &ShowArguments, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let machine = presets::load(&arguments.machine)?;
    let text = if arguments.json {
        json::document(&machine)?
    } else {
        terminal.text(&MachineText::new(&machine).with_sources(true))
    };
    output::write(&text, None)?;
    Ok(ExitCode::SUCCESS)
}
