//! Where pages and threads belong: pure, deterministic decisions, each with its reason. Nothing here reads a file,
//! looks at a clock or draws lots: the same input has the same output, so that a logged round can be decided again.
//!
//! # Words
//!
//! - A *round* is one decision period, about a second. An [`Observation`] is what one round saw.
//! - A *policy* has two halves, one for threads and one for memory: [`PolicyName`]. At work on a machine, with what it
//!   keeps from round to round, it is a [`Policy`].
//! - A [`Decision`] is a list of [`Step`]s: an [`Action`] each, and its [`Reason`], in words and numbers.
//! - An [`Outcome`] is what became of a decision: fed back, so that what cannot be done is not asked for again.
//! - *First touch*: memory lies on the node of the CPU that touches it first. *Interleave*, *deal*: pages go to nodes
//!   in turn, or by lot. *Migrate*: a page or thread moves to another node. *Replicate*: nodes have copies of a page;
//!   *revert*: copies are given up.
//! - The *local access ratio* is local accesses over all; the *imbalance* is the standard deviation (n - 1) of the
//!   controllers' loads over their mean. *Cache pressure* is misses of the last cache in a thousand instructions.
//! - A process's *home* is the node that `balanced` and `auto` have given it.
//!
//! # How to use it
//!
//! 1. [`Policy::new`], with a name, the measured machine and [`Settings`]; its thresholds are one table, each with its
//!    origin: [`Thresholds::table`].
//! 2. [`Policy::admit`] for each process and thread as it begins: its CPUs and memory policy. [`Policy::forget`] for
//!    each process that has ended.
//! 3. Each round [`Policy::decide`]; the steps are carried out in their order. [`PageTally`] makes pages of samples.
//! 4. [`Policy::learn`] with what became of it, before the next round.
//!
//! ```
//! use machine::{NodeId, Pid, Tid, presets};
//! use placement::{Action, Observation, PageSample, PageTally, Policy, Process, Settings, Thread, Traffic};
//!
//! let machine = presets::find("opteron-6164x2")?;
//! let mut policy = Policy::new("carrefour".parse()?, &machine, Settings::default())?;
//!
//! // A process begins: this policy leaves its CPUs and its memory policy alone.
//! let mut process = Process::new(Pid(7), machine.cpus(), machine.nodes.iter().map(|node| node.id).collect());
//! let thread = Thread::new(Pid(7), Tid(7));
//! assert_eq!(policy.admit(&process, &thread).memory, None);
//!
//! // A second later: a CPU of node 2 has read a page that lies on node 0.
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
//! A decision log is JSON lines of [`LogLine`]; [`Replay`] decides again what it has, by the same policy or another.
//! [`Policy::state`] is for those who begin in the middle.
//!
//! # What decides what
//!
//! - `carrefour`: Lepers 2014, chapters 7 and 8, and his published code; `carrefour/` has a file a step. Choices made
//!   here: draws are hashes, huge pages are split, and moves that made accesses slower are taken back (`trial.rs`).
//! - `balanced`, `rr-tasks`, `rr-threads`, `fixed`: Müller 2013, 5.1. Of nodes with equally few processes for their
//!   CPUs the lowest is next.
//! - `auto`: Müller 2013, 5.3; `threads/auto.rs`. Choices: processes move between the nodes with the most and the
//!   least pressure; a thread's pressure counts by how busy it is; no node becomes busier than the other was; what
//!   wants more CPUs than a node has is left to the kernel.
//! - `thread-clustering`: Lepers's code, where it is off; `threads/clusters.rs`. Choice: threads stay on the node's
//!   CPUs as long as they are a cluster.
//!
//! # Where it is weak
//!
//! Decisions predict from the last round: patterns that change faster gain nothing. Pages are seen as samples show
//! them: two threads that use different objects of a page share it. Without counters for traffic `carrefour` does
//! nothing. Whole processes are moved by `auto`, and pages of one mapping alike; only pages are taken back where moves
//! did harm.

mod action;
mod batches;
mod carrefour;
mod costs;
mod credit;
mod decision_log;
mod memory;
mod memory_policy;
mod metrics;
mod name;
mod observation;
mod outcome;
mod page_tally;
mod policy;
mod reason;
mod seen;
mod settings;
mod start;
mod threads;
mod thresholds;
mod trial;

pub use action::{Action, AddressRange, Decision, PageTarget, Sampling, Step};
pub use costs::Costs;
pub use decision_log::{Again, LogLine, Replay};
pub use memory_policy::{MemoryMode, MemoryPolicy, NodeWeight};
pub use metrics::Metrics;
pub use name::{MemoryPlacement, NameError, POLICIES, PolicyName, ThreadPolicy};
pub use observation::{
    ControllerLoad, Few, LinkLoad, NodeAccesses, NodeBytes, NodeMemory, Observation, Page, PartAccesses, Process,
    Range, SMALL_PAGE, Thread, ThreadAccesses, Traffic,
};
pub use outcome::{Outcome, PageOf};
pub use page_tally::{PageSample, PageTally};
pub use policy::{Policy, PolicyError, State};
pub use reason::{Fact, Quantity, Reason, Rule};
pub use settings::Settings;
pub use start::Start;
pub use thresholds::{Threshold, Thresholds};
