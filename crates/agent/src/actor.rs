//! Carries out decisions, records every change in the journal first, and reports the outcome.

use crate::copies::Copies;
use crate::huge_pages::{Advisers, CureSteps, Cured, cure};
use crate::journal::{Journal, JournalError, OwnSwitch, PutBack, requested};
use crate::managed_process::ManagedProcess;
use crate::managed_processes::Managed;
use crate::options::Options;
use crate::owner;
use crate::page_actions::{is_of_memory, moved_pages, not_moved, refuse_all, whose_pages};
use crate::step_outcome::StepOutcome;
use crate::work_time::since;
use linux::{
    Attempt, MigrateError, Migration, PageBatch, PageRefusal, ProcessError, Route, SwitchError, SystemState, Whose,
    affinity, diagnose, monotonic_ns, set_affinity,
};
use machine::{CpuSet, NodeId, NodeSet, Pid, SMALL_PAGE, Tid, chain};
use placement::{Action, AddressRange, MisplacedHugePage, Outcome, PageOf, Step};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Maximum number of passes over a process's threads while new ones keep appearing.
const MOST_LOOKS: usize = 8;

/// Why memory stays after a decision about it.
const OWN_POLICY: &str = "the program has chosen a memory policy of its own";

/// Carries out decisions.
pub(crate) struct Actor {
    journal: Journal,
    batch: PageBatch,
    /// Time that helper threads have spent moving pages.
    helped: Duration,
    /// Once set, nothing more is moved.
    stop: Arc<AtomicBool>,
    /// Called while ranges move.
    progress: fn(),
    /// Whether affinity and memory policies that the owner set are respected.
    respects_owner: bool,
    /// Whether pages of shared mappings are moved. All others that other processes map as well are not: samples of one
    /// process do not show what the others use, and they would lose what it gains. (Carrefour's kernel moves such pages. With
    /// four processes reading one file, moving them left 44 % of accesses local instead of 51 %.)
    moves_shared: bool,
}

impl Actor {
    pub fn new(journal: Journal, options: &Options, moves_shared: bool) -> Self {
        let (stop, progress) = (options.stop.clone(), options.progress);
        let respects_owner = options.settings.respect_owner;
        Self {
            journal,
            batch: PageBatch::default(),
            helped: Duration::ZERO,
            stop,
            progress,
            respects_owner,
            moves_shared,
        }
    }

    /// Gives a switch of the kernel this value, which is recorded first. The inner error is the kernel's.
    pub fn set(&mut self, switch: OwnSwitch, value: &str) -> Result<Result<(), SwitchError>, JournalError> {
        self.journal.will_set(switch, value)?;
        Ok(switch.switch().set(value))
    }

    /// Records that a program was just started with these CPUs, and the CPUs that it would have had.
    pub fn was_started(&mut self, pid: Pid, before: &CpuSet, after: &CpuSet) -> Result<(), JournalError> {
        self.journal.was_started(pid, before, after)
    }

    /// Records that a process has CPUs that the agent gave to the process `giver`.
    pub fn will_outlive(&mut self, pid: Pid, giver: Pid) -> Result<(), JournalError> {
        self.journal.will_outlive(pid, giver)
    }

    /// Restores the threads of a process that is no longer managed.
    pub fn put_back_process(&self, pid: Pid) -> PutBack {
        self.journal.put_back_process(pid)
    }

    /// Restores everything.
    pub fn restore(self) -> PutBack {
        self.journal.restore()
    }

    /// Time that helper threads have spent moving pages since the last call.
    pub fn take_helped(&mut self) -> Duration {
        std::mem::take(&mut self.helped)
    }

