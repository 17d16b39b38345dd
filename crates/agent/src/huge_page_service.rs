//! Finds, and cures, huge pages of the managed processes that nodes share falsely. Samples in huge pages are kept for some
//! seconds, judged by the detector of `profile`, and `placement` decides which pages are split or joined.

use crate::huge_pages::{Advisers, CureSteps, Cured, curable, cure, has_ended, join};
use crate::judged_blocks::{JudgedBlock, JudgedProcesses, judged_blocks};
use crate::managed_process::ManagedProcess;
use crate::managed_processes::Managed;
use machine::{HUGE_PAGE, Machine, NodeId, Pid, is_kernel_address};
use placement::{
    BlockHistory, BlockStep, BlockUse, Cure, CureLimits, MisplacedHugePage, Page, Runs, cures, joins_within,
};
use profile::{Filter, HugePage, NoSymbols, Recording, Sharing, leaves_caches};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};
use trace::{Event, Sample, Served, Stacks, What};

/// Most samples that are judged at a time: 50 ms of work.
const MOST_SAMPLES: usize = 1 << 16;
/// Rounds of a policy between two judgements for it: a round alone has few samples of a page.
const ROUNDS: u32 = 8;

/// What verdicts are for, besides the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictsFor {
    /// Only the policy, which decides what is split.
    PolicyOnly,
    /// They are shown.
    Status,
    /// What they find is cured.
    Cure,
}

/// What to do about huge pages.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "switches of their own, each")]
pub struct HugePageOptions {
    /// What the verdicts are for.
    pub verdicts: VerdictsFor,
    /// Time between two judgements.
    pub every: Duration,
    /// Most bytes to move per second for cures: the small pages that move, and all of each huge page that is joined.
    pub budget_bytes_per_s: Option<u64>,
    /// Whether split pages are kept small where the library is in the program.
    pub keep_small: bool,
    /// Whether pages are split again that the kernel has joined.
    pub rearm: bool,
    /// Whether split pages are joined again when one node uses them, and when their split made accesses slower.
    pub join: bool,
}

/// What was found and done about huge pages since the agent began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HugePageStatus {
    /// Whether they are cured, and not only found.
    pub cures: bool,
    /// Judgements; times without samples in huge pages are left out.
    pub judgements: u64,
    /// Huge pages in the last judgement.
    pub huge_pages: u64,
    /// Of these, the falsely shared ones.
    pub falsely_shared: u64,
    /// Of these, those without a verdict: fewer than 16 samples.
    pub unknown: u64,
    /// Huge pages that were split.
    pub split: u64,
    /// Of these, those that the kernel does not join again.
    pub kept_small: u64,
    /// Small pages that were moved to their users.
    pub pages_moved: u64,
    /// Pages that were split again, because the kernel had joined them.
    pub split_again: u64,
    /// Split pages that were joined again, because one node used them.
    pub joined: u64,
    /// Those that were joined again, because accesses had become slower.
    pub taken_back: u64,
}

/// Samples in huge pages, and what was learned from earlier ones.
pub(crate) struct HugePageService {
    options: HugePageOptions,
    machine: Machine,
    samples: Vec<Sample>,
    /// The time that the samples are of, if there were more than are kept.
    full_after: Option<Duration>,
    history: BlockHistory,
    /// Huge pages that the last judgement surely found falsely shared, and that may be split.
    falsely_shared: BTreeSet<(Pid, u64)>,
    /// When the samples of each process began.
    known_since: BTreeMap<Pid, Instant>,
    began: Instant,
    status: HugePageStatus,
}

/// What a judgement led to.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    /// Decisions in words, by process.
    pub decided: Vec<(Pid, String)>,
    /// Failures, with their causes.
    pub failed: Vec<String>,
}

impl HugePageOptions {
    /// For a policy that only asks which huge pages are falsely shared.
    pub(crate) fn for_policy(round: Duration) -> Self {
        let every = round * ROUNDS;
        let verdicts = VerdictsFor::PolicyOnly;
        Self { verdicts, every, budget_bytes_per_s: None, keep_small: true, rearm: true, join: false }
    }
}

impl HugePageService {
    pub fn new(options: HugePageOptions, machine: &Machine) -> Self {
        Self {
            options,
            machine: machine.clone(),
            samples: Vec::new(),
            full_after: None,
            history: BlockHistory::default(),
            falsely_shared: BTreeSet::new(),
            known_since: BTreeMap::new(),
            began: Instant::now(),
            status: HugePageStatus { cures: options.verdicts == VerdictsFor::Cure, ..HugePageStatus::default() },
        }
    }

