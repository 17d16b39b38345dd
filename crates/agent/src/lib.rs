//! The agent places pages and threads of running programs: in each round it observes accesses, lets [`placement`]
//! decide, and carries out the decision.
//!
//! - [`Journal`] records all changes, so that they can be reverted, also after SIGKILL.
//! - [`Agent`] is the loop, with [`Options`].
//! - [`control`] is the socket through which clients query and pause it.
//! - [`Configuration`] is the service's configuration; [`Scope`] selects the processes that it manages.
//! - [`broker`] carries grants out for users of the machine.
//! - [`Status`] is its live status, for clients.
//!
//! ```no_run
//! use agent::{Agent, Journal, Options, journal::default_folder};
//! use linux::{ChildSetup, Pid};
//! use std::{path::Path, process::Command, thread::sleep};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let machine = machine::Machine::from_sysfs(Path::new("/sys"))?;
//! let (journal, _put_back) = Journal::open(&default_folder(), "example")?;
//! // The same thread opens the agent and then starts the program, which is thus observed from its first instruction.
//! let mut agent = Agent::open(&machine, journal, Options::new("carrefour".parse()?))?;
//! let start = agent.program_start()?;
//! let mut program = Command::new("./program").place(start.cpus.as_ref(), start.memory.as_ref()).spawn()?;
//! agent.add_program(Pid(program.id()), &start)?;
//! while program.try_wait()?.is_none() {
//!     sleep(agent.until_next());
//!     agent.poll()?;
//! }
//! let (report, _put_back) = agent.finish(None)?;
//! println!("{} pages were moved", report.pages_moved);
//! # Ok(())
//! # }
//! ```

mod actor;
mod agent;
pub mod broker;
mod configuration;
pub mod control;
mod copies;
mod counters;
mod cpu_rotation;
mod curable;
mod decision_log;
mod error;
pub mod grants;
mod hints;
mod huge;
mod huge_page_service;
mod huge_pages;
pub mod journal;
mod json_line;
mod judged_blocks;
mod ledger;
mod lifecycle;
mod managed_process;
mod managed_processes;
mod memory;
mod node_memory;
mod nodes;
mod observer;
mod options;
mod owner;
mod owners_ranges;
mod page_actions;
mod place_report;
mod ranges;
mod rate;
mod regions;
mod replicable;
mod run_summary;
mod samples;
mod scope;
mod small_parts;
mod status;
mod step_outcome;
mod thread_counts;
mod work_time;

pub use agent::{Agent, MOST_ROUNDS, ONE_NODE, ProgramStart};
pub use configuration::{
    Configuration, ConfigurationError, HugePageMode, HugePageSettings, KernelBalancing, LogSettings, MetricsSettings,
    RegionSettings, ReserveSettings, SocketSettings, ThrottleSetting,
};
pub use decision_log::LogError;
pub use error::AgentError;
pub use huge_page_service::{HugePageOptions, HugePageStatus, VerdictsFor};
pub use huge_pages::{Advisers, CureSteps, Cured, curable, cure, huge_blocks, join};
pub use journal::{Journal, JournalError, PutBack};
pub use judged_blocks::{JudgedBlock, JudgedProcesses, judged_blocks};
pub use options::Options;
pub use place_report::{NodeMoves, PlaceGain, PlaceMetrics, PlaceRefusal, PlaceReport, PlaceRule, WorkShares};
pub use regions::{RegionOrders, RegionPlace};
pub use rings::CountedFrom;
pub use scope::{NoSuchUser, ProcessAttributes, ProcessSelection, Scope};
pub use small_parts::{KnownBy, SmallPartCounts, SmallParts, SmallPartsFile};
pub use status::{ManagedProcess, Status};
