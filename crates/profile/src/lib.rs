//! Which object, which thread, which node: sampled accesses tied to what they touch and to who does it, what that
//! shows, and what to do about it. Pure: nothing here reads a file or asks the system.
//!
//! 1. A [`Recording`] takes samples and events ([`trace::Sample`], [`trace::Event`]) of any number of streams, in any
//!    order, and the machine that they are from.
//! 2. [`Recording::into_profile`] puts them into the order of time and gives each access its object, thread and place
//!    in code. Addresses that are used again are other objects; an address that no live object covers is
//!    [`ObjectKind::Unknown`]. Names come from what implements [`Symbols`].
//! 3. [`Profile::view`] chooses accesses by a [`Filter`]. A [`View`] ranks objects, sites, threads, processes and
//!    functions, gives a [`Verdict`] (is NUMA the problem?) and [`Advice`] (what to do about the objects that cost
//!    most).
//! 4. A [`Flow`] is what happened to some of them, in the order of time, made for those that are asked for: its
//!    [`Facts`], phases, pages, and latency over time.
//!
//! Ten million samples and a million objects take seconds and about one gigabyte; each ranking, and each call that
//! makes flows, is one more pass over the accesses: ask for all flows in one call.
//!
//! ```
//! use linux::{Pid, Tid};
//! use machine::{CpuId, NodeId};
//! use profile::{Action, Filter, Measurements, NoSymbols, Predicate, Problem, Recording};
//! use trace::{AccessKind, Event, Sample, Served, Source, Stacks, What};
//!
//! // One thread writes a table on node 0 and leaves it to threads of all nodes, which only read.
//! let mut stacks = Stacks::new();
//! let stack = stacks.id(&[0x40_1059, 0x40_2000]);
//! let event = |what| Event { time_ns: 1, pid: Pid(7), tid: Tid(7), cpu: Some(CpuId(0)), what };
//! let sample = |number: u32| {
//!     let cpu = if number < 100 { 0 } else { number % 8 };
//!     Sample {
//!         time_ns: 2 + u64::from(number) * 100,
//!         cpu: CpuId(cpu),
//!         pid: Pid(7),
//!         tid: Tid(7 + cpu),
//!         instruction: 0x40_3000,
//!         address: 0x7f00_0000_0000 + u64::from(number * 4099 % (1 << 20)),
//!         physical: None,
//!         kind: if number < 100 { AccessKind::Store } else { AccessKind::Load },
//!         served: Some(Served::Dram),
//!         node: Some(NodeId(0)),
//!         latency_ns: Some(if cpu < 2 { 103.0 } else { 145.0 }),
//!         kernel: false,
//!         stack: None,
//!         weight: 5.0,
//!         source: Source::Lab,
//!     }
//! };
//! let mut recording = Recording::new(machine::presets::find("small-4x2")?);
//! recording.add_events([event(What::Allocated { address: 0x7f00_0000_0000, bytes: 1 << 20, stack })]);
//! recording.add_samples((0..2000).map(sample));
//! let profile = recording.into_profile(&stacks, &NoSymbols);
//!
//! let view = profile.view(&Filter::default());
//! let verdict = view.verdict(&Measurements::default());
//! assert_eq!(verdict.problem, Problem::Distance, "{}", verdict.text);
//! let advice = &view.advice(10)[0];
//! assert_eq!(advice.action, Action::Replicate);
//! assert!(advice.gain.is_some_and(|gain| gain.speedup > 1.1 && gain.local_access_ratio_after > 0.99));
//!
//! // The table, by its rank; then what its flow shows.
//! let (object, tally) = view.objects()[0];
//! println!("{} samples, {:?} of them local", tally.samples, tally.local_access_ratio());
//! let flow = view.flows_of_objects(&[object]).remove(0);
//! assert_eq!(flow.facts().first_writer.map(|writer| writer.tid), Some(7));
//!
//! // Only what goes to another node.
//! let remote = profile.view(&Filter(vec![Predicate::Remote, Predicate::User]));
//! assert_eq!(remote.tally().local_access_ratio(), Some(0.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What sources should know
//!
//! - An object's end is to be told with a time before its memory is given back, and its beginning with one after it
//!   was got: then no other thread's object at the same address overlaps it.
//! - Stacks are mappings whose name begins with `[stack`, as the kernel calls the first thread's: for the others
//!   whoever knows their bounds tells [`trace::What::Mapped`] with the name `[stack:TID]`.
//! - Memory of a library or program that has no bytes in its file (`.bss`) is asked of [`Symbols::data`] by the offset
//!   that it would have if the mapping before it went on.
//!
//! # Certainty
//!
//! Decisions rest on shares among samples. Each is tested with Wilson's interval: see [`Confidence`]. Latencies are
//! saturated where their mean is, by twice its standard error, above the machine's latency at four fifths of its
//! bandwidth. Samples count as independent draws, which those of one burst are not quite.

mod advice;
mod change;
mod code;
mod describe;
mod distances;
mod event_order;
mod facts;
mod filter;
mod flow;
mod gain;
mod groups;
mod home;
mod ids;
mod latency;
mod measurements;
mod object;
mod pages;
mod pattern;
mod phase;
mod profile;
mod queueing;
mod ranges;
mod resolve;
mod rules;
mod samples;
mod site;
mod space;
mod statistics;
mod sweep;
mod symbols;
mod tally;
mod trace_symbols;
mod verdict;
mod view;
mod way;

pub use advice::{Action, Advice, Evidence, ProcessNode, RuledOut};
pub use code::Code;
pub use describe::{Frame, ObjectSummary, ProcessSummary, ThreadSummary};
pub use facts::{Avoidable, Facts, NodePair, ThreadUse, Writer};
pub use filter::{Filter, Predicate};
pub use flow::Flow;
pub use gain::Gain;
pub use home::{MemoryHome, ThreadHome};
pub use ids::{ChainId, CodeId, FileId, ObjectId, ProcessId, SiteId, ThreadId};
pub use latency::{LatencyPart, Saturation, saturations};
pub use measurements::Measurements;
pub use object::{Object, ObjectKind, PagePlacement, Process, SmallObjects, Thread};
pub use pages::{HUGE_PAGE, HugePageUse, PageUse, SMALL_PAGE};
pub use phase::{Phase, Usage};
pub use profile::{Access, MemoryRange, Profile, Recording};
pub use rules::imbalance;
pub use samples::leaves_caches;
pub use site::Site;
pub use statistics::{Confidence, Share, wilson};
pub use symbols::{Data, File, Function, NoSymbols, SourceLine, Symbols};
pub use tally::{Counts, Tally};
pub use verdict::{Metric, Problem, Verdict};
pub use view::{Ranking, View};
