//! One run of a cell: settings, environment, numbers.

use super::metrics::{Events, sources, uses};
use super::session::load;
use crate::options::machine_source;
use compare::{Invocation, NoRun, RunOutput, Runner, TimesFile, balance, unbalanced};
use explore::{Campaign, Cell, Measured, Place, Seconds, Thp, Unit, UnitOutcome};
use linux::{Switch, SwitchError, SwitchGuard};
use machine::{CpuSet, Machine, Pinning, Places, Tid, chain};
use observe::{CpuCounters, LabCounters, SchedulingCounters, lab_totals};
use rustix::process::getuid;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Interval between attempts to change a setting that another nearside has changed.
const BUSY_INTERVAL: Duration = Duration::from_millis(100);
/// Lines kept of the output of a program that failed.
const LINES: usize = 20;

/// This machine, real or the lab's.
pub struct Machines {
    machine: Machine,
    pub simulated: bool,
    allowed: CpuSet,
    nearside: PathBuf,
}

impl Machines {
    pub fn here() -> Result<Self, String> {
        let (machine, simulated) = machine_source::running().map_err(|error| chain(&error))?;
        let allowed = linux::affinity(Tid::CALLER).map_err(|error| format!("cannot read the allowed CPUs: {error}"))?;
        let nearside = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        Ok(Self { machine, simulated, allowed, nearside })
    }
}

/// The variables that OpenMP's implementations read.
const OPENMP: [&str; 3] = ["OMP_", "GOMP_", "KMP_"];

/// The names of OpenMP's variables in nearside's environment.
pub fn openmp_variables() -> impl Iterator<Item = String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| OPENMP.iter().any(|prefix| name.starts_with(prefix)))
}

/// A run without a result yet.
pub fn new_unit(campaign: &Campaign, cell: &Cell, round: u32, host: &str) -> Unit {
    let labels = campaign.labels(cell);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Unit {
        cell: cell.name.clone(),
        id: cell.id.clone(),
        round,
        labels: labels.map(|(axis, label)| (axis.to_owned(), label.to_owned())).collect(),
        command: cell.command.clone(),
        places: None,
        campaign: campaign.hash.clone(),
        nearside: env!("CARGO_PKG_VERSION").to_owned(),
        model: matches!(cell.place, Place::Lab(_)).then(|| model::VERSION.to_owned()),
        host: Some(host.to_owned()),
        kernel: String::new(),
        began_s: since.map_or(0.0, |since| since.as_secs_f64()),
        load: None,
        notes: Vec::new(),
        outcome: UnitOutcome::Failed { why: String::new(), output: String::new() },
    }
}

/// Runs cells, one at a time.
pub struct UnitRunner<'a> {
    campaign: &'a Campaign,
    here: Machines,
    host: &'a str,
    say: &'a (dyn Fn(&str) + Sync),
    runner: Runner,
    /// The cells that have had their unmeasured runs.
    warm: BTreeSet<String>,
    /// Counts moves of threads, where that may be read.
    scheduling: Option<SchedulingCounters>,
    /// Counts what serves the accesses of each CPU, where that may be read. The lab's are those of the runner.
    cpus: Option<CpuCounters>,
}

/// Settings of a run, held until it has ended.
#[derive(Default)]
struct Settings {
    guards: Vec<SwitchGuard>,
    /// Options of `nearside run`, in the place of settings that may not be changed.
    options: Vec<&'static str>,
    notes: Vec<String>,
}

impl<'a> UnitRunner<'a> {
    /// `say` gets a sentence where a run has to wait.
    pub fn new(
        campaign: &'a Campaign,
        here: Machines,
        host: &'a str,
        say: &'a (dyn Fn(&str) + Sync),
        interrupted: Arc<AtomicBool>,
    ) -> Self {
        let counters = LabCounters::find().ok().flatten();
        let cpus = if counters.is_none() { CpuCounters::open(&here.machine).ok() } else { None };
        let (runner, warm) = (Runner::new(counters, interrupted), BTreeSet::new());
        Self { campaign, here, host, say, runner, warm, scheduling: SchedulingCounters::open().ok(), cpus }
    }

