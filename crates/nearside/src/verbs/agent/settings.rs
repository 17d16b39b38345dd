//! Settings of the service on this machine: its configuration, with the names in it resolved.

use super::name;
use crate::options::usage_error::UsageError;
use crate::verbs::place::{described, own_processes};
use crate::verbs::reserve::records_folder;
use agent::control::Access;
use agent::{Configuration, RegionPlace, Scope};
use machine::{Machine, Violation, chain};
use observe::RegionRules;
use placement::Policy;
use rustix::process::{getegid, geteuid};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct Settings {
    pub configuration: Configuration,
    pub machine: Machine,
    pub scope: Scope,
    /// Owner and group of the socket.
    pub access: Access,
}

/// Reads a configuration, or takes the defaults without one.
pub fn read(file: Option<&Path>) -> Result<Settings, Box<dyn Error>> {
    let configuration = match file {
        Some(file) => Configuration::load(file, missing).map_err(UsageError::boxed)?,
        None => Configuration::default(),
    };
    let scope = scope_of(&configuration)?;
    let socket = &configuration.socket;
    let access = Access {
        owner: socket.owner.as_deref().and_then(name::user).unwrap_or(geteuid().as_raw()),
        group: socket.group.as_deref().and_then(name::group).unwrap_or(getegid().as_raw()),
    };
    let (machine, _) = machine_of(&configuration)?;
    Ok(Settings { configuration, machine, scope, access })
}

fn scope_of(configuration: &Configuration) -> Result<Scope, Box<dyn Error>> {
    let scope = Scope::new(&configuration.managed, &configuration.not_managed, name::user);
    let scope = own_processes(scope.map_err(UsageError::boxed)?);
    Ok(if configuration.reserve.enabled { scope.without_grants(records_folder()) } else { scope })
}

impl Settings {
    /// With those parts that are used at the start only as they were then.
    pub fn with_start_of(self, start: &Self) -> Result<Self, Box<dyn Error>> {
        let of_start = start.configuration.clone();
        let configuration = Configuration {
            folder: of_start.folder,
            socket: of_start.socket,
            reserve: of_start.reserve,
            ..self.configuration
        };
        Ok(Self { scope: scope_of(&configuration)?, access: start.access, configuration, ..self })
    }
}

fn machine_of(configuration: &Configuration) -> Result<(Machine, bool), Box<dyn Error>> {
    let file = configuration.machine.as_ref().map(|file| file.to_string_lossy());
    described(file.as_deref())
}

/// Names in a configuration that do not exist on this machine.
fn missing(configuration: &Configuration) -> Vec<Violation> {
    let mut found = missing_users(configuration);
    let rules = configuration.regions.file.as_deref().map(RegionRules::load).transpose();
    found.extend(rules.err().map(|error| wrong("regions.file", chain(&error))));
    match machine_of(configuration) {
        Ok((machine, _)) => {
            let policy = Policy::new(configuration.policy.clone(), &machine, placement::Settings::default());
            found.extend(policy.err().map(|error| wrong("policy", chain(&error))));
            found.extend(missing_nodes(&configuration.regions.places, &machine));
        }
        // Errors of this host's own topology are reported where it is used.
        Err(error) => found.extend(configuration.machine.as_ref().map(|_| wrong("machine", chain(error.as_ref())))),
    }
    found
}

/// Places of named ranges that have no memory.
fn missing_nodes(places: &BTreeMap<String, RegionPlace>, machine: &Machine) -> Vec<Violation> {
    let has_memory = |id| machine.nodes.iter().any(|node| node.id == id && node.memory_bytes > 0);
    let missing = |(name, place): (&String, &RegionPlace)| match place {
        RegionPlace::Here => None,
        RegionPlace::On(nodes) => {
            let node = nodes.iter().find(|node| !has_memory(*node))?;
            Some(wrong(format!("regions.places.{name}"), format!("there is no node {node} with memory")))
        }
    };
    places.iter().filter_map(missing).collect()
}

fn missing_users(configuration: &Configuration) -> Vec<Violation> {
    let no_user = |name: &str| format!("there is no user `{name}`");
    let mut found = Vec::new();
    for (table, chosen) in [("managed", &configuration.managed), ("not_managed", &configuration.not_managed)] {
        let unknown = chosen.users.iter().enumerate().filter(|(_, user)| name::user(user).is_none());
        found.extend(unknown.map(|(index, user)| wrong(format!("{table}.users[{index}]"), no_user(user))));
    }
    let socket = &configuration.socket;
    let owner = socket.owner.as_ref().filter(|owner| name::user(owner).is_none());
    found.extend(owner.map(|owner| wrong("socket.owner", no_user(owner))));
    let no_group = |name: &str| format!("there is no group `{name}`");
    let group = socket.group.as_ref().filter(|group| name::group(group).is_none());
    found.extend(group.map(|group| wrong("socket.group", no_group(group))));
    let reserve = &configuration.reserve;
    let users = reserve.users.keys().filter(|user| name::user(user).is_none());
    found.extend(users.map(|user| wrong(format!("reserve.users.{user}"), no_user(user))));
    let groups = reserve.groups.keys().filter(|group| name::group(group).is_none());
    found.extend(groups.map(|group| wrong(format!("reserve.groups.{group}"), no_group(group))));
    found
}

fn wrong(field: impl Into<String>, rule: String) -> Violation {
    Violation { field: field.into(), rule }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_names_are_reported_with_their_line() {
        let text = "policy = \"bind:4000\"\n[managed]\nusers = [\"0\", \"no-such-user\"]\n\
                    [socket]\nowner = \"no-such-user\"\ngroup = \"no-such-group\"\n";
        let told = Configuration::read(text, Path::new("/a.toml"), missing).unwrap_err().to_string();
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "/a.toml:3: managed.users[1]: there is no user `no-such-user`",
                "/a.toml:5: socket.owner: there is no user `no-such-user`",
                "/a.toml:6: socket.group: there is no group `no-such-group`",
            ]
        );
        assert!(lines[3].starts_with("/a.toml:1: policy: policy bind:4000"), "{told}");
        let text = "[regions]\nfile = \"/nowhere/names.toml\"\nplaces = { mesh = \"here\", weights = \"0,4000\" }\n";
        let told = Configuration::read(text, Path::new("/a.toml"), missing).unwrap_err().to_string();
        assert!(told.contains("/a.toml:2: regions.file: ") && told.contains("/nowhere/names.toml"), "{told}");
        assert!(told.contains("/a.toml:3: regions.places.weights: there is no node 4000 with memory"), "{told}");
        let text = "\nmachine = \"/nowhere/machine.toml\"\n";
        let told = Configuration::read(text, Path::new("/a.toml"), missing).unwrap_err().to_string();
        assert!(told.starts_with("/a.toml:2: machine: ") && told.contains("/nowhere/machine.toml"), "{told}");
    }
}
