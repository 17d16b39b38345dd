//! `nearside place`: puts the pages and threads of programs where a policy has them, while they run.

use crate::interrupt::asked_to_end;
use crate::options::candidates;
use crate::options::loaded_first;
use crate::options::machine_source;
use crate::options::policy::note;
use crate::options::process_name::process;
use crate::options::regions::RegionPlaces;
use crate::options::thresholds::ThresholdOptions;
use crate::options::usage_error::UsageError;
use crate::output;
use crate::output::json;
use crate::verbs::lessons::Lessons;
use crate::verbs::record::Source;
use crate::verbs::record::observable;
use crate::verbs::record::program::{NotStarted, Program};
use agent::journal::default_folder;
use agent::{Agent, Journal, Options, PlaceReport, PutBack, Scope};
use clap::{Args, ValueEnum};
use clap_complete::ArgValueCompleter;
use linux::{ChildSetup, Pid, Process, Switch};
use machine::{Machine, chain, size};
use observe::{Followed, Target};
use placement::{Lesson, MemoryPlacement, POLICIES, Policy, PolicyName, Settings, policy_list};
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

/// Exit code of failures that are not the program's own; programs seldom use it.
const FAILED: u8 = 125;
/// Interval between two checks of a program that is no longer managed.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest delay before Ctrl-C takes effect.
const CTRL_C: Duration = Duration::from_millis(20);
const USAGE: &str = "nearside place [OPTIONS] -- <CMD>...
       nearside place [OPTIONS] --pid <PID>,...
       nearside place [OPTIONS] --system";

/// Place a program's pages and threads according to a policy, while it runs
///
/// Starts the program with this terminal, environment and user, observes which threads access which memory, and moves
/// pages and threads, round by round. The program is not changed. Its child processes are placed, too. Threads and
/// memory that the program or its owner has already placed (affinity, memory policies, cpusets) stay there.
///
/// Ctrl-C and other signals are passed to the program, no matter how many arrive. When the program ends, or with --pid
/// and --system at Ctrl-C, CPU affinities and kernel switches are restored; pages stay where they are.
#[derive(Debug, Args)]
#[command(after_help = help(), override_usage = USAGE)]
#[allow(clippy::struct_excessive_bools, reason = "switches of their own, each")]
pub struct Arguments {
    /// The policy: see below
    #[arg(long, short, value_name = "POLICY", default_value = "predict", add = ArgValueCompleter::new(candidates::policies))]
    policy: String,

    /// The policy for memory, if --policy is one for threads: `--policy balanced --memory local` is balanced+local
    #[arg(long, short, value_name = "POLICY")]
    memory: Option<String>,

    /// Decide and print what would be done, but change nothing
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Forget what earlier runs of this command taught `predict` about it, before it starts
    #[arg(long, conflicts_with_all = ["pid", "system"])]
    forget: bool,

    /// Print each step and its reason as it is taken
    #[arg(long, short)]
    explain: bool,

    /// Write all decisions and their inputs to this file, for `nearside replay`
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Write the result as JSON to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// For `nearside compare`: write when the program ran to this file
    #[arg(long, hide = true, value_name = "FILE")]
    times: Option<PathBuf>,

    /// Print no summary
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    thresholds: ThresholdOptions,

    /// Length of a round, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    round: Duration,

    /// Divide the length of rounds by this [default: in the lab its --time-scale, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    time_scale: Option<u32>,

    /// Maximum to move per second: bytes, or a number of KiB, MiB or GiB with K, M or G [default: the policy's choice]
    #[arg(long, value_name = "BYTES", value_parser = parse_budget)]
    budget: Option<u64>,

