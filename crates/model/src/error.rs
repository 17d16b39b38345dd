//! Why a machine cannot be modelled.

use machine::Violations;

/// Why a machine cannot be modelled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// The description lacks a number. Discovered machines lack several, as the kernel does not report them.
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
        /// Its value.
        value: String,
        /// The rule.
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
        /// End address (exclusive).
        end: u64,
        /// The rule.
        rule: String,
    },
}
