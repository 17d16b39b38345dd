//! Carries grants out on this system: partitions of CPUs, nodes of memory, interrupts, limits of others. Everything is
//! in the journal before it is done, and undone in reverse.

mod carry_out;
mod hardware;
mod lab_control;
mod queue;
mod records;
mod setting;
mod shape;
mod watch;

pub use carry_out::{CarryOutError, Limit, carry_out};
pub(crate) use carry_out::{fill, idle_cpus, idle_group, make, make_groups, make_idle};
pub use hardware::{Hardware, HardwareError, TooFine};
pub(crate) use lab_control::LabWord;
pub use queue::Ticket;
pub(crate) use records::left_records;
pub use records::{Carrier, GrantRecord, Records, RecordsError, has_record, read_records};
pub(crate) use setting::Setting;
pub(crate) use shape::Shape;
pub use watch::Watch;
