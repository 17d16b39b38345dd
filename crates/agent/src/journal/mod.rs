//! Records every change before it is made, so that all settings can be restored: at the end, or by the next agent if
//! this one is killed.
//!
//! A journal is a file of JSON lines. Each line is one `write`, made before its change, so it survives SIGKILL at any
//! moment. It need not survive a reboot, since the changes do not either. The agent holds a lock (`flock`) on the file:
//! a journal that can be locked was left by an agent that died.

mod change;
mod folder;
mod grant_files;
mod own_switch;
mod put_back;
mod record;
mod requested;
#[cfg(test)]
mod tests;

pub use change::{Change, ThreadIdentity};
pub use folder::default_folder;
pub(crate) use grant_files::{GROUP, ZONE, grant_of};
pub use own_switch::OwnSwitch;
pub use put_back::{PutBack, System};
pub use record::{Bound, FORMAT, Header, JournalRecord, Parsed, Replaced, Verdict, parse};
pub(crate) use requested::requested;

use crate::grants::Setting;
use crate::json_line::line;
use linux::{CgroupGroup, Pid, PrivateFolder, PrivateFolderError, Process, SwitchError, Tid, affinity};
use machine::{CpuSet, bounded};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Lines that a journal may grow by before it is compacted.
const MOST_NEW_LINES: usize = 10_000;

/// The journal of one agent; each change is recorded before it is made. Restores everything when dropped.
#[derive(Debug)]
pub struct Journal {
    file: File,
    folder: PrivateFolder,
    /// The name of the file.
    name: String,
    system: System,
    boot: String,
    record: JournalRecord,
    /// Size of the file.
    bytes: u64,
    /// Lines since the last compaction.
    new_lines: usize,
    /// Whether everything is restored.
    is_over: bool,
}

/// The journal cannot be opened or written; then nothing may be changed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another agent uses it.
    #[error("an agent is running already{}: it has {}", number(*.process), path.display())]
    InUse {
        /// The file.
        path: PathBuf,
        /// The agent.
        process: Option<Pid>,
    },
    /// Its folder or file cannot be used, for example because other users could change it.
    #[error(transparent)]
    Folder(#[from] PrivateFolderError),
    /// The system refused.
    #[error("cannot {what} {}", path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The switch that is to be changed cannot be read.
    #[error(transparent)]
    Switch(#[from] SwitchError),
}

impl JournalError {
    fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, path: path.to_owned(), source }
    }
}

impl Journal {
    /// Opens the journal `NAME.journal` in a folder, which is created if needed. First restores what killed agents
    /// changed, removes their journals, and reports this. What cannot be restored stays in its journal, for the next that
    /// opens one. [`default_folder`] is where agents keep journals. Needs the privileges that the killed agents had.
    pub fn open(folder: &Path, name: &str) -> Result<(Self, PutBack), JournalError> {
        Self::open_on(System::running(), folder, name)
    }

    /// Like [`open`](Self::open), with the switches of another system.
    pub fn open_on(system: System, folder: &Path, name: &str) -> Result<(Self, PutBack), JournalError> {
        let folder = folder::prepare(folder)?;
        let boot = linux::boot_id().map_err(JournalError::system("read", Path::new("boot_id")))?;
        let name = format!("{name}.journal");
        let path = |name: &str| folder.path().join(name);
        let mut file = folder::take(&folder, &name)?;
        let mut put_back = system.put_back_of(&mut file, &boot).map_err(JournalError::system("read", &path(&name)))?;
        // This journal goes on with what cannot be restored of its own; other journals keep theirs.
        let record = std::mem::take(&mut put_back.left);
        let file = write_over(&folder, &name, &lines(&boot, &record))?;
        for left in folder::journals(&folder)?.into_iter().filter(|left| *left != name) {
            // A locked journal is in use, or is being restored by another process.
            let Ok(mut file) = folder::take(&folder, &left) else { continue };
            let one = system.put_back_of(&mut file, &boot).map_err(JournalError::system("read", &path(&left)))?;
            if one.left.is_empty() {
                folder.remove(&left).map_err(JournalError::system("remove", &path(&left)))?;
            } else {
                write_over(&folder, &left, &lines(&boot, &one.left))?;
            }
            put_back.add(one);
        }
        put_back.left.add_all(&record);
        let bytes = lines(&boot, &record).len() as u64;
        let journal = Self { file, folder, name, system, boot, record, bytes, new_lines: 0, is_over: false };
        Ok((journal, put_back))
    }

