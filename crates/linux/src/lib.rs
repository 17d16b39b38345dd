//! Safe, typed wrappers of the Linux interfaces that nearside needs and no library has. It can be used alone:
//! `nearside-linux = "0.1"`, and `use linux::…`.
//!
//! | what | where |
//! |---|---|
//! | nodes: memory, counters, distances, CPUs | [`nodes`], [`NodeState`], [`system_events`] |
//! | a process: mappings, threads, status, and identity | [`Process`], [`threads()`], [`StartTime`] |
//! | where its memory is, and in which pages | [`parse_numa_maps`], [`parse_smaps`], [`residences`], [`PageWalk`] |
//! | memory of one's own, and the nodes of its pages | [`NodeMemory`], [`RangeNodes`] |
//! | memory policies | [`set_memory_policy`], [`bind_range`], [`set_home_node`], [`Switch::interleave_weight`] |
//! | moving pages | [`Migration`], [`PageBatch`], [`migrate_pages`], [`Follower`] |
//! | copies of a file's pages for one process | [`PrivateCopies`], [`Mapping::may_have_copies`], [`is_open_for_writing`] |
//! | affinity, also of a child before it runs | [`affinity()`], [`set_affinity`], [`current_cpu`], [`CurrentNode`], [`ChildSetup::place`] |
//! | CPU time | [`process_cpu_time`], [`thread_times`] |
//! | nodes of physical addresses | [`memory_blocks`] |
//! | one heap for all threads | [`share_one_heap`] |
//! | page sizes and presence | [`advise()`], [`AdvisedProcess`], [`huge_pages_by_node`], [`split_huge_pages`] |
//! | shared memory | [`SharedRange`] |
//! | data that a processor writes beside perf's records | [`AuxArea`] |
//! | control groups and cpusets | [`Cgroups`], [`CgroupGroup`] |
//! | CPUs that serve interrupts | [`interrupts()`] |
//! | the peer of a socket | [`peer()`] |
//! | files that no other user may exchange | [`PrivateFolder`] |
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

mod file;
mod memory;
mod migration;
mod nodes;
mod perf;
mod private_folder;
mod processes;
mod refusals;
mod resctrl;
mod residence;

// IDs, sets and policies used by these interfaces.
pub use machine::{CpuId, CpuSet, IdSet, MemoryMode, MemoryPolicy, NodeId, NodeNumbering, NodeSet};

