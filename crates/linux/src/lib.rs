//! Safe, typed wrappers of the Linux interfaces that nearside needs and no library has. Besides the QEMU plugin, the
//! only crate with `unsafe` code. It stands on its own: `nearside-linux = "0.1"`, and `use linux::…`.
//!
//! | what | where |
//! |---|---|
//! | nodes: memory, counters, distances, CPUs | [`nodes`], [`NodeState`], [`system_events`] |
//! | a process: mappings, threads, status, and identity | [`Process`], [`threads()`], [`StartTime`] |
//! | where its memory is, and in which pages | [`parse_numa_maps`], [`parse_smaps`], [`residences`], [`PageWalk`] |
//! | memory policies | [`set_memory_policy`], [`bind_range`], [`set_home_node`], [`Switch::interleave_weight`] |
//! | moving pages | [`Migration`], [`PageBatch`], [`migrate_pages`], [`Follower`] |
//! | copies of a file's pages for one process | [`PrivateCopies`], [`Mapping::may_have_copies`], [`is_open_for_writing`] |
//! | affinity, also of a child before it runs | [`affinity()`], [`set_affinity`], [`current_cpu`], [`ChildSetup::place`] |
//! | CPU time | [`process_cpu_time`], [`thread_times`] |
//! | nodes of physical addresses | [`memory_blocks`] |
//! | one heap for all threads | [`share_one_heap`] |
//! | page sizes and presence | [`advise()`], [`AdvisedProcess`], [`huge_pages_by_node`], [`split_huge_pages`] |
//! | shared memory | [`SharedRange`] |
//! | data that a processor writes beside perf's records | [`AuxArea`] |
//! | control groups and cpusets | [`Cgroups`] |
//! | the peer of a socket | [`peer()`] |
//! | kernel settings, restored when done | [`Switch`], [`SwitchGuard`] |
//! | which features work here, determined by trying | [`Feature`] |
//! | why something was refused, and the remedy | [`diagnose`], [`SystemState`] |
//!
//! Sizes are bytes and addresses are byte addresses unless a name says otherwise. Parsers are pure, accept any text,
//! and never panic. Functions that read /proc or /sys take the directory, so that they also read saved systems. Written
//! for `x86_64`, with pages of 4 KiB and 2 MiB.
//!
//! ```no_run
//! use linux::{HUGE_PAGE, MemoryPolicy, NodeId, PageWalk, Pages, Pid, Process, nodes, parse_numa_maps};
//! use std::ops::ControlFlow;
//! use std::path::Path;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! for node in nodes(Path::new("/sys"))? {
//!     println!("node {}: CPUs {}, {} bytes free", node.node, node.cpus, node.memory["MemFree"]);
//! }
//! // 2 MiB on node 1, one page of it touched.
//! let mut memory = Pages::reserve(HUGE_PAGE)?;
//! memory.bind(&MemoryPolicy::bind(NodeId(1)))?;
//! memory.touch(0);
//! // Mapping by mapping, and page by page; the same for any other process.
//! let process = Process::open(Pid(std::process::id()))?;
//! for mapping in parse_numa_maps(&process.text("numa_maps")?)? {
//!     println!("{:x}: policy {}, pages by node {:?}", mapping.start, mapping.policy, mapping.pages);
//! }
//! let _ = PageWalk::new(&process, None)?.visit(&memory.range(), None, |page| {
//!     println!("{:x}: {} bytes on {:?}", page.address, page.page_bytes, page.node);
//!     ControlFlow::Continue(())
//! })?;
//! # Ok(())
//! # }
//! ```

mod advice;
mod affinity;
mod aux_area;
mod cgroup;
mod child;
mod clock;
mod cpu_time;
mod device_node;
mod diagnosis;
mod feature;
mod file;
mod file_words;
mod follow;
mod free_memory;
mod heap;
mod huge_page_use;
mod huge_pages;
mod interfaces;
mod lease;
mod loopback;
mod mask;
mod memory_blocks;
mod memory_policy;
mod migrate;
mod mounts;
mod node_files;
mod node_state;
mod numa_maps;
mod page_batch;
mod page_flags;
mod page_walk;
mod pagemap;
mod pages;
mod pci;
mod peer;
mod perf_ring;
mod present;
mod private_copy;
mod process;
mod refusal;
mod resctrl;
mod residence;
mod route;
mod shared_range;
mod shared_words;
mod signals;
mod smaps;
mod start_time;
mod switch;
mod switch_guard;
mod system_state;
mod tally;
mod thread_stack;
mod threads;
mod truncation;