    /// Runs a cell once, after its unmeasured runs if it is the first time.
    pub fn run(&mut self, cell: &Cell, round: u32) -> Result<Unit, NoRun> {
        let places = cell.pinning.and_then(|pinning| pinning.places(&self.here.machine, &self.here.allowed));
        let mut unit = Unit {
            places: places.as_ref().map(ToString::to_string),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            load: load().filter(|_| !self.here.simulated),
            ..new_unit(self.campaign, cell, round, self.host)
        };
        let environment = self.environment(cell, places.as_ref());
        let settings = match self.settings(cell)? {
            Ok(settings) => settings,
            Err(why) => {
                unit.outcome = UnitOutcome::Failed { why, output: String::new() };
                return Ok(unit);
            }
        };
        unit.notes.clone_from(&settings.notes);
        let mut command: Vec<OsString> = Vec::new();
        let mut times = None;
        if !settings.options.is_empty() {
            let file = match TimesFile::new() {
                Ok(file) => file,
                Err(error) => {
                    let why = format!("cannot make a temporary file: {error}");
                    unit.outcome = UnitOutcome::Failed { why, output: String::new() };
                    return Ok(unit);
                }
            };
            command.extend([self.here.nearside.clone().into(), "run".into()]);
            command.extend(settings.options.iter().map(Into::into).chain(file.arguments()));
            command.push("--".into());
            times = Some(file);
        }
        command.extend(cell.command.iter().map(Into::into));
        let invocation = Invocation { command: &command, environment: &environment, timeout: self.campaign.timeout };
        if self.warm.insert(cell.id.clone()) {
            for _ in 0..self.campaign.warmups {
                let (outcome, _) = self.once(&invocation, times.as_ref())?;
                if let UnitOutcome::Failed { why, output } = outcome {
                    unit.outcome = UnitOutcome::Failed { why: format!("in an unmeasured run: {why}"), output };
                    return Ok(unit);
                }
            }
        }
        let (outcome, events) = self.once(&invocation, times.as_ref())?;
        unit.outcome = outcome;
        if let UnitOutcome::Measured(measured) = &mut unit.outcome {
            // What the program prints has precedence.
            for (name, value) in events {
                measured.metrics.entry(name).or_insert(value);
            }
        }
        Ok(unit)
    }

    /// The variables that a cell sets or removes: those of its pinning, which OpenMP programs and the workloads read, and
    /// those of the file, which have precedence. Others of OpenMP are removed.
    fn environment(&self, cell: &Cell, places: Option<&Places>) -> Vec<(String, Option<String>)> {
        let mut all: BTreeMap<String, Option<String>> = openmp_variables().map(|name| (name, None)).collect();
        if let Some(pinning) = cell.pinning {
            let for_threads = if pinning == Pinning::None { Pinning::Sockorder } else { pinning };
            let cores = for_threads.places(&self.here.machine, &self.here.allowed).map_or(1, |places| places.cpus());
            let bind = if places.is_some() { "close" } else { "false" };
            all.insert("OMP_PLACES".to_owned(), places.map(ToString::to_string));
            all.insert("GOMP_CPU_AFFINITY".to_owned(), places.and_then(Places::gomp_cpu_affinity));
            all.insert("OMP_PROC_BIND".to_owned(), Some(bind.to_owned()));
            all.insert("OMP_NUM_THREADS".to_owned(), Some(cores.to_string()));
        }
        all.extend(cell.environment.iter().map(|(name, value)| (name.clone(), Some(value.clone()))));
        all.into_iter().collect()
    }

    /// Changes the machine as the cell has it; the inner error is why that cannot be. In the lab, it was started so.
    fn settings(&self, cell: &Cell) -> Result<Result<Settings, String>, NoRun> {
        let mut settings = Settings::default();
        if matches!(cell.place, Place::Lab(_)) {
            return Ok(Ok(settings));
        }
        if let Some(on) = cell.balancing {
            match self.once_free(|| balance(on))? {
                Ok(guard) => settings.guards.extend(guard),
                Err(error) if on => return Ok(Err(unbalanced(&error))),
                Err(error) => {
                    let instead = "it was run with --localalloc, which the kernel does not balance";
                    settings.notes.push(format!("{}; {instead}", unbalanced(&error)));
                    settings.options.push("--localalloc");
                }
            }
        }
        if let Some(huge_pages) = cell.huge_pages {
            match self.once_free(|| set_huge_pages(huge_pages))? {
                Ok(guard) => settings.guards.extend(guard),
                Err(error) if huge_pages == Thp::Never => {
                    settings.notes.push(format!("{}; it was run with --huge never", chain(&error)));
                    settings.options.extend(["--huge", "never"]);
                }
                Err(error) => return Ok(Err(chain(&error))),
            }
        }
        Ok(Ok(settings))
    }

