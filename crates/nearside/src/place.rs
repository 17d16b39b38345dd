//! `nearside place`: puts the pages and threads of programs where a policy has them, while they run.

use crate::interrupt::asked_to_end;
use crate::policy::note;
use crate::record::processes::Processes;
use crate::record::program::{NotStarted, Program};
use crate::record::{Followed, Source};
use crate::wrong::Wrong;
use crate::{machine_source, output};
use agent::journal::default_folder;
use agent::{Agent, Journal, Options, PlaceReport, PutBack, Scope};
use clap::{Args, ValueEnum};
use linux::{ChildSetup, Pid, Process};
use machine::{Machine, size};
use placement::{POLICIES, Policy, PolicyName, Settings};
use report::PlaceText;
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};
use trace::live::Target;

/// Everything that is not the program's own failure has a status that programs seldom use.
const FAILED: u8 = 125;
/// How often the program is looked at that is not managed any more.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long Ctrl-C may have to wait.
const CTRL_C: Duration = Duration::from_millis(20);
const USAGE: &str = "nearside place [OPTIONS] -- <CMD>...
       nearside place [OPTIONS] --pid <PID>,...
       nearside place [OPTIONS] --system";

/// Put a program's pages and threads where a policy has them, while it runs
///
/// Starts the program with this terminal, environment and user, observes who accesses which memory, and moves pages and
/// threads, round by round. The program is not changed. What it starts is placed, too. Threads and memory that the
/// program or its owner has put somewhere (affinity, memory policies, cpusets) stay there.
///
/// Ctrl-C and other signals go to the program as ever, however many they are. When that ends, or with --pid and --system at Ctrl-C,
/// CPUs and the kernel's switches are as they were before; pages stay where they are.
#[derive(Debug, Args)]
#[command(after_help = help(), override_usage = USAGE)]
#[allow(clippy::struct_excessive_bools, reason = "switches of their own, each")]
pub struct Arguments {
    /// The policy: see below
    #[arg(long, short, value_name = "POLICY", default_value = "carrefour")]
    policy: String,

    /// The policy for memory, where --policy is one for threads: `--policy balanced --memory local` is balanced+local
    #[arg(long, short, value_name = "POLICY")]
    memory: Option<String>,

    /// Decide and say what would be done, and change nothing
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Say each step and its reason as it is taken
    #[arg(long, short)]
    explain: bool,

    /// Write all that is decided into this file, with what it was decided by: for `nearside replay`
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Write what came of it as JSON to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Say nothing in the end
    #[arg(long, short)]
    quiet: bool,

    /// How long a round is, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    round: Duration,

    /// Divide rounds by this [default: in the lab what its --time-scale is, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    time_scale: Option<u32>,

    /// Move at most so much in a second: bytes, or a number with K, M or G [default: as much as the policy likes]
    #[arg(long, value_name = "BYTES", value_parser = parse_budget)]
    budget: Option<u64>,

    /// Observing and deciding may take this part of one CPU, in percent, over some dozens of rounds; samples are fewer
    /// where they would take more
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = parse_percent)]
    cpu_limit: f64,

    /// Place also what the program or its owner has put somewhere; cpusets are kept to in any case
    #[arg(long = "override")]
    overrides: bool,

    /// Whether the kernel's own NUMA balancing is switched off meanwhile, for policies that move pages or threads as they
    /// run. Needs root
    #[arg(long, value_enum, default_value = "off")]
    kernel_balancing: KernelBalancing,

    /// Who observes accesses to memory
    #[arg(long, value_enum, default_value = "auto")]
    source: Source,

    /// The measured description of this machine, as `nearside measure --output` writes it
    #[arg(long, value_name = "FILE")]
    machine: Option<String>,

    /// Place processes that run already, with what they have started and start, until they end or Ctrl-C: numbers, separated by commas
    #[arg(long, value_name = "PID", value_delimiter = ',', conflicts_with_all = ["command", "system"])]
    pid: Vec<u32>,

    /// Place whoever is busy, until Ctrl-C: other users' processes only as root
    #[arg(long, conflicts_with = "command")]
    system: bool,

    /// The program and its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present_any = ["pid", "system"])]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KernelBalancing {
    /// Switched off meanwhile, where that is permitted
    Off,
    /// As it is
    Keep,
}