// IDs and sets used by these interfaces.
pub use machine::{CpuId, CpuSet, IdSet, NodeId, NodeSet};

pub use advice::{Advice, AdvisedProcess, advise};
pub use affinity::{affinity, current_cpu, set_affinity};
pub use aux_area::AuxArea;
pub use cgroup::{
    CgroupError, CgroupMemory, Cgroups, EffectiveCpuset, MemoryLimit, cgroup2_mount, parse_cgroup,
    parse_memory_numa_stat,
};
pub use child::{ChildSetup, Credentials};
pub use clock::{monotonic_ns, tells_time_by_tsc, tsc, tsc_and_monotonic_ns};
pub use cpu_time::{ThreadTimes, process_cpu_time, thread_times};
pub use device_node::device_nodes;
pub use diagnosis::{
    Attempt, cpus_in_the_way, diagnose, diagnose_pages, diagnose_process, nodes_in_the_way, without_memory,
};
pub use feature::Feature;
pub use file::FileError;
pub use file_words::FileWords;
pub use follow::{Departure, Follower};
pub use free_memory::FreeMemory;
pub use heap::share_one_heap;
pub use huge_page_use::forbid_huge_pages;
pub use huge_pages::{HugePagesError, huge_page_bytes, huge_pages_by_node};
pub use lease::is_open_for_writing;
pub use loopback::bring_loopback_up;
pub use memory_blocks::memory_blocks;
pub use memory_policy::{
    MemoryMode, MemoryPolicy, Misplaced, NodeNumbering, Whose, allowed_memory_nodes, bind_range, memory_policy,
    memory_policy_at, migrate_pages, next_interleave_node, node_at, node_of, set_home_node, set_memory_policy,
};
pub use migrate::{MigrateError, Migration};
pub use mounts::{Mount, mounts, parse_mounts};
pub use node_files::{
    Counters, HugetlbPool, NodeError, NodeFiles, nodes, online_nodes, parse_counters, parse_node_meminfo, system_events,
};
pub use node_state::NodeState;
pub use numa_maps::{NumaMapping, parse_numa_maps, policy_may_be_cut};
pub use page_batch::{PageBatch, PageRefusal, PageStatus};
pub use page_flags::{FrameFlags, PageFlags};
pub use page_walk::{Page, PageWalk, WalkError};
pub use pagemap::{PageEntry, Pagemap};
pub use pages::{HUGE_PAGE, Pages, Zeroed};
pub use pci::pci_device;
pub use peer::{Peer, peer};
pub use perf_ring::{set_perf_period, share_perf_ring};
pub use present::{BASE_PAGE, Extent, PresentPages};
pub use private_copy::{NotCopied, PrivateCopies};
pub use process::{
    MalformedLine, Mapping, Pid, Process, ProcessError, Status, Tid, parse_maps, parse_status, printable,
};
pub use refusal::{Capability, Cause, Diagnosis, with_capability};
pub use resctrl::{BandwidthMonitors, CacheTraffic};
pub use residence::{NodePages, PageKind, Residence, Residences, residences, total_pages};
pub use route::{Destination, Route};
pub use shared_range::{Row, SegmentKey, SharedRange};
pub use shared_words::SharedWords;
pub use signals::is_ignored;
pub use smaps::{MappingUse, parse_smaps};
pub use start_time::{StartTime, boot_id, parse_start_time, ticks};
pub use switch::{Switch, SwitchError, split_huge_pages};
pub use switch_guard::SwitchGuard;
pub use system_state::{Subject, SystemState};
pub use tally::{Amount, Stayed, Tally};
pub use thread_stack::{stack_around, stack_pointer_of, thread_stack};
pub use threads::{PolicyMark, Thread, last_cpu, thread_policy, threads};