    /// Goes on with the journal of an agent that was killed: nothing is restored. None if there is no such journal, another
    /// process has it, or not all of its changes are known.
    pub fn take_up(folder: &Path, name: &str) -> Result<Option<Self>, JournalError> {
        let folder = folder::prepare(folder)?;
        let boot = linux::boot_id().map_err(JournalError::system("read", Path::new("boot_id")))?;
        let name = format!("{name}.journal");
        let path = folder.path().join(&name);
        if !folder::journals(&folder)?.contains(&name) {
            return Ok(None);
        }
        let Ok(mut file) = folder::take(&folder, &name) else { return Ok(None) };
        let text = bounded::bytes_of(&mut file, bounded::MOST_BYTES).map_err(JournalError::system("read", &path))?;
        let Parsed { record, damaged, foreign, .. } = parse(&text, &boot);
        if foreign || damaged > 0 || record.is_empty() {
            return Ok(None);
        }
        let (system, bytes) = (System::running(), text.len() as u64);
        let mut journal = Self { file, folder, name, system, boot, record, bytes, new_lines: 0, is_over: false };
        journal.write_anew()?;
        Ok(Some(journal))
    }

    /// The group that the processes of the grant's groups go to in the end.
    pub(crate) fn back(&self) -> Option<&Path> {
        self.record.groups.first().map(|(_, back)| back.as_path())
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Records that a thread will get these CPUs, before it does. Returns whether the thread still exists. `parent`
    /// started its process, where known, and may have ended since. `allowed` are the CPUs of its cpuset. Needs no
    /// privileges.
    pub fn will_bind(
        &mut self,
        pid: Pid,
        tid: Tid,
        parent: Option<Pid>,
        (allowed, after): (&CpuSet, &CpuSet),
    ) -> Result<bool, JournalError> {
        let Some((thread, parent_now)) = ThreadIdentity::from_proc(pid, tid) else { return Ok(false) };
        let parent = parent.unwrap_or(parent_now);
        let Ok(now) = affinity(tid) else { return Ok(false) };
        // An unrecorded thread may have inherited CPUs that the agent gave to its creator.
        let record = &self.record;
        let of = |giver| record.inherited(giver, thread.started, (&now, allowed));
        let inherited = || of(pid).or_else(|| of(parent)).cloned();
        let before = match record.threads.get(&thread) {
            None => inherited(),
            Some(own) if own.cpus.after.contains(&now) => None,
            Some(_) => record.executed(&thread, &now).cloned(),
        };
        let before = before.unwrap_or_else(|| requested::requested(now, allowed));
        self.will(&Change::Affinity { thread, before, after: after.clone(), at: linux::ticks() })?;
        Ok(true)
    }

    /// Records the threads of a process that has CPUs that the agent gave to the process `giver`, at the latest when its
    /// parent has ended: the kernel no longer knows then whose child it was. Needs no privileges.
    pub fn will_outlive(&mut self, pid: Pid, giver: Pid) -> Result<(), JournalError> {
        let threads = Process::open(pid).and_then(|process| process.threads()).unwrap_or_default();
        let Some(cpuset) = put_back::allowed(pid) else { return Ok(()) };
        for tid in threads.iter() {
            let Some((thread, _)) = ThreadIdentity::from_proc(pid, tid) else { continue };
            let Ok(now) = affinity(tid) else { continue };
            if !self.record.threads.contains_key(&thread)
                && let Some(before) = self.record.inherited(giver, thread.started, (&now, &cpuset)).cloned()
            {
                self.will(&Change::Affinity { thread, before, after: now, at: thread.started })?;
            }
        }
        Ok(())
    }

    /// Records that a program was just started with these CPUs, and the CPUs that it would have had.
    pub fn was_started(&mut self, pid: Pid, before: &CpuSet, after: &CpuSet) -> Result<(), JournalError> {
        let Some((thread, _)) = ThreadIdentity::from_proc(pid, Tid(pid.0)) else { return Ok(()) };
        let allowed = put_back::allowed(pid).unwrap_or_else(requested::all_cpus);
        let (before, after) = (requested::requested(before.clone(), &allowed), after.clone());
        self.will(&Change::Affinity { thread, before, after, at: thread.started })
    }

    /// Records that a switch will get this value, before it does. Needs permission to read the switch.
    pub fn will_set(&mut self, switch: OwnSwitch, after: &str) -> Result<(), JournalError> {
        let switch = switch.switch();
        let path = switch.path().to_owned();
        self.will(&Change::Switch { path, before: switch.value()?, after: after.to_owned() })
    }

    /// Records that a control group will be made, before it is, and which group its processes go to in the end.
    pub fn will_make(&mut self, group: &CgroupGroup, back: &Path) -> Result<(), JournalError> {
        self.will(&Change::Group { path: group.folder().to_owned(), back: back.to_owned() })
    }

    /// Records that the CPUs of an interrupt, the CPU time of a control group or a word of control hardware will get this
    /// value, before they do. Needs permission to read it.
    pub fn will_write(&mut self, path: &Path, after: &str) -> Result<(), JournalError> {
        let before = Setting::at(path).original()?;
        self.will(&Change::Setting { path: path.to_owned(), before, after: after.to_owned() })
    }

    /// Restores the threads of a process that is no longer managed, except what another process has changed since.
    pub fn put_back_process(&self, pid: Pid) -> PutBack {
        put_back::put_back_process(&self.record, pid)
    }

    /// Restores everything except what another process has changed since, and removes the file. It stays with what
    /// cannot be restored.
    pub fn restore(mut self) -> PutBack {
        let put_back = self.put_back();
        self.is_over = true;
        put_back
    }

    fn will(&mut self, change: &Change) -> Result<(), JournalError> {
        if self.record.has(change) {
            return Ok(());
        }
        if self.new_lines >= MOST_NEW_LINES {
            self.record.threads.retain(|thread, _| thread.is_there());
            self.write_anew()?;
        }
        self.append(&line(change))?;
        self.record.add(change);
        self.new_lines += 1;
        Ok(())
    }

    /// Compacts the file.
    fn write_anew(&mut self) -> Result<(), JournalError> {
        let lines = lines(&self.boot, &self.record);
        self.file = write_over(&self.folder, &self.name, &lines)?;
        (self.bytes, self.new_lines) = (lines.len() as u64, 0);
        Ok(())
    }

    fn append(&mut self, lines: &[u8]) -> Result<(), JournalError> {
        let written = self.file.write_all(lines);
        if written.is_err() {
            // A partial line must not become the beginning of the next one.
            let _ = self.file.set_len(self.bytes);
        }
        written.map_err(JournalError::system("write to", &self.path()))?;
        self.bytes += lines.len() as u64;
        Ok(())
    }

    fn put_back(&mut self) -> PutBack {
        let put_back = self.system.put_back(&std::mem::take(&mut self.record));
        // If the file cannot be removed or replaced, what it has besides is restored already and has no effect.
        if put_back.left.is_empty() {
            let _ = self.folder.remove(&self.name);
        } else {
            let _ = write_over(&self.folder, &self.name, &lines(&self.boot, &put_back.left));
        }
        put_back
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if !self.is_over {
            self.put_back();
        }
    }
}

fn number(process: Option<Pid>) -> String {
    process.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

/// A journal's header and the lines of a record.
fn lines(boot: &str, record: &JournalRecord) -> Vec<u8> {
    let header = Header { journal: FORMAT, boot: boot.to_owned(), pid: Pid(std::process::id()) };
    let mut lines = line(&header);
    record.changes().for_each(|change| lines.extend(line(&change)));
    lines
}

/// Replaces a journal by one with these lines, and locks it. A kill meanwhile leaves the old file whole, and the lines of
/// the new one agree with it.
fn write_over(folder: &PrivateFolder, name: &str, lines: &[u8]) -> Result<File, JournalError> {
    let new = format!("{name}-new");
    let file = folder::take(folder, &new)?;
    let written = file.set_len(0).and_then(|()| (&file).write_all(lines)).and_then(|()| folder.rename(&new, name));
    if written.is_err() {
        let _ = folder.remove(&new);
    }
    written.map_err(JournalError::system("write to", &folder.path().join(name)))?;
    Ok(file)
}
