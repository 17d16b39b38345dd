//! `nearside hugepages cure`: splits or moves misplaced huge pages of a program while it runs.

use super::prevent::Prevention;
use crate::interrupt::{asked_to_end, interrupted};
use crate::open_trace::Reading;
use crate::options::process_name::process;
use crate::options::usage_error::UsageError;
use crate::output;
use crate::output::json;
use crate::output::scratch::scratch_folder;
use crate::verbs::record::{self, RecordOptions, observable, program::Program};
use agent::{
    Advisers, CureSteps, Cured, JudgedBlock, JudgedProcesses, curable, cure, huge_blocks, join, judged_blocks,
};
use clap::{Args, ValueEnum};
use linux::Pid;
use machine::{NodeId, size};
use observe::{Followed, Recorded, Target};
use placement::{BlockHistory, BlockStep, Cure, CureLimits, MisplacedHugePage, SeenBlock, cures, joins_within};
use profile::Filter;
use report::{CureReport, HugePagesReport};
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Exit code of failures that are not the program's own.
const FAILED: u8 = 125;
/// How long a program is recorded by default.
const RECORDED: Duration = Duration::from_secs(5);
/// Interval between two checks of a program that is no longer recorded.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Split falsely shared huge pages of a program, and move their parts to the nodes that use them
///
/// Records the program for some seconds, from its start on, as `nearside hugepages find` does. Then each falsely shared
/// huge page that saves more than its cure takes, if the program runs as long again as it was watched, is split and kept
/// small (otherwise the kernel joins it again), and each of its small pages moves to the node that uses it. A huge page
/// that one other node uses moves there as a whole. All others stay as they are. With CMD this needs no rights: the program does it to itself,
/// through the library that reports its objects. With --pid it needs a capability, `CAP_SYS_NICE`, and the kernel may join
/// the pages again. Nothing else of the system is changed, and nothing is left when the program ends.
#[derive(Debug, Args)]
#[command(
    mut_arg("output", |output| output.help("Keep the trace in this folder [default: it is removed]")),
    mut_arg("duration", |duration| duration.help("Record for this many seconds before the cure [default: 5]")),
    mut_arg("quiet", |quiet| quiet.help("Print nothing unless something fails")),
    mut_arg("no_objects", |switch| switch.hide(true)),
    after_help = "\
Examples:
  nearside hugepages cure -- ./program --its-options
  nearside hugepages cure --duration 20 --dry-run -- ./program
  sudo nearside hugepages cure --pid 4711
  nearside record -o program.trace -- ./program && nearside hugepages cure --from program.trace -- ./program

Exit codes: the program's own, or 0 with --pid; 125 the recording or the cure failed, or with --pid no access was sampled, 126 the program cannot be run, 127 there is \
no such program, 2 the command line is wrong.")]
pub struct Arguments {
    /// Cure a running process and its children
    #[arg(long, short, value_name = "PID", value_parser = process, conflicts_with = "command")]
    pid: Option<u32>,

    /// Prevent instead: keep what this recording of the same program found on small pages from its allocation on. Nothing is
    /// recorded, split or moved
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["pid", "split", "keep_small", "move_pages", "rearm", "join", "budget", "rounds",
        "output", "duration", "period", "rate", "source"])]
    from: Option<PathBuf>,

    /// Split huge pages
    #[arg(long, value_enum, default_value = "on")]
    split: Switch,

    /// Keep what was split small
    #[arg(long, value_enum, default_value = "on")]
    keep_small: Switch,

    /// Move small pages to the nodes that use them
    #[arg(long = "move", value_enum, default_value = "on")]
    move_pages: Switch,

    /// Split pages again, once, that the kernel has joined since an earlier round
    #[arg(long, value_enum, default_value = "on")]
    rearm: Switch,

    /// Join split pages again when one node has used all of them for 8 rounds, or when accesses to them have become slower
    /// by half; they are then left alone for 16 rounds, and for twice as many each time
    #[arg(long, value_enum, default_value = "on")]
    join: Switch,

    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,

    /// Most memory that is moved in all rounds, such as 200M: small pages, and all of each huge page that moves or is joined
    /// again [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    budget: Option<u64>,

    /// Record and cure N times in a row: programs fill their memory before they use it, and later rounds find what earlier
    /// ones were not sure of
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Write the result as JSON to this file (see docs/huge-pages.md); - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// For `nearside compare`: write when the program ran to this file
    #[arg(long, hide = true, value_name = "FILE")]
    times: Option<PathBuf>,

    #[command(flatten)]
    recording: RecordOptions,

    /// The program and its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present = "pid")]
    command: Vec<OsString>,
}

