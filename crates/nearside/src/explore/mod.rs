//! Runs of campaigns: what [`explore`](::explore) decides, carried out on this machine and in the lab.

mod boots;
mod metrics;
mod run_unit;
mod session;
mod slurm;

pub use boots::Boots;
pub use run_unit::openmp_variables;
pub use session::{BEGUN, ENDED, Session};
pub use slurm::script as slurm_script;
