//! Files and words of users.

use agent::Configuration;
use machine::{CpuSet, Machine, NodeId, NodeSet, Selection};
use std::path::Path;

/// Machine files: what is read can be written and is read back as the same machine.
pub(crate) fn machine_toml(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(machine) = Machine::from_toml(text, Path::new("fuzz.toml")) {
        let again = machine.to_toml().expect("a good machine can be written");
        assert_eq!(Machine::from_toml(&again, Path::new("again.toml")).expect("what we write can be read"), machine);
    }
}

/// The configuration of the service. What is written again is read again as the same.
pub(crate) fn agent_toml(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(configuration) = Configuration::from_toml(text, Path::new("fuzz.toml")) {
        let again = toml::to_string(&configuration).unwrap();
        assert_eq!(Configuration::from_toml(&again, Path::new("again.toml")).unwrap(), configuration);
    }
}

/// The grammar of sets that sysfs, cpusets and machine files share: what is read can be written and is read back as the
/// same set.
pub(crate) fn set(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(set) = text.parse::<CpuSet>() {
        assert_eq!(set.to_string().parse(), Ok(set));
    }
}

/// Nodes as numactl's users name them: what is resolved is never empty, and an inverted selection stays within what is
/// allowed.
pub(crate) fn selection(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let allowed: NodeSet = [0, 2, 3, 9].map(NodeId).into_iter().collect();
    let Ok(selection) = text.parse::<Selection<NodeId>>() else { return };
    if let Ok(set) = selection.resolve(&allowed, Some(&allowed), |_| Err(String::new())) {
        assert!(!set.is_empty());
        assert!(!text.trim().starts_with('!') || set.is_subset(&allowed));
    }
}