fn help() -> String {
    let width = POLICIES.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let policies = POLICIES.map(|(name, what)| format!("  {name:width$}  {what}\n")).concat();
    format!(
        "\
Policies:
{policies}
Of carrefour, auto, auto-threads and thread-clustering accesses have to be observed: by the processor (AMD's IBS, Intel's PEBS, Arm's SPE), by the lab's \
virtual PMU, or by hint faults while NUMA balancing is on. The others decide when processes and threads begin.

Privileges: none for one's own programs, where `kernel.perf_event_paranoid` allows to observe them (2 or less); splitting huge \
pages and switching the kernel's balancing off need root. Pages that other processes map as well stay where they are, or are copied.

Examples:
  nearside place -- ./program --its-options
  nearside place --policy balanced --memory local -- make
  nearside place --dry-run --explain -- ./program
  sudo nearside place --policy auto --pid 4711,4712 --budget 200M
  nearside lab run --machine opteron-6164x2 --time-scale 20 -- nearside place --log /tmp/decisions -- ./program

Exit codes: the program's own, 128 + n where signal n ended it. Of nearside itself, with nothing started: 2 the command line is wrong, \
also where it names nodes or CPUs that the machine lacks, 125 something else that was asked for cannot be done, 126 the program cannot \
be run, 127 there is no such program. 125 as well where placing fails later: the program runs on, and the exit code follows its end.
Without a program: 0 it was ended, or the processes have; 125 it failed.

Environment: NEARSIDE_TIME_SCALE (the default of --time-scale)."
    )
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("seconds, from 0.01 to 3600".to_owned()),
    }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.01..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("a part of one CPU in percent, from 0.01 to 100".to_owned()),
    }
}

fn parse_budget(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        0 => Err("above 0; without this option it is as much as the policy likes".to_owned()),
        budget => Ok(budget),
    }
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let status = place(arguments).unwrap_or_else(|error| {
        crate::report(error.as_ref());
        match (error.downcast_ref::<NotStarted>(), error.is::<Wrong>()) {
            (Some(not_started), _) => not_started.status(),
            (None, true) => 2,
            (None, false) => FAILED,
        }
    });
    ExitCode::from(status)
}

fn place(arguments: &Arguments) -> Result<u8, Box<dyn Error>> {
    let policy = policy_of(arguments).map_err(Wrong::because)?;
    let time_scale = time_scale(arguments.time_scale)?;
    let (machine, simulated) = described(arguments.machine.as_deref())?;
    // What it names may not be there.
    let set_to_work = Policy::new(policy.clone(), &machine, Settings::default()).map_err(Wrong::because)?;
    let is_idle = set_to_work.has_nothing_to_place();
    let json = arguments.json.as_deref();
    json.map_or(Ok(()), output::check)?;
    if json.is_some() && arguments.json == arguments.log {
        return Err(Wrong::because("--json and --log name one file, and each is to have its own"));
    }
    let placing = Placing { arguments, policy, time_scale, machine: &machine, simulated, is_idle };
    let (status, report) = if arguments.command.is_empty() { placing.processes()? } else { placing.program()? };
    if let Some((json, report)) = json.zip(report) {
        // What the program came to is not lost with it.
        if let Err(error) = output::write_to(&(serde_json::to_string_pretty(&report)? + "\n"), json) {
            crate::report(&error);
        }
    }
    Ok(status)
}

fn policy_of(arguments: &Arguments) -> Result<PolicyName, Box<dyn Error>> {
    Ok(match &arguments.memory {
        Some(memory) => PolicyName::with_memory(&arguments.policy, memory)?,
        None => arguments.policy.parse()?,
    })
}

/// These processes, and what they have started so far: what they start from now on is told by the kernel.
fn with_descendants(pids: &[u32]) -> Vec<u32> {
    let mut all = pids.to_vec();
    let mut seen: BTreeSet<u32> = pids.iter().copied().collect();
    let mut next = 0;
    while let Some(pid) = all.get(next).copied() {
        next += 1;
        // One that has ended has none, and is told where it was named.
        let children = Process::open(Pid(pid)).and_then(|process| process.children()).unwrap_or_default();
        all.extend(children.iter().map(|pid| pid.0).filter(|pid| seen.insert(*pid)));
    }
    all
}

/// This machine, as its own kernel has it or as it was measured, and whether it is simulated.
pub fn described(file: Option<&str>) -> Result<(Machine, bool), Box<dyn Error>> {
    let (machine, simulated) = machine_source::running()?;
    let Some(file) = file else { return Ok((machine, simulated)) };
    let measured = machine_source::read(Some(file))?;
    let nodes = |machine: &Machine| -> Vec<_> {
        machine.nodes.iter().map(|node| (node.id, node.cpus.clone(), node.memory_bytes > 0)).collect()
    };
    if nodes(&measured) != nodes(&machine) {
        let why = format!("{file} describes another machine: its nodes and their CPUs are not those of this one");
        return Err(Wrong::because(why));
    }
    Ok((measured, simulated))
}

/// What is asked for, or what the lab divides the kernel's periods by.
pub fn time_scale(asked: Option<u32>) -> Result<u32, Box<dyn Error>> {
    let told = || std::env::var(lab::TIME_SCALE).ok();
    let Some(told) =
        asked.map(Ok).or_else(|| told().map(|text| text.parse::<u32>().ok().filter(|scale| *scale > 0).ok_or(text)))
    else {
        return Ok(1);
    };
    told.map_err(|text| Wrong::because(format!("{} is `{text}`, and not a number from 1 up", lab::TIME_SCALE)))
}

