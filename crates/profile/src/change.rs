//! The effect of each event.

use crate::ids::{FileId, ObjectId, ProcessId, ThreadId};
use crate::object::{Object, ObjectKind, PagePlacement};
use crate::page_allocations::PageAllocation;
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
            What::Named { name, exec } => self.name(*time_ns, (*pid, *tid), name, *exec),
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
                    space.forget_pages(*start, last.saturating_add(1));
                    space.mappings_changed();
                }
            }
            What::Remapped { old, old_bytes, start, bytes } => {
                let process = self.process(*pid);
                self.remap(process, *time_ns, (*old, *old_bytes), (*start, *bytes));
            }
            What::Invalidated { start, bytes } => {
                if let (Some(&process), Some(last)) = (self.process_ids.get(pid), last(*start, *bytes)) {
                    self.forget(process, *time_ns, *start, last);
                }
            }
            What::Allocated { address, bytes, stack } => {
                let site = (self.thread(*pid, *tid), *cpu, *stack);
                self.allocate(*time_ns, *address, *bytes, site);
            }
            What::Announced { address, bytes, stack, name } => {
                let site = (self.thread(*pid, *tid), *cpu, *stack);
                self.announce(*time_ns, *address, *bytes, site, name.as_ref());
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
                if let Some(found) = self.live_at(process, *address, *time_ns, false) {
                    self.resize(process, *time_ns, found, *bytes);
                }
            }
            What::Freed { address } => {
                let thread = self.thread(*pid, *tid);
                self.free(*time_ns, thread, *address, false);
            }
            What::Withdrawn { address } => {
                let thread = self.thread(*pid, *tid);
                self.free(*time_ns, thread, *address, true);
            }
            What::PagePlaced { address, bytes, node, from } => {
                let (time_ns, process, address, bytes) = (*time_ns, self.process(*pid), *address, *bytes);
                let (node, from) = (*node, *from);
                self.placements.push(PagePlacement { time_ns, process, address, bytes, node, from });
                self.spaces[process.index()].place(address, bytes, node);
            }
            What::FramesAllocated { physical, bytes } => {
                let (time_ns, process, cpu) = (*time_ns, self.process(*pid), *cpu);
                let (physical, bytes) = (*physical, *bytes);
                self.allocations.push(PageAllocation { time_ns, process, cpu, physical, bytes, address: None });
            }
        }
    }

    /// A thread has a new name, and another program if it is of an `exec`.
    fn name(&mut self, time_ns: u64, (pid, tid): (Pid, Tid), name: &Arc<str>, exec: bool) {
        let process = self.process(pid);
        if exec {
            self.end_others(time_ns, process, tid);
        }
        let thread = self.thread(pid, tid);
        self.threads[thread.index()].name = Some(name.clone());
        if exec || pid.0 == tid.0 {
            self.processes[process.index()].name = Some(name.clone());
        }
        if exec {
            self.clear(process, time_ns);
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

    /// Ends an object. An allocator without `free` of its own may free what it announced, so `free` ends an announced
    /// object where no block begins; what ends an announcement never ends a block.
    fn free(&mut self, time_ns: u64, thread: ThreadId, address: u64, announced: bool) {
        let process = self.threads[thread.index()].process;
        let mut found = self.live_at(process, address, time_ns, announced);
        if found.is_none() && !announced {
            found = self.live_at(process, address, time_ns, true);
        }
        let Some((depth, Piece { value: object, .. })) = found else { return };
        let known = &self.objects[object.index()];
        // This is the end of an earlier object: another thread allocated the address in the same
        // nanosecond, and its event came first.
        let before = known.from_ns == time_ns && known.allocated_by != Some(thread);
        if !before {
            self.remove(process, time_ns, depth, object);
            self.objects[object.index()].until_ns = Some(time_ns);
        }
    }

    fn allocate(&mut self, time_ns: u64, start: u64, bytes: u64, site: (ThreadId, Option<CpuId>, StackId)) {
        let object = self.new_object(time_ns, start, bytes, site);
        // What the program itself maps is also a file; parts of files mapped by the loader are not.
        let mapped = self.spaces[object.process.index()].mappings.get(start).filter(|piece| piece.first == start);
        let file = mapped.and_then(|piece| match self.mappings[piece.value as usize].of {
            MappingOf::File(file) => Some(file),
            MappingOf::Stack | MappingOf::Memory => None,
        });
        let kind = if file.is_some() { ObjectKind::MappedFile } else { ObjectKind::Heap };
        let name = file.map(|file| self.codes.files[file.index()].name.clone());
        self.begin(Object { kind, name, file, ..object });
    }

    fn announce(
        &mut self,
        time_ns: u64,
        start: u64,
        bytes: u64,
        site: (ThreadId, Option<CpuId>, StackId),
        name: Option<&Arc<str>>,
    ) {
        let kind = if name.is_some() { ObjectKind::Region } else { ObjectKind::Heap };
        let object = self.new_object(time_ns, start, bytes, site);
        // Without a CPU it is the recorder that found it, in a process that was already there.
        let allocated_by = object.allocated_by.filter(|_| object.allocated_on.is_some());
        self.begin(Object { kind, name: name.cloned(), announced: true, allocated_by, ..object });
    }

    /// An object of the heap that begins now.
    fn new_object(
        &mut self,
        from_ns: u64,
        start: u64,
        bytes: u64,
        (thread, allocated_on, stack): (ThreadId, Option<CpuId>, StackId),
    ) -> Object {
        let process = self.threads[thread.index()].process;
        Object {
            process,
            kind: ObjectKind::Heap,
            name: None,
            file: None,
            start,
            bytes,
            from_ns,
            until_ns: None,
            site: self.chain(process, stack),
            allocated_by: Some(thread),
            allocated_on,
            announced: false,
        }
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
        // The kernel reports a mapping again when its rights change or when it grows. The library does not identify files.
        let has_identity = |file: FileId| self.codes.files[file.index()].identity.is_some();
        let is_same = |known: MappingOf| match (known, of) {
            (MappingOf::File(known), MappingOf::File(now)) => {
                known == now || !(has_identity(known) && has_identity(now))
            }
            _ => known == of,
        };
        let again = |mapping: &Mapping| {
            is_same(mapping.of)
                && mapping.name == file.name
                && (of == MappingOf::Memory || offset.wrapping_sub(start) == mapping.offset.wrapping_sub(mapping.start))
        };
        let (from, to) = (start.saturating_sub(1), last.saturating_add(1));
        let known = self.spaces[process.index()].mappings.overlapping(from, to);
        let known = known.into_iter().map(|piece| piece.value).find(|&known| again(&self.mappings[known as usize]));
        let number = if let Some(number) = known {
            let mapping = &mut self.mappings[number as usize];
            if file.identity.is_some() {
                mapping.of = of;
            }
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
            space.forget_pages(first, last.saturating_add(1));
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
        let found: Vec<_> = self.spaces[process.index()].objects.overlapping(from, to).collect();
        for (_, Piece { value, .. }) in found {
            let Object { start, bytes, .. } = self.objects[value.index()];
            let Some(end) = last(start, bytes) else { continue };
            let space = &mut self.spaces[process.index()];
            Arc::make_mut(&mut space.objects).cut(start, end, |_, other| other.value == value);
            space.changes += 1;
            self.note_cut(process, time_ns, &[value]);
        }
    }

    /// Removes these addresses from allocated objects. Objects without any left have ended.
    fn end_objects(&mut self, process: ProcessId, time_ns: u64, first: u64, last: u64) {
        let cut = Arc::make_mut(&mut self.spaces[process.index()].objects).cut(first, last, |_, _| true);
        self.note_cut(process, time_ns, &cut);
    }

    /// Adds an object and its addresses. It is inside of the larger objects that contain all of it. Other objects lose
    /// these addresses, because their end was not recorded; only those that are announced do so if the object is
    /// announced, as it may be anything within blocks.
    fn begin(&mut self, object: Object) {
        let Object { process, start, bytes, from_ns, announced, .. } = object;
        let id = ObjectId(self.objects.len() as u32);
        self.objects.push(object);
        let Some(last) = last(start, bytes) else { return };
        let objects = &self.objects;
        let space = &mut self.spaces[process.index()];
        let layers = Arc::make_mut(&mut space.objects);
        let cut = layers.cut(start, last, |_, piece| {
            !is_within((start, last), piece) && (!announced || objects[piece.value.index()].announced)
        });
        if layers.put(start, last, id) {
            space.changes += 1;
        }
        self.note_cut(process, from_ns, &cut);
    }

    /// Gives a block another size. What is inside of it stays, as far as it is in both.
    fn resize(&mut self, process: ProcessId, time_ns: u64, (depth, piece): (usize, Piece<ObjectId>), bytes: u64) {
        let object = piece.value;
        let known = &mut self.objects[object.index()];
        let start = known.start;
        let most = last(start, known.bytes).unwrap_or(start);
        known.bytes = known.bytes.max(bytes);
        let space = &mut self.spaces[process.index()];
        space.changes += 1;
        let (layers, copies) = (Arc::make_mut(&mut space.objects), &space.copies);
        let is = |piece: &Piece<ObjectId>| piece.value == object || copies.get(&piece.value) == Some(&object);
        layers.cut(start, most, |at, piece| at == depth && is(piece));
        let now = last(start, bytes);
        let kept = now.map_or(start, |now| now.saturating_add(1));
        let mut cut = Vec::new();
        if kept <= piece.last {
            cut = layers.cut(kept, piece.last, |at, _| at > depth);
        }
        if let Some(now) = now {
            if piece.last < now {
                cut = layers.cut(piece.last + 1, now, |at, other| at == depth || !is_within((start, now), other));
            }
            layers.put_at(depth, start, now, object);
        }
        self.note_cut(process, time_ns, &cut);
    }

    fn note_cut(&mut self, process: ProcessId, time_ns: u64, cut: &[ObjectId]) {
        let space = &mut self.spaces[process.index()];
        for &id in cut {
            let own = space.copies.get(&id).copied().unwrap_or(id);
            let object = &mut self.objects[own.index()];
            let end = object.start.saturating_add(object.bytes.saturating_sub(1));
            let left = space.objects.overlapping(object.start, end).any(|(_, piece)| piece.value == id);
            if left {
                space.changes += 1;
            } else if object.process == process {
                object.until_ns = Some(time_ns);
            }
        }
    }

    /// The range of the process's own innermost object that begins at an address, with its depth: of a block or of an
    /// announced object. In a fork, of a copy of its parent's.
    fn live_at(
        &mut self,
        process: ProcessId,
        address: u64,
        time_ns: u64,
        announced: bool,
    ) -> Option<(usize, Piece<ObjectId>)> {
        let objects = &self.objects;
        let is_it = |(_, piece): &(usize, Piece<ObjectId>)| {
            let object = &objects[piece.value.index()];
            object.start == address && object.announced == announced
        };
        let (depth, piece) = self.spaces[process.index()].objects.around(address).find(is_it)?;
        Some((depth, Piece { value: self.own(process, piece.value, time_ns), ..piece }))
    }

    /// Removes an object's addresses, and those of the parent's object that it is a copy of. Announced objects inside of
    /// it lose these addresses; if it is a block, all objects inside of it do.
    fn remove(&mut self, process: ProcessId, time_ns: u64, depth: usize, object: ObjectId) {
        let Object { start, bytes, announced, .. } = self.objects[object.index()];
        let Some(last) = last(start, bytes) else { return };
        let objects = &self.objects;
        let space = &mut self.spaces[process.index()];
        let (layers, copies) = (Arc::make_mut(&mut space.objects), &space.copies);
        let is = |piece: &Piece<ObjectId>| piece.value == object || copies.get(&piece.value) == Some(&object);
        let own = layers.overlapping(start, last).filter(|(at, piece)| *at == depth && is(piece));
        let mut inside = Vec::new();
        for (_, Piece { first, last, .. }) in own.collect::<Vec<_>>() {
            inside
                .extend(layers.cut(first, last, |at, piece| {
                    at > depth && (!announced || objects[piece.value.index()].announced)
                }));
        }
        layers.cut(start, last, |at, piece| at == depth && is(piece));
        self.note_cut(process, time_ns, &inside);
    }
}

/// Whether addresses are inside of a larger range.
fn is_within((first, last): (u64, u64), range: &Piece<ObjectId>) -> bool {
    range.first <= first && range.last >= last && (range.first, range.last) != (first, last)
}
