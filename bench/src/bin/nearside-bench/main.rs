//! Measures every figure of docs/figures.md for this host and for the virtual machines.

mod act_speed;
mod agent_idle;
mod busy;
mod campaign_speed;
mod clock;
mod cold_build;
mod heap_speed;
mod host_time;
mod lab_speed;
mod look_speed;
mod model_speed;
mod page;
mod placement_speed;
mod preload_speed;
mod profile_speed;
mod programs;
mod record_speed;
mod reserve_speed;
mod saved_process;
mod target;
mod trace_speed;

use bench::Error;
use clap::{Parser, ValueEnum};
use page::Page;
use report::Table;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use target::Row;

/// Measure the figures of docs/figures.md
///
/// Prints a table of targets and measured figures of each part, and fails if one is missed. Run it on an idle host.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Runs of each program in the lab; figures are medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(2..))]
    runs: u8,
    /// Also build the workspace from nothing, and after a change, which takes minutes
    #[arg(long)]
    cold_build: bool,
    /// Measure only these [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART,...")]
    only: Vec<Part>,
    /// Enter what was measured in the table of this page; docs/figures.md has one
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The model alone
    Model,
    /// Commands that inspect programs
    Look,
    /// The lab
    Lab,
    /// The lab's clock
    Clock,
    /// Programs in the lab that were not written for nearside
    Programs,
    /// Commands that act on programs
    Act,
    /// The service, with nothing to do
    Agent,
    /// Flows of objects and threads
    Profile,
    /// Decisions of policies
    Placement,
    /// Lists of campaigns
    Campaign,
    /// Decisions about grants
    Reserve,
    /// The library that reports objects
    Preload,
    /// The allocator, beside others
    Heap,
    /// Traces, and perf.data files
    Trace,
    /// Recording of programs, in the lab and on this host
    Record,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut rows = Vec::new();
    let measured = measure(&arguments, &mut rows);
    // Parts take minutes: what was measured is kept, also if a later one fails.
    let entered = arguments.page.as_ref().map_or(Ok(()), |page| enter(page, &rows));
    bench::exit_code("nearside-bench", measured.and(entered).map(|()| tell(&rows)))
}

/// Enters rows in the page's table.
fn enter(path: &Path, rows: &[Row]) -> Result<(), Error> {
    let text = fs::read_to_string(path).map_err(Error::system("read the page of figures"))?;
    let no_table = |why| Error::system("read the page of figures")(std::io::Error::other(why));
    let mut page = Page::new(&text).map_err(no_table)?;
    page.enter(rows);
    for what in page.unexplained() {
        eprintln!("{what}: the target is missed; its remark in {} should say why", path.display());
    }
    fs::write(path, page.to_string()).map_err(Error::system("write the page of figures"))
}

fn tell(rows: &[Row]) -> ExitCode {
    let missed: Vec<&Row> = rows.iter().filter(|row| !row.is_met()).collect();
    for row in &missed {
        eprintln!("missed: {}: {}, the target is {}", row.what, row.measured(), row.target);
    }
    if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure(arguments: &Arguments, rows: &mut Vec<Row>) -> Result<(), Error> {
    let parts = if arguments.only.is_empty() { Part::value_variants() } else { &arguments.only };
    for part in parts {
        let measured = match part {
            Part::Model => model_speed::measure()?,
            Part::Look => look_speed::measure()?,
            Part::Lab => lab_speed::measure(arguments.runs.into())?,
            Part::Clock => clock::measure()?,
            Part::Programs => programs::measure()?,
            Part::Act => act_speed::measure()?,
            Part::Agent => agent_idle::measure()?,
            Part::Profile => profile_speed::measure()?,
            Part::Placement => placement_speed::measure()?,
            Part::Campaign => campaign_speed::measure()?,
            Part::Reserve => reserve_speed::measure()?,
            Part::Preload => preload_speed::measure()?,
            Part::Heap => heap_speed::measure()?,
            Part::Trace => trace_speed::measure()?,
            Part::Record => record_speed::measure()?,
        };
        print!("\n{}", table(&measured));
        rows.extend(measured);
    }
    if arguments.cold_build {
        let built = cold_build::measure()?;
        print!("\n{}", table(&built));
        rows.extend(built);
    }
    Ok(())
}

fn table(rows: &[Row]) -> Table {
    // Commands are flush left, so they are not a table column.
    let width = rows.iter().map(|row| row.command.len()).max().unwrap_or(0);
    let mut table = Table::new(["what", "target", "measured", "", &format!("{:width$}", "command")]);
    for row in rows {
        let verdict = if row.is_met() { "" } else { "missed" };
        let command = format!("{:width$}", row.command);
        table.row([row.what.clone(), row.target.to_string(), row.measured(), verdict.to_owned(), command]);
    }
    table
}
