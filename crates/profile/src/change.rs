//! The effect of each event.

use crate::ids::{ObjectId, ProcessId, ThreadId};
use crate::object::{Object, ObjectKind, PagePlacement};
use crate::ranges::{Piece, last};
use crate::space::{Mapping, MappingOf};
use crate::sweep::Sweep;
use crate::symbols::File;
use machine::{CpuId, Pid, Tid};
use std::sync::Arc;
use trace::{Event, StackId, What};

impl Sweep<'_> {
    pub(crate) fn apply(&mut self, event: &Event) {
        let Event { time_ns, pid, tid, cpu, what } = event;
        match what {
            What::ProcessStarted { parent } => self.start_process(*time_ns, *pid, *parent),
            What::ThreadStarted => self.start_thread(*time_ns, *pid, *tid),
            What::ThreadEnded => self.end_thread(*time_ns, *pid, *tid),
            What::Named { name, exec } => {
                let thread = self.thread(*pid, *tid);
                let process = self.threads[thread.index()].process;
                self.threads[thread.index()].name = Some(name.clone());
                if *exec || pid.0 == tid.0 {
                    self.processes[process.index()].name = Some(name.clone());
                }
                if *exec {
                    self.clear(process, *time_ns);
                }
            }
            What::Mapped { start, bytes, offset, name, file, .. } => {
                if let Some(last) = last(*start, *bytes) {
                    let file = File { name: name.clone(), identity: file.clone() };
                    let process = self.process(*pid);
                    self.map(process, (*time_ns, *start, last), *offset, &file);
                }
            }
            What::Unmapped { start, bytes } => {
                if let Some(last) = last(*start, *bytes) {
                    let process = self.process(*pid);
                    self.end_objects(process, *time_ns, *start, last);
                    let space = &mut self.spaces[process.index()];
                    Arc::make_mut(&mut space.mappings).cut(*start, last, |_| true);
                    space.mappings_changed();
                }
            }
            What::Remapped { old, old_bytes, start, bytes } => {
                let process = self.process(*pid);
                self.remap(process, *time_ns, (*old, *old_bytes), (*start, *bytes));
            }
            What::Untold { start, bytes } => {
                if let (Some(&process), Some(last)) = (self.process_ids.get(pid), last(*start, *bytes)) {
                    self.forget(process, *time_ns, *start, last);
                }
            }
            What::Allocated { address, bytes, stack } => {
                let site = (self.thread(*pid, *tid), *cpu, *stack);
                self.allocate(*time_ns, *address, *bytes, site);
            }
            What::Counted { objects, bytes, stack } => {
                let process = self.process(*pid);
                let chain = self.chain(process, *stack);
                let (known, sum) = self.counted.entry(chain).or_default();
                *known = known.saturating_add(*objects);
                *sum = sum.saturating_add(*bytes);
            }
            What::Resized { address, bytes } => {
                let process = self.process(*pid);
                if let Some(object) = self.live_at(process, *address, *time_ns) {
                    self.remove(process, object);
                    self.spaces[process.index()].changes += 1;
                    let known = &mut self.objects[object.index()];
                    known.bytes = known.bytes.max(*bytes);
                    self.place(process, *time_ns, *address, *bytes, object);
                }
            }
            What::Freed { address } => {
                let thread = self.thread(*pid, *tid);
                self.free(*time_ns, thread, *address);
            }
            What::PagePlaced { address, bytes, node, from } => {
                let process = self.process(*pid);
                let placed = PagePlacement {
                    time_ns: *time_ns,
                    process,
                    address: *address,
                    bytes: *bytes,
                    node: *node,
                    from: *from,
                };
                self.placements.push(placed);
                self.spaces[process.index()].pages.insert(*address, (address.saturating_add(*bytes), *node));
            }
        }
    }

    fn start_thread(&mut self, time_ns: u64, pid: Pid, tid: Tid) {
        let process = self.process(pid);
        let known = self.thread_ids.get(&(process, tid)).map(|thread| &mut self.threads[thread.index()]);
        match known {
            Some(thread) if thread.until_ns.is_none() => thread.from_ns = thread.from_ns.or(Some(time_ns)),
            _ => {
                self.add_thread(process, tid, Some(time_ns));
            }
        }
    }

    fn free(&mut self, time_ns: u64, thread: ThreadId, address: u64) {
        let process = self.threads[thread.index()].process;
        if let Some(object) = self.live_at(process, address, time_ns) {
            let known = &self.objects[object.index()];
            // This is the end of an earlier object: another thread allocated the address in the same
            // nanosecond, and its event came first.
            let before = known.from_ns == time_ns && known.allocated_by != Some(thread);
            if !before {
                self.remove(process, object);
                self.objects[object.index()].until_ns = Some(time_ns);
            }
        }
    }

    fn allocate(&mut self, time_ns: u64, start: u64, bytes: u64, site: (ThreadId, Option<CpuId>, StackId)) {
        let (thread, allocated_on, stack) = site;
        let process = self.threads[thread.index()].process;
        // What the program itself maps is also a file; parts of files mapped by the loader are not.
        let mapped = self.spaces[process.index()].mappings.get(start).filter(|piece| piece.first == start);
        let file = mapped.and_then(|piece| match self.mappings[piece.value as usize].of {
            MappingOf::File(file) => Some(file),
            MappingOf::Stack | MappingOf::Memory => None,
        });
        let object = Object {
            process,
            kind: if file.is_some() { ObjectKind::MappedFile } else { ObjectKind::Heap },
            name: file.map(|file| self.codes.files[file.index()].name.clone()),
            file,
            start,
            bytes,
            from_ns: time_ns,
            until_ns: None,
            site: self.chain(process, stack),
            allocated_by: Some(thread),
            allocated_on,
        };
        let id = ObjectId(self.objects.len() as u32);
        self.objects.push(object);
        self.place(process, time_ns, start, bytes, id);
    }

    fn map(&mut self, process: ProcessId, (time_ns, start, last): (u64, u64, u64), offset: u64, file: &File) {
        let name = &*file.name;
        let memory = ["//anon", "[heap", "[anon", "/anon_hugepage"];
        let of = if name.starts_with("[stack") || name.contains("pthread stack") {
            MappingOf::Stack
        } else if name.is_empty() || memory.iter().any(|memory| name.starts_with(memory)) {
            MappingOf::Memory
        } else {
            MappingOf::File(self.codes.file(file))
        };
        // The kernel reports a mapping again when its rights change or when it grows.
        let again = |mapping: &Mapping| {
            mapping.of == of
                && mapping.name == file.name
                && (of == MappingOf::Memory || offset.wrapping_sub(start) == mapping.offset.wrapping_sub(mapping.start))
        };
        let (from, to) = (start.saturating_sub(1), last.saturating_add(1));
        let known = self.spaces[process.index()].mappings.overlapping(from, to);
        let known = known.into_iter().map(|piece| piece.value).find(|&known| again(&self.mappings[known as usize]));
        let number = if let Some(number) = known {
            let mapping = &mut self.mappings[number as usize];
            let end = mapping.start.saturating_add(mapping.bytes).max(last.saturating_add(1));
            if start < mapping.start {
                (mapping.start, mapping.offset) = (start, offset);
            }
            mapping.bytes = end - mapping.start;
            number
        } else {
            // Memory that is reported again, as part of a larger mapping, keeps its objects: an unmap would have been
            // reported.
            if of != MappingOf::Memory {
                self.end_objects(process, time_ns, start, last);
            }
            let bytes = (last - start).saturating_add(1);
            self.mappings.push(Mapping { start, bytes, offset, name: file.name.clone(), of });
            self.mappings.len() as u32 - 1
        };
        let space = &mut self.spaces[process.index()];
        Arc::make_mut(&mut space.mappings).insert(start, last, number);
        space.mappings_changed();
    }

    /// Moves mappings from the old addresses to the new ones. If the addresses are the same, the object that begins
    /// there stays.
    fn remap(&mut self, process: ProcessId, time_ns: u64, (old, old_bytes): (u64, u64), (start, bytes): (u64, u64)) {
        let space = &mut self.spaces[process.index()];
        let known = space.mappings.get(old).map(|piece| self.mappings[piece.value as usize].clone());
        let known = known.unwrap_or_else(|| Mapping {
            start: old,
            bytes: old_bytes,
            offset: 0,
            name: self.unnamed.clone(),
            of: MappingOf::Memory,
        });
        let kept = if old == start { bytes } else { 0 };
        let gone =
            last(old.saturating_add(kept), old_bytes.saturating_sub(kept)).map(|last| (old.saturating_add(kept), last));
        let had = last(start, bytes).filter(|_| old != start).map(|last| (start, last));
        for (first, last) in gone.into_iter().chain(had) {
            self.end_objects(process, time_ns, first, last);
            let space = &mut self.spaces[process.index()];
            Arc::make_mut(&mut space.mappings).cut(first, last, |_| true);
        }
        let space = &mut self.spaces[process.index()];
        if let Some(last) = last(start, bytes) {
            let offset = known.offset.wrapping_add(old.wrapping_sub(known.start));
            self.mappings.push(Mapping { start, bytes, offset, ..known });
            Arc::make_mut(&mut space.mappings).insert(start, last, self.mappings.len() as u32 - 1);
        }
        space.mappings_changed();
    }

    /// Drops objects that overlap these addresses, as a whole.
    fn forget(&mut self, process: ProcessId, time_ns: u64, from: u64, to: u64) {
        let found = self.spaces[process.index()].objects.overlapping(from, to);
        for Piece { value, .. } in found {
            let Object { start, bytes, .. } = self.objects[value.index()];
            let Some(end) = last(start, bytes) else { continue };
            let space = &mut self.spaces[process.index()];
            Arc::make_mut(&mut space.objects).cut(start, end, |other| *other == value);
            space.changes += 1;
            self.note_cut(process, time_ns, &[value]);
        }
    }

    /// Removes these addresses from allocated objects. Objects without any left have ended.
    fn end_objects(&mut self, process: ProcessId, time_ns: u64, first: u64, last: u64) {
        let cut = Arc::make_mut(&mut self.spaces[process.index()].objects).cut(first, last, |_| true);
        self.note_cut(process, time_ns, &cut);
    }

    fn place(&mut self, process: ProcessId, time_ns: u64, start: u64, bytes: u64, object: ObjectId) {
        let Some(last) = last(start, bytes) else { return };
        let cut = Arc::make_mut(&mut self.spaces[process.index()].objects).insert(start, last, object);
        self.note_cut(process, time_ns, &cut);
    }

    fn note_cut(&mut self, process: ProcessId, time_ns: u64, cut: &[ObjectId]) {
        let space = &mut self.spaces[process.index()];
        for &id in cut {
            let own = space.copies.get(&id).copied().unwrap_or(id);
            let object = &mut self.objects[own.index()];
            let end = object.start.saturating_add(object.bytes.saturating_sub(1));
            let left = space.objects.overlapping(object.start, end).iter().any(|piece| piece.value == id);
            if left {
                space.changes += 1;
            } else if object.process == process {
                object.until_ns = Some(time_ns);
            }
        }
    }

    /// The process's own object that begins at an address; in a fork, a copy of its parent's.
    pub(crate) fn live_at(&mut self, process: ProcessId, address: u64, time_ns: u64) -> Option<ObjectId> {
        let piece = self.allocated(process, address, time_ns)?;
        (self.objects[piece.value.index()].start == address).then_some(piece.value)
    }

    /// Removes an object's addresses, and those of the parent's object that it is a copy of.
    fn remove(&mut self, process: ProcessId, object: ObjectId) {
        let space = &mut self.spaces[process.index()];
        let Object { start, bytes, .. } = self.objects[object.index()];
        let Some(last) = last(start, bytes) else { return };
        let copies = &space.copies;
        let is = |other: &ObjectId| *other == object || copies.get(other) == Some(&object);
        Arc::make_mut(&mut space.objects).cut(start, last, is);
    }
}
