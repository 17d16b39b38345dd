//! Runs the program under every policy, in turn.

use crate::candidate::Candidate;
use crate::numad::{self, Numad};
use crate::opened_files::OpenedFiles;
use crate::oracle::{Binding, bindings};
use crate::page_cache::PageCache;
use crate::placed::{self, Placed};
use crate::program_times::TimesFile;
use crate::request::{Host, Request};
use crate::run_once::{Invocation, NoRun, RunOutput, Runner};
use agent::PlaceReport;
use linux::{NodeSet, NodeState, Switch, SwitchError, SwitchGuard};
use machine::chain;
use report::{Comparison, FailedRun, OneRun, PolicyRuns};
use rustix::process::getuid;
use std::ffi::OsString;
use std::io;

/// Maximum number of lines shown from a program that failed.
const LINES: usize = 20;

/// The runs of a comparison.
pub struct Runs<'a> {
    pub request: Request<'a>,
    pub host: &'a Host,
    pub nodes: NodeState,
    /// The page cache, if it is to be the same before each run.
    pub page_cache: Option<PageCache>,
    /// Gets a sentence as each run ends.
    pub say: &'a dyn Fn(&str),
}

/// A policy and its results so far.
struct Entry<'a> {
    candidate: &'a Candidate,
    /// The binding that the oracle found.
    binding: Option<Binding>,
    runs: PolicyRuns,
}

/// Setup of a run, held until the run has ended.
struct PreparedRun {
    /// Arguments that precede the program's own.
    command: Vec<OsString>,
    numad: Option<Numad>,
    placed: Option<Placed>,
    /// The program's own times, where another verb of nearside starts it.
    times: Option<TimesFile>,
    _balancing: Option<SwitchGuard>,
}

/// Why a policy has no further run.
enum Stop {
    /// The policy is not permitted or not available.
    LeftOut(String),
    /// The program failed.
    Failed(String, String),
    /// The user interrupted.
    Interrupted,
}

