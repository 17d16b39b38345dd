//! The mappings of each process, rebuilt from events.

use crate::{Event, FileIdentity, What};
use machine::{Pid, Tid};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The mappings of all processes, as of the last event taken.
#[derive(Clone, Debug, Default)]
pub struct AddressSpaces {
    processes: HashMap<Pid, Space>,
}

/// The mappings of a process.
#[derive(Clone, Debug, Default)]
struct Space {
    /// By first address. A forked process shares them with its parent until either changes its own.
    parts: Arc<BTreeMap<u64, Part>>,
    /// The threads that were seen to start and not to end.
    threads: HashSet<Tid>,
    has_first_ended: bool,
}

/// A mapping, as it was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// First address.
    pub start: u64,
    /// Length, in bytes.
    pub bytes: u64,
    /// Offset of its start in the file, in bytes.
    pub offset: u64,
    /// Path of the file, or the kernel's name; empty for anonymous memory.
    pub name: Arc<str>,
    /// Identity of the file.
    pub file: Option<FileIdentity>,
    /// Whether it is executable.
    pub executable: bool,
}

/// The remaining part of a mapping; later mappings may have replaced other parts.
#[derive(Clone, Debug)]
struct Part {
    end: u64,
    mapped: Arc<MappedFile>,
}

impl AddressSpaces {
    /// Takes an event. Events that do not concern mappings change nothing.
    pub fn take(&mut self, event: &Event) {
        match &event.what {
            What::ProcessStarted { parent } => {
                let parent = parent.and_then(|parent| self.processes.get(&parent));
                let parts = parent.map(|parent| parent.parts.clone()).unwrap_or_default();
                self.processes.insert(event.pid, Space { parts, ..Space::of_first_thread(event.pid) });
            }
            What::ThreadStarted => {
                self.processes.entry(event.pid).or_default().threads.insert(event.tid);
            }
            What::ThreadEnded => self.end_thread(event.pid, event.tid),
            What::Named { exec: true, .. } => {
                self.processes.insert(event.pid, Space::of_first_thread(event.pid));
            }
            // An empty range maps nothing.
            What::Mapped { bytes: 0, .. } | What::Unmapped { bytes: 0, .. } => {}
            What::Mapped { start, bytes, offset, name, file, executable } => {
                let parts = self.parts_of(event.pid);
                let end = start.saturating_add(*bytes);
                unmap(parts, *start, end);
                let (name, file) = (name.clone(), file.clone());
                let (start, bytes, offset, executable) = (*start, *bytes, *offset, *executable);
                let mapped = Arc::new(MappedFile { start, bytes, offset, name, file, executable });
                parts.insert(start, Part { end, mapped });
            }
            What::Unmapped { start, bytes } => {
                if let Some(space) = self.processes.get_mut(&event.pid) {
                    unmap(Arc::make_mut(&mut space.parts), *start, start.saturating_add(*bytes));
                }
            }
            What::Remapped { old, old_bytes, start, bytes } => {
                let parts = self.parts_of(event.pid);
                let before = parts.range(..=*old).next_back().filter(|(_, part)| *old < part.end);
                let before = before.map(|(_, part)| (*part.mapped).clone());
                unmap(parts, *old, old.saturating_add(*old_bytes));
                unmap(parts, *start, start.saturating_add(*bytes));
                if let Some(before) = before.filter(|_| *bytes != 0) {
                    let offset = before.offset.wrapping_add(old.wrapping_sub(before.start));
                    let mapped = Arc::new(MappedFile { start: *start, bytes: *bytes, offset, ..before });
                    parts.insert(*start, Part { end: start.saturating_add(*bytes), mapped });
                }
            }
            _ => {}
        }
    }

    fn parts_of(&mut self, pid: Pid) -> &mut BTreeMap<u64, Part> {
        Arc::make_mut(&mut self.processes.entry(pid).or_default().parts)
    }

    /// Forgets a process whose last thread has ended. Threads that were there before the recording may still run: only the
    /// end of the first one shows that none does.
    fn end_thread(&mut self, pid: Pid, tid: Tid) {
        let Some(space) = self.processes.get_mut(&pid) else { return };
        space.threads.remove(&tid);
        space.has_first_ended |= tid == Tid(pid.0);
        if space.threads.is_empty() && space.has_first_ended {
            self.processes.remove(&pid);
        }
    }

    /// Returns the mapping at an address of a process. Anonymous memory right behind a file counts as the file's: it
    /// holds the zero-initialized variables.
    pub fn find(&self, pid: Pid, address: u64) -> Option<&Arc<MappedFile>> {
        let parts = &self.processes.get(&pid)?.parts;
        let part = |address: u64| parts.range(..=address).next_back().filter(|(_, part)| address < part.end);
        let (start, found) = part(address)?;
        if !found.mapped.name.is_empty() {
            return Some(&found.mapped);
        }
        let before = start.checked_sub(1).and_then(part).map(|(_, part)| &part.mapped);
        before.filter(|before| before.file.is_some()).or(Some(&found.mapped))
    }
}

impl Space {
    fn of_first_thread(pid: Pid) -> Self {
        Self { threads: HashSet::from([Tid(pid.0)]), ..Self::default() }
    }
}

