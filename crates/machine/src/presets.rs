//! The machines that come with nearside: the files of `machines/`, embedded in the program.

use crate::description::Machine;
use crate::file::MachineError;
use crate::nearest::nearest;
use std::path::Path;

macro_rules! presets {
    ($($name:literal),+) => {
        &[$(($name, include_str!(concat!("../../../machines/", $name, ".toml")))),+]
    };
}

/// Name and text of each, in alphabetical order.
const PRESETS: &[(&str, &str)] = presets![
    "epyc-9224x2-cxl",
    "epyc-9354px1-nps4",
    "magny-cours-4p",
    "magny-cours-4p-control",
    "magny-cours-4p-no-directory",
    "nehalem-ex-8p",
    "odd-24",
    "odd-cxl",
    "odd-memoryless",
    "odd-sparse",
    "opteron-2356x2",
    "opteron-6164x2",
    "opteron-6174x4",
    "opteron-8380x4",
    "small-2x2",
    "small-4x2",
    "small-8x2",
    "xeon-6130x2",
    "xeon-6130x4",
    "xeon-6980px2-snc3",
    "xeon-8180x2",
    "xeon-x5650x2"
];

/// The names of all presets.
pub fn names() -> Vec<&'static str> {
    PRESETS.iter().map(|(name, _)| *name).collect()
}

/// The end of a message about an unknown preset: all of them, one a line.
pub fn list(all: &[&str]) -> String {
    let lines: String = all.iter().flat_map(|name| ["\n  ", *name]).collect();
    format!("; the presets, which `nearside lab list` describes, are:{lines}")
}

/// The preset with this name.
pub fn find(name: &str) -> Result<Machine, MachineError> {
    if let Some((preset, text)) = PRESETS.iter().find(|(preset, _)| *preset == name) {
        return Machine::from_toml(text, Path::new(&format!("machines/{preset}.toml")));
    }
    Err(MachineError::UnknownPreset { name: name.to_owned(), nearest: nearest(name, names()), all: names() })
}

/// Loads a machine file if the text has a `/` or ends in `.toml`, and a preset otherwise.
pub fn load(name_or_path: &str) -> Result<Machine, MachineError> {
    let path = Path::new(name_or_path);
    let is_path = name_or_path.contains('/') || path.extension().is_some_and(|extension| extension == "toml");
    if is_path { Machine::load(path) } else { find(name_or_path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_keeps_the_rules_and_names_a_source_for_each_number() {
        for name in names() {
            let machine = find(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(machine.name, name);
            assert_eq!(machine.missing_sources(), []);
            let used = machine.to_toml().unwrap();
            for key in machine.sources.keys() {
                assert!(used.matches(&format!("\"{key}\"")).count() > 0, "{name}: source {key} is used nowhere");
            }
        }
    }

    #[test]
    fn every_machine_file_is_a_preset() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        files.sort();
        assert_eq!(files, names());
    }

    #[test]
    fn an_unknown_preset_gets_the_list_and_the_nearest_name() {
        let error = find("opteron-8380").unwrap_err();
        assert!(matches!(error, MachineError::UnknownPreset { nearest: Some("opteron-8380x4"), .. }), "{error}");
        let error = load("zzz").unwrap_err().to_string();
        assert!(error.contains("no preset `zzz`;") && error.contains(", are:\n  epyc-9224x2-cxl\n"), "{error}");
        assert!(matches!(load("./zzz"), Err(MachineError::Read { .. })));
        assert!(matches!(load("zzz.toml"), Err(MachineError::Read { .. })));
    }
}
