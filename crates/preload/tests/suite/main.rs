//! All integration tests of this crate: one binary, as each takes its time to link.

mod hard_cases;
mod objects;
mod real_programs;
mod small_parts;
#[path = "../support/mod.rs"]
mod support;
