//! Options that several verbs share, and what they choose: machines, nodes, policies, parts of a trace.

pub mod candidates;
pub mod heap;
pub mod help_text;
pub mod loaded_first;
pub mod machine_source;
pub mod places;
pub mod policy;
pub mod process_name;
pub mod regions;
pub mod seconds;
pub mod shared_memory_policy;
pub mod system;
pub mod thresholds;
pub mod trace_filter;
pub mod usage_error;
pub mod user_configuration;
pub mod value_error;
