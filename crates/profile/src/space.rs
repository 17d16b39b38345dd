//! The address space of one process, updated as events and samples are read in chronological order.

use crate::ids::{ChainId, CodeId, FileId, ObjectId};
use crate::layers::Layers;
use crate::object::ObjectKind;
use crate::ranges::Ranges;
use machine::NodeId;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An address space. A fork shares its parent's tables until either changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    /// Live allocated objects. In a fork those of the parent stand for the fork's own copies.
    pub objects: Arc<Layers<ObjectId>>,
    /// Indices into the list of mappings.
    pub mappings: Arc<Ranges<u32>>,
    /// Whether some of the objects may be a parent's.
    pub inherits: bool,
    /// The process's own copies of accessed objects of the parent.
    pub copies: FxHashMap<ObjectId, ObjectId>,
    /// Objects that are created at their first access.
    pub others: FxHashMap<Other, ObjectId>,
    /// Number of changes to mappings or to objects that live on. Cached ranges are valid while it stays the same.
    pub changes: u32,
    pub codes: FxHashMap<u64, CodeId>,
    pub chains: FxHashMap<u32, ChainId>,
    /// By first address: the address after the last, and the node.
    pub pages: BTreeMap<u64, (u64, NodeId)>,
}

/// Identifies objects of a process that were not allocated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Other {
    /// Data of a binary, by file, offset, and kind: a variable and a section may begin at the same offset.
    Data(FileId, u64, ObjectKind),
    /// A file, or the unnamed parts of a binary.
    File(FileId),
    Stacks,
    /// A memory mapping, by index.
    Memory(u32),
    /// Kernel addresses.
    Kernel,
    /// Outside known mappings.
    Nothing,
}

/// A mapping.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub start: u64,
    pub bytes: u64,
    pub offset: u64,
    pub name: Arc<str>,
    pub of: MappingOf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MappingOf {
    File(FileId),
    Stack,
    Memory,
}

impl Space {
    /// The state of a child forked from this process.
    pub fn forked(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            mappings: self.mappings.clone(),
            inherits: true,
            pages: self.pages.clone(),
            ..Self::default()
        }
    }

    /// Invalidates cached lookups.
    pub fn mappings_changed(&mut self) {
        self.changes += 1;
        self.codes.clear();
        self.chains.clear();
    }

    /// A range of pages is on a node now, whatever ranges were there.
    pub fn place(&mut self, start: u64, bytes: u64, node: NodeId) {
        let end = start.saturating_add(bytes);
        self.forget_pages(start, end);
        self.pages.insert(start, (end, node));
    }

    /// What was on these addresses is there no more.
    pub fn forget_pages(&mut self, start: u64, end: u64) {
        if let Some((&first, &(last, of))) = self.pages.range(..start).next_back()
            && last > start
        {
            self.pages.insert(first, (start, of));
            if last > end {
                self.pages.insert(end, (last, of));
            }
        }
        while let Some((&first, &(last, of))) = self.pages.range(start..end).next() {
            self.pages.remove(&first);
            if last > end {
                self.pages.insert(end, (last, of));
            }
        }
    }

    /// The node of an address, as far as page placements were recorded.
    pub fn node(&self, address: u64) -> Option<NodeId> {
        let (_, &(end, node)) = self.pages.range(..=address).next_back()?;
        (address < end).then_some(node)
    }
}