    /// None if the verdicts are only for the policy.
    pub fn status(&self) -> Option<&HugePageStatus> {
        (self.options.verdicts != VerdictsFor::PolicyOnly).then_some(&self.status)
    }

    /// Marks the huge pages that were found falsely shared.
    pub fn mark(&self, pages: &mut [Page]) {
        for page in pages.iter_mut().filter(|page| page.page_bytes == HUGE_PAGE) {
            page.is_falsely_shared = self.falsely_shared.contains(&(page.pid, page.address));
        }
    }

    /// The policy has split a huge page.
    pub fn was_split(&mut self, pid: Pid, address: u64) {
        self.falsely_shared.remove(&(pid, address));
        self.history.was_split(pid, address, None);
    }

    /// Keeps a sample, if it is of memory in a huge page, or in one that was split.
    pub fn add(&mut self, sample: &Sample, home: Option<NodeId>, is_huge: impl FnOnce() -> bool) {
        let is_of_user = !sample.kernel && sample.address != 0 && !is_kernel_address(sample.address);
        if !is_of_user || !leaves_caches(sample.served) {
            return;
        }
        if self.samples.len() >= MOST_SAMPLES {
            self.full_after.get_or_insert_with(|| self.began.elapsed());
            return;
        }
        if self.history.is_split(sample.pid, sample.address / HUGE_PAGE * HUGE_PAGE) || is_huge() {
            // The node of another cache is not the page's.
            let lies = if sample.served == Some(Served::Peer) { sample.node } else { home.or(sample.node) };
            self.samples.push(Sample { node: lies, stack: None, ..*sample });
        }
    }

    /// Discards what was seen: a pause has no samples.
    pub fn restart(&mut self) {
        self.samples.clear();
        self.full_after = None;
        self.began = Instant::now();
    }

    /// A process has ended, or executes another program.
    pub fn forget(&mut self, pid: Pid) {
        self.history.forget(pid);
        self.known_since.remove(&pid);
        self.falsely_shared.retain(|(of, _)| *of != pid);
        self.samples.retain(|sample| sample.pid != pid);
    }

    /// Judges and acts, if that is due, through the programs that can be asked. `respects_owner` leaves memory whose node its
    /// owner chose.
    pub fn judge(
        &mut self,
        managed: &mut Managed,
        respects_owner: bool,
        mut advisers: Option<&mut Advisers>,
    ) -> Judgement {
        let seconds = self.began.elapsed();
        if seconds < self.options.every {
            return Judgement::default();
        }
        let samples = std::mem::take(&mut self.samples);
        let watched = self.full_after.take().unwrap_or(seconds);
        if samples.is_empty() {
            self.began = Instant::now();
            return Judgement::default();
        }
        let judged = self.judged(&samples, watched.as_secs_f64(), managed, respects_owner);
        self.began = Instant::now();
        let seen: Vec<_> = judged.iter().map(|block| block.seen).collect();
        let steps = self.history.decide(&seen);
        self.falsely_shared = self.to_be_split(&judged);
        let mut done = Judgement::default();
        if self.options.verdicts != VerdictsFor::PolicyOnly {
            let mut left = self.options.budget_bytes_per_s.map(|budget| (budget as f64 * seconds.as_secs_f64()) as u64);
            self.split((&judged, &steps), managed, &mut left, &mut done, advisers.as_deref_mut());
            self.join((&judged, &steps), managed, &mut left, &mut done, advisers);
        }
        done
    }

    /// What a policy may split: within the mappings that marks may add to a process, and not again what the kernel joins
    /// each time.
    fn to_be_split(&self, judged: &[JudgedBlock]) -> BTreeSet<(Pid, u64)> {
        let mut runs: BTreeMap<Pid, Runs> = BTreeMap::new();
        let is_found = |block: &&JudgedBlock| {
            let (pid, address) = (block.seen.pid, block.seen.address);
            let is_one = block.seen.is_huge && block.seen.used == BlockUse::Apart;
            let mut has_room = || {
                let runs = runs.entry(pid).or_insert_with(|| Runs::of(self.history.split_of(pid)));
                runs.add(address, CureLimits::RUNS)
            };
            is_one && !self.history.is_barred(pid, address) && has_room()
        };
        judged.iter().filter(is_found).map(|block| (block.seen.pid, block.seen.address)).collect()
    }

