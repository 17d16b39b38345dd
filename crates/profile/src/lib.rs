//! Attributes sampled memory accesses to objects, threads and nodes, finds NUMA problems, and gives advice. Pure:
//! nothing here reads files or makes system calls.
//!
//! 1. A [`Recording`] takes samples and events ([`trace::Sample`], [`trace::Event`]) of any number of streams, in any
//!    order, and the machine that they are from.
//! 2. [`Recording::into_profile`] sorts them by time and attributes each access to an object, a thread and a code
//!    location. A reused address belongs to a new object; an address outside of all live objects is
//!    [`ObjectKind::Unknown`]. Names come from an implementation of [`Symbols`].
//! 3. [`Profile::view`] selects accesses by a [`Filter`]. A [`View`] ranks objects, sites, threads, processes and
//!    functions, and gives a [`Verdict`] (is NUMA the problem?) and [`Advice`] for the most expensive objects.
//! 4. A [`Flow`] has the accesses to an object, or by a thread, in chronological order, with its [`Facts`], phases,
//!    pages, and latency over time. Flows are built on request.
//!
//! Ten million samples and a million objects take seconds and about one gigabyte. Each ranking, and each call that
//! builds flows, is another pass over the accesses: request all flows in one call.
//!
//! ```
//! use machine::{CpuId, NodeId, Pid, Tid};
//! use profile::{Action, Filter, Measurements, NoSymbols, Predicate, Problem, Recording};
//! use trace::{AccessKind, Event, Sample, Served, Source, Stacks, What};
//!
//! // One thread writes a table on node 0; then threads on all nodes only read it.
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
//! // The table is the first of the ranking; its flow has the facts.
//! let (object, tally) = view.objects()[0];
//! println!("{} samples, {:?} of them local", tally.samples, tally.local_access_ratio());
//! let flow = view.flows_of_objects(&[object]).remove(0);
//! assert_eq!(flow.facts().first_writer.map(|writer| writer.tid), Some(7));
//!
//! // Remote accesses only.
//! let remote = profile.view(&Filter(vec![Predicate::Remote, Predicate::User]));
//! assert_eq!(remote.tally().local_access_ratio(), Some(0.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What sources should know
//!
//! - The time of an object's end must be before its memory is freed, and that of its beginning after the memory was
//!   allocated: then no other thread's object at the same address overlaps it.
//! - Stacks are mappings whose name begins with `[stack`, as the kernel names the first thread's. For other threads the
//!   source reports [`trace::What::Mapped`] with the name `[stack:TID]`, if it knows their bounds.
//! - Memory of a library or program without bytes in its file (`.bss`) is passed to [`Symbols::data`] by the offset
//!   that it would have if the preceding mapping continued.
//!
//! # Certainty
//!
//! Decisions rest on shares of samples, each tested with Wilson's interval: see [`Confidence`]. Memory counts as
//! saturated if its mean latency exceeds, by 1.96 standard errors, the machine's latency at four fifths of its
//! bandwidth. Samples are treated as independent draws, which those of one burst are not quite.

mod access_path;
mod advice;
mod change;
mod code;
mod describe;
mod event_order;
mod evidence;
mod facts;
mod filter;
mod flow;
mod gain;
mod groups;
mod home;
mod huge_pages;
mod ids;
mod label;
mod latency;
mod layers;
mod line_words;
mod measurements;
mod object;
mod padding;
mod page_allocations;
mod pages;
mod parts;
mod pattern;
mod phase;
mod profile;
mod ranges;
mod resolve;
mod rules;
mod running;
mod samples;
mod shared_memory;
mod site;
mod space;
mod statistics;
mod sweep;
mod symbols;
mod tally;
mod together;
mod trace_symbols;
mod verdict;
mod verdict_text;
mod view;
mod waiting;

pub use advice::{Advice, ProcessNode};
pub use code::Code;
pub use describe::{Frame, ObjectSummary, ProcessSummary, ThreadSummary};
pub use evidence::{Action, Evidence, RuledOut};
pub use facts::{Avoidable, Facts, NodePair, ThreadUse, Writer};
pub use filter::{Filter, Predicate};
pub use flow::Flow;
pub use gain::Gain;
pub use home::{MemoryHome, ThreadHome};
pub use huge_pages::{
    Anchor, ENOUGH_OF_BLOCK, FEWEST_OF_BLOCK, HugePage, ObjectBorders, ObjectHugePages, Owner, Saving, Sharing,
    SharingCounts, SiteFrames, borders,
};
pub use ids::{ChainId, CodeId, FileId, ObjectId, ProcessId, SiteId, ThreadId};
pub use latency::{LatencyPart, Saturation, saturations};
pub use measurements::Measurements;
pub use object::{Object, ObjectKind, PagePlacement, Process, SmallObjects, Thread};
pub use page_allocations::PageAllocation;
pub use pages::PageUse;
pub use phase::{Phase, Usage};
pub use profile::{Access, MemoryRange, Profile, Recording};
pub use samples::leaves_caches;
pub use site::Site;
pub use statistics::{Confidence, Share, wilson};
pub use symbols::{Data, File, Function, NoSymbols, SourceLine, Symbols};
pub use tally::{Counts, Tally};
pub use together::Together;
pub use verdict::{IdealPlacement, Metric, Potential, Problem, Verdict};
pub use view::{Ranking, View};
pub use waiting::Waiting;
