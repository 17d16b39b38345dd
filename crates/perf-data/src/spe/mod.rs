//! Decodes the data of Arm's statistical profiling extension (SPE, `FEAT_SPE`): packets, which form records of
//! sampled operations. Follows the Arm Architecture Reference Manual, chapter "Statistical Profiling Extension Sample
//! Record Specification", and the kernel's own tools. Not yet tested on hardware.

mod file;
mod packet;
mod queues;
mod record;
mod served;

pub(crate) use file::find;
pub use queues::{Buffer, Held, SpeAccess, SpeQueues};
pub use record::{Operation, SpeRecord, SpeRecords};
