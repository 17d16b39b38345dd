//! Whether a grant still has its CPUs and nodes: the kernel makes a partition invalid as soon as another control group gets
//! one of its CPUs, or they go offline. The kernel does not notify the process that made the partition: neither of this, nor
//! of other processes that change or remove the group, nor of nodes that go offline.

use crate::grants::{MEMORY_NOW, Shape};
use linux::{CgroupGroup, Partition};
use machine::system_words;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between two tries to make an invalid partition again, and between two looks at what the kernel does not tell.
const RETRY: Duration = Duration::from_secs(1);
/// A look that is due this soon is made now: one look for all grants.
const SOON: Duration = Duration::from_millis(100);
/// Longest state, in bytes: a word and the kernel's reason.
const MOST_BYTES: usize = 4096;

/// The partitions of a grant.
#[derive(Debug, Default)]
pub struct Watch {
    partitions: Vec<Watched>,
    /// The files of its group, and what they must have.
    values: Vec<(PathBuf, String)>,
    /// When to look at them.
    next: Option<Instant>,
    /// What was wrong with them at the last look.
    changed: Option<String>,
    /// Why its CPUs or nodes are not its own any more, and when its partitions are made again.
    lost: Option<(String, Instant)>,
}

#[derive(Debug)]
struct Watched {
    group: CgroupGroup,
    kind: Partition,
    /// Polling it ends when the state changes after it was read.
    state: File,
}

impl Watch {
    /// That of a zone.
    pub(crate) fn of_zone(group: &CgroupGroup) -> io::Result<Self> {
        let state = File::open(group.folder().join("cpuset.cpus.partition"))?;
        let partitions = vec![Watched { group: group.clone(), kind: Partition::Root, state }];
        Ok(Self { partitions, ..Self::default() })
    }

    /// Those of a grant's group and of the group of the CPUs that idle for it, as its shape has them.
    pub(crate) fn new(group: &CgroupGroup, idle: CgroupGroup, shape: &Shape) -> io::Result<Self> {
        let mut watch = Self::default();
        watch.follow(group, idle, shape)?;
        Ok(watch)
    }

    /// The same for another shape.
    pub(crate) fn follow(&mut self, group: &CgroupGroup, idle: CgroupGroup, shape: &Shape) -> io::Result<()> {
        let own = shape.partition.map(|kind| (group.clone(), kind));
        let idle = (!shape.idle.is_empty()).then_some((idle, Partition::Isolated));
        let watched = |(group, kind): (CgroupGroup, Partition)| {
            Ok(Watched { state: File::open(group.folder().join("cpuset.cpus.partition"))?, group, kind })
        };
        self.partitions = own.into_iter().chain(idle).map(watched).collect::<io::Result<_>>()?;
        let cpus = shape.cpus.iter().map(|cpus| (group.folder().join("cpuset.cpus"), cpus.to_string()));
        self.values = cpus.chain([(group.folder().join(MEMORY_NOW), shape.nodes.to_string())]).collect();
        (self.next, self.changed, self.lost) = (Some(Instant::now() + RETRY), None, None);
        Ok(())
    }

    /// Files that are ready for `PRI` when [`look`](Self::look) finds something new. None while a partition is lost: the
    /// file of a removed group is always ready, and [`next`](Self::next) says when to look.
    pub fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.partitions.iter().filter(|_| self.lost.is_none()).map(|watched| watched.state.as_fd())
    }

    /// When to look, although no file is ready.
    pub fn next(&self) -> Option<Instant> {
        self.lost.iter().map(|(_, retry)| *retry).chain(self.next).min()
    }

    /// Why its CPUs or nodes are not its own any more.
    pub fn lost(&self) -> Option<&str> {
        self.lost.as_ref().map(|(why, _)| why.as_str())
    }

    /// Reads the states, and makes again what is invalid, at most once a second. Returns a sentence if one was lost or all
    /// are back.
    pub fn look(&mut self, now: Instant) -> Option<String> {
        if self.next.is_some_and(|next| next <= now + SOON) {
            self.next = Some(now + RETRY);
            self.changed = self.values.iter().find_map(|(file, wanted)| changed(file, wanted));
        }
        if self.lost.as_ref().is_some_and(|(_, retry)| *retry <= now) {
            for watched in self.partitions.iter().filter(|watched| watched.lost().is_some()) {
                // Its state says why it still is none.
                let _ = watched.group.make_partition(watched.kind);
            }
            self.lost.iter_mut().for_each(|(_, retry)| *retry = now + RETRY);
        }
        // All are read: a file stays ready until it is.
        let lost: Vec<String> = self.partitions.iter().filter_map(Watched::lost).collect();
        let lost = lost.into_iter().next().or_else(|| self.changed.clone());
        match (&self.lost, lost) {
            (None, Some(why)) => {
                let said = format!("its CPUs or nodes are not its own any more, until they can be again: {why}");
                self.lost = Some((why, now + RETRY));
                Some(said)
            }
            (Some(_), None) => {
                self.lost = None;
                Some("its CPUs and nodes are its own again".to_owned())
            }
            _ => None,
        }
    }
}