impl Runs<'_> {
    /// Runs everything. Results so far are reported after each run.
    pub fn run(&mut self, comparison: &mut Comparison, runner: &mut Runner, mut tell: impl FnMut(&Comparison)) {
        let mut entries: Vec<Entry> = self.request.candidates.iter().map(Entry::new).collect();
        let mut index = 0;
        // Other reasons for a failure show in the first measured run.
        comparison.interrupted = matches!(self.rehearse(comparison, runner), Err(NoRun::Interrupted));
        if comparison.interrupted {
            comparison.policies = entries.into_iter().map(|entry| entry.runs).collect();
            return tell(comparison);
        }
        // Each policy runs first, last and in between: over as many rounds as policies, drift affects all of them alike.
        let warm_ups = comparison.warm_ups;
        let rounds = 0..warm_ups + self.request.repeat;
        let turns = rounds.flat_map(|round| (0..entries.len()).map(move |turn| (round, round + turn)));
        for (round, turn) in turns.collect::<Vec<_>>() {
            let at = turn % entries.len().max(1);
            let Some(entry) = entries.get_mut(at).filter(|entry| entry.is_in()) else { continue };
            let is_measured = round >= warm_ups;
            comparison.interrupted =
                matches!(self.turn(entry, runner, &mut index, is_measured), Err(Stop::Interrupted));
            comparison.policies = entries.iter().map(|entry| entry.runs.clone()).collect();
            tell(comparison);
            if comparison.interrupted {
                break;
            }
        }
    }

    /// One run of one policy, preceded by its setup on the first run.
    fn turn(&self, entry: &mut Entry, runner: &mut Runner, index: &mut usize, is_measured: bool) -> Result<(), Stop> {
        let mut outcome = Ok(());
        if *entry.candidate == Candidate::Oracle && entry.binding.is_none() {
            outcome = self.search(entry, runner, index);
        }
        let outcome = outcome.and_then(|()| self.run_once(entry, runner, index));
        match outcome {
            Ok(_) if !is_measured => {
                (self.say)(&format!("{}, unmeasured run: done", entry.runs.policy));
                Ok(())
            }
            Ok(run) => {
                (self.say)(&format!(
                    "{}, run {} of {}: {:.6} s",
                    entry.runs.policy,
                    entry.runs.runs.len() + 1,
                    self.request.repeat,
                    run.seconds
                ));
                entry.runs.runs.push(run);
                Ok(())
            }
            Err(Stop::LeftOut(why)) => {
                (self.say)(&format!("{} is left out: {why}", entry.runs.policy));
                entry.runs.left_out = Some(why);
                Ok(())
            }
            Err(Stop::Failed(why, output)) => {
                (self.say)(&format!("{}: {why}", entry.runs.policy));
                entry.runs.failed = Some(FailedRun { index: *index, why, output });
                Ok(())
            }
            Err(Stop::Interrupted) => Err(Stop::Interrupted),
        }
    }

    fn run_once(&self, entry: &mut Entry, runner: &mut Runner, index: &mut usize) -> Result<OneRun, Stop> {
        let prepared = self.prepare(entry)?;
        *index += 1;
        if let Some(page_cache) = &self.page_cache {
            // The reason was reported before.
            let _ = page_cache.settle();
        }
        let mut output = runner.run_with(&Invocation::plain(&prepared.command), prepared.numad.as_ref()).map_err(
            |error| match error {
                NoRun::Interrupted => Stop::Interrupted,
                NoRun::Numad(why) => Stop::LeftOut(why),
                error => Stop::Failed(chain(&error), String::new()),
            },
        )?;
        if let Some(times) = &prepared.times {
            times.limit(&mut output);
        }
        if let Some(why) = output.failure() {
            let refused = prepared
                .placed
                .filter(|placed| output.status.code() == Some(placed::FAILED) && placed.report().is_none());
            // The program itself may end so, too, and then does under other policies.
            let is_uncured =
                matches!(entry.candidate, Candidate::HugePages(_)) && output.status.code() == Some(placed::FAILED);
            return Err(match refused {
                _ if runner.is_interrupted() => Stop::Interrupted,
                Some(_) => Stop::LeftOut(output.complained.trim().to_owned()),
                None if is_uncured => Stop::LeftOut(output.last_lines(1)),
                None => Stop::Failed(why, output.last_lines(LINES)),
            });
        }
        let report = prepared.placed.and_then(|placed| placed.report());
        report.iter().flat_map(|report| &report.notes).for_each(|note| entry.note(note.clone()));
        self.measured(entry, &output, report.as_ref(), *index)
    }

    fn measured(
        &self,
        entry: &Entry,
        output: &RunOutput,
        report: Option<&PlaceReport>,
        index: usize,
    ) -> Result<OneRun, Stop> {
        let mut seconds = output.wall_seconds;
        let mut part = None;
        if let Some(pattern) = self.request.seconds {
            let missing = || {
                Stop::Failed(
                    format!("it printed no positive time that matches --seconds {pattern}"),
                    output.last_lines(LINES),
                )
            };
            let (time, began_ns) = output.printed_time(pattern).ok_or_else(missing)?;
            seconds = time;
            part = began_ns.map(|began_ns| (began_ns, seconds));
        }
        let policy_cpu_seconds = match entry.candidate {
            Candidate::Numad => output.numad_seconds,
            // The kernel charges its work for a program to that program, and a cure's is not counted.
            Candidate::Kernel | Candidate::HugePages(_) => None,
            Candidate::Placed(_) => report.map(|report| report.cpu_time_s),
            _ => Some(0.0),
        };
        Ok(OneRun {
            index,
            seconds,
            wall_seconds: output.wall_seconds,
            memory: output.memory(part),
            pages_moved: output.pages_moved,
            policy_cpu_seconds,
        })
    }

    /// Prepares the machine for a policy.
    fn prepare(&self, entry: &mut Entry) -> Result<PreparedRun, Stop> {
        let mut options: Vec<OsString> = match entry.candidate {
            Candidate::FirstTouch
            | Candidate::Kernel
            | Candidate::Numad
            | Candidate::HugePages(_)
            | Candidate::Placed(_) => vec![],
            Candidate::NoHugePages => vec!["--huge".into(), "never".into()],
            Candidate::Interleave(nodes) => {
                let nodes = nodes.as_ref().map_or_else(|| "all".to_owned(), ToString::to_string);
                vec!["--interleave".into(), nodes.into()]
            }
            Candidate::Bind(nodes) => {
                let both = self.with_cpus().intersection(&self.nodes.with_memory);
                let first = || both.first().map(|node| node.to_string());
                let nodes = nodes.as_ref().map(ToString::to_string).or_else(first);
                let nodes = nodes.ok_or_else(|| Stop::LeftOut("no node has CPUs and memory".to_owned()))?;
                vec!["--cpunodebind".into(), (&nodes).into(), "--membind".into(), nodes.into()]
            }
            Candidate::Oracle => entry.binding.as_ref().map(Binding::options).unwrap_or_default(),
        };
        let balancing = balance(*entry.candidate == Candidate::Kernel);
        let balancing = match (balancing.map_err(|error| unbalanced(&error)), entry.candidate) {
            (Ok(guard), _) => guard,
            (Err(why), Candidate::Kernel) => return Err(Stop::LeftOut(why)),
            (Err(why), Candidate::FirstTouch) => {
                entry.note(format!("{why}; it was run with --localalloc, which the kernel does not balance"));
                options.push("--localalloc".into());
                None
            }
            (Err(why), _) => {
                entry.note(why);
                None
            }
        };
        let numad = if *entry.candidate == Candidate::Numad {
            let numad = Numad::start(self.host.simulated).map_err(Stop::LeftOut)?;
            entry.note(format!(
                "it looks every 1 to 2 s (-i {}), its shortest interval, whatever the time scale, and at \
                 processes with 300 MiB or more",
                numad::PERIODS_S
            ));
            Some(numad)
        } else {
            None
        };
        let (placed, words) = self.verb(entry.candidate, options)?;
        let mut command: Vec<OsString> = Vec::new();
        let mut times = None;
        if !words.is_empty() {
            let file = TimesFile::new().map_err(no_file)?;
            command.push(self.host.nearside.clone().into());
            command.extend(words.into_iter().chain(file.arguments()));
            command.push("--".into());
            times = Some(file);
        }
        command.extend_from_slice(self.request.command);
        Ok(PreparedRun { command, numad, placed, times, _balancing: balancing })
    }

    /// The verb of nearside that starts the program, with its options: none where it starts by itself. `options` are those
    /// of `nearside run`.
    fn verb(&self, candidate: &Candidate, options: Vec<OsString>) -> Result<(Option<Placed>, Vec<OsString>), Stop> {
        Ok(match candidate {
            Candidate::Placed(policy) => {
                let placed = Placed::new().map_err(no_file)?;
                let words = placed.arguments(policy, self.request.place_options);
                (Some(placed), words)
            }
            Candidate::HugePages(duration) => {
                let words = ["hugepages", "cure", "--quiet", "--rounds", "5", "--duration"].map(OsString::from);
                (None, words.into_iter().chain([duration.as_secs_f64().to_string().into()]).collect())
            }
            _ if options.is_empty() => (None, options),
            _ => (None, [OsString::from("run")].into_iter().chain(options).collect()),
        })
    }

    fn with_cpus(&self) -> NodeSet {
        self.nodes.cpus.iter().filter(|(_, cpus)| !cpus.is_empty()).map(|(node, _)| *node).collect()
    }

    /// Finds the best static binding, with one run of each.
    fn search(&self, entry: &mut Entry, runner: &mut Runner, index: &mut usize) -> Result<(), Stop> {
        let tried = bindings(&self.with_cpus(), &self.nodes.with_memory, self.request.oracle_tries);
        let mut best: Option<(f64, Binding)> = None;
        let mut failed = Vec::new();
        for binding in &tried {
            entry.binding = Some(binding.clone());
            match self.run_once(entry, runner, index) {
                Ok(run) => {
                    (self.say)(&format!("oracle, {binding}: {:.6} s", run.seconds));
                    if best.as_ref().is_none_or(|(seconds, _)| run.seconds < *seconds) {
                        best = Some((run.seconds, binding.clone()));
                    }
                }
                Err(Stop::Interrupted) => return Err(Stop::Interrupted),
                // Some programs do not fit on one node.
                Err(why) => failed.push(why),
            }
        }
        let Some((_, binding)) = best else {
            return Err(failed.pop().unwrap_or_else(|| Stop::LeftOut("--oracle-runs is 0".to_owned())));
        };
        let ran = tried.len() - failed.len();
        entry.note(format!("the best of {ran} static bindings that were tried once is {binding}"));
        if let Some(Stop::Failed(why, _) | Stop::LeftOut(why)) = failed.last() {
            entry.note(format!("{} more static bindings were tried and failed, the last one so: {why}", failed.len()));
        }
        entry.binding = Some(binding);
        Ok(())
    }

    /// Runs the program once without measuring, to learn which files the page cache must hold before each run. A
    /// failure of the program is ignored here.
    fn rehearse(&mut self, comparison: &mut Comparison, runner: &mut Runner) -> Result<(), NoRun> {
        let Some(page_cache) = &mut self.page_cache else { return Ok(()) };
        if let Err(error) = page_cache.settle() {
            comparison.notes.push(format!("the page cache stays as each run leaves it: {}", chain(&error)));
            self.page_cache = None;
            return Ok(());
        }
        let opened = match OpenedFiles::follow() {
            Ok(opened) => opened,
            Err(error) => {
                let text = "only the program's own file is read before each run, as the kernel does not report others";
                comparison.notes.push(format!("{text}: {error}"));
                return Ok(());
            }
        };
        runner.run(&Invocation::plain(self.request.command))?;
        page_cache.add(opened.end());
        (self.say)("unmeasured run, to see which files the program reads: done");
        Ok(())
    }
}

