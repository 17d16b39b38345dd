//! Whole commands on this host, without virtual machines.
//!
//! trycmd would save the few lines around each of ten snapshots, but not insta, whose snapshots also cover other crates
//! and parts of outputs, and needs a dozen more crates.

mod assertions;
mod bounds;
mod compare;
mod completions;
mod configuration;
mod devices;
mod documents;
mod elf_bombs;
mod explore;
mod export;
mod heap;
mod hostile;
mod hugepages;
mod json;
mod manual;
mod measure;
mod memory;
mod mistakes;
mod packages;
mod peaks;
#[path = "../../../trace/tests/perf_file/mod.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod perf_file;
mod place;
mod record;
mod report;
mod report_pictures;
mod reserve;
mod run;
mod show;
mod slurm;
#[cfg(feature = "sql")]
mod sql;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
mod top;
mod topology;
#[path = "../../../profile/tests/support/mod.rs"]
mod traces;
mod umask;
