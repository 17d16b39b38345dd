//! All integration tests of this crate: one binary, as each takes its time to link.

mod hwloc_tools;
mod machine_files;
mod presets;
mod routes;
mod sysfs;
