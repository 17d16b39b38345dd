//! `nearside reserve create`, `adopt`, `enter`, `upgrade`, and what else the agent does for its callers.

use super::request_options::RequestOptions;
use super::run::{SYSTEM_FOLDER, records_folder, wait};
use super::service::Watched;
use super::wait::WaitOption;
use super::{REFUSED, Shown};
use crate::options::machine_source;
use crate::options::policy::note;
use crate::options::usage_error::UsageError;
use crate::output::terminal::Terminal;
use crate::output::{self, json};
use crate::verbs::record::program::Program;
use agent::Journal;
use agent::broker::{Answer, Call, CallError, Connection};
use agent::grants::{GrantRecord, Records, read_records};
use clap::{Args, ValueEnum};
use linux::ChildSetup;
use machine::{Machine, NodeId};
use reserve::protocol::{GRANT, HANDLE};
use reserve::{GrantId, Memory, Refusal, Request, Service, Share};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, geteuid, getpid, pidfd_open};
use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Make a grant that stays until it is released
///
/// Its owner and root may let programs join it with `nearside reserve enter`, also one after the other.
#[derive(Debug, Args)]
#[command(after_help = "\
Privileges: a quota in the agent's configuration, or root.

Examples:
  nearside reserve create --name db --cores 4 --isolate core
  nearside reserve enter db -- ./server

