//! Cells: the combinations of a grid.

use crate::experiment::Thp;
use machine::Pinning;
use std::collections::BTreeMap;

/// One combination of the axes' labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The labels, joined by `-`.
    pub name: String,
    /// A hash of all that decides its result: a cell with another command has another one.
    pub id: String,
    /// The index of its label on each axis.
    pub labels: Vec<usize>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables of its environment that the file sets.
    pub environment: BTreeMap<String, String>,
    /// Where it runs.
    pub place: Place,
    /// Where its threads run; as the program has them if the file has no such axis.
    pub pinning: Option<Pinning>,
    /// The kernel's NUMA balancing; as it is if the file has no such axis.
    pub balancing: Option<bool>,
    /// Transparent huge pages; as they are if the file has no such axis.
    pub huge_pages: Option<Thp>,
    /// A kernel module and its parameters, as `nearside lab run --kernel-module` takes them; only in the lab.
    pub kernel_module: Option<String>,
}

/// Where a cell runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// On this machine.
    Here,
    /// In the lab.
    Lab(LabMachine),
}

/// A virtual machine of the lab: a preset or a machine file, as `nearside lab run --machine` takes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabMachine(pub String);