    /// Carries out steps in order and reports the outcome of each. Pages that could not be moved, or no longer exist,
    /// are added to the outcome. All moves within one process share one `move_pages` call, since each call briefly
    /// stops all CPUs.
    pub fn carry_out(
        &mut self,
        steps: &[Step],
        managed: &mut Managed,
        outcome: &mut Outcome,
        mut advisers: Option<&mut Advisers>,
    ) -> Result<Vec<StepOutcome>, JournalError> {
        let mut done = Vec::with_capacity(steps.len());
        let owners = self.just_placed_by_owners(steps, managed);
        while let Some(step) = steps.get(done.len()) {
            let rest = steps.iter().skip(done.len());
            match whose_pages(&step.action) {
                Some(pid) => {
                    let moves: Vec<&Step> = rest.take_while(|step| whose_pages(&step.action) == Some(pid)).collect();
                    if owners.contains(&pid) {
                        for step in moves {
                            refuse_all(&step.action, pid, outcome);
                            done.push(StepOutcome::because(OWN_POLICY));
                        }
                    } else {
                        done.extend(self.move_all(pid, &moves, managed, outcome));
                    }
                }
                None => match step.action.pid().filter(|pid| owners.contains(pid) && is_of_memory(&step.action)) {
                    Some(pid) => {
                        refuse_all(&step.action, pid, outcome);
                        done.push(StepOutcome::because(OWN_POLICY));
                    }
                    None => done.push(self.act(&step.action, managed, outcome, advisers.as_deref_mut())?),
                },
            }
        }
        let operations = |done: &StepOutcome| done.all_moved().pages + done.pages_copied + done.split_at.len() as u64;
        outcome.operations += done.iter().map(operations).sum::<u64>();
        Ok(done)
    }

    /// The processes of steps about memory whose program or owner has set a memory policy since it was last read.
    fn just_placed_by_owners(&self, steps: &[Step], managed: &mut Managed) -> BTreeSet<Pid> {
        let of_memory = steps.iter().filter(|step| self.respects_owner && is_of_memory(&step.action));
        let pids: BTreeSet<Pid> = of_memory.filter_map(|step| step.action.pid()).collect();
        let mut is_owners = |pid: &Pid| managed.get_mut(*pid).is_some_and(ManagedProcess::has_new_policy);
        pids.into_iter().filter(|pid| is_owners(pid)).collect()
    }

    fn act(
        &mut self,
        action: &Action,
        managed: &mut Managed,
        outcome: &mut Outcome,
        advisers: Option<&mut Advisers>,
    ) -> Result<StepOutcome, JournalError> {
        let Some(pid) = action.pid() else { return Ok(StepOutcome::default()) };
        let Some(process) = managed.get_mut(pid) else {
            refuse_all(action, pid, outcome);
            return Ok(StepOutcome::because(format!("process {pid} has ended")));
        };
        if self.stop.load(Relaxed) {
            refuse_all(action, pid, outcome);
            return Ok(StepOutcome::because("the agent is stopping"));
        }
        match action {
            Action::MoveRanges { node, ranges, bytes, most_s, .. } => {
                let route = Route::new(None, &[*node].into_iter().collect());
                Ok(self.move_ranges(process, route, ranges, (*bytes, *most_s), outcome))
            }
            Action::DealRanges { weights, ranges, bytes, most_s, .. } => {
                Ok(self.move_ranges(process, Route::dealt(weights), ranges, (*bytes, *most_s), outcome))
            }
            Action::SplitHugePages { pages, .. } => {
                let mut pages = pages.clone();
                self.leave_to_owners(process, &mut pages, |address| *address, outcome);
                Ok(split(process, &pages, outcome, advisers))
            }
            Action::Replicate { nodes, pages, is_possible: true, instead, .. } => {
                Ok(nodes.first().map_or_else(StepOutcome::default, |node| {
                    self.copy(process, pages, node, instead.as_deref(), outcome)
                }))
            }
            Action::MoveThread { tid, cpus, .. } => self.move_thread(process, *tid, cpus),
            Action::MoveProcess { cpus, .. } => self.move_process(process, cpus),
            // These move pages elsewhere, and the other copies need a kernel that replicates.
            Action::MovePages { .. }
            | Action::InterleavePages { .. }
            | Action::Replicate { .. }
            | Action::Revert { .. }
            | Action::SetSampling(_)
            | Action::Nothing => Ok(StepOutcome::default()),
        }
    }

    /// Moves the pages of these steps; all belong to this process.
    fn move_all(
        &mut self,
        pid: Pid,
        steps: &[&Step],
        managed: &mut Managed,
        outcome: &mut Outcome,
    ) -> Vec<StepOutcome> {
        let mut done = vec![StepOutcome::default(); steps.len()];
        let process = managed.get_mut(pid).filter(|_| !self.stop.load(Relaxed));
        let Some(process) = process else {
            for step in steps {
                refuse_all(&step.action, pid, outcome);
            }
            return done;
        };
        let pages = steps.iter().enumerate().flat_map(|(index, step)| {
            moved_pages(&step.action).into_iter().map(move |(address, node)| (node, address, index))
        });
        self.move_pages(process, pages.collect(), &mut done, outcome);
        done
    }

