//! `nearside sql`: queries the tables of a trace.

use crate::open_trace::default_bytes;
use crate::options::usage_error::UsageError;
use crate::output;
use clap::Args;
use indicatif::ProgressBar;
use machine::size;
use report::Table;
use std::collections::HashSet;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use trace::Trace;
use trace::sql::{Answer, COLUMNS, Database};

/// Number of rows that are buffered to align columns: aligning all would need the whole result in memory.
const ALIGNED: usize = 8192;
/// Queries that take longer show progress.
const SOON: Duration = Duration::from_secs(2);

/// Query the tables of a trace in SQL
///
/// The tables are those of docs/trace.md: samples, events, stacks, counts, images, segments, ranges and code; a table
/// that the trace lacks is empty. Without a query, tables and their columns are listed. The SQL dialect is
/// DataFusion's, read-only: statements that create, change or write anything are rejected. If a recording was cut off,
/// its end is missing, and a note says so. Needs no privileges.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside sql trace                                              tables, columns and their types
  nearside sql trace 'SELECT count(*) FROM samples'
  nearside sql trace 'SELECT node, avg(latency_ns) FROM samples GROUP BY node' --json
  nearside sql trace \"$(cat query.sql)\"

Exit codes:
  0  all went well
  1  the trace cannot be read, or the query failed while it was answered; the message says why
  2  the command line or the query is wrong, or would write")]
pub struct Arguments {
    /// The trace: a folder of nearside record
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    /// One SQL query [default: list tables and columns]
    #[arg(value_name = "QUERY", default_value = COLUMNS, hide_default_value = true)]
    query: String,

    /// As JSON: an array with one object per row
    #[arg(long)]
    json: bool,

    /// Memory that a query may take to sort, group and join, such as 8G [default: half of the memory that this host has
    /// available, and at most 200 times the trace's own size or 128 MiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_memory: Option<u64>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let trace = Trace::open(&arguments.trace)?;
    let most_bytes = arguments.max_memory.unwrap_or_else(|| default_bytes(&arguments.trace));
    let database = Database::new(&trace, most_bytes)?;
    let answer = database.query(&arguments.query).map_err(UsageError::boxed)?;
    if !trace.about().complete {
        // With standard error closed there is nowhere to report this.
        let _ = writeln!(io::stderr(), "nearside: note: the recording was cut off: its end is missing");
    }
    let progress = Progress::new();
    if arguments.json {
        print_json(answer, &progress)?
    } else {
        print_table(answer, &progress)?
    }
    Ok(ExitCode::SUCCESS)
}

fn print_table(answer: Answer<'_>, progress: &Progress) -> Result<(), Box<dyn Error>> {
    let (mut table, mut rows) = (Table::new(answer.columns()), 0);
    for batch in answer {
        for row in batch?.texts()? {
            // Names come from the recorded program: escape them, so that they cannot control the terminal.
            table.row(row.iter().map(|cell| cell.replace(char::is_control, "?")));
            rows += 1;
        }
        if rows >= ALIGNED {
            progress.end();
            if !output::write_more(&table.to_string())? {
                return Ok(());
            }
            (table, rows) = (Table::default(), 0);
        }
    }
    progress.end();
    Ok(output::write(&table.to_string(), None)?)
}

fn print_json(answer: Answer<'_>, progress: &Progress) -> Result<(), Box<dyn Error>> {
    let mut names = HashSet::new();
    if let Some(twice) = answer.columns().into_iter().find(|name| !names.insert(name.clone())) {
        return Err(UsageError::boxed(format!(
            "two columns of the answer are called {twice}, which JSON cannot distinguish: rename one with AS"
        )));
    }
    let mut before = "[\n";
    for batch in answer {
        let mut text = String::new();
        for row in batch?.json()? {
            text.push_str(before);
            text.push_str(&row);
            before = ",\n";
        }
        progress.end();
        if !output::write_more(&text)? {
            return Ok(());
        }
    }
    progress.end();
    Ok(output::write(if before == "[\n" { "[]\n" } else { "\n]\n" }, None)?)
}

/// Shows that a query is running, on a terminal and after a while.
struct Progress(ProgressBar);

impl Progress {
    fn new() -> Self {
        let line = ProgressBar::new_spinner().with_message("answering");
        let later = line.clone();
        thread::spawn(move || {
            thread::sleep(SOON);
            // A finished query does not tick.
            later.enable_steady_tick(Duration::from_millis(100));
        });
        Self(line)
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}
