//! `nearside reserve run`: a program with a grant, carried out by this process.

use super::REFUSED;
use super::machine_options::MachineOptions;
use super::request_options::RequestOptions;
use super::service::{SaidService, ServiceOptions, Watched};
use super::through_agent::through_agent;
use super::wait::{Decision, WaitOption, decide};
use crate::interrupt::asked_to_end;
use crate::options::policy::note;
use crate::options::usage_error::UsageError;
use crate::verbs::record::program::Program;
use agent::broker::{CallError, Connection};
use agent::grants::{Carrier, Hardware, Limit, LiveState, Records, RecordsError, Watch, carry_out, has_own_record};
use agent::{Journal, journal};
use clap::Args;
use linux::{ChildSetup, program_file};
use observe::Followed;
use report::ReserveReport;
use reserve::protocol::FOLDER;
use reserve::{Admitted, Asker, Flow, Grant, GrantId, Ledger, Request, ServiceLevel, Throttle};
use rustix::process::geteuid;
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Between two looks at the program and the grant's record.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Start a program with a grant
///
/// The program gets a control group whose CPUs are a partition of the kernel's: no other program runs there, whatever
/// its affinity. Its memory comes from the granted nodes; what it brings along moves there. SMT siblings and the other
/// cores of an exclusive cache are a partition without programs. Interrupts are moved away where the kernel allows it.
/// A guarded controller is kept by the processor's bandwidth control, where the machine has it: the lab's machines can, and
/// others by the kernel's resctrl where it is mounted, which is not yet seen on hardware.
/// With --limit, control groups of the rest of the machine get as much CPU time as the forecast leaves to them instead.
///
/// With an agent that makes grants, every user with a quota in the agent's configuration may do this. The grant then
/// lasts until the program and all its children have ended or closed the handle, a descriptor whose number is in
/// `NEARSIDE_GRANT_HANDLE`. Without such an agent only root may, and the grant lasts as long as this process.
///
/// With --slo-command the rest of the machine follows from how the program does: below the limits that the forecast leaves
/// to it, it has 0.7 of what it had after each line with more than the target, and a tenth more after ten lines with at most
/// 0.8 of it. The number is of any kind that grows as the program does worse, such as its 99th percentile in ms.
///
/// Each change is written to a journal below /run/nearside first, and undone when the program has ended. After a SIGKILL
/// the next `nearside reserve run` or agent undoes it.
#[derive(Debug, Args)]
#[command(after_help = "\
Privileges: a quota of the agent, or root; and control groups of version 2. `nearside reserve check` decides without.

Examples:
  sudo nearside reserve run --machine host.toml --isolate core,controller --limit /batch.slice -- ./server
  nearside lab run --machine magny-cours-4p --as-root -- nearside reserve run --isolate cache -- ./server
  nearside reserve run --isolate core,controller --slo-command ./p99-of-each-second --slo-target-ms 3 -- ./server

Exit codes: the program's own, or 128 + n when signal n ended it; 1 failed, 2 wrong command line, 3 not admitted, \
4 there is no agent, and the caller is not root.")]
pub struct Run {
    #[command(flatten)]
    request: RequestOptions,
    #[command(flatten)]
    machine: MachineOptions,
    /// Limit the CPU time of this control group, and nothing by the hardware. The group is named from the topmost one;
    /// may be repeated
    #[arg(long, value_name = "CGROUP")]
    limit: Vec<String>,
    /// Give the program a copy of its own file on the grant's nodes, as `nearside run --replicate` does: pages that other
    /// programs have read stay where they are. Needs root, or user namespaces that any user may make
    #[arg(long)]
    copy_image: bool,
    #[command(flatten)]
    service: ServiceOptions,
    #[command(flatten)]
    wait: WaitOption,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The folder of root's journals, records and socket.
pub const SYSTEM_FOLDER: &str = FOLDER;

/// The folder of records.
pub fn records_folder() -> PathBuf {
    Path::new(SYSTEM_FOLDER).join("grants")
}

pub fn run(arguments: &Run, asker: &Asker) -> Result<ExitCode, Box<dyn Error>> {
    let request = arguments.request.request(|| arguments.machine.machine())?;
    if !arguments.limit.is_empty() && !request.isolate.controller {
        return Err(UsageError::boxed("--limit keeps a guarded controller: it goes with --isolate controller"));
    }
    let watched = arguments.service.watched();
    if watched.is_some() && !request.isolate.controller {
        return Err(UsageError::boxed(
            "--slo-command follows with a guarded controller: it goes with --isolate controller",
        ));
    }
    let wait_s = arguments.wait.most_s();
    let command = if arguments.copy_image { with_copied_image(&arguments.command)? } else { arguments.command.clone() };
    if let Some(connection) = agent_of(arguments.machine.is_default() && arguments.limit.is_empty())? {
        return through_agent(&connection, request, wait_s, &command, watched);
    }
    let how = How { machine: &arguments.machine, limit: &arguments.limit, wait_s, watched };
    start(&request, &how, &command, asker)
}

/// A command with a copy of its program on the nodes where it runs.
fn with_copied_image(command: &[OsString]) -> Result<Vec<OsString>, Box<dyn Error>> {
    let program = command.first().cloned().unwrap_or_default();
    let file = program_file(&program, std::env::var_os("PATH").as_deref()).and_then(|file| file.canonicalize().ok());
    let file = file.ok_or_else(|| format!("--copy-image: there is no program {}", program.display()))?;
    let nearside = std::env::current_exe()?.into_os_string();
    let run = [nearside, "run".into(), "--replicate".into(), file.into_os_string(), "--".into()];
    Ok(run.into_iter().chain(command.iter().cloned()).collect())
}

/// How this process carries a grant out.
pub struct How<'a> {
    pub machine: &'a MachineOptions,
    /// The control groups whose CPU time is limited.
    pub limit: &'a [String],
    pub wait_s: Option<u64>,
    /// The command that says how the program does.
    pub watched: Option<Watched<'a>>,
}