/// No fault of the policy: it is no reason to leave it out.
#[expect(clippy::needless_pass_by_value, reason = "it is called by `map_err`")]
fn no_file(why: io::Error) -> Stop {
    Stop::Failed(format!("cannot make a temporary file: {why}"), String::new())
}

/// Switches the kernel's NUMA balancing on or off, and keeps other nearsides from changing it, until the guard is dropped.
pub fn balance(on: bool) -> Result<Option<SwitchGuard>, SwitchError> {
    let switch = Switch::numa_balancing();
    let wanted = if on { "1" } else { "0" };
    let is_right = |value: &str| value == wanted || (on && value != "0");
    match switch.value() {
        // The kernel has no NUMA balancing.
        Err(_) if !on => Ok(None),
        Err(error) => Err(error),
        // Users cannot keep root from changing it.
        Ok(value) if is_right(&value) && !getuid().is_root() => Ok(None),
        Ok(_) => switch.set_alone(wanted, is_right).map(Some),
    }
}

/// Why the kernel's NUMA balancing could not be switched, and what to do.
pub fn unbalanced(error: &SwitchError) -> String {
    chain(error) + if getuid().is_root() { "" } else { " (it needs root)" }
}

impl<'a> Entry<'a> {
    fn new(candidate: &'a Candidate) -> Self {
        let runs = PolicyRuns { policy: candidate.to_string(), means: candidate.means(), ..PolicyRuns::default() };
        Self { candidate, binding: None, runs }
    }

    /// Whether it has runs left.
    fn is_in(&self) -> bool {
        self.runs.left_out.is_none() && self.runs.failed.is_none()
    }

    /// Adds a note once.
    fn note(&mut self, text: String) {
        if !self.runs.notes.contains(&text) {
            self.runs.notes.push(text);
        }
    }
}
