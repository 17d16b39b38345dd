//! Grants that the service makes for users of the machine.

use super::name;
use super::service::note;
use super::sleep::Waker;
use crate::options::usage_error::UsageError;
use crate::verbs::reserve::{SYSTEM_FOLDER, records_folder, to_carry_out};
use agent::broker::{Broker, Left, LiveGrants, Quotas, Settings};
use agent::grants::{Hardware, MemoryMonitor};
use agent::{ReserveSettings, ThrottleSetting};
use linux::{Cgroups, Pid, Process};
use machine::{Machine, chain};
use report::ReserveReport;
use reserve::{Control, Facts, Ledger, Quota, Rules, Throttle, Zone};
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How grants are made, if the configuration says that they are.
pub fn settings(
    settings: &ReserveSettings,
    machine: &Machine,
    live: &LiveGrants,
) -> Result<Option<Settings>, Box<dyn Error>> {
    if !settings.enabled {
        return Ok(None);
    }
    if !geteuid().is_root() {
        return Err(UsageError::boxed("reserve.enabled: only root's agent makes grants: it makes control groups"));
    }
    linux::Cgroups::find()?.requires("cpuset")?;
    let (throttle, hardware) = throttle(settings.throttle)?;
    let control = Control { throttle, ways: None };
    let zone = Zone { cpus: settings.zone.clone(), keep_back: settings.keep_back.clone() };
    let rules = Rules {
        zone,
        rule: settings.rule,
        keep_tenants: settings.keep_tenants,
        without_directory: settings.without_directory,
    };
    let facts = Facts::new(machine.clone(), control);
    let unknown = rules.zone.unknown(&facts);
    if !unknown.is_empty() {
        let all = facts.machine.cpus();
        return Err(UsageError::boxed(format!("reserve: no CPUs {unknown}: this machine has CPUs {all}")));
    }
    check_limited(&settings.limit)?;
    let is_limited = !settings.limit.is_empty() || throttle == Throttle::Hardware;
    let keep_tenants = settings.keep_tenants;
    let mut ledger = to_carry_out(Ledger::new(Arc::new(facts), rules), hardware);
    ledger.rules.keep_tenants = keep_tenants;
    Ok(Some(Settings {
        folder: SYSTEM_FOLDER.into(),
        records: records_folder(),
        ledger,
        isolate_zone: settings.isolate_zone,
        limited: settings.limit.clone(),
        quotas: quotas(settings),
        report: Box::new(move |facts, decided| {
            let report = ReserveReport::new(facts, decided);
            let guards = decided.as_ref().is_ok_and(|admitted| !admitted.forecast.rest_limit.is_empty());
            let unlimited = "  nothing limits the rest of the machine: `limit` below [reserve] names control groups\n";
            let more = if guards && !is_limited { unlimited } else { "" };
            (format!("{report}{more}"), serde_json::to_value(&report).unwrap_or_default())
        }),
        note: Box::new(note),
        hardware,
        live: live.clone(),
        monitor: monitor(settings.monitor_s),
    }))
}

/// Refuses to limit the agent itself, and notes groups that are not there.
fn check_limited(groups: &[String]) -> Result<(), Box<dyn Error>> {
    let cgroups = Cgroups::find()?;
    let own = cgroups.of(&Process::open(Pid(std::process::id()))?)?;
    for group in groups {
        if Path::new(&own).starts_with(group) {
            let text = format!("reserve.limit: {group} has the agent itself, in {own}: name groups that it is not in");
            return Err(UsageError::boxed(text));
        }
        if !cgroups.folder_of(group).join("cpu.max").is_file() {
            note(&format!("reserve.limit: {group} is limited once it exists and has the CPU controller"));
        }
    }
    Ok(())
}

/// What counts memory traffic, and how often.
fn monitor(period_s: f64) -> Option<(MemoryMonitor, Duration)> {
    if period_s == 0.0 {
        return None;
    }
    let found = MemoryMonitor::find();
    if let Err(error) = &found {
        note(&format!(
            "what grants draw from memory is not counted, and forecasts are made by promises: {}",
            chain(error)
        ));
    }
    found.ok()?.map(|monitor| (monitor, Duration::from_secs_f64(period_s)))
}

/// What limits the rest of the machine, and the control hardware.
fn throttle(setting: ThrottleSetting) -> Result<(Throttle, Option<Hardware>), Box<dyn Error>> {
    let hardware = Hardware::find()?;
    let has_limits = hardware.is_some_and(Hardware::has_limits);
    let throttle = match setting {
        ThrottleSetting::Best | ThrottleSetting::Hardware if has_limits => Throttle::Hardware,
        ThrottleSetting::Hardware => {
            let why = "reserve.throttle = \"hardware\": the processor limits no bandwidth, or resctrl is not mounted: `nearside doctor` says which";
            return Err(UsageError::boxed(why));
        }
        ThrottleSetting::Best | ThrottleSetting::Duty => Throttle::Duty,
        ThrottleSetting::None => Throttle::None,
    };
    Ok((throttle, hardware))
}

/// Begins to serve.
pub fn begin(settings: Settings, left: Left, waker: Waker) -> Result<Broker, Box<dyn Error>> {
    let broker = Broker::start(settings, left, move || waker.wake())?;
    note(&format!("grants are made at {SYSTEM_FOLDER}/{}", agent::broker::SOCKET));
    Ok(broker)
}

/// The quotas by number. Unknown names are reported with the configuration.
fn quotas(settings: &ReserveSettings) -> Quotas {
    let by_number = |names: &BTreeMap<String, Quota>, number: fn(&str) -> Option<u32>| {
        names.iter().filter_map(|(name, quota)| Some((number(name)?, *quota))).collect()
    };
    Quotas { users: by_number(&settings.users, name::user), groups: by_number(&settings.groups, name::group) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_that_is_not_there_is_refused_by_name() {
        match Hardware::find() {
            Ok(None) => {
                let said = throttle(ThrottleSetting::Hardware).unwrap_err().to_string();
                assert!(
                    said.starts_with("reserve.throttle = \"hardware\": the processor limits no bandwidth, or"),
                    "{said}"
                );
                assert_eq!(throttle(ThrottleSetting::Best).unwrap().0, Throttle::Duty);
            }
            // This host has control hardware, or its own may be read by root only.
            _ => test_tools::skipped("this host has control hardware"),
        }
    }
}
