//! NUMA for programs: what `libnearside` does, as a Rust crate. Where am I, how far is it, where is my memory; put
//! threads and memory on nodes; start threads by a template; keep a copy of read-mostly data on each node.
//!
//! | what | where |
//! |---|---|
//! | sets of nodes and CPUs with numactl's grammar | [`nodes`], [`cpus`], [`cpus_of`] |
//! | where am I; distances and latencies; memory and CPUs of a node | [`here`], [`distance`], [`Latencies`], [`node_facts`] |
//! | running on CPUs, also of other processes | [`run_on`], [`affinity`], [`run_process_on`] |
//! | threads to come | [`Template`] |
//! | memory policies | [`set_policy`], [`policy`], [`bind`], [`policy_at`], [`set_home_node`] |
//! | memory on a node | [`allocate`] |
//! | moving pages, also of other processes | [`migrate`], [`migrate_process`] |
//! | moving pages when they are touched | [`move_lazily`] |
//! | where pages are | [`where_is`] |
//! | a copy of the data on each node | [`Replicated`] |
//! | cores, caches, memory and bandwidth of the program's own, from the agent | [`Grant`] |
//! | hints to the agent: leave alone, home, phase, short-lived | [`hint`] |
//! | names of ranges of memory, for the recorder, the agent and the commands | [`region`] |
//!
//! There is no global state, and no call prints, exits or panics, unless there is no memory for what it keeps itself.
//! Every refusal is an [`Error`] whose text says what was tried, what the kernel answered, why, and what helps. Sizes are
//! bytes and addresses are byte addresses.
//!
//! ```no_run
//! use library::{MemoryMode, MemoryPolicy, allocate, here, nodes, where_is};
//!
//! # fn main() -> Result<(), library::Error> {
//! let (cpu, node) = here()?;
//! let mut memory = allocate(1 << 20, &MemoryPolicy::new(MemoryMode::Interleave, nodes("all")?))?;
//! memory.contents_mut().fill(1);
//! println!("CPU {cpu} of node {node}: {:?}", where_is(&memory.range())?.by_node);
//! # Ok(())
//! # }
//! ```

mod error;
mod facts;
mod grants;
mod hints;
mod lazy;
mod memory;
mod places;
mod policies;
mod regions;
mod replicated;
mod templates;
mod threads;

pub use error::Error;
pub use facts::{Latencies, NodeFacts, distance, node_facts};
pub use grants::{Grant, GrantRequest};
pub use hints::hint;
pub use lazy::move_lazily;
pub use linux::{
    Amount, CpuId, CpuSet, Faults, GivenHint, GivenRegion, Hint, HugetlbPool, IdSet, LazyMove, LazyTally, MemoryMode,
    MemoryPolicy, Misplaced, NodeId, NodeMemory, NodeNumbering, NodeSet, PageRefusal, Pid, RangeNodes, Tally, Tid,
    Whose,
};
pub use memory::{allocate, migrate, migrate_process, where_is};
pub use places::{cpus, cpus_of, here, nodes};
pub use policies::{bind, policy, policy_at, set_home_node, set_policy};
pub use regions::region;
pub use replicated::Replicated;
pub use reserve::{Memory, Performance, Share};
pub use templates::Template;
pub use threads::{Combine, affinity, run_on, run_process_on};
