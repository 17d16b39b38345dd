//! Accesses of threads that only wait for other threads: they poll spin words, barriers and locks. Placement does not
//! help them, whatever memory their words are in.

use crate::evidence::Evidence;
use crate::flow::Flow;
use crate::ids::{CodeId, ProcessId};
use crate::line_words::{LineWords, line_of};
use crate::profile::{Access, Profile};
use crate::statistics::{FEWEST, Share, ratio};
use crate::tally::Tally;
use crate::view::View;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use trace::AccessKind;

/// Least share of a program's accesses of a cache line that is polled.
const POLLED: f64 = 0.005;
/// Fewest samples of such a line.
const FEWEST_OF_LINE: u64 = 20;
/// Most instructions that poll a line: a loop, its unrolled copies, and the stores of those that are waited for.
const MOST_PLACES: usize = 8;
/// Share of a site's accesses from which on its threads wait rather than work.
const MOSTLY: f64 = 0.5;

/// Beginnings of the names of functions that wait for other threads of the process: glibc, libgomp, LLVM's and Intel's
/// OpenMP. In a process with one thread, they do not wait.
const FOR_THREADS: [&str; 11] = [
    "pthread_barrier_wait",
    "__pthread_barrier_wait",
    "pthread_spin_lock",
    "pthread_mutex_lock",
    "__pthread_mutex_lock",
    "___pthread_mutex_lock",
    "__lll_lock_wait",
    "gomp_barrier_wait",
    "gomp_team_barrier_wait",
    "__kmp_wait",
    "__kmp_hyper_barrier",
];

/// Those that also wait for other processes: MPI libraries, the kernel's spin locks.
const FOR_PROCESSES: [&str; 3] = ["opal_progress", "native_queued_spin_lock_slowpath", "queued_spin_lock_slowpath"];

/// The accesses of threads that wait for others.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Waiting {
    /// Samples.
    pub samples: u64,
    /// Their share of all accesses, 0 to 1.
    pub share: f64,
    /// Their share of the time spent waiting for memory, 0 to 1; none if latencies are not known.
    pub memory_time_share: Option<f64>,
    /// Number of cache lines that are polled.
    pub lines: u64,
    /// The functions that wait, those with the most accesses first; at most five.
    pub functions: Vec<String>,
}

/// Which accesses are of waiting threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitingAccesses {
    lines: FxHashSet<(ProcessId, u64)>,
    /// Code that waits for other processes.
    for_processes: FxHashSet<CodeId>,
    /// Code that waits for other threads.
    for_threads: FxHashSet<CodeId>,
    /// Processes that have other threads.
    with_threads: FxHashSet<ProcessId>,
}

/// Use of a cache line.
#[derive(Default)]
struct Line {
    loads: u64,
    places: FxHashSet<CodeId>,
    words: LineWords,
    has_writer: bool,
}

impl Line {
    /// Whether threads poll it: few instructions read the same words for several threads, and it is written as well.
    fn is_polled(&self, of: f64) -> bool {
        let samples = self.words.samples();
        let is_hot = samples >= FEWEST_OF_LINE && samples as f64 >= POLLED * of;
        let is_shared = self.words.is_shared() && !self.words.is_falsely_shared() && self.has_writer;
        is_hot && is_shared && self.places.len() <= MOST_PLACES && 2 * self.loads > samples
    }
}

impl WaitingAccesses {
    pub fn new(view: &View) -> Self {
        let profile = view.profile();
        let all = view.code();
        let codes = |names: &[&str]| {
            let is_named = |&code: &CodeId| {
                let label = profile.function_label(code);
                names.iter().any(|name| label.starts_with(name))
            };
            all.iter().map(|&(code, _)| code).filter(is_named).collect()
        };
        let mut lines = hottest_lines(view);
        for access in view.accesses() {
            let Some(line) = lines.get_mut(&line_of(&access, profile)) else { continue };
            line.loads += u64::from(access.kind == AccessKind::Load);
            line.places.insert(access.code);
            line.words.add(&access);
            line.has_writer |= access.kind == AccessKind::Store;
        }
        let of = view.tally().samples as f64;
        lines.retain(|_, line| line.is_polled(of));
        Self {
            lines: lines.into_keys().collect(),
            for_processes: codes(&FOR_PROCESSES),
            for_threads: codes(&FOR_THREADS),
            with_threads: with_threads(profile),
        }
    }

    /// Whether an access is one of them.
    pub fn has(&self, access: &Access, profile: &Profile) -> bool {
        let line = line_of(access, profile);
        self.lines.contains(&line)
            || self.for_processes.contains(&access.code)
            || self.for_threads.contains(&access.code) && self.with_threads.contains(&line.0)
    }

    /// Why nothing is to be done about memory with these accesses; none if its threads work.
    pub fn evidence(&self, flow: &Flow, profile: &Profile) -> Option<Evidence> {
        let part = flow.accesses().filter(|access| self.has(access, profile)).count() as u64;
        let share = Share { part, of: flow.len() as u64, threshold: MOSTLY };
        // So few say nothing.
        (share.is_reached() && share.of >= FEWEST).then(|| {
            let text = format!(
                "{:.1} % of {} accesses are of threads that wait for others: placement does not help them",
                100.0 * share.value(),
                share.of
            );
            Evidence { what: "waiting", value: share.value(), threshold: MOSTLY, samples: share.of, text }
        })
    }
}

/// Processes with more than one thread.
fn with_threads(profile: &Profile) -> FxHashSet<ProcessId> {
    let mut known = FxHashSet::default();
    profile.threads().iter().map(|thread| thread.process).filter(|&process| !known.insert(process)).collect()
}

/// All lines with more than [`POLLED`] of the accesses, and some others: Misra and Gries, "Finding repeated elements",
/// 1982. There may be millions of lines.
fn hottest_lines(view: &View) -> FxHashMap<(ProcessId, u64), Line> {
    let most = (1.0 / POLLED) as usize;
    let mut counters: FxHashMap<(ProcessId, u64), u64> = FxHashMap::default();
    for access in view.accesses() {
        let line = line_of(&access, view.profile());
        if let Some(counter) = counters.get_mut(&line) {
            *counter += 1;
        } else if counters.len() < most {
            counters.insert(line, 1);
        } else {
            counters.retain(|_, counter| {
                *counter -= 1;
                *counter > 0
            });
        }
    }
    counters.into_keys().map(|line| (line, Line::default())).collect()
}

impl View<'_> {
    /// The accesses of threads that wait for others.
    pub fn waiting(&self) -> Waiting {
        let (profile, accesses) = (self.profile(), WaitingAccesses::new(self));
        let mut all = Tally::default();
        let mut functions: FxHashMap<CodeId, u64> = FxHashMap::default();
        for access in self.accesses().filter(|access| accesses.has(access, profile)) {
            all.add(&access);
            *functions.entry(access.code).or_default() += 1;
        }
        let mut names: Vec<(String, u64)> = Vec::new();
        for (code, samples) in functions {
            let name = profile.function_label(code);
            match names.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += samples,
                None => names.push((name, samples)),
            }
        }
        names.sort_by(|(a, first), (b, second)| second.cmp(first).then_with(|| a.cmp(b)));
        let whole = self.tally();
        Waiting {
            samples: all.samples,
            share: ratio(all.accesses, whole.accesses).unwrap_or(0.0),
            memory_time_share: all.counts(whole).memory_time_share,
            lines: accesses.lines.len() as u64,
            functions: names.into_iter().map(|(name, _)| name).take(5).collect(),
        }
    }
}
