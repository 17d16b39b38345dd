//! All integration tests of this crate: one binary, as each takes its time to link.

mod advice;
mod attribution;
mod contention;
mod evidence;
mod home;
mod huge_pages;
mod nested;
mod output;
mod properties;
#[path = "../support/mod.rs"]
mod support;