/// What earlier rounds learned about blocks, and left of the budget.
struct Earlier {
    history: BlockHistory,
    left: Option<u64>,
}

/// Programs that follow advice, and what earlier rounds left.
type State<'a> = (Option<&'a mut Advisers>, &'a mut Earlier);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let status = arguments.check().and_then(|()| match (arguments.pid, &arguments.from) {
        (Some(pid), _) => arguments.cure_process(pid),
        (None, Some(trace)) => arguments.prevention(trace).run(),
        (None, None) => arguments.cure_program(),
    });
    ExitCode::from(status.unwrap_or_else(|error| record::failed(error.as_ref(), FAILED)))
}

impl Arguments {
    fn check(&self) -> Result<(), Box<dyn Error>> {
        if self.recording.no_objects {
            return Err(UsageError::boxed("a cure needs the library that reports objects: leave out --no-objects"));
        }
        if self.from.is_some() && (self.recording.small_objects > 0 || self.recording.names.regions.is_some()) {
            return Err(UsageError::boxed(
                "--regions and --small-objects are of a recording, and --from records nothing: give them to nearside record, \
                 which writes the TRACE",
            ));
        }
        self.recording.check()?;
        Ok(self.json.as_deref().map_or(Ok(()), output::check)?)
    }

    fn prevention<'a>(&'a self, trace: &'a Path) -> Prevention<'a> {
        let json = self.json.as_deref();
        Prevention { trace, command: &self.command, dry_run: self.dry_run, quiet: self.recording.quiet, json }
    }

    fn earlier(&self) -> Earlier {
        Earlier { history: BlockHistory::default(), left: self.budget }
    }

    fn duration(&self) -> Duration {
        self.recording.duration.unwrap_or(RECORDED)
    }

    fn options(&self, scratch: &Path) -> RecordOptions {
        let folder = self.recording.output.clone().unwrap_or_else(|| scratch.join("trace"));
        RecordOptions { output: Some(folder), duration: Some(self.duration()), ..self.recording.clone() }
    }