/// Removes a range from the mappings.
fn unmap(parts: &mut BTreeMap<u64, Part>, start: u64, end: u64) {
    let overlapping = |(first, part): (&u64, &Part)| (part.end > start).then_some(*first);
    // Parts do not overlap, so those that overlap the range are adjacent.
    let firsts: Vec<u64> = parts.range(..end).rev().map_while(overlapping).collect();
    for first in firsts {
        let Some(part) = parts.remove(&first) else { continue };
        if part.end > end {
            parts.insert(end, part.clone());
        }
        if first < start {
            parts.insert(first, Part { end: start, ..part });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Tid;
    use proptest::prelude::*;

    fn event(pid: u32, what: What) -> Event {
        Event { time_ns: 0, pid: Pid(pid), tid: Tid(pid), cpu: None, what }
    }

    fn mapped(start: u64, bytes: u64, name: &str) -> What {
        let file = name.starts_with('/').then_some(FileIdentity { build_id: None, inode: 1 });
        What::Mapped { start, bytes, offset: 0, name: name.into(), file, executable: false }
    }

    fn name(spaces: &AddressSpaces, pid: u32, address: u64) -> Option<&str> {
        spaces.find(Pid(pid), address).map(|mapped| &*mapped.name)
    }

    #[test]
    fn what_moves_takes_its_file_along() {
        let mut spaces = AddressSpaces::default();
        spaces.take(&event(1, mapped(0x1000, 0x3000, "/a")));
        spaces.take(&event(1, What::Remapped { old: 0x2000, old_bytes: 0x1000, start: 0x9000, bytes: 0x4000 }));
        let at = |address| spaces.find(Pid(1), address).map(|mapped| (&*mapped.name, mapped.start, mapped.offset));
        assert_eq!([at(0x1000), at(0x3000)], [Some(("/a", 0x1000, 0)); 2]);
        assert_eq!((at(0x2000), at(0xc000)), (None, Some(("/a", 0x9000, 0x1000))));
    }

    #[test]
    fn mappings_replace_each_other_and_go_with_their_process() {
        let mut spaces = AddressSpaces::default();
        for what in [mapped(0x1000, 0x4000, "/a"), mapped(0x2000, 0x1000, "/b")] {
            spaces.take(&event(1, what));
        }
        let names = [0xfff, 0x1000, 0x2000, 0x3000, 0x4fff, 0x5000].map(|address| name(&spaces, 1, address));
        assert_eq!(names, [None, Some("/a"), Some("/b"), Some("/a"), Some("/a"), None]);
        spaces.take(&event(2, What::ProcessStarted { parent: Some(Pid(1)) }));
        spaces.take(&event(1, What::Unmapped { start: 0x1800, bytes: 0x1000 }));
        assert_eq!([0x1000, 0x1800, 0x2800].map(|address| name(&spaces, 1, address)), [Some("/a"), None, Some("/b")]);
        assert_eq!(name(&spaces, 2, 0x1800), Some("/a"));
        spaces.take(&event(2, What::Named { name: "x".into(), exec: true }));
        assert_eq!(name(&spaces, 2, 0x1800), None);
    }

    #[test]
    fn a_process_is_forgotten_when_its_last_thread_has_ended() {
        let mut spaces = AddressSpaces::default();
        let of_thread = |tid: u32, what| Event { tid: Tid(tid), ..event(1, what) };
        let is_known = |spaces: &AddressSpaces| name(spaces, 1, 0x1000).is_some();
        // Of a process that ran before the recording, the first thread may be the last.
        spaces.take(&event(1, mapped(0x1000, 0x1000, "/a")));
        spaces.take(&of_thread(7, What::ThreadEnded));
        assert!(is_known(&spaces));
        spaces.take(&of_thread(1, What::ThreadEnded));
        assert!(!is_known(&spaces) && spaces.processes.is_empty());
        spaces.take(&of_thread(1, What::ProcessStarted { parent: None }));
        spaces.take(&event(1, mapped(0x1000, 0x1000, "/a")));
        spaces.take(&of_thread(7, What::ThreadStarted));
        // As two sources report it.
        (0..2).for_each(|_| spaces.take(&of_thread(1, What::ThreadEnded)));
        assert!(is_known(&spaces));
        spaces.take(&of_thread(7, What::ThreadEnded));
        assert!(spaces.processes.is_empty());
    }

    #[test]
    fn memory_behind_a_file_is_the_files() {
        let mut spaces = AddressSpaces::default();
        let maps = [mapped(0x1000, 0x1000, "/a"), mapped(0x2000, 0x1000, ""), mapped(0x9000, 0x1000, "")];
        for what in maps {
            spaces.take(&event(1, what));
        }
        assert_eq!([0x2fff, 0x9000].map(|address| name(&spaces, 1, address)), [Some("/a"), Some("")]);
    }

    proptest! {
        /// Compared with a naive model: one name per byte.
        #[test]
        fn what_is_found_was_mapped_last(
            maps in prop::collection::vec((0..64_u64, 0..32_u64, prop::option::of("/[a-z]")), 0..30),
        ) {
            let mut spaces = AddressSpaces::default();
            let mut bytes: Vec<Option<String>> = vec![None; 128];
            for (start, length, name) in maps {
                let what = match &name {
                    Some(name) => mapped(start, length, name),
                    None => What::Unmapped { start, bytes: length },
                };
                spaces.take(&event(1, what));
                bytes[start as usize..(start + length) as usize].fill(name);
            }
            for (address, expected) in bytes.iter().enumerate() {
                prop_assert_eq!(name(&spaces, 1, address as u64), expected.as_deref());
            }
        }
    }
}
