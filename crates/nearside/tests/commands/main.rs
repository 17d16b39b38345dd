//! Whole commands on this host, without virtual machines.

mod documents;
mod manual;
mod measure;
mod memory;
mod place;
mod record;
mod report;
mod report_pictures;
mod show;
#[cfg(feature = "sql")]
mod sql;
#[path = "../support/mod.rs"]
mod support;
mod top;
mod topology;
#[path = "../../../profile/tests/support/mod.rs"]
mod traces;