    /// Starts a program, records and cures it, and waits for its end.
    fn cure_program(&self) -> Result<u8, Box<dyn Error>> {
        let scratch = scratch_folder()?;
        let mut advisers = Advisers::listen(scratch.path())?;
        let options = self.options(scratch.path());
        let recording = record::Arguments::new(options.clone(), self.command.clone());
        let (mut recorder, library) = record::begin(&recording, &Target::Program)?;
        let variables = recorder.environment(library.as_deref());
        let (name, path) = advisers.variable();
        let began = Instant::now();
        let started = Program::start(&self.command, |command| {
            command.envs(variables).env(name, path);
        });
        let mut program = match started {
            Ok(program) => program,
            Err(error) => {
                recorder.take_back()?;
                return Err(error.into());
            }
        };
        self.times.iter().for_each(|file| program.write_times(file));
        recorder.add_process(program.pid());
        // The program gets the signal, and decides.
        let interrupted = asked_to_end()?;
        let followed = recorder.follow(&mut program, options.duration).map_err(Box::<dyn Error>::from);
        let done = followed.and_then(|trace| {
            let (mut all, mut earlier) = (CureReport::default(), self.earlier());
            let rounds = (|| {
                all.add(self.cure(&trace.folder, began, (Some(&mut advisers), &mut earlier), program.is_over())?);
                while all.rounds < self.rounds && !program.is_over() && !interrupted.load(Relaxed) {
                    let folder = scratch.path().join(all.rounds.to_string());
                    match self.record_running(program.pid().0, &folder, &interrupted) {
                        // Its memory is gone before its end can be waited for.
                        Err(_) if observable::has_ended(program.pid()) => break,
                        _ if program.is_over() => break,
                        outcome => drop(outcome?),
                    }
                    all.add(self.cure(&folder, began, (Some(&mut advisers), &mut earlier), program.is_over())?);
                    remove(&folder);
                }
                Ok(())
            })();
            // A program that ends meanwhile is no failure.
            all.ended |= all.changes() == 0 && (program.is_over() || observable::has_ended(program.pid()));
            self.finish(rounds, &all)
        });
        // Without the connection, the library's thread ends in the program, and its last own thread can end it.
        drop(advisers);
        // A failure must not end the program.
        if let Err(error) = &done {
            crate::print_error(error.as_ref());
        }
        while !program.is_over() {
            program.wait(POLL_INTERVAL);
        }
        program.status()?;
        Ok(if done.is_ok() { program.exit_code() } else { FAILED })
    }

    fn cure_process(&self, pid: u32) -> Result<u8, Box<dyn Error>> {
        let scratch = scratch_folder()?;
        let (mut all, began, mut earlier) = (CureReport::default(), Instant::now(), self.earlier());
        let interrupted = interrupted()?;
        let rounds = (|| {
            while all.rounds < self.rounds {
                let kept = self.recording.output.clone().filter(|_| all.rounds == 0);
                let own = scratch.path().join(all.rounds.to_string());
                let folder = kept.as_deref().unwrap_or(&own);
                let recorded = match self.record_running(pid, folder, &interrupted) {
                    // Of a process that has ended meanwhile, what was done so far is shown.
                    Err(_) if all.rounds > 0 && observable::has_ended(Pid(pid)) => break,
                    recorded => recorded?,
                };
                let has_ended = recorded.about.program_ended;
                all.add(self.cure(folder, began, (None, &mut earlier), has_ended)?);
                remove(&own);
                if has_ended || interrupted.load(Relaxed) {
                    break;
                }
            }
            Ok(())
        })();
        all.ended |= all.changes() == 0 && observable::has_ended(Pid(pid));
        self.finish(rounds, &all)?;
        match all.samples {
            0 if self.recording.quiet => Err(all.verdict.into()),
            // The verdict has said why.
            0 => Ok(FAILED),
            _ => Ok(0),
        }
    }

    /// Writes the result, also of the rounds before one that failed.
    fn finish(&self, rounds: Result<(), Box<dyn Error>>, all: &CureReport) -> Result<(), Box<dyn Error>> {
        let told = if rounds.is_err() && all.rounds == 0 { Ok(()) } else { self.write(all) };
        rounds.and(told)
    }

