//! What each parser of outside input, and the allocator, must hold for any bytes: it never panics, and what else its
//! function says.
//!
//! `fuzz/` runs them with libFuzzer, for as long as one likes. `tests/seeds.rs` runs them on the seeds of `fuzz/corpus/`
//! and on some thousand changed ones. bolero would do both, but its plain tests only run the seeds as they are and random
//! bytes, which most parsers reject at once, and its libFuzzer needs `cargo bolero` to be installed.

mod allocator;
mod firmware;
mod grammar;
mod journal;
mod kernel_text;
mod recordings;

/// A parser, by the name of the folder of its seeds.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Reads these bytes; panics where a promise is broken.
    pub run: fn(&[u8]),
}

macro_rules! targets {
    ($($file:ident: $($name:ident),+;)+) => {
        /// All of them.
        pub const TARGETS: &[Target] = &[$($(Target { name: stringify!($name), run: $file::$name }),+),+];
    };
}

targets! {
    firmware: srat, slit, hmat, hwloc_xml;
    grammar: machine_toml, synthetic, agent_toml, campaign_toml, plan_toml, calls, broker_call, regions, set, selection;
    kernel_text: numa_maps, smaps, node_files, cgroup, process, schemata;
    recordings: trace, perf_data, spe;
    journal: journal;
    allocator: allocator;
}

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().copied().find(|target| target.name == name)
}
