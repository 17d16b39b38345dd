//! Restores what journals record, on a running system where everything may have changed since.

use crate::grants::{ControlWord, Setting, tidy};
use crate::journal::change::ThreadIdentity;
use crate::journal::grant_files;
use crate::journal::own_switch::OwnSwitch;
use crate::journal::record::{Bound, JournalRecord, Replaced, Verdict, parse};
use crate::journal::requested::{all_cpus, granted};
use linux::{
    CgroupGroup, Cpusets, Pid, Process, StartTime, Switch, SwitchError, Tid, affinity, parse_start_time, set_affinity,
};
use machine::{CpuSet, bounded, chain};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of passes over threads while new ones keep appearing.
const MOST_PASSES: usize = 20;
/// The system whose settings are restored.
#[derive(Clone, Debug)]
pub struct System {
    /// The folder that contains the files of switches: `/`.
    root: PathBuf,
}

/// What was restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutBack {
    /// Threads whose CPUs were restored.
    pub threads: usize,
    /// Switches whose values were restored.
    pub switches: Vec<PathBuf>,
    /// Control groups of grants that were removed.
    pub groups: Vec<PathBuf>,
    /// Settings that another process has changed since; they are left alone.
    pub theirs: usize,
    /// Journals whose last line was incomplete: its change was never made.
    pub torn: usize,
    /// Lines that could not be parsed.
    pub damaged: usize,
    /// Journals of an earlier boot; nothing is restored from them.
    pub foreign: usize,
    /// What could not be restored, and why.
    pub failed: Vec<String>,
    /// The changes that stay in the journal, because they could not be restored.
    pub left: JournalRecord,
}

impl System {
    /// The running system.
    pub fn running() -> Self {
        Self { root: "/".into() }
    }

    /// A system whose switches are below a folder, for tests. Threads are those of the running system.
    pub fn with_switches_below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Restores what the text of a journal records.
    pub(super) fn put_back_of(&self, journal: &mut File, boot: &str) -> io::Result<PutBack> {
        let text = bounded::bytes_of(journal, bounded::MOST_BYTES)?;
        let parsed = parse(&text, boot);
        if parsed.other_format {
            let why = "another version of nearside wrote it since the last boot, and was killed: start that version once, \
                or remove the file";
            return Err(io::Error::other(why));
        }
        let mut put_back = self.put_back(&parsed.record);
        put_back.torn = usize::from(parsed.torn);
        put_back.foreign = usize::from(parsed.foreign);
        put_back.damaged = parsed.damaged;
        Ok(put_back)
    }

    /// Restores settings that still have values that the agent set.
    pub(super) fn put_back(&self, record: &JournalRecord) -> PutBack {
        let mut done = PutBack::default();
        for (path, replaced) in &record.switches {
            self.put_back_switch(path, replaced, &mut done);
        }
        self.put_back_grants(record, &mut done);
        let alive: BTreeSet<Pid> = record.threads.keys().filter(|thread| is_there(thread)).map(|key| key.pid).collect();
        for (thread, bound) in &record.threads {
            if alive.contains(&thread.pid) {
                put_back_thread(record, thread, bound, &mut done);
            }
        }
        put_back_heirs(record, &alive, &mut done);
        done
    }