    /// The verdicts on the huge pages of these samples.
    fn judged(
        &mut self,
        samples: &[Sample],
        seconds: f64,
        managed: &mut Managed,
        respects_owner: bool,
    ) -> Vec<JudgedBlock> {
        let mut huge: BTreeSet<(Pid, u64)> = BTreeSet::new();
        let mut placed = Vec::new();
        let blocks: BTreeMap<(Pid, u64), Option<NodeId>> =
            samples.iter().map(|sample| ((sample.pid, sample.address / HUGE_PAGE * HUGE_PAGE), sample.node)).collect();
        let pids: BTreeSet<Pid> = blocks.keys().map(|(pid, _)| *pid).collect();
        for pid in pids {
            self.known_since.entry(pid).or_insert(self.began);
            if let Some(process) = managed.get_mut(pid) {
                // The kernel may have split and joined pages meanwhile.
                process.sizes.forget();
            }
        }
        for ((pid, address), node) in blocks {
            let Some(process) = managed.get_mut(pid) else { continue };
            if !may_be_changed(process, address, respects_owner) {
                continue;
            }
            if process.sizes.at(&process.process, address) == HUGE_PAGE {
                huge.insert((pid, address));
                let what = What::PagePlaced { address, bytes: HUGE_PAGE, node: node.unwrap_or(NodeId(0)), from: None };
                placed.push(Event { time_ns: 0, pid, tid: machine::Tid(pid.0), cpu: None, what });
            }
        }
        let mut recording = Recording::new(self.machine.clone());
        recording.add_events(placed);
        recording.add_samples(samples.iter().copied());
        let profile = recording.into_profile(&Stacks::new(), &NoSymbols);
        let pages = profile.view(&Filter::default()).flow().huge_pages();
        let is_known_huge = |page: &&HugePage| {
            let process = profile.processes().get(page.process.0 as usize);
            process.is_some_and(|process| huge.contains(&(process.pid, page.address)))
        };
        let count = |sharing: Option<Sharing>| {
            let is_one = |page: &&HugePage| sharing.is_none_or(|wanted| page.sharing == wanted);
            pages.iter().filter(is_known_huge).filter(is_one).count() as u64
        };
        self.status.judgements += 1;
        self.status.huge_pages = count(None);
        self.status.falsely_shared = count(Some(Sharing::FalselyShared));
        self.status.unknown = count(Some(Sharing::Unknown));
        let mut judged = judged_blocks(&profile, &pages, seconds, JudgedProcesses::Living);
        // Split pages may still lie as if they were huge.
        for block in &mut judged {
            block.seen.is_huge = huge.contains(&(block.seen.pid, block.seen.address));
        }
        judged
    }

    fn split(
        &mut self,
        (judged, steps): (&[JudgedBlock], &[(usize, BlockStep)]),
        managed: &Managed,
        left: &mut Option<u64>,
        done: &mut Judgement,
        mut advisers: Option<&mut Advisers>,
    ) {
        let mut by_process: BTreeMap<Pid, Vec<(&JudgedBlock, BlockStep)>> = BTreeMap::new();
        for (at, step) in steps {
            let is_wanted = match step {
                BlockStep::Split => true,
                BlockStep::SplitAgain => self.options.rearm,
                BlockStep::Join(_) | BlockStep::TakeBack(_) => false,
            };
            if let Some(block) = judged.get(*at).filter(|block| is_wanted && block.cure.is_some()) {
                by_process.entry(block.seen.pid).or_default().push((block, *step));
            }
        }
        for (pid, blocks) in by_process {
            let (pages, left_out) = curable(blocks.iter().filter_map(|(block, _)| block.cure.clone()).collect());
            done.failed.extend(left_out.failed.into_keys().map(|why| format!("huge pages: {why}")));
            // What has run for some time is expected to run as long again.
            let horizon_s = self.known_since.get(&pid).map_or(0.0, |since| since.elapsed().as_secs_f64());
            // Only marks of the library take mappings.
            let has_library = advisers.as_deref_mut().is_some_and(|advisers| advisers.has(pid));
            let runs = if self.options.keep_small && has_library { CureLimits::RUNS } else { u64::MAX };
            let limits = CureLimits { horizon_s, budget_bytes: *left, runs };
            let chosen = cures(&pages, &limits, &self.history);
            let chosen: Vec<&MisplacedHugePage> =
                pages.iter().zip(chosen).filter(|(_, cure)| *cure == Cure::Split).map(|(page, _)| page).collect();
            if chosen.is_empty() || managed.get(pid).is_none() {
                continue;
            }
            let misplaced: u64 = chosen.iter().map(|page| page.misplaced_pages).sum();
            let cured = self.cure(pid, &chosen, done, advisers.as_deref_mut());
            *left = left.map(|left| left.saturating_sub(cured.moved_bytes()));
            let Cured { split_at, kept_small, moved, failed, .. } = cured;
            // Programs without the library are cured as well: that their pages may be joined again is known beforehand.
            done.failed.extend(failed.into_keys().map(|why| format!("huge pages: {why}")));
            let what = if self.cures() {
                format!("split {} falsely shared huge pages, and moved {moved} small ones", split_at.len())
            } else {
                format!("would split {} falsely shared huge pages, {misplaced} misplaced small ones", chosen.len())
            };
            done.decided.push((pid, what));
            for (block, step) in blocks.iter().filter(|(block, _)| split_at.contains(&block.seen.address)) {
                self.history.was_split(pid, block.seen.address, block.seen.relative_latency);
                self.status.split_again += u64::from(*step == BlockStep::SplitAgain);
            }
            self.status.split += split_at.len() as u64;
            self.status.kept_small += kept_small;
            self.status.pages_moved += moved;
        }
    }

