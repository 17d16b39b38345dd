//! Placement decisions for pages and threads: pure and deterministic, each with its reason. Nothing here reads files,
//! clocks or random numbers: the same input gives the same output, so that a logged round can be replayed.
//!
//! # Terms
//!
//! - A *round* is one decision period, about a second. An [`Observation`] is the input from one round.
//! - A *policy* has two parts, one for threads and one for memory: [`PolicyName`]. A [`Policy`] is a policy at work on
//!   a machine, with the state that it keeps between rounds.
//! - A [`Decision`] is a list of [`Step`]s, each an [`Action`] with its [`Reason`] in words and numbers.
//! - An [`Outcome`] is the result of a decision. It is fed back, so that what cannot be done is not requested again.
//! - *First touch*: a page is allocated on the node of the CPU that touches it first. *Interleave*, *deal*: pages are
//!   distributed over nodes, in turn or at random. *Migrate*: a page or thread moves to another node. *Replicate*:
//!   nodes have copies of a page. *Revert*: copies are given up.
//! - The *local access ratio* is local accesses over all. The *imbalance* is the standard deviation (n - 1) of the
//!   controllers' loads over their mean. *Cache pressure* is last-level cache misses per thousand instructions.
//! - A process's *home* is the node that `balanced` or `auto` has assigned to it.
//!
//! # Usage
//!
//! 1. Create a [`Policy`] with [`Policy::new`], from a name, the measured machine and [`Settings`]. All thresholds and
//!    their origins are in [`Thresholds::table`].
//! 2. Call [`Policy::admit`] for each new process and thread to get its CPUs and memory policy, and [`Policy::forget`]
//!    for each process that has ended.
//! 3. Call [`Policy::decide`] each round and carry out the steps in order. [`PageTally`] turns samples into pages.
//! 4. Call [`Policy::learn`] with the outcome before the next round.
//!
//! ```
//! use machine::{NodeId, Pid, Tid, presets};
//! use placement::{Action, Observation, PageSample, PageTally, Policy, Process, Settings, Thread, Traffic};
//!
//! let machine = presets::find("opteron-6164x2")?;
//! let mut policy = Policy::new("carrefour".parse()?, &machine, Settings::default())?;
//!
//! // A new process: this policy leaves its CPUs and its memory policy alone.
//! let mut process = Process::new(Pid(7), machine.cpus(), machine.nodes.iter().map(|node| node.id).collect());
//! let thread = Thread::new(Pid(7), Tid(7));
//! assert_eq!(policy.admit(&process, &thread).memory, None);
//!
//! // A second later: a CPU of node 2 has read a page on node 0.
//! let mut tally = PageTally::new(policy.settings().thresholds.page_cap);
//! let sample = PageSample {
//!     pid: Pid(7),
//!     tid: Tid(7),
//!     address: 0x7f00_0000_1234,
//!     page_bytes: 4096,
//!     node: NodeId(0),
//!     from: NodeId(2),
//!     is_write: false,
//!     frame: None,
//! };
//! tally.add(&sample);
//! tally.add(&sample);
//! let (pages, samples_missed) = tally.take(30_000);
//! process.cpu_share = 1.0;
//! let decision = policy.decide(&Observation {
//!     round: 1,
//!     length_s: 1.0,
//!     traffic: vec![Traffic { from: NodeId(2), to: NodeId(0), accesses: 60e6 }],
//!     processes: vec![process],
//!     threads: vec![thread],
//!     pages,
//!     samples_missed,
//!     ..Observation::default()
//! });
//! let step = &decision.steps[0];
//! assert!(matches!(&step.action, Action::MovePages { node: NodeId(2), pages, .. } if pages == &[0x7f00_0000_1000]));
//! println!("{step}"); // move 1 page (4 KiB) of process 7 to node 2: only that node uses them: memory accesses …
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A decision log is JSON lines of [`LogLine`]; [`Replay`] replays it with the same policy or another.
//! [`Policy::state`] allows a log to begin in the middle of a run.
//!
//! # Origins of the policies
//!
//! - `carrefour`: Lepers 2014, chapters 7 and 8, and his published code; `carrefour/` has one file per step. Choices
//!   made here: draws are hashes, huge pages are split, and moves that made accesses slower are reverted (`trial.rs`).
//! - `predict`: chosen here, from several systems; `predict/`.
//! - `balanced`, `rr-tasks`, `rr-threads`, `fixed`: Müller 2013, 5.1. Among nodes with equally few processes for their
//!   CPUs, the lowest is chosen.
//! - `auto`: Müller 2013, 5.3; `threads/auto.rs`. Choices made here: processes move between the nodes with the most and
//!   the least pressure; a thread's pressure is weighted by how busy it is; no node becomes busier than the other was;
//!   processes that need more CPUs than a node has are left to the kernel.
//! - `thread-clustering`: Lepers's code, where it is disabled; `threads/clusters.rs`. Choice made here: threads stay on
//!   the node's CPUs as long as they are in a cluster.
//!
//! # Limitations
//!
//! Decisions assume that the next round is like the last one: faster changes of patterns gain nothing. Sharing is
//! observed per page: two threads that use different objects on a page share it. Without traffic counters `carrefour`
//! does nothing. `auto` moves whole processes, and all pages of a mapping alike. Only moves of pages are reverted when
//! they did harm.

mod action;
mod batches;
mod carrefour;
mod costs;
mod credit;
mod decision_log;
mod huge_pages;
mod kernel_balancing;
mod memory;
mod metrics;
mod move_rate;
mod name;
mod observation;
mod outcome;
mod page_tally;
mod pairs;
mod physical_pages;
mod policy;
mod predict;
mod process_use;
mod reason;
mod settings;
mod start;
mod threads;
mod thresholds;
mod trial;

pub use action::{Action, AddressRange, Decision, PageTarget, Sampling, Step};
pub use costs::Costs;
pub use decision_log::{Again, LogLine, Replay};
pub use huge_pages::{
    BlockHistory, BlockStep, BlockUse, Cure, CureLimits, MisplacedHugePage, Runs, SeenBlock, cures, joins_within,
};
pub use kernel_balancing::{BalancingCounts, HUGE_PAGE_PAGES, KernelBalancing, SplitOptions, SplitTrigger};
pub use metrics::Metrics;
pub use name::{MemoryPlacement, NameError, POLICIES, PolicyName, ThreadPolicy, list as policy_list};
pub use observation::{
    ControllerLoad, Few, LinkLoad, NodeAccesses, NodeBytes, NodeMemory, Observation, Page, Process, Range,
    SharedMemory, Tells, Thread, ThreadAccesses, Traffic,
};
pub use outcome::{Outcome, PageOf};
pub use page_tally::{PageSample, PageTally};
pub use policy::{Mappings, Policy, PolicyError, State};
pub use predict::{Lesson, OWN_SHARE, resident};
pub use process_use::ProcessUse;
pub use reason::{Fact, Quantity, Reason, Rule};
pub use settings::Settings;
pub use start::Start;
pub use thresholds::{Threshold, ThresholdError, Thresholds};