    /// What was changed for grants, in reverse: limits and interrupts, then the groups.
    fn put_back_grants(&self, record: &JournalRecord, done: &mut PutBack) {
        // CPUs of a partition change only once it is an ordinary group again.
        let is_partition = |path: &Path| path.ends_with("cpuset.cpus.partition");
        let mut settings: Vec<_> = record.settings.iter().rev().collect();
        settings.sort_by_key(|(path, _)| !is_partition(path));
        for (path, replaced) in settings {
            if !grant_files::is_setting(path, &replaced.before) {
                done.failed.push(format!("{} is not a setting that grants change", path.display()));
                continue;
            }
            let failed = |error: &SwitchError, done: &mut PutBack| {
                done.failed.push(chain(error));
                done.left.settings.insert(path.clone(), replaced.clone());
            };
            let setting = self.setting(path);
            match setting.value().map(|now| replaced.verdict(&now, Clone::clone)) {
                Ok(Verdict::AsBefore) => {}
                Ok(Verdict::Theirs) => done.theirs += 1,
                Ok(Verdict::Ours) => match self.restore(&setting, path, &replaced.before) {
                    Ok(()) => done.switches.push(path.clone()),
                    Err(error) => failed(&error, done),
                },
                // A limited or adopted group that its owner has removed needs no restoring.
                Err(error) if error.source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => failed(&error, done),
            }
        }
        // A killed process may have made a class and not filled it.
        if record.settings.keys().any(|path| ControlWord::named(path).is_some())
            && let Err(error) = tidy()
        {
            done.failed.push(format!("cannot remove unused classes of control hardware: {error}"));
        }
        for (path, back_of) in record.groups.iter().rev() {
            if !grant_files::is_group(path) {
                done.failed.push(format!("{} is not the control group of a grant", path.display()));
                continue;
            }
            let below = |path: &Path| self.root.join(path.strip_prefix("/").unwrap_or(path));
            let above = |path: &Path| path.parent().map_or_else(|| path.to_owned(), Path::to_owned);
            // The processes of a grant go out of the zone that it is in.
            let parent = above(&below(path));
            let top = if parent.ends_with(grant_files::ZONE) { above(&parent) } else { parent };
            let back = if below(back_of).starts_with(&top) { below(back_of) } else { top };
            match CgroupGroup::at(below(path)).remove(&back) {
                Ok(true) => done.groups.push(path.clone()),
                Ok(false) => {}
                Err(error) => {
                    done.failed.push(chain(&error));
                    done.left.groups.insert(0, (path.clone(), back_of.clone()));
                }
            }
        }
    }

    fn setting(&self, path: &Path) -> Setting {
        if ControlWord::named(path).is_some() {
            return Setting::at(path);
        }
        Setting::at(&self.root.join(path.strip_prefix("/").unwrap_or(path)))
    }

    /// Restores a setting of a grant. While a group has processes, the kernel makes none of its lists empty again, which
    /// means those of the group above: all CPUs or nodes mean the same, as it takes no more than the group above has.
    fn restore(&self, setting: &Setting, path: &Path, before: &str) -> Result<(), SwitchError> {
        // The kernel sees an empty list only with its line's end.
        let error = match setting.set(if before.is_empty() { "\n" } else { before }) {
            Err(error) if before.is_empty() => error,
            done => return done,
        };
        let all = if path.ends_with("cpuset.cpus") { "cpu/online" } else { "node/has_memory" };
        let all = Switch::at(self.root.join("sys/devices/system").join(all)).value();
        all.map_or(Err(error), |all| setting.set(&all))
    }

    fn put_back_switch(&self, path: &Path, replaced: &Replaced<String>, done: &mut PutBack) {
        // A manipulated journal must not cause any other file to be written.
        let Some(own) = OwnSwitch::at(path) else {
            done.failed.push(format!("{} is not a kernel switch that nearside sets", path.display()));
            return;
        };
        let switch = own.switch();
        let switch = Switch::at(self.root.join(switch.path().strip_prefix("/").unwrap_or(switch.path())));
        let failed = |error: &SwitchError, done: &mut PutBack| {
            done.failed.push(chain(error));
            done.left.switches.insert(path.to_owned(), replaced.clone());
        };
        match switch.value().map(|now| replaced.verdict(&now, Clone::clone)) {
            Ok(Verdict::AsBefore) => {}
            Ok(Verdict::Theirs) => done.theirs += 1,
            Ok(Verdict::Ours) => match switch.set(&replaced.before) {
                Ok(()) => done.switches.push(path.to_owned()),
                Err(error) => failed(&error, done),
            },
            Err(error) => failed(&error, done),
        }
    }
}

/// Restores the threads of one process.
pub(super) fn put_back_process(record: &JournalRecord, pid: Pid) -> PutBack {
    let mut done = PutBack::default();
    for (thread, bound) in record.of_process(pid).filter(|(thread, _)| is_there(thread)) {
        put_back_thread(record, thread, bound, &mut done);
    }
    done
}

/// Whether the process still exists, even if this thread has ended.
fn is_there(thread: &ThreadIdentity) -> bool {
    seen(&format!("/proc/{}", thread.pid), || {
        let start = Process::open(thread.pid).and_then(|process| process.start_time());
        start.is_ok_and(|start| start.ticks == thread.process_started)
    })
}