impl Watched {
    /// Why it is no partition; none if it is one.
    fn lost(&self) -> Option<String> {
        let mut text = vec![0; MOST_BYTES];
        let state = self.state.read_at(&mut text, 0).map(|bytes| String::from_utf8_lossy(&text[..bytes]).into_owned());
        let path = self.group.folder().display();
        match state.as_deref().map(str::trim_end) {
            Ok(state) if state == self.kind.name() => None,
            Ok(state) => Some(format!("{path}/cpuset.cpus.partition is `{state}`")),
            Err(error) => Some(format!("cannot read {path}/cpuset.cpus.partition: {error}")),
        }
    }
}

/// What is wrong with a file that must have this text.
fn changed(file: &Path, wanted: &str) -> Option<String> {
    match fs::read_to_string(file) {
        Ok(text) if text.trim() == wanted => None,
        Ok(text) => Some(format!("{} is `{}`, and was {wanted}", file.display(), text.trim())),
        Err(error) => Some(format!("cannot read {}: {}", file.display(), system_words(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with the file of a partition, as the kernel would have it but for its rules.
    #[test]
    fn a_lost_partition_is_said_once_tried_again_and_said_to_be_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cpuset.cpus.partition");
        let set = |state: &str| fs::write(&file, state).unwrap();
        set("root\n");
        let group = CgroupGroup::at(folder.path().to_owned());
        let watched = Watched { state: File::open(&file).unwrap(), group, kind: Partition::Root };
        let mut watch = Watch { partitions: vec![watched], ..Watch::default() };
        let began = Instant::now();
        assert_eq!((watch.look(began), watch.next()), (None, None));
        set("root invalid (Cpu list in cpuset.cpus not exclusive)\n");
        let said = watch.look(began).unwrap();
        assert!(said.ends_with("is `root invalid (Cpu list in cpuset.cpus not exclusive)`"), "{said}");
        assert_eq!((watch.look(began), watch.next()), (None, Some(began + RETRY)));
        assert_eq!(watch.files().count(), 0, "polling them would not wait");
        assert_eq!(watch.look(began + RETRY).unwrap(), "its CPUs and nodes are its own again");
        assert_eq!((watch.next(), fs::read_to_string(&file).unwrap().as_str()), (None, "root"));
        assert_eq!(watch.files().count(), 1);
    }

    #[test]
    fn what_others_change_or_remove_is_seen_within_a_second() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(MEMORY_NOW);
        let set = |nodes: &str| fs::write(&file, nodes).unwrap();
        set("0-1\n");
        let began = Instant::now();
        let values = vec![(file.clone(), "0-1".to_owned())];
        let mut watch = Watch { values, next: Some(began), ..Watch::default() };
        assert_eq!((watch.look(began), watch.next()), (None, Some(began + RETRY)));
        set("1\n");
        assert_eq!(watch.look(began), None, "it is looked at once a second");
        let said = watch.look(began + RETRY).unwrap();
        assert!(said.ends_with("cpuset.mems.effective is `1`, and was 0-1") && watch.lost().is_some(), "{said}");
        set("0-1\n");
        assert_eq!(watch.look(began + 2 * RETRY).unwrap(), "its CPUs and nodes are its own again");
        fs::remove_file(&file).unwrap();
        let said = watch.look(began + 3 * RETRY).unwrap();
        assert!(said.contains("cannot read") && said.ends_with("there is no such file or folder"), "{said}");
    }
}
