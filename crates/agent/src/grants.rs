//! Carries grants out on this system: partitions of CPUs, nodes of memory, interrupts, limits of others. Everything is
//! in the journal before it is done, and undone in reverse.

mod carry_out;
mod control_word;
mod devices;
mod hardware;
mod lab_control;
mod limit_loop;
mod offer;
mod queue;
mod records;
mod resctrl_control;
#[cfg(test)]
mod resctrl_kernel;
mod setting;
mod shape;
mod watch;

pub use carry_out::{CarryOutError, Limit, Rest, carry_out};
pub(crate) use carry_out::{fill, idle_cpus, idle_group, make, make_groups, make_idle};
pub(crate) use control_word::ControlWord;
pub(crate) use devices::tidy;
pub use hardware::{Hardware, HardwareError, TooFine};
pub(crate) use limit_loop::Corrections;
pub use queue::Ticket;
pub(crate) use records::left_records;
pub use records::{Carrier, GrantRecord, Records, RecordsError, has_own_record, read_records};
pub(crate) use setting::Setting;
pub(crate) use shape::Shape;
pub use watch::Watch;