/// Looks a second time if what is looked for still has its folder: a look that the system refuses is no answer, and what
/// has ended needs no restoring.
fn seen(folder: &str, look: impl Fn() -> bool) -> bool {
    look() || (Path::new(folder).exists() && look())
}

fn put_back_thread(record: &JournalRecord, thread: &ThreadIdentity, bound: &Bound, done: &mut PutBack) {
    // Threads that have ended need no restoring.
    let ThreadIdentity { pid, tid, .. } = *thread;
    if !seen(&format!("/proc/{pid}/task/{tid}"), || thread.is_there()) {
        return;
    }
    let now = match affinity(tid).or_else(|_| affinity(tid)) {
        Ok(now) => now,
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => return,
        Err(error) => {
            let why = format!("cannot see on which CPUs thread {tid} of process {pid} may run");
            done.failed.push(format!("{why} (sched_getaffinity: {error}), so it keeps them"));
            done.left.threads.insert(*thread, bound.clone());
            return;
        }
    };
    let cpuset = allowed(thread.pid);
    let before = match bound.cpus.verdict(&now, |requested| granted(requested, cpuset.as_ref())) {
        Verdict::AsBefore => return,
        Verdict::Ours => Some(&bound.cpus.before),
        Verdict::Theirs => record.executed(thread, &now),
    };
    let Some(before) = before else {
        done.theirs += 1;
        return;
    };
    if !set(thread.pid, thread.tid, before, done) {
        done.left.threads.insert(*thread, bound.clone());
    }
}

/// Returns false if the system refuses.
fn set(pid: Pid, tid: Tid, cpus: &CpuSet, done: &mut PutBack) -> bool {
    match set_affinity(tid, cpus) {
        Ok(()) => done.threads += 1,
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
        Err(error) => {
            let cpus = if *cpus == all_cpus() { "all CPUs".to_owned() } else { format!("CPUs {cpus}") };
            let why = format!("cannot let thread {tid} of process {pid} run on {cpus} again");
            done.failed.push(format!("{why} (sched_setaffinity: {error})"));
            return false;
        }
    }
    true
}

/// The CPUs that the process's cpuset allows, or all that are online where there are no cpusets.
pub(super) fn allowed(pid: Pid) -> Option<CpuSet> {
    let cpusets = Cpusets::find();
    let cpuset = Process::open(pid).ok().and_then(|process| cpusets.cpus_of(&process));
    let online = || Switch::at("/sys/devices/system/cpu/online").value().ok()?.parse().ok();
    cpuset.or_else(|| online().map(|cpus| cpusets.without_isolated(cpus)))
}

/// Restores threads and processes started by changed ones: they inherited the changed CPUs, and get those that they
/// would otherwise have had.
fn put_back_heirs(record: &JournalRecord, alive: &BTreeSet<Pid>, done: &mut PutBack) {
    if alive.is_empty() {
        return;
    }
    for _ in 0..MOST_PASSES {
        let before = done.threads;
        for (pid, nearest) in families(alive) {
            let (Ok(process), Some(cpuset)) = (Process::open(pid), allowed(pid)) else { continue };
            for tid in process.threads().unwrap_or_default().iter() {
                let Some(start) = process.thread_start_time(tid) else { continue };
                let is_this = |(thread, _): (&ThreadIdentity, _)| thread.tid == tid && thread.started == start.ticks;
                if record.of_process(pid).any(is_this) {
                    continue;
                }
                let inherited =
                    affinity(tid).ok().and_then(|now| record.inherited(nearest, start.ticks, (&now, &cpuset)));
                if let Some(cpus) = inherited {
                    set(pid, tid, cpus, done);
                }
            }
        }
        // A thread started meanwhile may have inherited the CPUs of one that was not yet restored.
        if done.threads == before {
            return;
        }
    }
}

/// These processes and all their descendants, each with its nearest ancestor among these.
fn families(of: &BTreeSet<Pid>) -> BTreeMap<Pid, Pid> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).map(Pid) else { continue };
        let start =
            fs::read(entry.path().join("stat")).ok().and_then(|text| parse_start_time(&String::from_utf8_lossy(&text)));
        if let Some(StartTime { parent, .. }) = start {
            parents.insert(pid, parent);
        }
    }
    let nearest = |pid: &Pid| {
        let mut ancestor = *pid;
        // No process is its own ancestor, but the files are not read at one instant.
        for _ in 0..parents.len() {
            if of.contains(&ancestor) {
                return Some((*pid, ancestor));
            }
            ancestor = *parents.get(&ancestor)?;
        }
        None
    };
    parents.keys().filter_map(nearest).collect()
}

