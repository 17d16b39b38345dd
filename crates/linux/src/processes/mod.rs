//! Processes and threads: what they are, where they run, their control groups and files.

pub(crate) mod affinity;
pub(crate) mod cgroup;
pub(crate) mod cgroup_group;
pub(crate) mod child;
pub(crate) mod cpu_time;
pub(crate) mod cpusets;
pub(crate) mod current_node;
pub(crate) mod entropy;
pub(crate) mod file_copies;
pub(crate) mod file_limit;
pub(crate) mod lease;
pub(crate) mod message_client;
pub(crate) mod messages;
pub(crate) mod peer;
pub(crate) mod pidfd;
pub(crate) mod process;
pub(crate) mod program_file;
pub(crate) mod session;
pub(crate) mod signals;
pub(crate) mod start_time;
pub(crate) mod thread_stack;
pub(crate) mod threads;
pub(crate) mod truncation;
