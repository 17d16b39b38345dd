//! Whole commands on virtual machines: as many machines at a time as the host has CPUs. A test says what its run may leave
//! behind: nothing.

mod agent;
mod boots;
mod calls;
mod clock;
mod compare;
mod counters;
mod explore;
mod failures;
mod files;
mod hugepages;
mod interrupts;
mod kernel_balancing;
mod kernel_events;
mod kernel_module;
mod library;
mod look;
mod machine;
mod measure;
mod migrate;
mod padding;
mod place;
mod policies;
mod record;
mod reserve;
mod reserve_agent;
mod reserve_control;
mod reserve_service;
mod run;
mod shake;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod top;

/// A shell function that waits until a command succeeds, or prints `never: ` and the command.
const WAIT_FOR: &str = include_str!("programs/wait_for.sh");
