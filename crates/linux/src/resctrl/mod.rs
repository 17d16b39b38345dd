//! The kernel's file system for control hardware, resctrl: that of Intel (RDT), AMD (QoS extensions) and Arm (`MPAM`).

pub(crate) mod control;
pub(crate) mod folder;
pub(crate) mod monitors;
pub(crate) mod offer;
pub(crate) mod schemata;
