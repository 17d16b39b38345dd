//! The content of a journal: the lines of its file, and their combined effect. Nothing here touches the system.

use crate::journal::change::{Change, ThreadIdentity};
use crate::journal::requested::granted;
use linux::{Pid, Tid};
use machine::CpuSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The first line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The format version: [`FORMAT`].
    pub journal: u32,
    /// ID of the boot in which it was written: changes of an earlier boot are gone.
    pub boot: String,
    /// The process that writes it.
    pub pid: Pid,
}

/// The format version that is written, and the only one that is read.
pub const FORMAT: u32 = 1;

/// A parsed journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Its changes.
    pub record: JournalRecord,
    /// Whether the last line is incomplete: its change was never made.
    pub torn: bool,
    /// Lines that cannot be parsed.
    pub damaged: usize,
    /// Whether it is of another boot, or has no header; then it has no changes.
    pub foreign: bool,
    /// Whether it is of this boot and another format: its changes are unknown.
    pub other_format: bool,
}

/// All changes: the original value of each setting, and every value that replaced it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalRecord {
    /// By thread.
    pub threads: BTreeMap<ThreadIdentity, Bound>,
    /// By file.
    pub switches: BTreeMap<PathBuf, Replaced<String>>,
    /// Control groups that were made, in this order, each with the one that its processes go to.
    pub groups: Vec<(PathBuf, PathBuf)>,
    /// Interrupts and limits of grants, by file.
    pub settings: BTreeMap<PathBuf, Replaced<String>>,
}

/// A thread whose CPUs were changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Its CPUs.
    pub cpus: Replaced<CpuSet>,
    /// When they were first changed, in clock ticks since boot.
    pub since: u64,
}

/// A setting that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced<T> {
    /// The value to restore.
    pub before: T,
    /// The values that it was changed to, without repeats, latest last. An agent that was killed may not have made the
    /// last change.
    pub after: Vec<T>,
}

impl<T: PartialEq> Replaced<T> {
    fn new(before: T) -> Self {
        Self { before, after: Vec::new() }
    }

    fn has(&self, before: &T, after: &T) -> bool {
        self.after.contains(after) && (self.before == *before || self.after.contains(before))
    }

    /// Adds another change of the same setting.
    fn again(&mut self, before: T, after: T) {
        // A value that the agent did not write was set by another process meanwhile, so it becomes the value to
        // restore.
        if before != self.before && !self.after.contains(&before) {
            self.before = before;
        }
        self.after.retain(|value| *value != after);
        self.after.push(after);
    }
}

/// Parses a journal. Accepts any bytes and counts lines that cannot be parsed.
pub fn parse(text: &[u8], boot: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    let Some(first) = lines.next() else { return parsed };
    if first.last() != Some(&b'\n') {
        return Parsed { torn: true, ..parsed };
    }
    match serde_json::from_slice::<Header>(first) {
        Ok(header) if header.boot == boot && header.journal == FORMAT => {}
        Ok(header) if header.boot == boot => return Parsed { other_format: true, ..parsed },
        _ => return Parsed { foreign: true, ..parsed },
    }
    for line in lines {
        if line.last() != Some(&b'\n') {
            parsed.torn = true;
        } else if let Ok(change) = serde_json::from_slice(line) {
            parsed.record.add(&change);
        } else {
            parsed.damaged += 1;
        }
    }
    parsed
}

impl JournalRecord {
    /// Whether there is nothing to restore.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of settings.
    pub fn len(&self) -> usize {
        self.threads.len() + self.switches.len() + self.groups.len() + self.settings.len()
    }

    /// Whether a change adds nothing.
    pub fn has(&self, change: &Change) -> bool {
        match change {
            Change::Affinity { thread, before, after, .. } => {
                self.threads.get(thread).is_some_and(|bound| bound.cpus.has(before, after))
            }
            Change::Switch { path, before, after } => {
                self.switches.get(path).is_some_and(|replaced| replaced.has(before, after))
            }
            Change::Setting { path, before, after } => {
                self.settings.get(path).is_some_and(|replaced| replaced.has(before, after))
            }
            Change::Group { path, .. } => self.groups.iter().any(|(made, _)| made == path),
        }
    }