/// What is to be placed, and how.
struct Placing<'a> {
    arguments: &'a Arguments,
    policy: PolicyName,
    time_scale: u32,
    machine: &'a Machine,
    simulated: bool,
    /// Whether there is nothing to place on this machine.
    is_idle: bool,
}

impl Placing<'_> {
    /// What to end with, and what came of it, where it went on to the end.
    fn program(&self) -> Result<(u8, Option<PlaceReport>), Box<dyn Error>> {
        let mut agent = self.open(Target::Program, Scope::default(), Arc::default())?;
        let start = agent.program_start()?;
        let program = Program::start(&self.arguments.command, |command| {
            command.place(start.cpus.as_ref(), start.memory.as_ref());
        })?;
        let mut program = ToItsEnd(program);
        let placed = agent.add_program(program.0.pid(), &start).map_err(Box::from);
        let placed = placed.and_then(|()| self.follow(agent, &mut program));
        if let Err(error) = &placed {
            crate::report(error.as_ref());
        }
        // The program's end is its own affair.
        while !program.is_over() {
            program.wait(PATIENCE);
        }
        let exit_status = program.0.status()?;
        let Ok((report, put_back)) = placed else { return Ok((FAILED, None)) };
        let report = PlaceReport { exit_status, ..report };
        self.tell(&report, &put_back);
        Ok((program.0.exit_code(), Some(report)))
    }

    fn processes(&self) -> Result<(u8, Option<PlaceReport>), Box<dyn Error>> {
        let stop = asked_to_end()?;
        // Nobody has to ask where there is nothing to do.
        stop.fetch_or(self.is_idle, Relaxed);
        let (report, put_back) = if self.arguments.system {
            let agent = self.open(Target::System, own_processes(Scope::default()), stop.clone())?;
            self.follow(agent, &mut Everybody(stop))?
        } else {
            let mut processes = Processes::open(&with_descendants(&self.arguments.pid), stop.clone())?;
            let agent = self.open(Target::Pids(processes.pids()), Scope::default(), stop)?;
            self.follow(agent, &mut processes)?
        };
        self.tell(&report, &put_back);
        Ok((0, Some(report)))
    }

    fn open(&self, target: Target, scope: Scope, stop: Arc<AtomicBool>) -> Result<Agent, Box<dyn Error>> {
        let arguments = self.arguments;
        let (journal, put_back) = Journal::open(&default_folder(), &format!("place-{}", std::process::id()))?;
        if !put_back.is_nothing() {
            note(&format!("{}: {put_back}", put_back.heading()));
        }
        let settings = Settings { respect_owner: !arguments.overrides, ..Settings::default() };
        let options = Options {
            settings,
            target,
            scope,
            source: arguments.source.into(),
            round: arguments.round / self.time_scale,
            budget_bytes_per_s: arguments.budget,
            cpu_limit: arguments.cpu_limit,
            dry_run: arguments.dry_run,
            keep_kernel_balancing: arguments.kernel_balancing == KernelBalancing::Keep,
            log: arguments.log.clone(),
            explain: arguments.explain,
            stop,
            ..Options::new(self.policy.clone())
        };
        Ok(Agent::open(self.machine, journal, options)?)
    }

    fn follow(&self, mut agent: Agent, followed: &mut impl Followed) -> Result<(PlaceReport, PutBack), Box<dyn Error>> {
        while !followed.is_over() {
            followed.wait(agent.until_next());
            if followed.is_over() {
                break;
            }
            agent.look()?;
            self.say(&mut agent);
        }
        self.say(&mut agent);
        let (report, put_back) = agent.finish()?;
        Ok((PlaceReport { simulated: self.simulated, ..report }, put_back))
    }

    fn say(&self, agent: &mut Agent) {
        if self.arguments.explain {
            agent.explained().iter().for_each(|line| note(line));
        }
    }

    fn tell(&self, report: &PlaceReport, put_back: &PutBack) {
        for why in &put_back.failed {
            note(why);
        }
        if !self.arguments.quiet {
            // There is nobody left to tell when standard error is closed.
            let _ = write!(std::io::stderr(), "{}", PlaceText(report));
        }
    }
}

/// Of these, whom this user may place.
pub fn own_processes(scope: Scope) -> Scope {
    let user = geteuid();
    if user.is_root() { scope } else { scope.of_user(user.as_raw()) }
}

/// A program is placed until it ends, however often it is asked to.
struct ToItsEnd(Program);

impl Followed for ToItsEnd {
    fn is_over(&mut self) -> bool {
        !matches!(self.0.status(), Ok(None))
    }

    fn wait(&mut self, patience: Duration) {
        self.0.wait(patience);
    }
}

/// The system goes on until somebody has enough.
struct Everybody(Arc<AtomicBool>);

impl Followed for Everybody {
    fn is_over(&mut self) -> bool {
        self.0.load(Relaxed)
    }

    fn wait(&mut self, patience: Duration) {
        let end = Instant::now() + patience;
        while !self.0.load(Relaxed) && Instant::now() < end {
            sleep(end.saturating_duration_since(Instant::now()).min(CTRL_C));
        }
    }
}
