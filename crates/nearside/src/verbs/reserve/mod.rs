//! `nearside reserve`: cores, caches, memory and bandwidth for one program.

mod live;
mod machine_options;
mod request_options;
mod run;
mod service;
mod through_agent;
mod wait;

pub use run::{SYSTEM_FOLDER, records_folder, to_carry_out};

pub use run::wait;

use crate::options::usage_error::UsageError;
use crate::output::terminal::Terminal;
use crate::output::{self, json};
use agent::broker::CallError;
use clap::{Args, Subcommand, ValueEnum};
use machine_options::{MachineOptions, read_plan, refused};
use report::{ReserveReport, facts_to_text};
use request_options::RequestOptions;
use reserve::{Action, Admitted, Asker, Call, Ledger, Performance, Refusal, Resource, Table, prolog, read_calls};
use rustix::process::getuid;
use serde_json::json;
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Not admitted.
const REFUSED: u8 = 3;
/// No agent makes grants.
const NO_AGENT: u8 = 4;

/// Give a program cores, caches, memory and bandwidth for itself, or see what it can have and which programs that slows
///
/// A decision needs no privileges and changes nothing. The agent carries grants out for the users that have a quota in its
/// configuration; without it, root may `run` programs. A decision is made for this machine, or for a preset or a machine file:
/// forecasts need latencies and bandwidths, which `nearside measure --output FILE` finds.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0  granted, or shown
  1  it failed; the message says what was tried, why it failed and what to do
  2  the command line is wrong, or names a CPU or node that does not exist
  3  not admitted; the answer names what is in the way and the nearest request that would be
  4  no agent makes grants, and the caller is not root")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(Box<Check>),
    Plan(Plan),
    Facts(FactsOf),
    Rcm(Rcm),
    Run(Box<run::Run>),
    Create(Box<through_agent::Create>),
    Adopt(Box<through_agent::Adopt>),
    Enter(through_agent::Enter),
    Upgrade(through_agent::Upgrade),
    List(live::List),
    Explain(live::Explain),
    Release(through_agent::Release),
}

/// Decide one request
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside reserve check --machine magny-cours-4p --isolate core,controller --bandwidth 5.9G
  nearside reserve check --machine host.toml --cores 4 --isolate cache --prefer latency --json

