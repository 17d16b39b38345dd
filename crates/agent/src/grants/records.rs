//! What grants there are: a file a grant, for as long as the process that carries it out lives.

use linux::{Pid, PrivateFolder, PrivateFolderError, Process};
use machine::bounded;
use reserve::{Grant, GrantId, ServiceLevel, Throttle};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Longest record, in bytes: that of a grant of thousands of CPUs.
const MOST_BYTES: u64 = 1 << 20;

/// A grant that is carried out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GrantRecord {
    /// The grant.
    pub grant: Grant,
    /// The process that carries it out.
    pub pid: Pid,
    /// Start time of that process, in clock ticks since boot.
    pub started: u64,
    /// The program; empty where the agent carries the grant out.
    pub command: String,
    /// Whether the agent carries it out, which then is the one to release it.
    #[serde(default)]
    pub by_agent: bool,
    /// Whether it stays until it is released.
    #[serde(default)]
    pub stays: bool,
    /// The folder of the control group that was there before it, if it has that.
    #[serde(default)]
    pub adopted: Option<PathBuf>,
    /// What limits the rest of the machine for it, if its controller is guarded.
    #[serde(default)]
    pub throttle: Option<Throttle>,
    /// Why its CPUs are others' at present, too: the kernel has ended its partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// How the program does by its holder's figure, and what follows for the rest of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceLevel>,
}

/// Who carries a grant out.
#[derive(Clone, Copy, Debug)]
pub enum Carrier<'a> {
    /// A process, for this program.
    Process(&'a str),
    /// The agent.
    Agent {
        /// Whether the grant stays until it is released.
        stays: bool,
        /// The folder of the control group that was there before.
        adopted: Option<&'a Path>,
    },
}

/// Why the records cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// The folder is not safe, or the system refused.
    #[error(transparent)]
    Folder(#[from] PrivateFolderError),
    /// A record cannot be written.
    #[error("cannot write the record of a grant")]
    Write(#[source] io::Error),
}

/// The records, locked against other processes that make grants.
#[derive(Debug)]
pub struct Records {
    folder: PrivateFolder,
    _lock: File,
}

impl GrantRecord {
    fn is_alive(&self) -> bool {
        let start = Process::open(self.pid).and_then(|process| process.start_time());
        // /proc may hide the processes of others (hidepid).
        start.map_or_else(|_| linux::exists(self.pid), |start| start.ticks == self.started)
    }
}

/// The records of living grants in a folder; none if there is no such folder. Needs no privileges.
pub fn read_records(folder: &Path) -> Vec<GrantRecord> {
    let mut records = all_records(folder);
    records.retain(GrantRecord::is_alive);
    records
}

/// The records of grants whose agent was killed.
pub(crate) fn left_records(folder: &Path) -> Vec<GrantRecord> {
    let mut records = all_records(folder);
    records.retain(|record| record.by_agent && !record.is_alive());
    records
}

fn all_records(folder: &Path) -> Vec<GrantRecord> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let records = entries.map(|entry| entry.path()).filter(|path| is_record(path)).filter_map(|path| read(&path));
    let mut records: Vec<GrantRecord> = records.collect();
    records.sort_by_key(|record| record.grant.id);
    records
}

fn is_record(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "json")
}