    /// CPU time that observing and deciding may take, in percent of one CPU, averaged over some dozens of rounds; the
    /// sampling rate is lowered to stay within it
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = parse_percent)]
    cpu_limit: f64,

    /// Also place threads and memory that the program or its owner has placed already; cpusets are respected in any
    /// case
    #[arg(long = "override")]
    overrides: bool,

    #[command(flatten)]
    regions: RegionPlaces,

    /// Whether to switch off the kernel's own NUMA balancing while a policy runs that moves pages or threads. Needs
    /// root
    #[arg(long, value_enum, default_value = "off")]
    kernel_balancing: KernelBalancing,

    /// Source of memory access samples
    #[arg(long, value_enum, default_value = "auto")]
    source: Source,

    /// The measured description of this machine, as written by `nearside measure --output`
    #[arg(long, value_name = "FILE")]
    machine: Option<String>,

    /// Place running processes and their children, until they end or Ctrl-C: numbers or names, separated by commas
    #[arg(long, value_name = "PID", value_parser = process, value_delimiter = ',', conflicts_with_all = ["command", "system"])]
    pid: Vec<u32>,

    /// Place all busy processes, until Ctrl-C: those of other users only as root
    #[arg(long, conflicts_with = "command")]
    system: bool,

    /// The program and its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present_any = ["pid", "system"])]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KernelBalancing {
    /// Switched off during the run, if permitted
    Off,
    /// Left as it is
    Keep,
}

fn help() -> String {
    let policies = policy_list(&POLICIES);
    format!(
        "\
Policies:
{policies}

predict, carrefour, auto, auto-threads and thread-clustering need observed accesses: by the processor (AMD's IBS, Intel's PEBS, Arm's SPE), by the lab's \
virtual PMU, or by hint faults while NUMA balancing is on; for predict, counters of memory traffic are enough. The others decide when processes and threads start.

Privileges: none for your own programs, if `kernel.perf_event_paranoid` allows observing them (2 or less); splitting huge \
pages and switching off the kernel's balancing need root. Pages that other processes also map stay where they are, or are copied.

Examples:
  nearside place -- ./program --its-options
  nearside place --policy balanced --memory local -- make
  nearside place --dry-run --explain -- ./program
  sudo nearside place --policy auto --pid 4711,4712 --budget 200M
  nearside lab run --machine opteron-6164x2 --time-scale 20 -- nearside place --log /tmp/decisions -- ./program

Exit codes: the program's own, 128 + n if signal n ended it. Nearside's own, with nothing started: 2 the command line is wrong, \
or names nodes or CPUs that the machine lacks, 125 another part of the request cannot be done, 126 the program cannot \
be run, 127 there is no such program. 125 also if placing fails later: the program runs on, and nearside exits when it ends.
Without a program: 0 it was interrupted, or the processes ended; 125 it failed.

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
        _ => Err("a share of one CPU in percent, from 0.01 to 100".to_owned()),
    }
}

fn parse_budget(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        0 => Err("above 0; without this option the policy chooses".to_owned()),
        budget => Ok(budget),
    }
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let status = place(arguments).unwrap_or_else(|error| {
        crate::print_error(error.as_ref());
        match (error.downcast_ref::<NotStarted>(), error.is::<UsageError>()) {
            (Some(not_started), _) => not_started.status(),
            (None, true) => 2,
            (None, false) => FAILED,
        }
    });
    ExitCode::from(status)
}