    fn cures(&self) -> bool {
        self.options.verdicts == VerdictsFor::Cure
    }

    /// Nothing, if they are only to be found.
    fn cure(
        &self,
        pid: Pid,
        pages: &[&MisplacedHugePage],
        done: &mut Judgement,
        advisers: Option<&mut Advisers>,
    ) -> Cured {
        if !self.cures() {
            return Cured::default();
        }
        let steps = CureSteps { split: true, keep_small: self.options.keep_small, move_pages: true };
        cure(pid, pages, steps, advisers).unwrap_or_else(|error| {
            done.failed.extend(because(&error));
            Cured::default()
        })
    }

    fn join(
        &mut self,
        (judged, steps): (&[JudgedBlock], &[(usize, BlockStep)]),
        managed: &Managed,
        left: &mut Option<u64>,
        done: &mut Judgement,
        mut advisers: Option<&mut Advisers>,
    ) {
        let mut by_process: BTreeMap<Pid, Vec<(u64, NodeId, bool)>> = BTreeMap::new();
        for (at, step) in steps.iter().filter(|_| self.options.join && self.cures()) {
            let (node, is_slower) = match step {
                BlockStep::Join(node) => (*node, false),
                BlockStep::TakeBack(node) => (*node, true),
                BlockStep::Split | BlockStep::SplitAgain => continue,
            };
            if let Some(block) = judged.get(*at).filter(|block| managed.get(block.seen.pid).is_some()) {
                by_process.entry(block.seen.pid).or_default().push((block.seen.address, node, is_slower));
            }
        }
        for (pid, mut blocks) in by_process {
            // What has no room is wanted again in the next judgement.
            blocks.truncate(joins_within(left, blocks.len()));
            let wanted: Vec<(u64, NodeId)> = blocks.iter().map(|(address, node, _)| (*address, *node)).collect();
            match join(pid, &wanted, advisers.as_deref_mut()) {
                Ok((cured, joined)) => {
                    done.decided.push((pid, format!("joined {} huge pages again", joined.len())));
                    for (address, _, is_slower) in blocks.iter().filter(|(address, ..)| joined.contains(address)) {
                        self.history.was_joined(pid, *address);
                        let count = if *is_slower { &mut self.status.taken_back } else { &mut self.status.joined };
                        *count += 1;
                    }
                    done.failed.extend(cured.failed.into_keys().map(|why| format!("huge pages: {why}")));
                }
                Err(error) => done.failed.extend(because(&error)),
            }
        }
    }
}

/// None for a process that has ended.
fn because(error: &io::Error) -> Option<String> {
    (!has_ended(error)).then(|| format!("huge pages: {error}"))
}

/// Whether a block's node is not its owner's choice.
fn may_be_changed(process: &mut ManagedProcess, address: u64, respects_owner: bool) -> bool {
    if !respects_owner {
        return true;
    }
    process.owners.refresh(&process.process);
    process.record.memory_policy.is_none() && !process.owners.contain(address)
}