    /// Changes a setting once no other nearside has changed it until its program has ended: a cell that failed for that would
    /// not run again. Fails if the user interrupts.
    fn once_free<T>(&self, change: impl Fn() -> Result<T, SwitchError>) -> Result<Result<T, SwitchError>, NoRun> {
        let mut is_first = true;
        loop {
            match change() {
                Err(error) if error.is_busy() && !self.runner.is_interrupted() => {
                    if is_first {
                        (self.say)(&format!("{}: waiting for its end", chain(&error)));
                    }
                    is_first = false;
                    sleep(BUSY_INTERVAL);
                }
                Err(error) if error.is_busy() => return Err(NoRun::Interrupted),
                changed => return Ok(changed),
            }
        }
    }

    /// One run, and what the kernel and the lab counted. `times` is where `nearside run` writes those of the program.
    fn once(
        &mut self,
        invocation: &Invocation<'_>,
        times: Option<&TimesFile>,
    ) -> Result<(UnitOutcome, BTreeMap<String, f64>), NoRun> {
        let failed = |why: String, output: String| (UnitOutcome::Failed { why, output }, BTreeMap::new());
        let before = Events::now(self.scheduling.as_mut());
        let served_before = self.cpus.as_mut().map(CpuCounters::totals);
        let mut output = match self.runner.run(invocation) {
            Ok(output) => output,
            Err(NoRun::Interrupted) => return Err(NoRun::Interrupted),
            Err(error) => return Ok(failed(chain(&error), String::new())),
        };
        if let Some(times) = times {
            times.limit(&mut output);
        }
        let served = served_before.zip(self.cpus.as_mut().map(CpuCounters::totals));
        let mut metrics = Events::now(self.scheduling.as_mut()).since(&before);
        metrics.extend(served.iter().flat_map(|(before, after)| sources(before, after)));
        if let Some(why) = output.failure() {
            // Ctrl-C reaches programs that run in a terminal of their own, too.
            if self.runner.is_interrupted() {
                return Err(NoRun::Interrupted);
            }
            return Ok(failed(why, output.last_lines(LINES)));
        }
        let (measured, began) = match self.numbers(&output) {
            Ok(numbers) => numbers,
            Err(why) => return Ok(failed(why, output.last_lines(LINES))),
        };
        let part = began.map(|began| (began, measured.seconds));
        if let Some((before, after)) = output.counted(part) {
            let totals = |measured: &model::Measured| lab_totals(&self.here.machine, &measured.per_cpu);
            metrics.extend(sources(&totals(&before), &totals(&after)));
            metrics.extend(uses(&before, &after));
        }
        if let Some(memory) = output.memory(part) {
            metrics.extend(memory.latency_mean_ns.map(|latency| ("memory.latency_ns".to_owned(), latency)));
            metrics.extend(memory.local_access_ratio().map(|share| ("memory.local".to_owned(), share)));
            metrics.extend(memory.imbalance().map(|imbalance| ("memory.imbalance".to_owned(), imbalance)));
        }
        Ok((UnitOutcome::Measured(measured), metrics))
    }

    /// What the program printed, and when the measured time began, ns, if it did.
    fn numbers(&self, output: &RunOutput) -> Result<(Measured, Option<u64>), String> {
        let either = |find: &dyn Fn(&str) -> Option<f64>| find(&output.printed).or_else(|| find(&output.complained));
        let (seconds, began) = match &self.campaign.seconds {
            Some(pattern) => output.printed_time(pattern).ok_or_else(|| {
                format!("it printed no positive time that matches `seconds = {:?}`", pattern.to_string())
            })?,
            None => (output.wall_seconds, None),
        };
        let metric = |(name, pattern): &(String, Seconds)| {
            let number = either(&|text| pattern.number_in(text));
            let number = number.ok_or_else(|| format!("it printed no number for the metric {name} ({pattern})"))?;
            Ok((name.clone(), number))
        };
        let metrics = self.campaign.metrics.iter().map(metric).collect::<Result<_, String>>()?;
        Ok((Measured { seconds, wall_seconds: output.wall_seconds, metrics }, began))
    }
}

/// Sets when memory gets huge pages, and keeps other nearsides from changing it, until the guard is dropped.
fn set_huge_pages(huge_pages: Thp) -> Result<Option<SwitchGuard>, SwitchError> {
    let switch = Switch::huge_pages();
    match switch.value() {
        // Users cannot keep root from changing it.
        Ok(value) if value == huge_pages.name() && !getuid().is_root() => Ok(None),
        // The kernel has none.
        Err(_) if huge_pages == Thp::Never => Ok(None),
        Err(error) => Err(error),
        Ok(_) => switch.set_alone(huge_pages.name(), |value| value == huge_pages.name()).map(Some),
    }
}