Exit codes: 0 granted, 1 failed, 2 wrong command line, 3 not admitted, 4 no agent.")]
pub struct Create {
    #[command(flatten)]
    request: RequestOptions,
    #[command(flatten)]
    wait: WaitOption,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// Make a control group that is there already a grant, as root
///
/// For containers, Slurm steps and units. Its processes stay where they are, and get the grant's CPUs and memory. Its
/// settings come back when the grant is released. The kernel makes partitions (--isolate core, cache) of topmost groups
/// only.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo nearside reserve adopt --cgroup /system.slice/postgresql.service --cores 4 --isolate controller
  sudo nearside reserve adopt --cgroup /batch.slice --name batch --cores 8 --isolate core

Exit codes: 0 granted, 1 failed, 2 wrong command line, 3 not admitted, 4 no agent.")]
pub struct Adopt {
    /// The control group, named from the topmost one
    #[arg(long, value_name = "CGROUP")]
    cgroup: String,
    #[command(flatten)]
    request: RequestOptions,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// Let a program join a grant
///
/// The program gets the grant's CPUs, and its memory moves to the grant's nodes. Only the grant's owner and root may,
/// for processes of their own.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: the program's own; 0 joined, 1 failed, 2 wrong command line, 4 no agent.")]
pub struct Enter {
    /// The number or name of the grant
    #[arg(value_name = "GRANT")]
    grant: String,
    /// A running process, instead of a program to start
    #[arg(long, value_name = "PID", required_unless_present = "command", conflicts_with = "command")]
    pid: Option<i32>,
    /// The program and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Change what a grant has, while its programs run
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 granted, 1 failed, 2 wrong command line, 3 not admitted, 4 no agent.")]
pub struct Upgrade {
    /// The number or name of the grant
    #[arg(value_name = "GRANT")]
    grant: String,
    /// From now on others do not slow it by more than its bound
    #[arg(long, value_enum, value_name = "WHAT")]
    isolate: Option<Guarded>,
    /// From now on it has no bound
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "isolate")]
    share: Option<Guarded>,
    /// It gets memory of this node as well; `any` is the nearest that it has not
    #[arg(long, value_name = "NODE|any", value_parser = further_memory)]
    add_node: Option<Memory>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// What can be isolated later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Guarded {
    /// Its memory controllers and the links to them
    Controller,
}

/// End a grant, or give a part of it back; its programs go on among the others
///
/// Without its cores, a grant's programs run on the CPUs that no grant has, and its cache is no longer its own. Without
/// its memory, their pages move to nodes that no grant has. A grant with neither has ended.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 released, 1 failed, 2 wrong command line, 3 not admitted, 4 no agent.")]
pub struct Release {
    /// Its number or name
    #[arg(value_name = "GRANT")]
    grant: String,
    /// Give only this back
    #[arg(long, value_enum, value_name = "RESOURCE")]
    only: Option<Only>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// A part of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Only {
    /// Its cores, with their cache and the isolation of links
    Cores,
    /// Its memory
    Memory,
}

fn further_memory(text: &str) -> Result<Memory, String> {
    let node = || text.parse().map(|node| Memory::Node(NodeId(node)));
    if text == "any" { Ok(Memory::Any) } else { node().map_err(|_| format!("`{text}` is neither a node nor `any`")) }
}

fn connect() -> Result<Connection, CallError> {
    Connection::open(Path::new(SYSTEM_FOLDER))
}

/// The agent makes grants of this machine only.
fn this_machine() -> Result<Machine, Box<dyn Error>> {
    Ok(machine_source::running()?.0)
}

pub fn create(arguments: &Create, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let request = arguments.request.request(this_machine)?;
    if request.name.is_none() {
        return Err(UsageError::boxed("a grant that stays needs a name: --name NAME"));
    }
    let create = Call::Create { request: Box::new(request), stays: true, wait_s: arguments.wait.most_s() };
    let (answer, _) = call(&connect()?, &create, &[])?;
    decided(answer, &Shown::new(arguments.json, terminal))
}

pub fn adopt(arguments: &Adopt, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let request = Box::new(arguments.request.request(this_machine)?);
    let (answer, _) = call(&connect()?, &Call::Adopt { request, cgroup: arguments.cgroup.clone() }, &[])?;
    decided(answer, &Shown::new(arguments.json, terminal))
}

pub fn enter(arguments: &Enter) -> Result<ExitCode, Box<dyn Error>> {
    let connection = connect()?;
    let process = match arguments.pid {
        None => getpid(),
        Some(pid) => Pid::from_raw(pid)
            .filter(|pid| pid.as_raw_nonzero().get() > 0)
            .ok_or_else(|| UsageError::boxed(format!("{pid} is no process: numbers of processes are above 0")))?,
    };
    join(&connection, Some(arguments.grant.clone()), process, own_handle(&arguments.grant).as_ref())?;
    match arguments.command.split_first() {
        None => Ok(ExitCode::SUCCESS),
        Some((program, words)) => Err(become_program(Command::new(program).args(words))),
    }
}

pub fn upgrade(arguments: &Upgrade, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let controller = arguments.isolate.map(|_| true).or(arguments.share.map(|_| false));
    if controller.is_none() && arguments.add_node.is_none() {
        return Err(UsageError::boxed("an upgrade needs --isolate, --share or --add-node"));
    }
    let upgrade = Call::Upgrade { grant: Some(arguments.grant.clone()), memory: arguments.add_node, controller };
    let handle = own_handle(&arguments.grant);
    let (answer, _) = call(&connect()?, &upgrade, &handle.iter().collect::<Vec<_>>())?;
    decided(answer, &Shown::new(arguments.json, terminal))
}

pub fn release(arguments: &Release, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let record = find(&arguments.grant)?;
    let id = record.grant.id;
    let only = arguments.only.map(|only| if only == Only::Cores { Share::Cores } else { Share::Memory });
    if record.by_agent {
        let handle = own_handle(&arguments.grant);
        let release = Call::Release { grant: Some(id.to_string()), only };
        let (answer, _) = call(&connect()?, &release, &handle.iter().collect::<Vec<_>>())?;
        if only.is_some() {
            return decided(answer, &Shown::new(arguments.json, terminal));
        }
    } else if only.is_some() {
        let by = record.pid;
        return Err(
            format!("grant {id} cannot give a part back: process {by} carries it out, and not the agent").into()
        );
    } else if !geteuid().is_root() {
        let by = record.pid;
        return Err(format!("only root may release grant {id}: process {by} carries it out, and not the agent").into());
    } else {
        let removed = Records::lock(&records_folder())?.remove(id);
        removed.map_err(|error| format!("cannot release grant {id}: {error}"))?;
    }
    if arguments.json {
        output::write(&json::document(&serde_json::json!({ "released": id }))?, None)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The grant of this machine with a number or name.
pub fn find(grant: &str) -> Result<GrantRecord, Box<dyn Error>> {
    let records = read_records(&records_folder());
    let number = grant.parse().ok().map(GrantId);
    let is_it = |record: &GrantRecord| match number {
        Some(id) => record.grant.id == id,
        None => record.grant.request.name.as_deref() == Some(grant),
    };
    let unknown =
        || number.map_or_else(|| format!("there is no grant {grant:?}"), |id| Refusal::UnknownGrant(id).to_string());
    records.into_iter().find(is_it).ok_or_else(|| unknown().into())
}

/// Starts a program with a grant of the agent's: this process joins it and becomes the program, which so holds the handle.
pub fn through_agent(
    connection: &Connection,
    request: Request,
    wait_s: Option<u64>,
    command: &[OsString],
    watched: Option<Watched<'_>>,
) -> Result<ExitCode, Box<dyn Error>> {
    let create = Call::Create { request: Box::new(request), stays: false, wait_s };
    start(connection, call(connection, &create, &[])?, command, watched)
}

/// The same by a call of the study.
pub fn study_through_agent(
    connection: &Connection,
    call: reserve::Call,
    command: &[OsString],
) -> Result<ExitCode, Box<dyn Error>> {
    start(connection, connection.study(&[call], &[]).map_err(usage)?, command, None)
}

fn start(
    connection: &Connection,
    (answer, mut handles): (Answer, Vec<OwnedFd>),
    command: &[OsString],
    watched: Option<Watched<'_>>,
) -> Result<ExitCode, Box<dyn Error>> {
    let (id, text) = match answer {
        Answer::Granted { grants, text, .. } => (grants.first().copied().ok_or_else(unexpected)?, text),
        Answer::NotAdmitted { text, .. } => {
            note(text.trim_end());
            return Ok(ExitCode::from(REFUSED));
        }
        _ => return Err(unexpected()),
    };
    note(text.trim_end());
    let handle = handles.pop().ok_or_else(unexpected)?;
    if let Some(watched) = watched {
        return watch(id, &handle, command, watched);
    }
    join(connection, Some(id.to_string()), getpid(), Some(&handle))?;
    // The program and its children hold the grant.
    fcntl_setfd(&handle, FdFlags::empty())?;
    let [program, words @ ..] = command else { return Err(unexpected()) };
    Err(become_program(Command::new(program).args(words).envs(variables(id, &handle))))
}

/// What tells a program its grant.
fn variables(id: GrantId, handle: &OwnedFd) -> [(&'static str, String); 2] {
    [(GRANT, id.to_string()), (HANDLE, handle.as_raw_fd().to_string())]
}

/// Starts a program with a grant of the agent's, and tells the agent how it does. This process and the command that says so
/// stay outside of the grant.
fn watch(
    id: GrantId,
    handle: &OwnedFd,
    command: &[OsString],
    watched: Watched<'_>,
) -> Result<ExitCode, Box<dyn Error>> {
    // The command that says how the program does is no holder.
    let mut said = watched.start()?;
    fcntl_setfd(handle, FdFlags::empty())?;
    let enter = [OsString::from("reserve"), "enter".into(), id.to_string().into(), "--".into()];
    let mut program = Command::new(env::current_exe()?);
    program.args(enter).args(command).envs(variables(id, handle));
    let program = Program::spawn(program)?;
    let mut is_heard = true;
    let mut tell = |service: Service| {
        let Service { latency_ms, target_ms } = service;
        let report = Call::Report { grant: Some(id.to_string()), latency_ms, target_ms };
        // A connection that is silent for some time is closed.
        let told = connect().map_err(Box::<dyn Error>::from).and_then(|new| call(&new, &report, &[handle]));
        // An agent that is started again hears it then.
        if let Some(error) = told.as_ref().err().filter(|_| is_heard) {
            note(&format!("cannot tell the agent how the program of grant {id} does: {error}"));
        }
        is_heard = told.is_ok();
    };
    let look = |_: Option<&mut Journal>| {
        said.next().into_iter().last().into_iter().for_each(&mut tell);
        false
    };
    Ok(ExitCode::from(wait(program, look, None)))
}

/// Lets a process join a grant, by the right of its owner or of the handle.
fn join(
    connection: &Connection,
    grant: Option<String>,
    process: Pid,
    handle: Option<&OwnedFd>,
) -> Result<(), Box<dyn Error>> {
    let number = process.as_raw_nonzero();
    let pidfd = pidfd_open(process, PidfdFlags::empty())
        .map_err(|error| format!("cannot open process {number} (pidfd_open): {error}"))?;
    let files: Vec<&OwnedFd> = [&pidfd].into_iter().chain(handle).collect();
    call(connection, &Call::Enter { grant }, &files).map(drop)
}

/// A copy of the handle of this grant, if this process has inherited it from a program with the grant. A handle of another
/// grant would be refused, also where the caller owns this one.
fn own_handle(grant: &str) -> Option<OwnedFd> {
    let own: u32 = env::var(GRANT).ok()?.parse().ok()?;
    find(grant).ok().filter(|record| record.grant.id == GrantId(own))?;
    linux::copy_own_file(env::var(HANDLE).ok()?.parse().ok()?).ok()
}

fn call(connection: &Connection, call: &Call, files: &[&OwnedFd]) -> Result<(Answer, Vec<OwnedFd>), Box<dyn Error>> {
    let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    connection.call(call, &files).map_err(usage)
}

/// What names something that does not exist is wrong usage.
fn usage(error: CallError) -> Box<dyn Error> {
    match error {
        CallError::Wrong(why) => UsageError::boxed(why),
        error => error.into(),
    }
}

fn decided(answer: Answer, shown: &Shown) -> Result<ExitCode, Box<dyn Error>> {
    let (code, text, document) = match answer {
        Answer::Granted { text, document, .. } => (ExitCode::SUCCESS, text, document),
        Answer::NotAdmitted { text, document, .. } => (ExitCode::from(REFUSED), text, document),
        _ => return Err(unexpected()),
    };
    match shown {
        Shown::Text(terminal) => terminal.print_lines(&text)?,
        Shown::Document | Shown::Line => output::write(&json::document(&document)?, None)?,
    }
    Ok(code)
}

/// Only returns if it fails.
fn become_program(command: &mut Command) -> Box<dyn Error> {
    let error = command.with_own_inheritance().exec();
    let program = command.get_program();
    format!("cannot start {}: {}", program.display(), linux::why_not_started(program, &error)).into()
}

fn unexpected() -> Box<dyn Error> {
    "the agent gave another answer than was asked for: is it another version?".into()
}