    /// Adds a change.
    pub fn add(&mut self, change: &Change) {
        match change {
            Change::Affinity { thread, before, after, at } => {
                let bound = || Bound { cpus: Replaced::new(before.clone()), since: *at };
                let bound = self.threads.entry(*thread).or_insert_with(bound);
                bound.cpus.again(before.clone(), after.clone());
            }
            Change::Switch { path, before, after } => {
                let replaced = self.switches.entry(path.clone()).or_insert_with(|| Replaced::new(before.clone()));
                replaced.again(before.clone(), after.clone());
            }
            Change::Setting { path, before, after } => {
                let replaced = self.settings.entry(path.clone()).or_insert_with(|| Replaced::new(before.clone()));
                replaced.again(before.clone(), after.clone());
            }
            Change::Group { path, back } => {
                if !self.has(change) {
                    self.groups.push((path.clone(), back.clone()));
                }
            }
        }
    }

    /// Adds all changes of another record.
    pub fn add_all(&mut self, other: &Self) {
        other.changes().for_each(|change| self.add(&change));
    }

    /// For a thread without a change of its own that started at `started` ticks and may run on the CPUs `now`: the CPUs
    /// that it would have if no thread of this process had been changed. None if `now` was not inherited from a change.
    pub fn inherited(&self, pid: Pid, started: u64, (now, cpuset): (&CpuSet, &CpuSet)) -> Option<&CpuSet> {
        let is_theirs = self.of_process(pid).any(|(_, bound)| granted(&bound.cpus.before, Some(cpuset)) == *now);
        let gave = |(_, bound): &(_, &Bound)| bound.since <= started && bound.cpus.after.contains(now);
        let giver = self.of_process(pid).find(|thread| !is_theirs && gave(thread));
        giver.map(|(_, bound)| &bound.cpus.before)
    }

    /// For the first thread of a process, if it may run on CPUs that were given to another one which is no more: the CPUs
    /// that it would have. A thread that executes a program is the first one from then on, with its own CPUs and the
    /// other's number and start, and all others have ended.
    pub fn executed(&self, thread: &ThreadIdentity, now: &CpuSet) -> Option<&CpuSet> {
        let is_first = thread.tid.0 == thread.pid.0;
        let others = || self.of_process(thread.pid).filter(|(other, _)| *other != thread);
        let gave = |(_, bound): &(_, &Bound)| bound.cpus.after.contains(now);
        let giver = others().find(gave).filter(|_| is_first && !others().any(|(other, _)| other.is_there()));
        giver.map(|(_, bound)| &bound.cpus.before)
    }

    /// The changed threads of a process.
    pub fn of_process(&self, pid: Pid) -> impl Iterator<Item = (&ThreadIdentity, &Bound)> {
        let least = ThreadIdentity { pid, process_started: 0, tid: Tid(0), started: 0 };
        self.threads.range(least..).take_while(move |(thread, _)| thread.pid == pid)
    }

    /// A minimal list of changes with the same effect.
    pub fn changes(&self) -> impl Iterator<Item = Change> {
        let threads = self.threads.iter().flat_map(|(thread, bound)| {
            let change = |after: &CpuSet| {
                let before = bound.cpus.before.clone();
                Change::Affinity { thread: *thread, before, after: after.clone(), at: bound.since }
            };
            bound.cpus.after.iter().map(change)
        });
        let switches = self.switches.iter().flat_map(|(path, replaced)| {
            let change = |after: &String| {
                let before = replaced.before.clone();
                Change::Switch { path: path.clone(), before, after: after.clone() }
            };
            replaced.after.iter().map(change)
        });
        let groups = self.groups.iter().map(|(path, back)| Change::Group { path: path.clone(), back: back.clone() });
        let settings = self.settings.iter().flat_map(|(path, replaced)| {
            let change = |after: &String| {
                let before = replaced.before.clone();
                Change::Setting { path: path.clone(), before, after: after.clone() }
            };
            replaced.after.iter().map(change)
        });
        threads.chain(switches).chain(groups).chain(settings)
    }
}

/// What to do about a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has its original value.
    AsBefore,
    /// It has a value that the agent set; restore it.
    Ours,
    /// Another process has changed it since; leave it.
    Theirs,
}

