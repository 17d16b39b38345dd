//! Carries grants out on this system: partitions of CPUs, nodes of memory, interrupts, limits of others. Everything is
//! in the journal before it is done, and undone in reverse.

mod carry_out;
mod records;

pub use carry_out::{CarryOutError, Limit, carry_out};
pub(crate) use carry_out::{idle_cpus, make_groups};
pub use records::{GrantRecord, Records, RecordsError, has_record, read_records};