    /// Moves pages of a process, each to its target node, and records each outcome at its index in `done`.
    fn move_pages(
        &mut self,
        process: &mut ManagedProcess,
        mut pages: Vec<(NodeId, u64, usize)>,
        done: &mut [StepOutcome],
        outcome: &mut Outcome,
    ) {
        let pid = process.record.pid;
        self.leave_to_owners(process, &mut pages, |(_, address, _)| *address, outcome);
        if pages.is_empty() {
            return;
        }
        // The kernel batches consecutive list entries that go to the same node.
        pages.sort_unstable();
        self.batch.clear();
        for (node, address, _) in &pages {
            self.batch.push(*address, Some(*node));
        }
        let began_ns = monotonic_ns();
        // Where each page is now: an error is that of the move, too.
        let located = self.batch.locate(pid);
        let from: Vec<Option<NodeId>> = self.batch.statuses().map(|(_, status)| status.node().ok()).collect();
        let located_ns = monotonic_ns();
        let moved = located.and_then(|()| self.batch.move_pages(pid, Whose::Private));
        outcome.moving_s += since(began_ns).as_secs_f64();
        // Helper threads count as work too.
        self.helped +=
            since(located_ns) * u32::try_from(moved.as_ref().map_or(0, |movers| movers.saturating_sub(1))).unwrap_or(0);
        if let Err(error) = moved {
            outcome.refused.extend(pages.iter().map(|(_, address, _)| PageOf { pid, address: *address }));
            let targets = pages.iter().map(|(node, ..)| *node).collect();
            let note = why_not_moved(process, &targets, Whose::Private, &error);
            for done in done {
                done.note.clone_from(&note);
            }
            return;
        }
        for ((address, target, status), ((.., index), from)) in self.batch.outcomes().zip(pages.iter().zip(from)) {
            let Some(done) = done.get_mut(*index) else { continue };
            match status.node() {
                Ok(node) if node == target => {
                    let Some(from) = from.filter(|from| *from != target) else { continue };
                    let moved = done.moved.entry((from, target)).or_default();
                    let bytes = process.sizes.at(&process.process, address);
                    (moved.pages, moved.bytes) = (moved.pages + 1, moved.bytes + bytes);
                    outcome.bytes_moved += bytes;
                }
                refusal => {
                    let refusal = refusal.err().unwrap_or(PageRefusal::Stayed);
                    *done.pages_refused.entry(refusal).or_default() += 1;
                    not_moved(refusal, PageOf { pid, address }, outcome);
                }
            }
        }
    }

    /// Takes out what its owner has placed, and named ranges with a place.
    fn leave_to_owners<T>(
        &self,
        process: &mut ManagedProcess,
        pages: &mut Vec<T>,
        address: impl Fn(&T) -> u64,
        outcome: &mut Outcome,
    ) {
        if self.respects_owner {
            process.owners.refresh(&process.process);
        }
        let (pid, owners) = (process.record.pid, &process.owners);
        let left = pages.extract_if(.., |page| owners.contain(address(page)));
        outcome.refused.extend(left.map(|page| PageOf { pid, address: address(&page) }));
    }

