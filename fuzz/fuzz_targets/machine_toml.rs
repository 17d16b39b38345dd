//! Machine files: writing a machine and reading it back gives the same machine.
#![no_main]

use libfuzzer_sys::fuzz_target;
use machine::Machine;
use std::path::Path;

fuzz_target!(|text: &str| {
    if let Ok(machine) = Machine::from_toml(text, Path::new("fuzz.toml")) {
        let again = machine.to_toml().expect("a good machine can be written");
        assert_eq!(Machine::from_toml(&again, Path::new("again.toml")).expect("what we write can be read"), machine);
    }
});
