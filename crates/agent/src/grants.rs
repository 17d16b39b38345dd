//! Carries grants out on this system: partitions of CPUs, nodes of memory, interrupts, limits of others. Everything is
//! in the journal before it is done, and undone in reverse.

mod carry_out;
mod control_word;
mod devices;
mod hardware;
mod lab_control;
mod limit_loop;
mod live_state;
mod memory_monitor;
mod offer;
mod queue;
mod records;
mod resctrl_control;
#[cfg(test)]
mod resctrl_kernel;
mod resctrl_monitor;
mod setting;
mod shape;
mod watch;

pub(crate) use carry_out::{Base, MEMORY_NOW, check_free, fill, idle_cpus, make, make_groups, make_idle};
pub use carry_out::{CarryOutError, Limit, Rest, carry_out};
pub(crate) use control_word::ControlWord;
pub(crate) use devices::tidy;
pub use hardware::{Hardware, HardwareError, TooFine};
pub(crate) use limit_loop::Corrections;
pub(crate) use live_state::drawn_by;
pub use live_state::{GrantState, LiveState};
pub use memory_monitor::MemoryMonitor;
pub(crate) use memory_monitor::{Counted, Subject};
pub use queue::Ticket;
pub(crate) use records::left_records;
pub use records::{Carrier, GrantRecord, Records, RecordsError, has_own_record, read_records};
pub(crate) use setting::Setting;
pub(crate) use shape::Shape;
pub use watch::Watch;