    /// Gives a process private copies of pages of a file, on one node. Pages that cannot be copied are moved as
    /// requested.
    fn copy(
        &mut self,
        process: &mut ManagedProcess,
        pages: &[u64],
        node: NodeId,
        instead: Option<&Action>,
        outcome: &mut Outcome,
    ) -> StepOutcome {
        let pid = process.record.pid;
        let began_ns = monotonic_ns();
        let Copies { made, refused, note } = Copies::make(process, pages, node);
        outcome.moving_s += since(began_ns).as_secs_f64();
        let mut done = StepOutcome { note, ..StepOutcome::default() };
        // Copies are already on their node unless it was full; then they are moved there, or the refusal is reported.
        let made: Vec<(NodeId, u64, usize)> = made.into_iter().map(|page| (node, page, 0)).collect();
        let mut of_copies = Outcome::default();
        self.move_pages(process, made.clone(), std::slice::from_mut(&mut done), &mut of_copies);
        done.moved.clear();
        done.pages_copied = (made.len() - of_copies.refused.len() - of_copies.gone.len()) as u64;
        outcome.bytes_moved += done.pages_copied * SMALL_PAGE;
        let refused: BTreeMap<u64, PageRefusal> = refused.into_iter().collect();
        for (&address, refusal) in &refused {
            not_moved(*refusal, PageOf { pid, address }, outcome);
            *done.pages_refused.entry(*refusal).or_default() += 1;
        }
        let instead = instead.map(moved_pages).unwrap_or_default().into_iter();
        let instead = instead.filter(|(page, _)| refused.contains_key(page)).map(|(page, node)| (node, page, 0));
        let instead: Vec<(NodeId, u64, usize)> = instead.collect();
        let mut of_moves = Outcome::default();
        self.move_pages(process, instead.clone(), std::slice::from_mut(&mut done), &mut of_moves);
        let stayed: BTreeSet<PageOf> = of_moves.refused.iter().chain(&of_moves.gone).copied().collect();
        let moved = instead.into_iter().map(|(_, address, _)| PageOf { pid, address });
        outcome.moved_instead.extend(moved.filter(|page| !stayed.contains(page)));
        outcome.bytes_moved += of_moves.bytes_moved;
        for mut of in [of_copies, of_moves] {
            outcome.moving_s += of.moving_s;
            outcome.refused.append(&mut of.refused);
            outcome.gone.append(&mut of.gone);
        }
        done
    }

    fn move_ranges(
        &self,
        process: &mut ManagedProcess,
        route: Option<Route>,
        ranges: &[AddressRange],
        (bytes, most_s): (u64, Option<f64>),
        outcome: &mut Outcome,
    ) -> StepOutcome {
        let Some(route) = route else { return StepOutcome::default() };
        // Those of other processes that map the same, too: all were paid for once.
        if most_s.is_some() && outcome.out_of_time {
            return StepOutcome { out_of_time: true, ..StepOutcome::default() };
        }
        let is_shared = |range: &AddressRange| self.moves_shared && process.mappings.are_shared_at(range.start);
        let (shared, private): (Vec<AddressRange>, Vec<AddressRange>) =
            ranges.iter().partition(|range| is_shared(range));
        let began_ns = monotonic_ns();
        let most_time = most_s.map(|most| Duration::try_from_secs_f64(most).unwrap_or(Duration::MAX));
        let mut done = StepOutcome::default();
        for (ranges, whose) in [(private, Whose::Private), (shared, Whose::All)] {
            let left = bytes.saturating_sub(done.all_moved().bytes);
            if ranges.is_empty() || left == 0 {
                continue;
            }
            let migration = Migration {
                ranges: ranges.iter().map(|range| range.start..range.end).collect(),
                route: route.clone(),
                whose,
                budget_bytes_per_s: None,
                most_bytes: Some(left),
                most_time: most_time.map(|most| most.saturating_sub(since(began_ns))),
            };
            match migration.run(&process.process, &self.stop, |_| (self.progress)()) {
                Ok(tally) => {
                    if tally.out_of_time {
                        outcome.out_of_time = true;
                        done.out_of_time = true;
                    }
                    for (way, moved) in tally.moved {
                        let all = done.moved.entry(way).or_default();
                        (all.pages, all.bytes) = (all.pages + moved.pages, all.bytes + moved.bytes);
                    }
                    for ((refusal, _), stayed) in &tally.stayed {
                        *done.pages_refused.entry(*refusal).or_default() += stayed.amount.pages;
                    }
                }
                // It has ended.
                Err(MigrateError::Process(ProcessError::Gone(_))) => {}
                Err(MigrateError::Move(error)) => done.note = why_not_moved(process, route.targets(), whose, &error),
                Err(error) => done.note = Some(chain(&error)),
            }
        }
        outcome.moving_s += since(began_ns).as_secs_f64();
        outcome.bytes_moved += done.all_moved().bytes;
        done
    }

