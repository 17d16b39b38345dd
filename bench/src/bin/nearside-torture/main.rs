//! The campaign against the promises of SECURITY.md and docs/agent.md: changed inputs, attacks of another user, kills,
//! failing system calls and interrupts, in numbers that take hours. `make torture` runs it.

mod faults;
mod inputs;
mod interrupts;
mod kills;
mod lab_kills;
mod load;
mod random;

use bench::attacks::{ATTACKS, Attack, Ground};
use bench::{Error, exit_code, nearside};
use clap::Parser;
use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Attack nearside's promises: changed inputs, other users, kills, failing system calls, interrupts
///
/// Prints a table in Markdown, and exits with 1 if a promise was broken. Needs root: the other users are real ones.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Only these parts: inputs, attacks, kills, lab-kills, faults, interrupts [default: all]
    #[arg(value_name = "PART")]
    only: Vec<String>,
    /// Changed inputs, over all parsers
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    inputs: u64,
    /// Starts or tries of each attack
    #[arg(long, value_name = "N", default_value_t = 2000)]
    starts: usize,
    /// Kills of the agent on this host
    #[arg(long, value_name = "N", default_value_t = 1000)]
    kills: usize,
    /// Kills of the agent in a virtual machine
    #[arg(long, value_name = "N", default_value_t = 50)]
    lab_kills: usize,
    /// System calls made to fail, at most; 0: each one's first, second, middle and last
    #[arg(long, value_name = "N", default_value_t = 0)]
    faults: usize,
    /// Interrupts of the lab
    #[arg(long, value_name = "N", default_value_t = 300)]
    interrupts: usize,
    /// First number of the random ones; the same ones come from the same number [default: from the time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Where inputs that break a promise are kept
    #[arg(long, value_name = "FOLDER", default_value = "target/torture")]
    keep: PathBuf,
    /// Run a batch of changed inputs in this process: TARGET SEED COUNT
    #[arg(long, hide = true, num_args = 3)]
    batch: Option<Vec<String>>,
}

/// A row of the table.
struct Row {
    what: String,
    done: String,
    broken: Vec<String>,
    seconds: f64,
}

/// What a part has done, in words, and the promises that were broken, a sentence each.
type Part = io::Result<(String, Vec<String>)>;

fn main() -> ExitCode {
    exit_code("nearside-torture", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let failed = Error::system("run a batch of changed inputs");
    if let Some([target, seed, count]) =
        arguments.batch.as_deref().map(|words| words.iter().map(String::as_str).collect::<Vec<_>>()).as_deref()
    {
        inputs::batch(target, seed, count).map_err(failed)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Error::system("act as other users")(io::ErrorKind::PermissionDenied.into()));
    }
    let nearside = nearside()?;
    let programs = nearside.parent().unwrap_or(&nearside);
    let seed = arguments.seed.unwrap_or_else(random::from_time);
    eprintln!("seed {seed}");
    let mut rows = Vec::new();
    let mut part = |name: &str, what: &str, run: &mut dyn FnMut() -> Part| {
        if arguments.only.is_empty() || arguments.only.iter().any(|only| only == name) {
            rows.push(row(what, run));
        }
    };
    part("inputs", "changed inputs", &mut || inputs::run(arguments.inputs, seed, &arguments.keep));
    for attack in ATTACKS {
        let what = format!("{}: {}", attack.name, attack.tries);
        part("attacks", &what, &mut || attacked(attack, programs, arguments.starts));
    }
    part("kills", "agent killed at random moments", &mut || kills::run(programs, arguments.kills, seed));
    part("lab-kills", "agent killed on a virtual machine", &mut || lab_kills::run(arguments.lab_kills));
    part("faults", "agent's system calls fail, one a run", &mut || faults::run(programs, arguments.faults));
    part("interrupts", "lab interrupted at random moments", &mut || {
        interrupts::run(programs, arguments.interrupts, seed)
    });
    print(&rows);
    Ok(if rows.iter().all(|row| row.broken.is_empty()) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn attacked(attack: Attack, programs: &Path, starts: usize) -> Part {
    let ground = Ground::new(programs)?;
    let tally = (attack.run)(&ground, starts)?;
    Ok((format!("{} tries, {} of them with the service at work", tally.tried, tally.worked), tally.won))
}

/// Runs a part. A part that cannot run at all is a failure: it has shown nothing.
fn row(what: &str, run: &mut dyn FnMut() -> Part) -> Row {
    let began = Instant::now();
    let (done, broken) = run().unwrap_or_else(|error| {
        let cause = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
        ("nothing".to_owned(), vec![format!("cannot run: {error}{cause}")])
    });
    let row = Row { what: what.to_owned(), done, broken, seconds: began.elapsed().as_secs_f64() };
    eprintln!("{what}: {}, {} broken, {:.0} s", row.done, row.broken.len(), row.seconds);
    row.broken.iter().for_each(|broken| eprintln!("  {broken}"));
    row
}

fn print(rows: &[Row]) {
    println!("| what | done | promises broken | time, s |\n|---|---|---:|---:|");
    for Row { what, done, broken, seconds } in rows {
        println!("| {what} | {done} | {} | {seconds:.0} |", broken.len());
    }
}
