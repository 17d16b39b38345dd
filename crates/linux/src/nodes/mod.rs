//! Nodes and what belongs to them: counters, free memory, devices, monitors of bandwidth.

pub(crate) mod available_memory;
pub(crate) mod device_node;
pub(crate) mod free_memory;
pub(crate) mod interfaces;
pub(crate) mod interrupts;
pub(crate) mod loopback;
pub(crate) mod memory_blocks;
pub(crate) mod mounts;
pub(crate) mod node_files;
pub(crate) mod node_state;
pub(crate) mod pci;