impl Records {
    /// Opens the folder, which is created if needed, and waits for other processes that make grants.
    pub fn lock(folder: &Path) -> Result<Self, RecordsError> {
        let folder = PrivateFolder::create(folder, 0o755)?;
        let lock = folder.file("lock", 0o600)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| RecordsError::Write(error.into()))?;
        Ok(Self { folder, _lock: lock })
    }

    /// Their folder.
    pub(super) fn folder(&self) -> &PrivateFolder {
        &self.folder
    }

    /// Adds or replaces a record of this process. `throttle` limits the rest of the machine; `lost` says why the grant's
    /// CPUs are not its own at present. Readers find the former record or this one.
    pub fn add(
        &self,
        grant: &Grant,
        carrier: Carrier<'_>,
        throttle: Throttle,
        lost: Option<&str>,
        service: Option<ServiceLevel>,
    ) -> Result<(), RecordsError> {
        let pid = Pid(std::process::id());
        let start = Process::open(pid).and_then(|process| process.start_time());
        let started = start.map_err(|error| RecordsError::Write(io::Error::other(error)))?.ticks;
        let (command, stays, adopted) = match carrier {
            Carrier::Process(command) => (command, false, None),
            Carrier::Agent { stays, adopted } => ("", stays, adopted),
        };
        let record = GrantRecord {
            grant: grant.clone(),
            pid,
            started,
            command: command.to_owned(),
            by_agent: matches!(carrier, Carrier::Agent { .. }),
            stays,
            adopted: adopted.map(Path::to_owned),
            throttle: grant.request.isolate.controller.then_some(throttle),
            lost: lost.map(str::to_owned),
            service,
        };
        let text = serde_json::to_vec(&record).map_err(|error| RecordsError::Write(error.into()))?;
        Ok(self.folder.replace(&name(grant.id), 0o644, &text)?)
    }

    /// Removes what processes left that were killed.
    pub fn sweep(&self) -> io::Result<()> {
        let living: Vec<String> = read_records(self.folder.path()).iter().map(|record| name(record.grant.id)).collect();
        let left = self.folder.names()?.into_iter().filter(|name| is_record(Path::new(name)) && !living.contains(name));
        left.into_iter().try_for_each(|name| self.folder.remove(&name))
    }

    /// Removes a record. The process that carries the grant out then undoes it.
    pub fn remove(&self, id: GrantId) -> io::Result<()> {
        self.folder.remove(&name(id))
    }

    /// Removes a record if it is this process's: numbers are used again.
    pub fn remove_own(&self, id: GrantId) -> io::Result<()> {
        if has_own_record(self.folder.path(), id) { self.remove(id) } else { Ok(()) }
    }
}

/// The file of a grant.
fn name(id: GrantId) -> String {
    format!("{id}.json")
}

/// Whether a grant of this process still has its record: without it, it is to be released.
pub fn has_own_record(folder: &Path, id: GrantId) -> bool {
    read(&folder.join(name(id))).is_some_and(|record| record.pid == Pid(std::process::id()))
}

fn read(path: &Path) -> Option<GrantRecord> {
    serde_json::from_slice(&bounded::bytes(path, MOST_BYTES).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use reserve::{Asker, Control, Facts, Ledger, Request, Rules, Service};
    use std::sync::Arc;
    use std::time::Instant;

    fn grant() -> Grant {
        let facts = Facts::new(machine::presets::find("small-4x2").unwrap(), Control::default());
        let ledger = Ledger::new(Arc::new(facts), Rules::default());
        ledger.admit(&[Request::default()], &Asker::default()).unwrap().grants.remove(0)
    }

    #[test]
    fn a_record_has_the_service_level_and_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("grants");
        let grant = grant();
        let records = Records::lock(&folder).unwrap();
        let carrier = Carrier::Agent { stays: true, adopted: None };
        let add = |level| records.add(&grant, carrier, Throttle::Hardware, None, level).unwrap();
        add(None);
        assert_eq!(read_records(&folder)[0].service, None);
        // Readers see one record at each moment, and no other file counts.
        let missed = Service { latency_ms: 3.0, target_ms: 2.0 };
        let level = ServiceLevel::after(None, missed, Instant::now(), 7);
        add(Some(level));
        let read = read_records(&folder);
        assert_eq!((read.len(), records.folder().names().unwrap()), (1, vec!["1.json".to_owned(), "lock".to_owned()]));
        let service = read[0].service.unwrap();
        assert_eq!((service.said(), service.said_s(), service.course()), (missed, 7, level.course()));
        assert!(service.has_same_part(Some(level)));
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process_s() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("grants");
        let grant = grant();
        let records = Records::lock(&folder).unwrap();
        records.add(&grant, Carrier::Process("a"), Throttle::None, None, None).unwrap();
        let mut record = read_records(&folder).remove(0);
        assert!(has_own_record(&folder, grant.id));
        record.pid = Pid(1);
        fs::write(folder.join("1.json"), serde_json::to_vec(&record).unwrap()).unwrap();
        assert!(!has_own_record(&folder, grant.id));
        records.remove_own(grant.id).unwrap();
        assert!(folder.join("1.json").exists());
        records.add(&grant, Carrier::Process("a"), Throttle::None, None, None).unwrap();
        records.remove_own(grant.id).unwrap();
        assert!(!folder.join("1.json").exists());
    }
}
