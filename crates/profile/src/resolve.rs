//! Resolves an address at a time to an object or a code location.

use crate::ids::{ChainId, CodeId, FileId, ObjectId, ProcessId};
use crate::object::{Object, ObjectKind};
use crate::ranges::Piece;
use crate::space::{Mapping, MappingOf, Other};
use crate::sweep::Sweep;
use crate::symbols::File;
use machine::is_kernel_address;
use std::sync::Arc;
use trace::StackId;

/// Kind, name, file and range of an object.
type Named = (ObjectKind, Option<Arc<str>>, Option<FileId>, (u64, u64));

impl Sweep<'_> {
    /// The allocated object at an address. A fork gets its own copy at its first access to one of its parent's.
    pub(crate) fn allocated(&mut self, process: ProcessId, address: u64, time_ns: u64) -> Option<Piece<ObjectId>> {
        let space = &self.spaces[process.index()];
        let piece = space.objects.get(address)?;
        Some(Piece { value: self.own(process, piece.value, time_ns), ..piece })
    }

    /// The process's own copy of an object, which may be its parent's.
    pub(crate) fn own(&mut self, process: ProcessId, object: ObjectId, time_ns: u64) -> ObjectId {
        let space = &mut self.spaces[process.index()];
        if !space.inherits || self.objects[object.index()].process == process {
            return object;
        }
        let known = &self.objects[object.index()];
        let from_ns = self.processes[process.index()].from_ns.unwrap_or(time_ns);
        // Its parent's thread has allocated it.
        let copy = Object { process, from_ns, until_ns: None, ..known.clone() };
        let objects = &mut self.objects;
        *space.copies.entry(object).or_insert_with(|| {
            objects.push(copy);
            ObjectId(objects.len() as u32 - 1)
        })
    }

    /// The object at an address that is not allocated.
    pub(crate) fn other(&mut self, process: ProcessId, address: u64, time_ns: u64) -> Piece<ObjectId> {
        let space = &self.spaces[process.index()];
        let piece = space.mappings.get(address);
        // Without a mapping there is no range to remember, so these are looked up each time.
        let known =
            if is_kernel_address(address) { Some(Other::Kernel) } else { piece.is_none().then_some(Other::Nothing) };
        if let Some(&value) = known.and_then(|other| space.others.get(&other)) {
            return Piece { first: address, last: address, value };
        }
        let (other, (kind, name, file, (start, bytes))) = self.describe(process, address, piece);
        let (mut first, mut last) = piece.map_or((address, address), |piece| (piece.first, piece.last));
        if kind == ObjectKind::BinarySection {
            // Variables may be anywhere in it.
            (first, last) = (address, address);
        } else if matches!(other, Other::Data(..)) {
            (first, last) = (first.max(start), last.min(start.saturating_add(bytes.saturating_sub(1))));
        }
        let space = &mut self.spaces[process.index()];
        let objects = &mut self.objects;
        let value = *space.others.entry(other).or_insert_with(|| {
            objects.push(Object {
                process,
                kind,
                name,
                file,
                start,
                bytes,
                from_ns: time_ns,
                until_ns: None,
                site: ChainId::UNKNOWN,
                allocated_by: None,
                allocated_on: None,
                announced: false,
            });
            ObjectId(objects.len() as u32 - 1)
        });
        // Mappings grow, and a file may be mapped in several places.
        if bytes > 0 {
            let object = &mut self.objects[value.index()];
            let end = |start: u64, bytes: u64| start.saturating_add(bytes);
            let until = end(start, bytes).max(end(object.start, object.bytes));
            object.start = object.start.min(start);
            object.bytes = until - object.start;
        }
        Piece { first, last, value }
    }

    /// Describes what is in a mapping, or outside all mappings.
    fn describe(&self, process: ProcessId, address: u64, piece: Option<Piece<u32>>) -> (Other, Named) {
        let unknown = |name: &str, range| (ObjectKind::Unknown, Some(Arc::from(name)), None, range);
        if is_kernel_address(address) {
            return (Other::Kernel, unknown(File::KERNEL, (0, 0)));
        }
        let Some(piece) = piece else { return (Other::Nothing, unknown("", (0, 0))) };
        let mapping = &self.mappings[piece.value as usize];
        let range = (mapping.start, mapping.bytes);
        match mapping.of {
            MappingOf::Stack => (Other::Stacks, (ObjectKind::Stacks, None, None, (0, 0))),
            MappingOf::File(_) => self.in_file(mapping, address, range),
            MappingOf::Memory => {
                // Zero-initialised data of a binary is mapped behind its file-backed part.
                let is_unnamed = mapping.name.is_empty() || mapping.name.starts_with("//anon");
                let before = piece.first.checked_sub(1).filter(|_| is_unnamed);
                let before = before.and_then(|at| self.spaces[process.index()].mappings.get(at));
                let before = before.map(|piece| &self.mappings[piece.value as usize]);
                match before.map(|before| self.in_file(before, address, range)) {
                    Some(named @ (Other::Data(..), _)) => named,
                    _ => (Other::Memory(piece.value), unknown(&mapping.name, range)),
                }
            }
        }
    }

    fn in_file(&self, mapping: &Mapping, address: u64, range: (u64, u64)) -> (Other, Named) {
        let MappingOf::File(id) = mapping.of else {
            return (Other::Nothing, (ObjectKind::Unknown, None, None, range));
        };
        let file = &self.codes.files[id.index()];
        let offset = mapping.offset.wrapping_add(address.wrapping_sub(mapping.start));
        if let Some(data) = self.symbols.data(file, offset) {
            let kind = if data.variable { ObjectKind::Static } else { ObjectKind::BinarySection };
            let start = address.wrapping_sub(offset.wrapping_sub(data.start));
            return (Other::Data(id, data.start, kind), (kind, Some(data.name), Some(id), (start, data.bytes)));
        }
        let binary = self.binaries.contains(&file.name);
        let kind = if binary { ObjectKind::BinarySection } else { ObjectKind::MappedFile };
        (Other::File(id), (kind, Some(if binary { self.unnamed.clone() } else { file.name.clone() }), Some(id), range))
    }

    /// The code location of an instruction of a process at this time.
    pub(crate) fn code(&mut self, process: ProcessId, instruction: u64) -> CodeId {
        if let Some(&code) = self.spaces[process.index()].codes.get(&instruction) {
            return code;
        }
        let code = self.place_of(process, instruction, false);
        self.spaces[process.index()].codes.insert(instruction, code);
        code
    }

    pub(crate) fn place_of(&mut self, process: ProcessId, instruction: u64, calls: bool) -> CodeId {
        if is_kernel_address(instruction) {
            let kernel = self.codes.file(&File { name: File::KERNEL.into(), identity: None });
            return self.codes.code(Some(kernel), instruction, calls);
        }
        let mapping = self.spaces[process.index()].mappings.get(instruction.saturating_sub(u64::from(calls)));
        let mapping = mapping.map(|piece| &self.mappings[piece.value as usize]);
        match mapping {
            Some(&Mapping { of: MappingOf::File(file), start, offset, .. }) => {
                self.codes.code(Some(file), offset.wrapping_add(instruction.wrapping_sub(start)), calls)
            }
            _ => self.codes.code(None, instruction, calls),
        }
    }

    pub(crate) fn chain(&mut self, process: ProcessId, stack: StackId) -> ChainId {
        if let Some(&chain) = self.spaces[process.index()].chains.get(&stack.0) {
            return chain;
        }
        let stacks = self.stacks;
        let codes: Vec<CodeId> =
            stacks.chain(stack).iter().map(|&address| self.place_of(process, address, true)).collect();
        let chain = self.codes.chain(&codes);
        self.spaces[process.index()].chains.insert(stack.0, chain);
        chain
    }
}