/// The agent that makes grants; none where root does it without. `is_default` is whether the request has no options that are
/// the agent's to say.
pub fn agent_of(is_default: bool) -> Result<Option<Connection>, Box<dyn Error>> {
    match Connection::open(Path::new(SYSTEM_FOLDER)) {
        Ok(connection) if is_default => Ok(Some(connection)),
        Ok(_) => {
            let why = "an agent makes the grants of this machine: machine, rules and limits are in its configuration";
            Err(UsageError::boxed(why))
        }
        Err(CallError::NoBroker) if geteuid().is_root() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Starts a program with a grant that this process carries out.
pub fn start(
    request: &Request,
    how: &How<'_>,
    command: &[OsString],
    asker: &Asker,
) -> Result<ExitCode, Box<dyn Error>> {
    let How { machine, limit, wait_s, watched } = *how;
    linux::Cgroups::find()?.requires("cpuset")?;
    machine.check_is_this()?;
    let hardware = Hardware::find()?;
    let mut empty = machine.ledger(asker)?;
    if machine.has_best_throttle() && hardware.is_some_and(Hardware::has_limits) {
        Arc::make_mut(&mut empty.facts).control.throttle = Throttle::Hardware;
    }
    if !limit.is_empty() {
        let control = &mut Arc::make_mut(&mut empty.facts).control;
        control.throttle = control.throttle.min(Throttle::Duty);
    }
    let to_end = asked_to_end()?;
    let folder = records_folder();
    let Decision { records, ledger, answer } = match decide(&empty, hardware, request, asker, wait_s, &to_end)? {
        Ok(decision) => decision,
        Err(code) => return Ok(code),
    };
    // What others left while this one waited is in the way of the grant.
    let (mut journal, put_back) =
        Journal::open(&journal::default_folder(), &format!("reserve-{}", std::process::id()))?;
    if !put_back.is_nothing() {
        note(&format!("{}\n{put_back}", put_back.heading()));
    }
    let report = ReserveReport::new(&ledger.facts, &answer);
    let admitted = match answer {
        Ok(admitted) => admitted,
        Err(refusal @ reserve::Refusal::Unknown(_)) => return Err(UsageError::boxed(refusal)),
        Err(_) => {
            note(report.to_string().trim_end());
            return Ok(ExitCode::from(REFUSED));
        }
    };
    let Admitted { grants, forecast, .. } = &admitted;
    let grant = &grants[0];
    note(report.to_string().trim_end());
    if grant.request.isolate.controller && limit.is_empty() && ledger.facts.control.throttle <= Throttle::Duty {
        note("nothing limits the rest of the machine: name its control groups with --limit");
    }
    let limits = Limit::of(limit, &forecast.rest_limit, &ledger.facts);
    let (group, watch, mut rest) = carry_out(&mut journal, grant, &admitted.after, &limits, hardware)?;
    let words: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let line = words.join(" ");
    let throttle = ledger.facts.control.throttle;
    records.add(grant, Carrier::Process(&line), throttle, None, None)?;
    drop(records);
    let processes = group.processes_file()?;
    if to_end.load(Ordering::Relaxed) {
        remove_record(grant.id);
        return Err("a signal asked to end before the program was started".into());
    }
    // A program that runs would be left alone where this fails.
    let said = watched.map(Watched::start).transpose();
    let said = said.inspect_err(|_| remove_record(grant.id))?;
    let started = Program::start(command, |command| {
        command.join(processes);
    });
    let mut state = State { grant, command: &line, throttle, watch, said, level: None };
    let ended = started.map(|program| {
        let is_released = |journal: Option<&mut Journal>| {
            let Some(journal) = journal else { return false };
            if grant.is_over(super::asker().now_s) {
                remove_record(grant.id);
            }
            let is_released = !has_own_record(&folder, grant.id);
            if !is_released {
                let now = Instant::now();
                state.look(now);
                let followed = state.level.map_or(Ok(()), |level| rest.follow(journal, level));
                let followed = followed.and_then(|()| rest.correct(journal, now));
                followed.unwrap_or_else(|error| note(&machine::chain(&error)));
            }
            is_released
        };
        wait(program, is_released, Some(journal))
    });
    remove_record(grant.id);
    Ok(ExitCode::from(ended?))
}

/// Removes the record of a grant of this process. A released grant has none.
fn remove_record(id: GrantId) {
    if let Ok(records) = Records::lock(&records_folder()) {
        let _ = records.remove_own(id);
    }
}

/// A ledger that grants only what can be carried out here: ways and limits are those of the machine's own hardware, and no
/// program is moved.
pub fn to_carry_out(mut ledger: Ledger, hardware: Option<Hardware>) -> Ledger {
    let control = &mut Arc::make_mut(&mut ledger.facts).control;
    control.ways = hardware.and_then(Hardware::ways);
    if !hardware.is_some_and(Hardware::has_limits) {
        control.throttle = control.throttle.min(Throttle::Duty);
    }
    ledger.rules.keep_tenants = true;
    ledger
}

/// The same for a process that carries out one grant: what follows from several, only an agent can change and undo.
pub fn to_carry_out_alone(ledger: Ledger, hardware: Option<Hardware>) -> Ledger {
    let mut ledger = to_carry_out(ledger, hardware);
    if let Some(ways) = &mut Arc::make_mut(&mut ledger.facts).control.ways {
        ways.classes = ways.classes.min(2);
    }
    ledger
}

/// A ledger with the grants that other processes carry out.
pub fn with_grants(mut ledger: Ledger) -> Ledger {
    for record in agent::grants::read_records(&records_folder()) {
        if record.grant.is_of(&ledger.facts) {
            ledger.adopt(record.grant);
        }
    }
    let usage = LiveState::read(&records_folder()).map(|state| state.most).unwrap_or_default();
    // The machine may be described in another way than the agent has it.
    let nodes = |flow: &Flow| [flow.from, flow.to].iter().all(|node| ledger.facts.machine.node(*node).is_some());
    ledger.usage.extend(usage.into_iter().filter(nodes));
    ledger
}

/// What changes of a grant while its program runs. Other processes see it in the grant's record.
struct State<'a> {
    grant: &'a Grant,
    command: &'a str,
    throttle: Throttle,
    /// Whether the grant's CPUs are still its own.
    watch: Watch,
    /// What the command says of how the program does.
    said: Option<SaidService>,
    level: Option<ServiceLevel>,
}

impl State<'_> {
    fn look(&mut self, now: Instant) {
        let lost = self.watch.look(now);
        if let Some(said) = &lost {
            note(&format!("grant {}: {said}", self.grant.id));
        }
        let before = self.level;
        if let Some(level) = &mut self.level {
            level.wait(now);
        }
        for service in self.said.iter_mut().flat_map(SaidService::next) {
            self.level = Some(ServiceLevel::after(self.level, service, now, super::asker().now_s));
        }
        if lost.is_some() || self.level.is_some_and(|level| level.is_news(before)) {
            self.record().unwrap_or_else(|error| note(&machine::chain(&error)));
        }
    }

    fn record(&self) -> Result<(), RecordsError> {
        let records = Records::lock(&records_folder())?;
        // A release may have come before.
        if !has_own_record(&records_folder(), self.grant.id) {
            return Ok(());
        }
        records.add(self.grant, Carrier::Process(self.command), self.throttle, self.watch.lost(), self.level)
    }
}

/// Waits for the program, to which it passes signals on, and returns its exit code. Undoes the journal's changes when it has
/// ended, or is released while the program goes on.
pub fn wait(
    mut program: Program,
    mut is_released: impl FnMut(Option<&mut Journal>) -> bool,
    mut journal: Option<Journal>,
) -> u8 {
    let restore = |journal: Option<Journal>| {
        let put_back = journal.map(Journal::restore).unwrap_or_default();
        put_back.failed.iter().for_each(|failed| note(failed));
    };
    loop {
        if program.has_ended() {
            restore(journal);
            // Where SIGCHLD is ignored, its status is lost.
            return if matches!(program.status(), Ok(Some(_))) { program.exit_code() } else { 1 };
        }
        if is_released(journal.as_mut()) {
            restore(journal.take());
        }
        program.wait(POLL_INTERVAL);
    }
}