Exit codes: 0 granted, 1 failed, 2 wrong command line, 3 not admitted.")]
struct Check {
    #[command(flatten)]
    request: RequestOptions,
    #[command(flatten)]
    machine: MachineOptions,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// Decide the requests of a file as one: all are granted, or none
///
/// The file is TOML with a [[request]] for each, and its own rules; or lines of JSON with the twelve calls of RCM
/// (Razavi, 2011), each line a transaction. See docs/reserve.md.
#[derive(Debug, Args)]
struct Plan {
    /// The requests
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    machine: MachineOptions,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// Show what is known of a machine
#[derive(Debug, Args)]
struct FactsOf {
    #[command(flatten)]
    machine: MachineOptions,
    /// How to show it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table by node
    Text,
    /// Latencies, bandwidths and capacities, in SI units
    Json,
    /// Prolog facts, in the schema of RCM (Razavi, 2011)
    Prolog,
}

/// Start a program by a request in the words of RCM, the resource manager of Razavi's study (ETH Zurich, 2011)
///
/// docs/reserve.md says what nearside takes from it. Without arguments it prints this form. With --machine or another option,
/// the request is decided for that machine, and the application is not started.
#[derive(Debug, Args)]
struct Rcm {
    #[command(flatten)]
    machine: MachineOptions,
    /// The flags, the performance and the application
    #[arg(value_name = "WORDS", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// The form of the manager's shell.
const FORM: &str = "\
usage: rcm is_isolated(0/1) exclusive_cache(0/1) memory_load_control(0/1)
           memory_performance(0=latency | 1=read_bw | 2=write_bw) application [args]
";

pub fn run(arguments: &Arguments, terminal: Terminal) -> ExitCode {
    let done = match &arguments.command {
        Command::Check(arguments) => check(arguments, terminal),
        Command::Plan(arguments) => plan(arguments, terminal),
        Command::Facts(arguments) => show_facts(arguments, terminal),
        Command::Rcm(arguments) => rcm(arguments, terminal),
        Command::Run(arguments) => run::run(arguments, &asker()),
        Command::List(arguments) => live::list(arguments, &asker(), terminal),
        Command::Explain(arguments) => live::explain(arguments, &asker(), terminal),
        Command::Create(arguments) => through_agent::create(arguments, terminal),
        Command::Adopt(arguments) => through_agent::adopt(arguments, terminal),
        Command::Enter(arguments) => through_agent::enter(arguments),
        Command::Upgrade(arguments) => through_agent::upgrade(arguments, terminal),
        Command::Release(arguments) => through_agent::release(arguments, terminal),
    };
    done.unwrap_or_else(|error| {
        crate::print_error(error.as_ref());
        let no_agent = matches!(error.downcast_ref(), Some(CallError::NoBroker));
        ExitCode::from(match () {
            () if error.is::<UsageError>() => 2,
            () if error.is::<Refusal>() => REFUSED,
            () if no_agent => NO_AGENT,
            () => 1,
        })
    })
}

fn asker() -> Asker {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Asker { uid: getuid().as_raw(), now_s, quota: None }
}

fn check(arguments: &Check, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let request = arguments.request.request(|| arguments.machine.machine())?;
    let asker = asker();
    let ledger = arguments.machine.ledger(&asker)?;
    let ledger = if arguments.machine.is_this() { run::with_grants(ledger) } else { ledger };
    answer(&ledger, &ledger.admit(&[request], &asker), &Shown::new(arguments.json, terminal))
}

/// How an answer is printed.
enum Shown {
    Text(Terminal),
    /// JSON.
    Document,
    /// JSON on one line, where there are several answers.
    Line,
}

impl Shown {
    fn new(json: bool, terminal: Terminal) -> Self {
        if json { Self::Document } else { Self::Text(terminal) }
    }
}

/// Prints an answer.
fn answer(ledger: &Ledger, answer: &Result<Admitted, Refusal>, shown: &Shown) -> Result<ExitCode, Box<dyn Error>> {
    if let Err(refusal @ Refusal::Unknown(_)) = answer {
        return Err(refused(refusal.clone()));
    }
    let report = ReserveReport::new(&ledger.facts, answer);
    match shown {
        Shown::Text(terminal) => terminal.print_lines(&report.to_string())?,
        Shown::Document => output::write(&json::document(&report)?, None)?,
        Shown::Line => output::write(&json::line(&report)?, None)?,
    }
    Ok(if report.granted { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) })
}

fn plan(arguments: &Plan, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let asker = asker();
    let text = machine::bounded::text(&arguments.file);
    let text = text.map_err(|error| {
        format!("cannot read the plan {}: {}", arguments.file.display(), machine::system_words(&error))
    })?;
    // TOML begins neither with `{` nor with `[{`.
    let begin: String = text.chars().filter(|c| !c.is_whitespace()).take(2).collect();
    if begin.starts_with('{') || begin == "[{" {
        return calls(arguments, &text, &asker, terminal);
    }
    let plan = read_plan(&arguments.file)?;
    let ledger = arguments.machine.of_plan(&plan, &asker)?;
    answer(&ledger, &ledger.admit(&plan.requests, &asker), &Shown::new(arguments.json, terminal))
}

/// Decides line by line, each on what the ones before have left. Fails with the last refusal.
fn calls(arguments: &Plan, text: &str, asker: &Asker, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let mut ledger = arguments.machine.ledger(asker)?;
    let mut code = ExitCode::SUCCESS;
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = || format!("{}:{}", arguments.file.display(), number + 1);
        let actions = read_calls(line).map_err(|error| format!("{}: {}", place(), machine::chain(&error)))?;
        let decided = ledger.apply(&actions, asker);
        let given = answer(&ledger, &decided, &if arguments.json { Shown::Line } else { Shown::Text(terminal) })?;
        match decided {
            Ok(admitted) => ledger = admitted.after,
            Err(_) => code = given,
        }
    }
    Ok(code)
}

fn show_facts(arguments: &FactsOf, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let ledger = arguments.machine.ledger(&asker())?;
    let facts = &*ledger.facts;
    let text = match arguments.format {
        Format::Text => return Ok(terminal.print_lines(&facts_to_text(facts)).map(|()| ExitCode::SUCCESS)?),
        Format::Prolog => prolog(facts),
        Format::Json => {
            let ids: Vec<_> = facts.machine.nodes.iter().map(|node| node.id).collect();
            let table = |table| -> Vec<Vec<Option<f64>>> {
                let row = |from| ids.iter().map(|to| facts.value(table, from, *to)).collect();
                ids.iter().map(|from| row(*from)).collect()
            };
            let capacity: Vec<_> = ids.iter().map(|node| facts.capacity(Resource::Controller(*node))).collect();
            let document = json!({
                "machine": facts.machine.name,
                "nodes": ids,
                "measured": facts.is_measured(),
                "latency_ns": table(Table::Latency),
                "core_read_bytes_per_s": table(Table::Read),
                "core_write_bytes_per_s": table(Table::Write),
                "controller_bytes_per_s": capacity,
                "last_level_caches": facts.caches,
                "control": facts.control,
            });
            json::document(&document)?
        }
    };
    output::write(&text, None)?;
    Ok(ExitCode::SUCCESS)
}

fn rcm(arguments: &Rcm, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    if arguments.words.is_empty() {
        terminal.print_lines(FORM)?;
        return Ok(ExitCode::SUCCESS);
    }
    let call = rcm_call(&arguments.words).ok_or_else(|| UsageError::boxed(FORM.trim_end()))?;
    let action = call.clone().action(1)?;
    let asker = asker();
    if !arguments.machine.is_default() {
        let ledger = arguments.machine.ledger(&asker)?;
        return answer(&ledger, &ledger.apply(&[action], &asker), &Shown::Text(terminal));
    }
    let application: Vec<OsString> = arguments.words[4..].iter().map(OsString::from).collect();
    match (run::agent_of(true)?, action) {
        (Some(connection), _) => through_agent::study_through_agent(&connection, call, &application),
        (None, Action::Request(request)) => {
            let how = run::How { machine: &arguments.machine, limit: &[], wait_s: None, watched: None };
            run::start(&request, &how, &application, &asker)
        }
        (None, _) => Err("a request of the shell's form is one of cores and memory".into()),
    }
}

/// The call of the shell's form; none if the words have another.
fn rcm_call(words: &[String]) -> Option<Call> {
    let flag = |word: &String| match word.as_str() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    };
    let performance = |word: &String| match word.as_str() {
        "0" => Some(Performance::MemoryLatencySensitive),
        "1" => Some(Performance::MemoryReadBandwidthSensitive),
        "2" => Some(Performance::MemoryWriteBandwidthSensitive),
        _ => None,
    };
    let [isolated, cache, controller, wish, _application, ..] = words else { return None };
    Some(Call::CoredMemd {
        core_memory_isolated: flag(isolated)?,
        exclusive_cache: flag(cache)?,
        memory_controller_isolated: flag(controller)?,
        memory_performance: performance(wish)?,
        with: None,
    })
}
