//! Settings that follow from all grants together: CPUs of interrupts, ways of caches, and limits of the rest. They
//! have one journal, because grants end in any order, and each former value is that of before the first grant.

use crate::broker::BrokerError;
use crate::grants::{CarryOutError, Corrections, Hardware, HardwareError, Limit, Setting, TooFine, idle_cpus};
use crate::journal::Journal;
use linux::{Cgroups, interrupts};
use machine::{CpuSet, chain};
use reserve::{Grant, Ledger, Throttle};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two looks at the groups whose CPU time is limited: their owner may make them again, as systemd does with slices
/// that were idle, and then they have no limit.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The settings that were changed.
#[derive(Debug)]
pub(super) struct SharedSettings {
    journal: Journal,
    /// Control groups whose CPU time is limited, named from the topmost one.
    limited: Vec<String>,
    hardware: Option<Hardware>,
    changed: BTreeMap<PathBuf, Changed>,
    /// The limited groups' files, by their inodes.
    groups: BTreeMap<PathBuf, u64>,
    /// When to look at these groups, if they are limited.
    next_look: Option<Instant>,
    corrections: Corrections,
}

/// A setting that is not as it was.
#[derive(Clone, Debug)]
struct Changed {
    /// Its value of before the first grant, or what its owner has made of it since.
    original: String,
    /// What grants have asked for.
    asked: String,
    /// What was read after that: the kernel may write it in another way, or not do all of it. An interrupt that is being
    /// moved still reads as before.
    read: String,
}

impl Changed {
    fn is_still(&self, now: &str) -> bool {
        [&self.asked, &self.read].iter().any(|own| *own == now)
    }
}

impl SharedSettings {
    pub fn new(journal: Journal, limited: Vec<String>, hardware: Option<Hardware>) -> Self {
        let (changed, groups) = (BTreeMap::new(), BTreeMap::new());
        Self { journal, limited, hardware, changed, groups, next_look: None, corrections: Corrections::default() }
    }

