//! What is at the addresses of one process while its events and samples are read in the order of time.

use crate::ids::{ChainId, CodeId, FileId, ObjectId};
use crate::object::ObjectKind;
use crate::ranges::Ranges;
use machine::NodeId;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An address space. A fork shares its parent's tables until either changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    /// Live objects that were allocated. Those of a fork are its parent's, and stand for its own copies.
    pub objects: Arc<Ranges<ObjectId>>,
    /// Positions in the list of mappings.
    pub mappings: Arc<Ranges<u32>>,
    /// Some of the objects may be a parent's.
    pub inherits: bool,
    /// The own copies of the parent's objects that were accessed.
    pub copies: FxHashMap<ObjectId, ObjectId>,
    /// Objects that are made when they are first accessed.
    pub others: FxHashMap<Other, ObjectId>,
    /// How often mappings changed, or objects that live on: whoever remembers a range looks it up again.
    pub changes: u32,
    pub codes: FxHashMap<u64, CodeId>,
    pub chains: FxHashMap<u32, ChainId>,
    /// By first address: the first address after it, and the node.
    pub pages: BTreeMap<u64, (u64, NodeId)>,
}

/// What tells objects of a process that were not allocated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Other {
    /// Data of a binary, by file, offset of its first byte, and whether it is a variable or a section: one may begin where
    /// the other does.
    Data(FileId, u64, ObjectKind),
    /// A file, or what of a binary has no name.
    File(FileId),
    Stacks,
    /// A mapping of memory, by position.
    Memory(u32),
    /// Addresses of the kernel.
    Kernel,
    /// No mapping is known.
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
    /// The state of a process whose parent's is this.
    pub fn forked(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            mappings: self.mappings.clone(),
            inherits: true,
            pages: self.pages.clone(),
            ..Self::default()
        }
    }

    /// Addresses mean something else now.
    pub fn mappings_changed(&mut self) {
        self.changes += 1;
        self.codes.clear();
        self.chains.clear();
    }

    /// The node that an address lies on, as far as placements of pages told.
    pub fn node(&self, address: u64) -> Option<NodeId> {
        let (_, &(end, node)) = self.pages.range(..=address).next_back()?;
        (address < end).then_some(node)
    }
}