    fn move_process(&mut self, process: &mut ManagedProcess, cpus: &CpuSet) -> Result<StepOutcome, JournalError> {
        let mut done = StepOutcome::default();
        let mut seen: BTreeSet<Tid> = BTreeSet::new();
        for _ in 0..MOST_LOOKS {
            // A thread created meanwhile may have inherited its creator's previous CPUs.
            let Ok(threads) = process.process.threads() else { break };
            let new: Vec<Tid> = threads.iter().filter(|tid| !seen.contains(tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                seen.insert(tid);
                let of_thread = self.move_thread(process, tid, cpus)?;
                done.threads_moved += of_thread.threads_moved;
                done.note = done.note.or(of_thread.note);
            }
        }
        Ok(done)
    }

    /// Sets a thread's CPUs, unless its owner has set others meanwhile.
    pub fn move_thread(
        &mut self,
        process: &mut ManagedProcess,
        tid: Tid,
        cpus: &CpuSet,
    ) -> Result<StepOutcome, JournalError> {
        // The thread has ended.
        let Ok(now) = affinity(tid) else { return Ok(StepOutcome::default()) };
        let frees = *cpus == process.record.cpus;
        if frees && cpus.is_subset(&now) {
            return Ok(StepOutcome::default());
        }
        let chosen = owner::bound_to(&now, &process.record.cpus, process.given_to(tid, &now).as_slice());
        if let (Some(chosen), true) = (chosen, self.respects_owner) {
            let note = format!(
                "thread {tid} of process {} keeps CPUs {chosen}, which its owner has chosen",
                process.record.pid
            );
            if let Some(thread) = process.threads.get_mut(&tid) {
                thread.record.bound_to = Some(chosen);
            }
            return Ok(StepOutcome::because(note));
        }
        // Recorded even if it was started with these CPUs: it may outlive the managed program.
        let requested = if frees { requested(cpus.clone(), cpus) } else { cpus.clone() };
        let masks = (&process.record.cpus, &requested);
        if !self.journal.will_bind(process.record.pid, tid, process.parent, masks)? || now == *cpus {
            return Ok(StepOutcome::default());
        }
        if let Err(error) = set_affinity(tid, &requested) {
            if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) {
                return Ok(StepOutcome::default());
            }
            let situation = SystemState::read(Some(process.record.pid));
            let why = diagnose(Attempt::Run(cpus), error.raw_os_error().unwrap_or_default(), &situation);
            return Ok(StepOutcome::because(format!(
                "cannot run thread {tid} on CPUs {cpus} (sched_setaffinity: {error}): {why}"
            )));
        }
        process.gave(tid, cpus);
        Ok(StepOutcome { threads_moved: 1, ..StepOutcome::default() })
    }
}

/// None for a process that has ended: that is not a failure.
fn why_not_moved(process: &mut ManagedProcess, targets: &NodeSet, whose: Whose, error: &io::Error) -> Option<String> {
    let errno = error.raw_os_error().unwrap_or_default();
    if errno == Errno::SRCH.raw_os_error() {
        return None;
    }
    let pid = process.record.pid;
    let why = diagnose(Attempt::Move { to: targets, whose }, errno, &SystemState::read(Some(pid)));
    // Its cpuset may allow other nodes now.
    if let Ok(status) = process.process.status() {
        process.record.nodes = status.nodes;
    }
    Some(format!("cannot move pages of process {pid} (move_pages: {error}): {why}"))
}

/// Splits huge pages, and keeps them small where the program can be asked to. The policy moves their parts.
fn split(
    process: &mut ManagedProcess,
    pages: &[u64],
    outcome: &mut Outcome,
    advisers: Option<&mut Advisers>,
) -> StepOutcome {
    let pid = process.record.pid;
    let whole = |&address: &u64| MisplacedHugePage {
        pid,
        address,
        owners: Vec::new(),
        misplaced_pages: 0,
        saved_ns_per_s: None,
    };
    let wanted: Vec<MisplacedHugePage> = pages.iter().map(whole).collect();
    let steps = CureSteps { split: true, keep_small: true, move_pages: false };
    let cured = cure(pid, &wanted.iter().collect::<Vec<_>>(), steps, advisers);
    process.sizes.forget();
    let (cured, note) = match cured {
        Ok(cured) => {
            let note = cured.failed.keys().next().cloned();
            (cured, note)
        }
        Err(error) => (Cured::default(), Some(error.to_string())),
    };
    let mut done = StepOutcome { split_at: cured.split_at, kept_small: cured.kept_small, ..StepOutcome::default() };
    done.note = note.map(|why| format!("huge pages of process {pid}: {why}"));
    for page in pages.iter().filter(|page| !done.split_at.contains(page)) {
        *done.pages_refused.entry(PageRefusal::Stayed).or_default() += 1;
        outcome.refused.push(PageOf { pid, address: *page });
    }
    done
}
