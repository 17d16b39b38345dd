//! The configuration of the service. Writing it and reading it back gives the same.
#![no_main]

use agent::Configuration;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|text: &str| {
    if let Ok(configuration) = Configuration::from_toml(text, Path::new("fuzz.toml")) {
        let again = toml::to_string(&configuration).unwrap();
        assert_eq!(Configuration::from_toml(&again, Path::new("again.toml")).unwrap(), configuration);
    }
});