    /// Records a process for the time of a round.
    fn record_running(
        &self,
        pid: u32,
        folder: &Path,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Recorded, Box<dyn Error>> {
        let duration = Some(self.duration());
        let options =
            RecordOptions { output: Some(folder.to_owned()), duration, quiet: true, ..self.recording.clone() };
        record::record_running(&record::Arguments::of_process(options, pid), interrupted.clone())
    }

    /// The result of all rounds.
    fn write(&self, all: &CureReport) -> Result<(), Box<dyn Error>> {
        if let Some(json) = &self.json {
            output::write_to(&json::document(all)?, json)?;
        }
        if !all.ended && all.changes() == 0 && !all.failed.is_empty() {
            let why: Vec<&str> = all.failed.keys().map(String::as_str).collect();
            return Err(format!("no huge page was cured: {}", why.join("; ")).into());
        }
        Ok(())
    }

    /// Cures these processes. One that has ended meanwhile is no failure of the others.
    fn act(
        &self,
        chosen: &BTreeMap<Pid, Vec<&MisplacedHugePage>>,
        (advisers, Earlier { history, .. }): State<'_>,
        judged: &[JudgedBlock],
    ) -> Cured {
        let mut advisers = advisers;
        let on = |switch| switch == Switch::On;
        let steps =
            CureSteps { split: on(self.split), keep_small: on(self.keep_small), move_pages: on(self.move_pages) };
        let mut all = Cured::default();
        for (pid, pages) in chosen {
            match cure(*pid, pages, steps, advisers.as_deref_mut()) {
                Ok(cured) => {
                    let is_split =
                        |block: &&JudgedBlock| block.seen.pid == *pid && cured.split_at.contains(&block.seen.address);
                    for JudgedBlock { seen, .. } in judged.iter().filter(is_split) {
                        history.was_split(*pid, seen.address, seen.relative_latency);
                    }
                    all.add(cured);
                }
                Err(error) => all.note(format!("process {pid} cannot be cured: {error}")),
            }
        }
        all
    }

    /// Judges the trace, cures its processes, which were watched from some time on, and prints what it did.
    fn cure(
        &self,
        trace: &Path,
        began: Instant,
        state: State<'_>,
        is_over: bool,
    ) -> Result<CureReport, Box<dyn Error>> {
        let (mut advisers, earlier) = state;
        // What has run for some time is expected to run as long again.
        let horizon_s = began.elapsed().as_secs_f64();
        let recorded = Reading::default().read(trace)?;
        let view = recorded.profile.view(&Filter::default());
        let found = HugePagesReport::new(&view, recorded.facts, 0);
        let seconds = recorded.profile.span_ns().map_or(0.0, |(first, last)| (last - first).max(1) as f64 / 1e9);
        // Of a program that has ended, what would have been cured is reported.
        let of = if is_over { JudgedProcesses::All } else { JudgedProcesses::Living };
        let mut judged = judged_blocks(&recorded.profile, &found.blocks, seconds, of);
        mark_joined(&mut judged, &earlier.history);
        let seen: Vec<_> = judged.iter().map(|block| block.seen).collect();
        let mut again = self.join_steps(&seen, &mut earlier.history);
        let history = &earlier.history;
        // What was joined is left alone for a while, and what the kernel joined is split again if that is wanted.
        let is_free = |block: &&JudgedBlock| {
            let (pid, address) = (block.seen.pid, block.seen.address);
            !history.is_barred(pid, address) && (self.rearm == Switch::On || !history.is_split(pid, address))
        };
        let pages = judged.iter().filter(is_free).filter_map(|block| block.cure.clone()).collect();
        let (pages, mut done) = if is_over { (pages, Cured::default()) } else { curable(pages) };
        // Without marks, no mapping is added.
        let has_marks = self.keep_small == Switch::On && advisers.is_some();
        let runs = if has_marks { CureLimits::RUNS } else { u64::MAX };
        let limits = CureLimits { horizon_s, budget_bytes: earlier.left, runs };
        let chosen = cures(&pages, &limits, history);
        let is_chosen = |cure: &Cure| matches!(cure, Cure::Split | Cure::MoveWhole);
        let mut cured: BTreeMap<Pid, Vec<&MisplacedHugePage>> = BTreeMap::new();
        for (page, _) in pages.iter().zip(&chosen).filter(|(_, cure)| is_chosen(cure)) {
            cured.entry(page.pid).or_default().push(page);
        }
        let bytes: u64 = cured.values().flatten().map(|page| page.moved_bytes()).sum();
        let mut left = earlier.left.map(|left| left.saturating_sub(bytes));
        let wanted = again.len();
        again.truncate(joins_within(&mut left, wanted));
        if !self.dry_run && !is_over {
            done.add(self.act(&cured, (advisers.as_deref_mut(), earlier), &judged));
            done.add(join_again(&again, (advisers, earlier)));
        }
        earlier.left = earlier.left.map(|left| left.saturating_sub(done.moved_bytes()));
        let split = cured.values().flatten().filter(|page| page.whole().is_none());
        let count = |what: Cure| chosen.iter().filter(|cure| **cure == what).count() as u64;
        let report = CureReport {
            verdict: found.verdict,
            dry_run: self.dry_run,
            rounds: 1,
            samples: found.samples,
            ended: is_over,
            misplaced: found.huge_pages.falsely_shared + found.huge_pages.remote_owner,
            chosen: count(Cure::Split) + count(Cure::MoveWhole),
            chosen_whole: count(Cure::MoveWhole),
            not_worth_it: count(Cure::NotWorthIt),
            over_budget: count(Cure::OverBudget) + (wanted - again.len()) as u64,
            too_many_mappings: count(Cure::TooManyRuns),
            misplaced_pages: split.map(|page| page.misplaced_pages).sum(),
            split: done.split,
            kept_small: done.kept_small,
            joined: done.joined,
            moved_whole: done.moved_whole,
            pages_moved: done.moved,
            pages_stayed: done.stayed,
            failed: done.failed,
        };
        if !self.recording.quiet {
            // With standard error closed there is nowhere to report this.
            let _ = write!(std::io::stderr(), "{report}");
        }
        Ok(report)
    }

    /// The blocks to join again, by process.
    fn join_steps(&self, seen: &[SeenBlock], history: &mut BlockHistory) -> Vec<(Pid, u64, NodeId)> {
        let steps = history.decide(seen);
        let step = |(at, step): (usize, BlockStep)| {
            let block = seen.get(at)?;
            match step {
                BlockStep::Join(node) | BlockStep::TakeBack(node) => Some((block.pid, block.address, node)),
                BlockStep::Split | BlockStep::SplitAgain => None,
            }
        };
        let mut again: Vec<_> = steps.into_iter().filter(|_| self.join == Switch::On).filter_map(step).collect();
        again.sort_unstable();
        again
    }
}

/// Removes the trace of a round, which is not needed any more: a cure may have a thousand rounds.
fn remove(trace: &Path) {
    let _ = std::fs::remove_dir_all(trace);
}

/// Of blocks that earlier rounds split, those that are huge pages again: small pages may still lie as if they were one.
fn mark_joined(judged: &mut [JudgedBlock], history: &BlockHistory) {
    let mut split: BTreeMap<Pid, Vec<&mut JudgedBlock>> = BTreeMap::new();
    for block in judged.iter_mut().filter(|block| history.is_split(block.seen.pid, block.seen.address)) {
        split.entry(block.seen.pid).or_default().push(block);
    }
    for (pid, blocks) in split {
        // A process that has ended has none.
        let huge = huge_blocks(pid, blocks.iter().map(|block| block.seen.address)).unwrap_or_default();
        for block in blocks {
            block.seen.is_huge = huge.contains(&block.seen.address);
        }
    }
}

/// Joins these blocks again.
fn join_again(blocks: &[(Pid, u64, NodeId)], (advisers, earlier): State<'_>) -> Cured {
    let (mut advisers, mut all) = (advisers, Cured::default());
    for of_process in blocks.chunk_by(|a, b| a.0 == b.0) {
        let Some((pid, ..)) = of_process.first() else { continue };
        let wanted: Vec<(u64, NodeId)> = of_process.iter().map(|(_, address, node)| (*address, *node)).collect();
        match join(*pid, &wanted, advisers.as_deref_mut()) {
            Ok((cured, joined)) => {
                for address in joined {
                    earlier.history.was_joined(*pid, address);
                }
                all.add(cured);
            }
            Err(error) => all.note(format!("pages of process {pid} cannot be joined again: {error}")),
        }
    }
    all
}