    /// Sets everything as these grants need it, as far as that is possible: what no grant needs any more is undone also
    /// where something else fails. Returns the first failure.
    pub fn follow(&mut self, ledger: &Ledger, own: impl Iterator<Item = Grant>) -> Result<(), BrokerError> {
        let own: Vec<Grant> = own.collect();
        self.forget_replaced_groups();
        let words = self.hardware.map(|hardware| hardware.settings(ledger, &own).map_err(CarryOutError::from));
        let mut failed = Ok(());
        let mut wanted = BTreeMap::new();
        let limits = self.limits(ledger);
        self.next_look = self.is_limiting(ledger).then(|| Instant::now() + CHECK_INTERVAL);
        for found in [limits, words.transpose().map(Option::unwrap_or_default).map_err(BrokerError::from)] {
            match found {
                Ok(settings) => wanted.extend(settings),
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        // What is not known to be needed no more stays.
        let is_known = failed.is_ok();
        for (path, value) in &wanted {
            failed = failed.and(self.set(path, value));
        }
        let away = own.iter().filter(|grant| grant.request.isolate.core).flat_map(|grant| {
            let idle = idle_cpus(grant, &ledger.facts);
            grant.cpus.iter().chain(idle.iter()).collect::<Vec<_>>()
        });
        let interrupts = self.interrupts(&away.collect(), &ledger.facts.machine.cpus());
        for (path, value) in &interrupts {
            // The kernel refuses it for some, such as those of a CPU's own timer.
            let _ = self.set(path, value);
        }
        let is_needed = |path: &Path| {
            let is_limit = !path.starts_with("/proc/irq");
            wanted.contains_key(path) || interrupts.contains_key(path) || is_limit && !is_known
        };
        let over: Vec<(PathBuf, Changed)> = self.changed.clone().into_iter().rev().collect();
        for (path, changed) in over.into_iter().filter(|(path, _)| !is_needed(path)) {
            let setting = Setting::at(&path);
            // A group that its owner has removed needs no former value, and what its owner has set since is the owner's.
            let is_theirs = setting.value().map_or(!setting.exists(), |now| !changed.is_still(&now));
            let undone = if is_theirs { Ok(()) } else { self.set(&path, &changed.original) };
            if undone.is_ok() {
                self.changed.remove(&path);
            }
            failed = failed.and(undone);
        }
        failed
    }

    /// Limits all groups again if one was made or has ended, as they share what the rest has, and corrects limits in percent by what is measured, once a second.
    pub fn correct(&mut self, ledger: &Ledger, now: Instant) -> Result<(), BrokerError> {
        if self.next_look.is_some_and(|next| next <= now) {
            self.next_look = Some(now + CHECK_INTERVAL);
            if self.forget_replaced_groups() {
                let limits = self.limits(ledger)?;
                limits.iter().try_for_each(|(path, value)| self.set(path, value))?;
            }
        }
        let Some(hardware) = self.hardware else { return Ok(()) };
        let corrected = hardware.correct(ledger, &mut self.corrections, now).map_err(CarryOutError::from)?;
        // What other processes have set is theirs.
        let own: Vec<_> = corrected.into_iter().filter(|(path, _)| self.changed.contains_key(path)).collect();
        own.iter().try_for_each(|(path, value)| self.set(path, value))
    }

    /// When to correct again, if there is something to correct.
    pub fn next_correction(&self) -> Option<Instant> {
        self.corrections.next_look().into_iter().chain(self.next_look).min()
    }

    /// Whether the hardware is as nearside has set it, and its limits are fine enough for what is added to a ledger.
    pub fn check(&self, before: &Ledger, after: &Ledger) -> Result<(), BrokerError> {
        let Some(hardware) = self.hardware else { return Ok(()) };
        hardware.check(before, after).map_err(CarryOutError::from)?;
        let worse = TooFine::worse(&hardware.too_fine(before), &hardware.too_fine(after));
        worse.map_or(Ok(()), |fine| Err(CarryOutError::from(HardwareError::TooFine(fine)).into()))
    }

    /// Where the rest has more than these grants bear, because the hardware's limits are too coarse.
    pub fn too_fine(&self, ledger: &Ledger) -> Vec<String> {
        let too_fine = self.hardware.map(|hardware| hardware.too_fine(ledger)).unwrap_or_default();
        too_fine.iter().map(|fine| format!("{fine}, which each of them has now")).collect()
    }

    /// Restores everything, except what these grants, which other processes carry out, need and have journals of. Returns
    /// what failed.
    pub fn restore(self, others: &Ledger) -> Vec<String> {
        let has = |path: &Path, value: &str| Setting::at(path).value().is_ok_and(|now| now == value);
        let wanted = self.hardware.and_then(|hardware| hardware.settings(others, &[]).ok()).unwrap_or_default();
        let kept: Vec<(PathBuf, String)> = wanted.into_iter().filter(|(path, value)| has(path, value)).collect();
        let mut failed = self.journal.restore().failed;
        let again = kept.into_iter().filter_map(|(path, value)| Setting::at(&path).set(&value).err());
        failed.extend(again.map(|error| chain(&error)));
        failed
    }

    /// The group that is limited, of this one and those above it.
    pub fn limited_above(&self, cgroup: &str) -> Option<&str> {
        self.limited.iter().map(String::as_str).find(|limited| Path::new(cgroup).starts_with(limited))
    }

    /// Whether CPU time is limited for these grants.
    fn is_limiting(&self, ledger: &Ledger) -> bool {
        let is_guarded = || ledger.grants().any(|grant| grant.request.isolate.controller);
        !self.limited.is_empty() && ledger.facts.control.throttle == Throttle::Duty && is_guarded()
    }

    fn limits(&self, ledger: &Ledger) -> Result<BTreeMap<PathBuf, String>, BrokerError> {
        if self.is_limiting(ledger) { self.limits_in(&Cgroups::find()?, ledger) } else { Ok(BTreeMap::new()) }
    }

    /// The limits of the groups that exist: one that does not takes no share of what the rest has.
    fn limits_in(&self, cgroups: &Cgroups, ledger: &Ledger) -> Result<BTreeMap<PathBuf, String>, BrokerError> {
        let is_there = |cgroup: &&String| Limit::file_of(cgroup, cgroups).is_file();
        let there: Vec<String> = self.limited.iter().filter(is_there).cloned().collect();
        let limits = Limit::of(&there, &ledger.forecast().rest_limit, &ledger.facts);
        let files = limits.into_iter().map(|limit| (limit.file(cgroups), limit));
        let text = |(file, limit): (PathBuf, Limit)| {
            let now = Setting::at(&file).value().map_err(|error| BrokerError::Setting(chain(&error)))?;
            let changed = self.changed.get(&file).filter(|changed| changed.is_still(&now));
            let own = changed.map_or(now, |changed| changed.original.clone());
            let cpu_max = limit.cpu_max(&own);
            Ok((file, cpu_max))
        };
        files.map(text).collect()
    }

    /// Forgets what groups had that were made again or for the first time. Returns whether there are other groups than before.
    fn forget_replaced_groups(&mut self) -> bool {
        let Ok(cgroups) = Cgroups::find() else { return false };
        let files = self.limited.iter().map(|cgroup| Limit::file_of(cgroup, &cgroups));
        let there: BTreeMap<PathBuf, u64> =
            files.filter_map(|file| file.metadata().ok().map(|of| (file, of.ino()))).collect();
        let is_new = |(file, inode): &(&PathBuf, &u64)| self.groups.get(*file) != Some(*inode);
        let replaced: Vec<PathBuf> = there.iter().filter(is_new).map(|(file, _)| file.clone()).collect();
        self.changed.retain(|file, _| !replaced.contains(file));
        std::mem::replace(&mut self.groups, there) != self.groups
    }

    /// Interrupts that CPUs are to be kept free of, with the CPUs that they then have.
    fn interrupts(&self, away: &CpuSet, all: &CpuSet) -> BTreeMap<PathBuf, String> {
        let others: CpuSet = all.iter().filter(|&cpu| !away.contains(cpu)).collect();
        let wanted = interrupts(Path::new("/proc")).into_iter().filter_map(|interrupt| {
            let original = self.changed.get(&interrupt.path).and_then(|changed| changed.original.parse().ok());
            let original = original.unwrap_or(interrupt.cpus);
            let left: CpuSet = original.iter().filter(|&cpu| !away.contains(cpu)).collect();
            let cpus = if left.is_empty() { &others } else { &left };
            (left != original).then(|| (interrupt.path, cpus.to_string()))
        });
        wanted.collect()
    }

    fn set(&mut self, path: &Path, value: &str) -> Result<(), BrokerError> {
        let setting = Setting::at(path);
        let now = setting.value().map_err(|error| BrokerError::Setting(chain(&error)))?;
        // An interrupt that is being moved elsewhere reads as before.
        if now == value && self.changed.get(path).is_none_or(|changed| changed.asked == value) {
            return Ok(());
        }
        let original = match self.changed.get(path) {
            Some(changed) if changed.is_still(&now) => changed.original.clone(),
            _ => setting.original().map_err(|error| BrokerError::Setting(chain(&error)))?,
        };
        self.journal.will_write(path, value)?;
        let set = setting.set(value);
        let read = setting.value().unwrap_or_else(|_| value.to_owned());
        self.changed.insert(path.to_owned(), Changed { original, asked: value.to_owned(), read });
        // What the kernel refuses to change, it need not be given back.
        if now == value { Ok(()) } else { set.map_err(|error| BrokerError::Setting(chain(&error))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;
    use reserve::{Asker, Control, Facts, Isolation, Request, Rules};
    use std::fs::{self, File};
    use std::sync::Arc;
    use std::time::SystemTime;

    fn small_ledger() -> Ledger {
        let control = Control { throttle: Throttle::None, ways: None };
        let facts = Facts::new(presets::find("small-4x2").unwrap(), control);
        Ledger::new(Arc::new(facts), Rules::default())
    }

    /// Settings of which none is changed, and the folder of their journal.
    fn unchanged() -> (tempfile::TempDir, SharedSettings) {
        let folder = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(&folder.path().join("journals"), "reserve").unwrap();
        (folder, SharedSettings::new(journal, Vec::new(), None))
    }

    #[test]
    fn groups_that_do_not_exist_take_no_share_of_the_rest() {
        let (_folder, mut shared) = unchanged();
        shared.limited = vec!["/a".to_owned(), "/b".to_owned()];
        let root = saved_files::SavedFiles::new();
        root.put("proc/self/mountinfo", "35 34 0:32 / /cgroup rw shared:5 - cgroup2 cgroup2 rw\n");
        root.put("cgroup/a/cpu.max", "max 100000\n");
        let cgroups = Cgroups::find_in(root.path()).unwrap();
        let control = Control { throttle: Throttle::Duty, ways: None };
        let facts = Facts::new(presets::find("magny-cours-4p").unwrap(), control);
        let ledger = Ledger::new(Arc::new(facts), Rules::default());
        let isolate = Isolation { core: true, controller: true, ..Isolation::default() };
        let request = Request { isolate, ..Request::default() };
        let ledger = ledger.admit(&[request], &Asker::default()).unwrap().after;
        let limits = |shared: &SharedSettings| shared.limits_in(&cgroups, &ledger).unwrap();
        let of = |number: usize| {
            let limit = Limit::of(&shared.limited[..number], &ledger.forecast().rest_limit, &ledger.facts).remove(0);
            limit.cpu_max("max 100000")
        };
        assert_eq!(limits(&shared).into_values().collect::<Vec<_>>(), [of(1)]);
        root.put("cgroup/b/cpu.max", "max 100000\n");
        assert_eq!(limits(&shared).into_values().collect::<Vec<_>>(), [of(2), of(2)]);
        assert_ne!(of(1), of(2));
    }

    fn changed(original: &str, asked: &str, read: &str) -> Changed {
        let [original, asked, read] = [original, asked, read].map(str::to_owned);
        Changed { original, asked, read }
    }

    /// The kernel shows the CPUs of an interrupt that is being moved as they were.
    #[test]
    fn what_was_read_as_before_and_is_done_since_is_undone() {
        let (folder, mut shared) = unchanged();
        let file = folder.path().join("a");
        fs::write(&file, "1-7").unwrap();
        shared.changed.insert(file.clone(), changed("0", "1-7", "0"));
        shared.follow(&small_ledger(), std::iter::empty()).unwrap();
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), shared.changed.len()), ("0", 0));
        // It is still being moved: it is not left to that.
        File::options().write(true).open(&file).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        shared.changed.insert(file.clone(), changed("0", "1-7", "0"));
        shared.follow(&small_ledger(), std::iter::empty()).unwrap();
        assert!(file.metadata().unwrap().modified().unwrap() > SystemTime::UNIX_EPOCH && shared.changed.is_empty());
    }

    /// As the CPUs of some interrupts, which can only be read.
    #[test]
    fn what_the_kernel_has_refused_to_change_is_not_given_back() {
        let (_folder, mut shared) = unchanged();
        let fixed = PathBuf::from("/proc/version");
        let value = Setting::at(&fixed).value().unwrap();
        shared.changed.insert(fixed, changed(&value, "another", &value));
        shared.follow(&small_ledger(), std::iter::empty()).unwrap();
        assert!(shared.changed.is_empty());
    }

    #[test]
    fn what_no_grant_needs_is_undone_also_where_something_else_fails() {
        let (folder, mut shared) = unchanged();
        let [broken, file] = ["a", "b"].map(|name| folder.path().join(name));
        fs::create_dir(&broken).unwrap();
        fs::write(&file, "changed").unwrap();
        let changed = changed("original", "changed", "changed");
        shared.changed.extend([&broken, &file].map(|path| (path.clone(), changed.clone())));
        assert!(shared.follow(&small_ledger(), std::iter::empty()).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "original");
        // It is tried again.
        assert_eq!(shared.changed.keys().collect::<Vec<_>>(), [&broken]);
    }

    #[test]
    fn what_its_owner_has_set_since_is_left() {
        let (folder, mut shared) = unchanged();
        let file = folder.path().join("a");
        for (theirs, left) in [(None, "before"), (Some("theirs"), "theirs")] {
            fs::write(&file, "before").unwrap();
            shared.set(&file, "ours").unwrap();
            if let Some(theirs) = theirs {
                fs::write(&file, theirs).unwrap();
            }
            shared.follow(&small_ledger(), std::iter::empty()).unwrap();
            assert_eq!((fs::read_to_string(&file).unwrap().as_str(), shared.changed.len()), (left, 0));
        }
        // It is what the next change begins with.
        shared.set(&file, "ours").unwrap();
        fs::write(&file, "theirs again").unwrap();
        shared.set(&file, "ours again").unwrap();
        assert_eq!(shared.changed[&file].original, "theirs again");
    }
}