fn place(arguments: &Arguments) -> Result<u8, Box<dyn Error>> {
    let policy = policy_of(arguments).map_err(UsageError::boxed)?;
    let time_scale = time_scale(arguments.time_scale)?;
    let (machine, simulated) = described(arguments.machine.as_deref())?;
    // The policy may name nodes or CPUs that the machine lacks.
    let set_to_work = Policy::new(policy.clone(), &machine, Settings::default()).map_err(UsageError::boxed)?;
    let is_idle = set_to_work.has_nothing_to_place();
    let json = arguments.json.as_deref();
    json.map_or(Ok(()), output::check)?;
    if json.is_some() && arguments.json == arguments.log {
        return Err(UsageError::boxed("--json and --log name the same file; each needs its own"));
    }
    let placing = Placing { arguments, policy, time_scale, machine: &machine, simulated, is_idle };
    let (status, report) = if arguments.command.is_empty() { placing.processes()? } else { placing.program()? };
    if let Some((json, report)) = json.zip(report) {
        // A failure to write must not hide the program's exit code.
        if let Err(error) = output::write_to(&json::document(&report)?, json) {
            crate::print_error(&error);
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

/// These processes and their current descendants; the kernel reports later ones.
fn with_descendants(pids: &[u32]) -> Vec<u32> {
    let mut all = pids.to_vec();
    let mut seen: BTreeSet<u32> = pids.iter().copied().collect();
    let mut next = 0;
    while let Some(pid) = all.get(next).copied() {
        next += 1;
        // A process that has ended has no children; the error is reported where it was named.
        let children = Process::open(Pid(pid)).and_then(|process| process.children()).unwrap_or_default();
        all.extend(children.iter().map(|pid| pid.0).filter(|pid| seen.insert(*pid)));
    }
    all
}

/// This machine, as described by its kernel or measured, and whether it is simulated.
pub fn described(file: Option<&str>) -> Result<(Machine, bool), Box<dyn Error>> {
    let (machine, simulated) = machine_source::running()?;
    let Some(file) = file else { return Ok((machine, simulated)) };
    let measured = machine_source::read(Some(file))?;
    let nodes = |machine: &Machine| -> Vec<_> {
        machine.nodes.iter().map(|node| (node.id, node.cpus.clone(), node.memory_bytes > 0)).collect()
    };
    if nodes(&measured) != nodes(&machine) {
        let why = format!("{file} describes another machine: its nodes and their CPUs differ from this one's");
        return Err(UsageError::boxed(why));
    }
    Ok((measured, simulated))
}

/// The requested time scale, or the one by which the lab divides the kernel's periods.
pub fn time_scale(asked: Option<u32>) -> Result<u32, Box<dyn Error>> {
    let told = || std::env::var(lab::TIME_SCALE).ok();
    let Some(told) =
        asked.map(Ok).or_else(|| told().map(|text| text.parse::<u32>().ok().filter(|scale| *scale > 0).ok_or(text)))
    else {
        return Ok(1);
    };
    told.map_err(|text| UsageError::boxed(format!("{} is `{text}`, not a number of at least 1", lab::TIME_SCALE)))
}

/// What to place, and how.
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
    /// The exit code, and the report if placing ran to the end.
    fn program(&self) -> Result<(u8, Option<PlaceReport>), Box<dyn Error>> {
        let lessons = self.lessons();
        let lesson = lessons.as_ref().and_then(|lessons| self.begin_with(lessons));
        let scratch = has_huge_pages().then(tempfile::tempdir).transpose().unwrap_or_else(|why| {
            note(&format!("huge pages that are split may be joined again by the kernel: {}", chain(&why)));
            None
        });
        let folder = scratch.as_ref().map(|scratch| scratch.path().to_owned());
        let mut agent = self.open((Target::Program, Scope::default()), lesson, Arc::default(), folder)?;
        let mut start = agent.program_start()?;
        let spread = start.spread.as_ref().map(|nodes| loaded_first::spread_start(nodes, self.machine));
        let spread = spread.transpose().unwrap_or_else(|why| {
            note(&format!("what the program touches before it makes threads is left to first touch: {}", chain(&*why)));
            start.spread = None;
            None
        });
        let advised = agent.advice().map(loaded_first::keep_small).transpose().unwrap_or_else(|why| {
            note(&format!("huge pages that are split may be joined again by the kernel: {}", chain(&*why)));
            None
        });
        let program = Program::start(&self.arguments.command, |command| {
            command.place(start.cpus.as_ref(), start.memory.as_ref());
            command.envs(spread.into_iter().chain(advised).flatten());
        })?;
        let mut program = UntilExit(program);
        self.arguments.times.iter().for_each(|file| program.0.write_times(file));
        let placed = agent.add_program(program.0.pid(), &start).map_err(Box::from);
        let placed = placed.and_then(|()| self.follow(agent, &mut program));
        if let Err(error) = &placed {
            crate::print_error(error.as_ref());
        }
        // A failure of placing must not end the program.
        while !program.is_over() {
            program.wait(PATIENCE);
        }
        let exit_status = program.0.status()?;
        let Ok((report, put_back)) = placed else { return Ok((FAILED, None)) };
        let report = PlaceReport { exit_status, ..report };
        // A program that failed may have done so before it made its threads.
        let is_taught = report.lesson != Some(Lesson::NoThreads) || exit_status == Some(0);
        if let Some(lessons) = lessons.filter(|_| !self.arguments.dry_run && is_taught) {
            note_failure("what this run taught is not kept", lessons.write(report.lesson));
        }
        self.tell(&report, &put_back);
        Ok((program.0.exit_code(), Some(report)))
    }

    fn processes(&self) -> Result<(u8, Option<PlaceReport>), Box<dyn Error>> {
        let stop = asked_to_end()?;
        // With nothing to place, it ends at once.
        stop.fetch_or(self.is_idle, Relaxed);
        let (report, put_back) = if self.arguments.system {
            let agent = self.open((Target::System, own_processes(Scope::default())), None, stop.clone(), None)?;
            self.follow(agent, &mut WholeSystem(stop))?
        } else {
            let mut processes = observable::open(&with_descendants(&self.arguments.pid), stop.clone())?;
            let agent = self.open((Target::Pids(processes.pids()), Scope::default()), None, stop, None)?;
            self.follow(agent, &mut processes)?
        };
        self.tell(&report, &put_back);
        Ok((0, Some(report)))
    }

    /// What earlier runs taught, if the policy uses that.
    fn lessons(&self) -> Option<Lessons> {
        let is_used = self.policy.memory == MemoryPlacement::Predict && !self.is_idle;
        Lessons::of(&self.arguments.command, self.machine).filter(|_| is_used)
    }

    fn begin_with(&self, lessons: &Lessons) -> Option<Lesson> {
        if self.arguments.forget {
            note_failure("what earlier runs taught is not forgotten", lessons.write(None));
            return None;
        }
        let lesson = note_failure("what earlier runs taught is not used", lessons.read()).flatten();
        if lesson.is_none() && lessons.are_of_another() {
            note("what earlier runs of this command taught is not used: the program, or the machine, was another one");
        }
        lesson
    }

    fn open(
        &self,
        (target, scope): (Target, Scope),
        lesson: Option<Lesson>,
        stop: Arc<AtomicBool>,
        advice_folder: Option<PathBuf>,
    ) -> Result<Agent, Box<dyn Error>> {
        let arguments = self.arguments;
        let (journal, put_back) = Journal::open(&default_folder(), &format!("place-{}", std::process::id()))?;
        if !put_back.is_nothing() {
            note(&format!("{}: {put_back}", put_back.heading()));
        }
        let mut settings = Settings { respect_owner: !arguments.overrides, ..Settings::default() };
        arguments.thresholds.apply(&mut settings.thresholds);
        let options = Options {
            settings,
            lesson,
            target,
            scope,
            regions: arguments.regions.orders()?,
            source: arguments.source.into(),
            round: arguments.round / self.time_scale,
            budget_bytes_per_s: arguments.budget,
            cpu_limit: arguments.cpu_limit,
            dry_run: arguments.dry_run,
            keep_kernel_balancing: arguments.kernel_balancing == KernelBalancing::Keep,
            log: arguments.log.clone(),
            explain: arguments.explain,
            advice_folder,
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
            agent.poll()?;
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
            // With standard error closed there is nowhere to report this.
            let _ = write!(std::io::stderr(), "{}", PlaceText(report));
        }
    }
}

/// Whether the kernel gives programs huge pages, which a policy may split.
fn has_huge_pages() -> bool {
    Switch::huge_pages().value().is_ok_and(|mode| mode != "never")
}

/// Lessons are an aid: the program is placed without them as well.
fn note_failure<T>(what: &str, done: Result<T, Box<dyn Error>>) -> Option<T> {
    match done {
        Ok(done) => Some(done),
        Err(error) => {
            note(&format!("{what}: {}", chain(&*error)));
            None
        }
    }
}

/// Restricts the scope to processes that this user may place.
pub fn own_processes(scope: Scope) -> Scope {
    let user = geteuid();
    if user.is_root() { scope } else { scope.of_user(user.as_raw()) }
}

/// A program is placed until it ends, no matter how many signals arrive.
struct UntilExit(Program);

impl Followed for UntilExit {
    fn is_over(&mut self) -> bool {
        !matches!(self.0.status(), Ok(None))
    }

    fn wait(&mut self, patience: Duration) {
        self.0.wait(patience);
    }
}

/// The system is placed until the user interrupts.
struct WholeSystem(Arc<AtomicBool>);

impl Followed for WholeSystem {
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