impl<T: PartialEq> Replaced<T> {
    /// What to do about the setting, given its current value `now`. `allowed` maps a requested value to what the system
    /// makes of it.
    pub fn verdict(&self, now: &T, allowed: impl Fn(&T) -> T) -> Verdict {
        let is_taken_back = self.after.last() == Some(&self.before) && allowed(&self.before) == *now;
        if *now == self.before || is_taken_back {
            Verdict::AsBefore
        } else if self.after.iter().any(|after| after == now || allowed(after) == *now) {
            Verdict::Ours
        } else if allowed(&self.before) == *now {
            Verdict::AsBefore
        } else {
            Verdict::Theirs
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOOT: &str = "0c1b";

    fn cpus(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    fn thread(pid: u32, tid: u32) -> ThreadIdentity {
        ThreadIdentity { pid: Pid(pid), process_started: 100, tid: Tid(tid), started: u64::from(100 + tid) }
    }

    fn bound(pid: u32, tid: u32, before: &str, after: &str) -> Change {
        Change::Affinity { thread: thread(pid, tid), before: cpus(before), after: cpus(after), at: 150 }
    }

    fn switched(before: &str, after: &str) -> Change {
        let path = "/proc/sys/kernel/numa_balancing".into();
        Change::Switch { path, before: before.to_owned(), after: after.to_owned() }
    }

    fn text(boot: &str, changes: &[Change]) -> Vec<u8> {
        let header = Header { journal: FORMAT, boot: boot.to_owned(), pid: Pid(7) };
        let lines = changes.iter().map(|change| serde_json::to_string(change).unwrap());
        let lines = std::iter::once(serde_json::to_string(&header).unwrap()).chain(lines);
        lines.flat_map(|line| (line + "\n").into_bytes()).collect()
    }

    fn record(changes: &[Change]) -> JournalRecord {
        let mut record = JournalRecord::default();
        for change in changes {
            record.add(change);
        }
        record
    }

    fn some() -> Vec<Change> {
        vec![bound(7, 7, "0-3", "0-1"), switched("1", "0"), bound(7, 8, "0-3", "2-3"), bound(7, 7, "0-1", "2-3")]
    }

    /// After a kill at any byte, whole lines are read, and a torn one is reported and otherwise ignored.
    #[test]
    fn a_journal_may_end_at_any_byte() {
        let changes = some();
        let all = text(BOOT, &changes);
        for end in 0..=all.len() {
            let parsed = parse(&all[..end], BOOT);
            let whole = all[..end].split(|byte| *byte == b'\n').count() - 1;
            assert_eq!(parsed.record, record(&changes[..whole.saturating_sub(1)]), "{end}");
            assert_eq!(parsed.torn, end > 0 && all[end - 1] != b'\n', "{end}");
            assert_eq!((parsed.damaged, parsed.foreign), (0, false), "{end}");
        }
    }

    #[test]
    fn what_was_there_first_comes_back_whatever_was_put_in_its_place() {
        let record = record(&some());
        let replaced = &record.threads[&thread(7, 7)].cpus;
        assert_eq!(
            (replaced.before.clone(), replaced.after.as_slice()),
            (cpus("0-3"), &[cpus("0-1"), cpus("2-3")][..])
        );
        let verdict = |now| replaced.verdict(&cpus(now), |after| after.intersection(&cpus("0-2")));
        // `2` is what the kernel makes of 2-3 in a cpuset of 0-2.
        assert_eq!(
            ["0-3", "0-1", "2-3", "2"].map(verdict),
            [Verdict::AsBefore, Verdict::Ours, Verdict::Ours, Verdict::Ours]
        );
        assert_eq!(["3", "0", "1-2"].map(verdict), [Verdict::Theirs; 3]);
    }

    #[test]
    fn what_another_process_set_meanwhile_is_restored() {
        let record = record(&[bound(7, 7, "0-3", "0-1"), bound(7, 7, "1", "2-3"), bound(7, 7, "2-3", "0-1")]);
        assert_eq!(record.threads[&thread(7, 7)].cpus.before, cpus("1"));
    }

    #[test]
    fn threads_are_distinguished_from_later_ones_with_the_same_number() {
        let later = ThreadIdentity { started: 999, ..thread(7, 7) };
        let again = Change::Affinity { thread: later, before: cpus("0-1"), after: cpus("3"), at: 1000 };
        let record = record(&[bound(7, 7, "0-3", "0-1"), again]);
        assert_eq!(
            (record.threads[&thread(7, 7)].cpus.before.clone(), record.threads[&later].cpus.before.clone()),
            (cpus("0-3"), cpus("0-1"))
        );
    }

    #[test]
    fn threads_that_begin_with_cpus_of_ours_would_have_had_those_of_before() {
        let record = record(&[
            bound(7, 7, "0-3", "0-1"),
            bound(8, 8, "0-2", "0-1"),
            bound(9, 9, "0", "0-1"),
            bound(9, 8, "0-1", "3"),
        ]);
        let inherited = |pid, started, now| {
            record.inherited(Pid(pid), started, (&cpus(now), &cpus("0-7"))).map(ToString::to_string)
        };
        assert_eq!(inherited(7, 150, "0-1").as_deref(), Some("0-3"));
        assert_eq!(inherited(8, 999, "0-1").as_deref(), Some("0-2"));
        // It began before the change, has other CPUs, is of another process, or may have inherited its CPUs from a
        // thread that had them before.
        assert_eq!(
            [inherited(7, 149, "0-1"), inherited(7, 150, "0-2"), inherited(6, 150, "0-1"), inherited(9, 150, "0-1")],
            [const { None }; 4]
        );
    }

    #[test]
    fn another_boot_and_another_format_have_no_changes() {
        let of = |journal: &[u8]| {
            let Parsed { record, foreign, other_format, .. } = parse(journal, BOOT);
            (record.len(), foreign, other_format)
        };
        assert_eq!(of(&text("other", &some())), (0, true, false));
        let newer = String::from_utf8(text(BOOT, &some())).unwrap().replacen("\"journal\":1", "\"journal\":2", 1);
        assert_eq!(of(newer.as_bytes()), (0, false, true));
        assert_eq!(of(&text(BOOT, &some())), (3, false, false));
    }

    #[test]
    fn lines_that_are_not_understood_are_counted_and_the_others_hold() {
        let mut journal = text(BOOT, &some()[..1]);
        journal.extend(b"{\"change\":\"affinity\",\"before\":\"0-4294967295\"}\nnull\n\xff\n\n");
        journal.extend(text(BOOT, &some()[1..2]));
        let parsed = parse(&journal, BOOT);
        // A second header is not valid either.
        assert_eq!((parsed.damaged, parsed.record), (5, record(&some()[..2])));
    }

    fn any_change() -> impl Strategy<Value = Change> {
        let set = || {
            proptest::collection::btree_set(0..6_u32, 1..4)
                .prop_map(|ids| ids.into_iter().map(machine::CpuId).collect())
        };
        let affinity = (1..4_u32, 1..4_u32, set(), set()).prop_map(|(pid, tid, before, after)| Change::Affinity {
            thread: thread(pid, tid),
            before,
            after,
            at: 150,
        });
        let switch = ("[01]", "[012]").prop_map(|(before, after)| switched(&before, &after));
        prop_oneof![4 => affinity, 1 => switch]
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let parsed = parse(&bytes, BOOT);
            prop_assert!(parsed.record.is_empty());
            let mut after_header = text(BOOT, &[]);
            after_header.extend(bytes);
            prop_assert!(parse(&after_header, BOOT).record.is_empty());
        }

        #[test]
        fn what_is_written_is_read_and_what_is_written_anew_says_the_same(
            changes in proptest::collection::vec(any_change(), 0..30)
        ) {
            let read = parse(&text(BOOT, &changes), BOOT);
            prop_assert_eq!(&read.record, &record(&changes));
            let anew: Vec<Change> = read.record.changes().collect();
            prop_assert_eq!(&record(&anew), &read.record);
            // A known change does not alter what would be restored.
            for change in changes.iter().filter(|change| read.record.has(change)) {
                let mut more = read.record.clone();
                more.add(change);
                let before = |record: &JournalRecord| record.threads.values().map(|bound| bound.cpus.before.clone()).collect::<Vec<_>>();
                prop_assert_eq!(before(&more), before(&read.record));
            }
        }

        /// A setting read after a change was made as recorded is recognised as the agent's.
        #[test]
        fn the_latest_change_is_ours(changes in proptest::collection::vec(any_change(), 1..30)) {
            let record = record(&changes);
            if let Some(Change::Affinity { thread, after, .. }) = changes.last() {
                let verdict = record.threads[thread].cpus.verdict(after, Clone::clone);
                prop_assert_ne!(verdict, Verdict::Theirs);
            }
        }
    }
}
