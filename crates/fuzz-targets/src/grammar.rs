//! Files and words of users.

use agent::Configuration;
use agent::broker::{Message, read_call, read_message};
use explore::Campaign;
use linux::parse_maps;
use machine::{CpuSet, Machine, NodeId, NodeSet, Selection};
use observe::{RegionRules, Regions};
use reserve::{Asker, Control, Facts, Ledger, Plan, Rules, read_calls};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Machine files: writing a machine and reading it back gives the same machine.
pub(crate) fn machine_toml(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(machine) = Machine::from_toml(text, Path::new("fuzz.toml")) {
        let again = machine.to_toml().expect("a good machine can be written");
        assert_eq!(Machine::from_toml(&again, Path::new("again.toml")).expect("what we write can be read"), machine);
    }
}

/// Lines of types and counts: what is read is a valid machine that can be written.
pub(crate) fn synthetic(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(machine) = Machine::from_synthetic(text) {
        assert!(machine.validate().is_empty());
        let toml = machine.to_toml().expect("a good machine can be written");
        assert_eq!(Machine::from_toml(&toml, Path::new("again.toml")).expect("what we write can be read"), machine);
    }
}

/// The configuration of the service. Writing it and reading it back gives the same.
pub(crate) fn agent_toml(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(configuration) = Configuration::from_toml(text, Path::new("fuzz.toml")) {
        let again = toml::to_string(&configuration).unwrap();
        assert_eq!(Configuration::from_toml(&again, Path::new("again.toml")).unwrap(), configuration);
    }
}

/// Campaign files: cells have different names and ids, and are found by their labels.
pub(crate) fn campaign_toml(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(campaign) = Campaign::from_toml(text, Path::new("fuzz.toml"), "1") {
        assert!(
            campaign.cells.iter().all(|cell| campaign.cell(&cell.labels) == Some(cell) && !cell.command.is_empty())
        );
        let names: BTreeSet<&str> = campaign.cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names.len(), campaign.cells.len());
    }
}

/// Names of ranges: what is named has a name, and is not empty.
pub(crate) fn regions(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(rules) = RegionRules::parse(text, Path::new("fuzz.toml")) {
        let maps = "1000-3000 r-xp 0 0:0 5 /bin/a\n3000-4000 rw-p 2000 0:0 5 /bin/a\n4000-9000 rw-p 0 0:0 0\n\
                    a000-fffffffffffff000 rw-p 0 0:0 0 [anon:weights]\n";
        let named = Regions::new(rules).named(&parse_maps(maps).unwrap());
        assert!(named.iter().all(|named| named.range.start < named.range.end && !named.name.is_empty()));
    }
}

/// Plans of requests: each request obeys the rules, and is decided on a machine, whatever it asks for.
pub(crate) fn plan_toml(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(plan) = Plan::from_toml(text, Path::new("fuzz.toml")) {
        assert!(plan.requests.iter().all(|request| request.violations().is_empty()));
        let mut ledger = small_ledger();
        ledger.rules = plan.rules.clone();
        // More requests only take longer.
        let _ = ledger.admit(&plan.requests[..plan.requests.len().min(8)], &Asker::default());
    }
}

/// Lines of calls: what is read is decided or refused.
pub(crate) fn calls(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(actions) = read_calls(text) {
        let _ = small_ledger().apply(&actions, &Asker::default());
    }
}

/// Calls of the broker: writing a call and reading it back gives the same call.
pub(crate) fn broker_call(bytes: &[u8]) {
    if let Ok(Message::Call(call)) = read_message(bytes) {
        let written = serde_json::to_vec(&call).expect("a call has JSON");
        assert_eq!(read_call(&written), Ok(call));
    }
}

fn small_ledger() -> Ledger {
    let machine = machine::presets::find("small-2x2").expect("a preset");
    Ledger::new(Arc::new(Facts::new(machine, Control::default())), Rules::default())
}

/// The grammar of sets shared by sysfs, cpusets and machine files: writing a set and reading it back gives the same set.
pub(crate) fn set(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(set) = text.parse::<CpuSet>() {
        assert_eq!(set.to_string().parse(), Ok(set));
    }
}

/// Nodes in numactl's syntax: the resolved set is never empty, and an inverted selection stays within the allowed nodes.
pub(crate) fn selection(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let allowed: NodeSet = [0, 2, 3, 9].map(NodeId).into_iter().collect();
    let Ok(selection) = text.parse::<Selection<NodeId>>() else { return };
    if let Ok(set) = selection.resolve(&allowed, Some(&allowed), |_| Err(String::new())) {
        assert!(!set.is_empty());
        assert!(!text.trim().starts_with('!') || set.is_subset(&allowed));
    }
}
