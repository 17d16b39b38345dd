//! Safe, typed wrappers of the Linux interfaces that nearside needs and no library has. The only crate, beside the
//! QEMU plugin, with `unsafe` code.

mod affinity;
mod cgroup;
mod child;
mod loopback;
mod memory_policy;
mod node_files;
mod numa_maps;
mod pages;
mod process;
mod shared_words;
mod smaps;

pub use affinity::{affinity, set_affinity};
pub use cgroup::{
    CgroupError, CgroupMemory, Cgroups, EffectiveCpuset, cgroup2_mount, parse_cgroup, parse_memory_numa_stat,
};
pub use child::{ChildSetup, Credentials};
pub use loopback::bring_loopback_up;
pub use memory_policy::{MemoryPolicy, allowed_memory_nodes, node_of};
pub use node_files::{
    Counters, HugetlbPool, NodeError, NodeFiles, nodes, parse_counters, parse_node_meminfo, system_events,
};
pub use numa_maps::{NumaMapping, parse_numa_maps};
pub use pages::{HUGE_PAGE, Pages};
pub use process::{MalformedLine, Mapping, Pid, Process, ProcessError, Status, Tid, parse_maps, parse_status};
pub use shared_words::SharedWords;
pub use smaps::{MappingUse, parse_smaps};
