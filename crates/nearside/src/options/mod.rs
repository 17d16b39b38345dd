//! Options that several verbs share, and what they choose: machines, nodes, policies, parts of a trace.

pub mod machine_source;
pub mod places;
pub mod policy;
pub mod shared_memory_policy;
pub mod system;
pub mod trace_filter;
pub mod usage_error;
