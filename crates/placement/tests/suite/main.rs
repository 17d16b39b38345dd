//! All integration tests of this crate: one binary, as each takes its time to link.

mod action_text;
mod carrefour;
mod carrefour_today;
mod judged_moves;
mod kept_threads;
mod kernel_balancing;
mod lessons;
mod manager;
mod other_policies;
mod predict;
mod properties;
mod replay;
#[path = "../support/mod.rs"]
mod support;
