//! Safe, typed wrappers of the Linux interfaces that nearside needs and no library has. The only crate, beside the
//! QEMU plugin, with `unsafe` code.

mod advice;
mod affinity;
mod cause;
mod cgroup;
mod child;
mod device_node;
mod diagnosis;
mod feature;
mod follow;
mod huge_page_use;
mod huge_pages;
mod interfaces;
mod loopback;
mod mask;
mod memory_policy;
mod migrate;
mod node_files;
mod node_state;
mod numa_maps;
mod page_batch;
mod page_flags;
mod page_walk;
mod pagemap;
mod pages;
mod present;
mod process;
mod residence;
mod route;
mod shared_range;
mod shared_words;
mod situation;
mod smaps;
mod switch;
mod tally;
mod threads;

pub use advice::{Advice, AdvisedProcess, advise};
pub use affinity::{affinity, current_cpu, set_affinity};
pub use cause::{Capability, Cause, Diagnosis, with_capability};
pub use cgroup::{
    CgroupError, CgroupMemory, Cgroups, EffectiveCpuset, cgroup2_mount, parse_cgroup, parse_memory_numa_stat,
};
pub use child::{ChildSetup, Credentials};
pub use device_node::device_nodes;
pub use diagnosis::{
    Attempt, cpus_in_the_way, diagnose, diagnose_pages, diagnose_process, nodes_in_the_way, without_memory,
};
pub use feature::Feature;
pub use follow::{Departure, Follower};
pub use huge_page_use::forbid_huge_pages;
pub use huge_pages::{HugePagesError, huge_page_bytes, huge_pages_by_node};
pub use loopback::bring_loopback_up;
pub use memory_policy::{
    MemoryMode, MemoryPolicy, Misplaced, NodeNumbering, Whose, allowed_memory_nodes, bind_range, memory_policy,
    memory_policy_at, migrate_pages, next_interleave_node, node_at, node_of, set_home_node, set_memory_policy,
};
pub use migrate::{MigrateError, Migration};
pub use node_files::{
    Counters, HugetlbPool, NodeError, NodeFiles, nodes, nodes_of_cpus, online_nodes, parse_counters,
    parse_node_meminfo, system_events,
};
pub use node_state::NodeState;
pub use numa_maps::{NumaMapping, parse_numa_maps};
pub use page_batch::{PageBatch, PageRefusal, PageStatus};
pub use page_flags::{FrameFlags, PageFlags};
pub use page_walk::{Page, PageWalk, WalkError};
pub use pagemap::{PageEntry, Pagemap};
pub use pages::{HUGE_PAGE, Pages};
pub use present::{BASE_PAGE, Extent, PresentPages};
pub use process::{MalformedLine, Mapping, Pid, Process, ProcessError, Status, Tid, parse_maps, parse_status};
pub use residence::{NodePages, PageKind, Residence, Residences, residences, total_pages};
pub use route::{Course, Route};
pub use shared_range::{Row, SegmentKey, SharedRange};
pub use shared_words::SharedWords;
pub use situation::{Situation, Subject};
pub use smaps::{MappingUse, parse_smaps};
pub use switch::{Switch, SwitchError, SwitchGuard, split_huge_pages};
pub use tally::{Amount, Stayed, Tally};
pub use threads::{PolicyMark, Thread, last_cpu, threads};
