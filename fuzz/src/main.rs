//! Fuzzes one parser of outside input, the one that `NEARSIDE_FUZZ_TARGET` names.
#![no_main]

use fuzz_targets::{Target, target};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("NEARSIDE_FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| panic!("NEARSIDE_FUZZ_TARGET={name} names no target: see fuzz/README.md"))
});

fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