impl PutBack {
    /// Whether there is nothing to report.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// A heading for the report.
    pub fn heading(&self) -> &'static str {
        let told_only = Self { torn: self.torn, damaged: self.damaged, foreign: self.foreign, ..Self::default() };
        if *self == told_only {
            "nearside left a journal, but there is nothing to restore from it"
        } else {
            "nearside was killed, and its changes are reverted"
        }
    }

    /// Adds the result of another journal.
    pub fn add(&mut self, other: Self) {
        self.threads += other.threads;
        self.switches.extend(other.switches);
        self.groups.extend(other.groups);
        self.theirs += other.theirs;
        self.torn += other.torn;
        self.damaged += other.damaged;
        self.foreign += other.foreign;
        self.failed.extend(other.failed);
        self.left.add_all(&other.left);
    }
}

/// One sentence per line, without a final newline; empty if there is nothing to report.
impl fmt::Display for PutBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        let threads = |count: usize| if count == 1 { "1 thread".to_owned() } else { format!("{count} threads") };
        if self.threads > 0 {
            lines.push(format!("restored the CPUs of {}", threads(self.threads)));
        }
        for switch in &self.switches {
            lines.push(format!("{} has its previous value again", switch.display()));
        }
        for group in &self.groups {
            lines.push(format!("the control group {} is removed", group.display()));
        }
        if self.theirs > 0 {
            lines.push(format!("settings left alone because another process has changed them since: {}", self.theirs));
        }
        if self.torn > 0 {
            lines.push("the journal ends in the middle of a line, whose change was never made".to_owned());
        }
        if self.damaged > 0 {
            lines.push(format!("lines of the journal that cannot be parsed: {}", self.damaged));
        }
        if self.foreign > 0 {
            lines.push("a journal of an earlier boot is discarded".to_owned());
        }
        lines.extend(self.failed.iter().cloned());
        if !self.left.is_empty() {
            lines.push("nearside tries this again when it next starts here".to_owned());
        }
        f.write_str(&lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::requested::requested;
    use std::cell::Cell;

    /// A thread that had its whole cpuset gets all CPUs back, however the cpuset changed: wider, narrower, or to CPUs that
    /// the agent did not give.
    #[test]
    fn cpusets_may_change_while_threads_have_other_cpus() {
        let cpus = |text: &str| text.parse::<CpuSet>().unwrap();
        let verdict = |before: &CpuSet, now: &str, cpuset: &str| {
            let replaced = Replaced { before: before.clone(), after: vec![cpus("2-3")] };
            replaced.verdict(&cpus(now), |requested| granted(requested, Some(&cpus(cpuset))))
        };
        let whole = requested(cpus("0-3"), &cpus("0-3"));
        assert_eq!((&whole, requested(cpus("0-1"), &cpus("0-3"))), (&all_cpus(), cpus("0-1")));
        for (now, cpuset, is) in [
            ("2-3", "0-3", Verdict::Ours),
            ("2-3", "0-7", Verdict::Ours),
            ("3", "3-5", Verdict::Ours),
            ("4-5", "4-5", Verdict::Ours),
            ("0-7", "0-7", Verdict::AsBefore),
            ("6", "0-7", Verdict::Theirs),
        ] {
            assert_eq!(verdict(&whole, now, cpuset), is, "{now} of {cpuset}");
        }
        assert_eq!(verdict(&cpus("0-1"), "0-1", "0-7"), Verdict::AsBefore);
        // A thread that the agent has freed again, and what it started since, need nothing.
        let freed = Replaced { before: whole.clone(), after: vec![cpus("2-3"), whole] };
        assert_eq!(freed.verdict(&cpus("0-3"), |requested| granted(requested, Some(&cpus("0-3")))), Verdict::AsBefore);
    }

    #[test]
    fn a_look_that_is_refused_is_repeated_for_what_is_still_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let fails_once = || {
            let looks = Cell::new(0);
            move || looks.replace(looks.get() + 1) > 0
        };
        assert!(seen(path, fails_once()) && seen("/nowhere", || true));
        assert!(!seen("/nowhere", fails_once()) && !seen(path, || false));
    }
}