pub use file::FileError;
pub use memory::advice::{Advice, AdvisedProcess, advise};
pub use memory::heap::share_one_heap;
pub use memory::hint::{GivenHint, Hint, NoHint, given_hints};
pub use memory::huge_page_use::forbid_huge_pages;
pub use memory::huge_pages::{HugePagesError, huge_page_bytes, huge_pages_by_node};
pub use memory::lazy_move::{LazyMove, LazyMoveError, LazyTally};
pub use memory::memory_policy::{
    Misplaced, Whose, allowed_memory_nodes, bind_range, memory_policy, memory_policy_at, migrate_pages,
    mode_with_flags, next_interleave_node, node_at, node_of, parse_memory_policy, policy_with_number, set_home_node,
    set_memory_policy,
};
pub use memory::named_region::{GivenRegion, MOST_REGION_NAME_BYTES, NamedRange, NoNamedRange, named_ranges};
pub use memory::node_memory::NodeMemory;
pub use memory::pages::{HUGE_PAGE, Pages, Zeroed};
pub use memory::private_copy::{NotCopied, PrivateCopies};
pub use memory::shared_range::{Row, SegmentKey, SharedRange};
pub use memory::user_faults::Faults;
pub use migration::follow::{Departure, Follower};
pub use migration::migrate::{MigrateError, Migration};
pub use migration::page_batch::{PageBatch, PageRefusal, PageStatus};
pub use migration::route::{Destination, Route};
pub use migration::tally::{Amount, Moves, Stayed, Tally};
pub use nodes::available_memory::available_memory;
pub use nodes::device_node::device_nodes;
pub use nodes::free_memory::FreeMemory;
pub use nodes::interrupts::{Interrupt, interrupts};
pub use nodes::loopback::bring_loopback_up;
pub use nodes::memory_blocks::memory_blocks;
pub use nodes::mounts::{Mount, mounts, parse_mounts};
pub use nodes::node_files::{
    Counters, HugetlbPool, NodeError, NodeFiles, nodes, online_nodes, parse_counters, parse_node_meminfo, system_events,
};
pub use nodes::node_state::NodeState;
pub use nodes::pci::pci_memory;
pub use perf::aux_area::AuxArea;
pub use perf::clock::{keeps_time_by_tsc, monotonic_ns, tsc, tsc_and_monotonic_ns};
pub use perf::file_words::FileWords;
pub use perf::perf_ring::{clear_perf_rings, set_perf_period, share_perf_ring, watch_perf_rings};
pub use perf::shared_words::SharedWords;
pub use private_folder::{PrivateFolder, PrivateFolderError, Trust};
pub use processes::affinity::{affinity, current_cpu, set_affinity};
pub use processes::cgroup::{
    CgroupError, CgroupMemory, Cgroups, EffectiveCpuset, MemoryLimit, cgroup2_mount, parse_cgroup,
    parse_memory_numa_stat,
};
pub use processes::cgroup_group::{CgroupGroup, CgroupGroupError, Partition};
pub use processes::child::{BeginTime, ChildSetup, Credentials, wait_with_peak};
pub use processes::cpu_time::{ThreadTimes, first_thread_share, process_cpu_time, thread_times};
pub use processes::cpusets::Cpusets;
pub use processes::current_node::CurrentNode;
pub use processes::entropy::use_added_entropy;
pub use processes::file_copies::{FileCopyError, replicate_files};
pub use processes::file_limit::raise_file_limit;
pub use processes::lease::is_open_for_writing;
pub use processes::message_client::MessageClient;
pub use processes::messages::{MOST_FILES, Message, message_pair, receive, send};
pub use processes::peer::{Peer, peer};
pub use processes::pidfd::{PidfdError, copy_own_file, open_pidfd, process_of};
pub use processes::process::{
    MalformedLine, Mapping, Pid, Process, ProcessError, Status, Tid, mapped_parts, parse_maps, parse_status, printable,
};
pub use processes::program_file::{program_file, why_not_started};
pub use processes::session::is_of_parents_session;
pub use processes::signals::is_ignored;
pub use processes::start_time::{StartTime, boot_id, parse_start_time, ticks};
pub use processes::thread_stack::{stack_around, stack_pointer_of, thread_stack};
pub use processes::threads::{PolicyMark, Thread, thread_cpu, thread_policy, threads};
pub use refusals::diagnosis::{
    Attempt, cpus_in_the_way, diagnose, diagnose_pages, diagnose_process, missing_nodes, nodes_in_the_way,
    without_memory,
};
pub use refusals::feature::Feature;
pub use refusals::refusal::{Capability, Cause, Diagnosis, with_capability};
pub use refusals::switch::{Switch, SwitchError, split_huge_pages};
pub use refusals::switch_guard::SwitchGuard;
pub use refusals::system_state::{Subject, SystemState, exists};
pub use resctrl::control::{BandwidthLimit, BandwidthUnit, CacheWays, Resctrl, ResctrlFiles, ResctrlOffer};
pub use resctrl::monitors::{BandwidthMonitors, CacheTraffic, MOUNT_RESCTRL};
pub use resctrl::schemata::{Schemata, parse_schemata};
pub use residence::numa_maps::{NumaMapping, parse_numa_maps, policy_may_be_cut};
pub use residence::page_flags::{FrameFlags, PageFlags};
pub use residence::page_walk::{Page, PageWalk, WalkError};
pub use residence::pagemap::{PageEntry, Pagemap};
pub use residence::present::{Extent, PresentPages};
pub use residence::range_nodes::RangeNodes;
pub use residence::residences::{NodePages, PageKind, Residence, Residences, residences, total_pages};
pub use residence::smaps::{MappingUse, parse_smaps};
