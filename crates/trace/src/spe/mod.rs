//! What Arm's statistical profiling extension (SPE, `FEAT_SPE`) writes into memory: packets, which make records of
//! sampled operations. As in the Arm Architecture Reference Manual, chapter "Statistical Profiling Extension Sample
//! Record Specification", and in what the kernel's own tools make of it. Not yet seen on hardware.

mod live_clock;
mod packet;
mod queues;
mod record;
mod served;

pub(crate) use queues::{Buffer, Held, SpeAccess, SpeQueues};
pub use record::{Operation, SpeRecord, SpeRecords};
