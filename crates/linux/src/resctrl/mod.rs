//! The kernel's file system for control hardware, resctrl, on processors of Intel, AMD and Arm.

pub(crate) mod control;
pub(crate) mod folder;
pub(crate) mod monitors;
pub(crate) mod offer;
pub(crate) mod schemata;
