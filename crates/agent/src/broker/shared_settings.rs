//! Settings that follow from all grants together: CPUs of interrupts, ways of caches, and limits of the rest. They
//! have one journal, because grants end in any order, and each former value is that of before the first grant.

use crate::broker::BrokerError;
use crate::grants::{CarryOutError, Hardware, Limit, Setting, idle_cpus};
use crate::journal::Journal;
use linux::{Cgroups, interrupts};
use machine::{CpuSet, chain};
use reserve::{Grant, Ledger, Throttle};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The settings that were changed.
#[derive(Debug)]
pub(super) struct SharedSettings {
    journal: Journal,
    /// Control groups whose CPU time is limited, named from the topmost one.
    limited: Vec<String>,
    hardware: Option<Hardware>,
    /// Values of before the first grant.
    originals: BTreeMap<PathBuf, String>,
}

impl SharedSettings {
    pub fn new(journal: Journal, limited: Vec<String>, hardware: Option<Hardware>) -> Self {
        Self { journal, limited, hardware, originals: BTreeMap::new() }
    }

    /// Sets everything as these grants need it.
    pub fn follow(&mut self, ledger: &Ledger, own: impl Iterator<Item = Grant>) -> Result<(), BrokerError> {
        let own: Vec<Grant> = own.collect();
        let mut limits = self.limits(ledger)?;
        if let Some(hardware) = self.hardware {
            limits.extend(hardware.settings(ledger, &own).map_err(CarryOutError::from)?);
        }
        for (path, value) in &limits {
            self.set(path, value)?;
        }
        let away = own.iter().filter(|grant| grant.request.isolate.core).flat_map(|grant| {
            let idle = idle_cpus(grant, &ledger.facts);
            grant.cpus.iter().chain(idle.iter()).collect::<Vec<_>>()
        });
        let wanted = self.interrupts(&away.collect(), &ledger.facts.machine.cpus());
        for (path, value) in &wanted {
            // The kernel refuses it for some, such as those of a CPU's own timer.
            let _ = self.set(path, value);
        }
        let over: Vec<(PathBuf, String)> = self.originals.clone().into_iter().collect();
        for (path, value) in
            over.into_iter().filter(|(path, _)| !limits.contains_key(path) && !wanted.contains_key(path))
        {
            // A group that its owner has removed needs no former value.
            if Setting::at(&path).exists() {
                self.set(&path, &value)?;
            }
            self.originals.remove(&path);
        }
        Ok(())
    }

    /// Restores everything. Returns what failed.
    pub fn restore(self) -> Vec<String> {
        self.journal.restore().failed
    }

    fn limits(&self, ledger: &Ledger) -> Result<BTreeMap<PathBuf, String>, BrokerError> {
        if ledger.facts.control.throttle != Throttle::Duty {
            return Ok(BTreeMap::new());
        }
        let cgroups = Cgroups::find()?;
        let limits = Limit::of(&self.limited, &ledger.forecast().rest_limit, &ledger.facts);
        Ok(limits.into_iter().map(|limit| (limit.file(&cgroups), limit.cpu_max())).collect())
    }

    /// Interrupts that CPUs are to be kept free of, with the CPUs that they then have.
    fn interrupts(&self, away: &CpuSet, all: &CpuSet) -> BTreeMap<PathBuf, String> {
        let others: CpuSet = all.iter().filter(|&cpu| !away.contains(cpu)).collect();
        let wanted = interrupts(Path::new("/proc")).into_iter().filter_map(|interrupt| {
            let original = self.originals.get(&interrupt.path).and_then(|text| text.parse().ok());
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
        if now == value {
            return Ok(());
        }
        self.originals.entry(path.to_owned()).or_insert(now);
        self.journal.will_write(path, value)?;
        setting.set(value).map_err(|error| BrokerError::Setting(chain(&error)))
    }
}
