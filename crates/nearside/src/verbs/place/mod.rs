//! `nearside place`: puts the pages and threads of programs where a policy has them, while they run.

mod arguments;

use crate::interrupt::asked_to_end;
use crate::options::loaded_first;
use crate::options::machine_source;
use crate::options::policy::note;
use crate::options::usage_error::UsageError;
use crate::output;
use crate::output::json;
use crate::verbs::lessons::Lessons;
use crate::verbs::record::observable;
use crate::verbs::record::program::{NotStarted, Program};
use agent::journal::default_folder;
use agent::{Agent, Journal, Options, PlaceReport, PutBack, Scope};
pub use arguments::Arguments;
use arguments::KernelBalancing;
use linux::{ChildSetup, Switch};
use machine::{Machine, chain};
use observe::{Followed, Target, wait_until_set};
use placement::{Lesson, Policy, PolicyName, Settings};
use report::PlaceText;
use rustix::fd::BorrowedFd;
use rustix::process::geteuid;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Exit code of failures that are not the program's own; programs seldom use it.
const FAILED: u8 = 125;
/// Interval between two checks of a program that is no longer managed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

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
    let policy = arguments.policy_name().map_err(UsageError::boxed)?;
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
        let lesson = lessons.as_ref().filter(|_| !self.arguments.forget).and_then(taught);
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
            program.wait(POLL_INTERVAL);
        }
        let exit_status = program.0.status()?;
        let Ok((report, put_back)) = placed else { return Ok((FAILED, None)) };
        let lessons = lessons.filter(|_| !self.arguments.dry_run);
        let kept = lessons.map(|lessons| lessons.keep_of_run(report.lesson, exit_status));
        let lesson = kept.and_then(|kept| note_failure("what this run taught is not kept", kept)).flatten();
        let report = PlaceReport { exit_status, lesson, ..report };
        self.print(&report, &put_back);
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
            let mut processes = observable::open(&self.arguments.pid, stop.clone(), self.arguments.quiet)?;
            let agent = self.open((Target::Pids(processes.pids()), Scope::default()), None, stop, None)?;
            self.follow(agent, &mut processes)?
        };
        self.print(&report, &put_back);
        Ok((0, Some(report)))
    }

    /// What earlier runs taught, if the policy uses that; forgotten, if that is wanted.
    fn lessons(&self) -> Option<Lessons> {
        let lessons = Lessons::of(&self.arguments.command, self.machine)?;
        if self.arguments.forget && !self.arguments.dry_run {
            note_failure("what earlier runs taught is not forgotten", lessons.forget());
        }
        // Lessons do not say under which policy for threads they were learned.
        let is_used = self.policy.is_predict_alone() && !self.is_idle;
        is_used.then_some(lessons)
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
        let (respect_owner, shared) = (!arguments.overrides, arguments.shared);
        let mut settings = Settings { respect_owner, shared, ..Settings::default() };
        arguments.thresholds.apply(&mut settings.thresholds);
        let options = Options {
            settings,
            lesson,
            target,
            scope,
            regions: arguments.regions.orders()?,
            source: arguments.source.into(),
            round: arguments.round(&self.policy, self.time_scale),
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
            followed.wait_for(agent.news(), agent.until_next());
            if followed.is_over() {
                break;
            }
            agent.poll()?;
            self.say(&mut agent);
        }
        self.say(&mut agent);
        let (report, put_back) = agent.finish(followed.first_thread_share())?;
        Ok((PlaceReport { simulated: self.simulated, ..report }, put_back))
    }

    fn say(&self, agent: &mut Agent) {
        if self.arguments.explain {
            agent.explained().iter().for_each(|line| note(line));
        }
    }

    fn print(&self, report: &PlaceReport, put_back: &PutBack) {
        for why in &put_back.failed {
            note(why);
        }
        if !self.arguments.quiet {
            // With standard error closed there is nowhere to report this.
            let _ = write!(std::io::stderr(), "{}", PlaceText(report));
        }
    }
}

/// What is known of a command from earlier runs.
fn taught(lessons: &Lessons) -> Option<Lesson> {
    let lesson = note_failure("what earlier runs taught is not used", lessons.read()).flatten();
    if lesson.is_none() && lessons.are_of_another() {
        note("what earlier runs of this command taught is not used: the program, or the machine, was another one");
    }
    lesson
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

    fn first_thread_share(&mut self) -> Option<f64> {
        self.0.first_thread_share().filter(|_| matches!(self.0.status(), Ok(Some(0))))
    }

    fn wait_for(&mut self, news: Option<BorrowedFd<'_>>, patience: Duration) {
        self.0.wait_for(news, patience);
    }
}

/// The system is placed until the user interrupts.
struct WholeSystem(Arc<AtomicBool>);

impl Followed for WholeSystem {
    fn is_over(&mut self) -> bool {
        self.0.load(Relaxed)
    }

    fn wait_for(&mut self, news: Option<BorrowedFd<'_>>, patience: Duration) {
        wait_until_set(&self.0, news, patience);
    }
}
