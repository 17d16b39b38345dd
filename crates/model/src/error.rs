//! Why there is no model of a machine.

use machine::Violations;

/// Why there is no model of a machine.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// The description lacks a number. Machines that were discovered lack several: a kernel does not know them.
    #[error("the machine `{machine}` lacks {field}, which the memory model needs: add it to the machine file")]
    Missing {
        /// The machine's name.
        machine: String,
        /// The field, in the words of the machine file.
        field: String,
    },
    /// A number is out of the model's range.
    #[error("the machine `{machine}` has {field} = {value}, but {rule}")]
    OutOfRange {
        /// The machine's name.
        machine: String,
        /// The field, in the words of the machine file.
        field: String,
        /// What it holds.
        value: String,
        /// What must hold.
        rule: &'static str,
    },
    /// Links or routes break a rule.
    #[error(transparent)]
    Routes(#[from] Violations),
    /// No range of physical memory was given.
    #[error("the machine to model has no memory: give at least one range of physical addresses")]
    NoMemory,
    /// A range of physical memory breaks a rule.
    #[error("the physical memory {start:#x}-{end:#x} cannot be modelled: {rule}")]
    MemoryRange {
        /// First address.
        start: u64,
        /// First address behind it.
        end: u64,
        /// What must hold.
        rule: String,
    },
}
