//! All integration tests of this crate: one binary, as each takes its time to link.

mod compare;
mod explore;
mod flamegraph;
mod html;
mod layout;
mod perfetto;
mod profile;
#[path = "../support/mod.rs"]
mod support;
#[path = "../../../profile/tests/support/mod.rs"]
mod traces;
