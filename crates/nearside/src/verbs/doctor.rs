//! `nearside doctor`: what on this host stands in nearside's way.

use crate::options::system::System;
use crate::options::usage_error::UsageError;
use crate::output;
use crate::output::json;
use crate::output::terminal::Terminal;
use clap::Args;
use lab::setup::Assets;
use linux::{Feature, MOUNT_RESCTRL, NodeState, Resctrl};
use machine::{PciDevice, bounded, chain};
use observe::{HintFaults, LabPmu, LiveError, PerfOptions, PerfSource, SideBand, Target};
use report::{DeviceReport, DevicesReport, DoctorReport, Finding};
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

/// Exit code: some feature does not work.
const PARTIAL: u8 = 3;

/// Report what works on this host, what does not, why, and how to fix it
///
/// Tries every kernel feature that nearside uses, as the current user, on memory and a thread of its own; nothing else
/// is changed. Needs no privileges; more works with more of them, so try it with sudo as well.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside doctor
  sudo nearside doctor
  nearside doctor --devices                 which interrupts are served by the wrong node
  nearside doctor --devices --root saved    of a saved /proc and /sys (see docs/topology.md)
  nearside doctor --json | jq -r '.features[] | select(.works | not) | .name'

Exit codes:
  0  everything works
  1  nothing could be tried
  2  the command line is wrong
  3  something does not work, an interrupt is served far from its device, or a device's node is unknown: it says what and why")]
pub struct Arguments {
    /// Instead of features, report devices (network cards, disks, graphics and other processors): their nodes, and
    /// the nodes that serve their interrupts
    #[arg(long)]
    devices: bool,

    /// Print the findings as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    system: System,
}

pub fn run(arguments: &Arguments, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    if arguments.devices {
        let report = devices(&arguments.system)?;
        let text = if arguments.json { json::document(&report)? } else { terminal.text(&report) };
        output::write(&text, None)?;
        return Ok(if report.is_fine() { ExitCode::SUCCESS } else { ExitCode::from(PARTIAL) });
    }
    if !arguments.system.is_live() {
        return Err(UsageError::boxed(
            "--root needs --devices: features are tried on this host, a saved system has none",
        ));
    }
    let tried = Feature::examine_all().map_err(|error| format!("cannot test any feature: {error}"))?;
    let mut features: Vec<Finding> = tried.iter().map(|(feature, result)| Finding::new(*feature, result)).collect();
    features.extend(lab_pmu());
    features.extend(sources());
    features.push(control_hardware(Path::new("/")));
    features.push(lab());
    let uname = rustix::system::uname();
    let kernel = uname.release().to_string_lossy().into_owned();
    let report = DoctorReport { kernel, uid: rustix::process::geteuid().as_raw(), features };
    let text = if arguments.json { json::document(&report)? } else { terminal.text(&report) };
    output::write(&text, None)?;
    let works = report.features.iter().all(|finding| finding.works);
    Ok(if works { ExitCode::SUCCESS } else { ExitCode::from(PARTIAL) })
}

/// The devices of a system.
fn devices(system: &System) -> Result<DevicesReport, Box<dyn Error>> {
    let state = NodeState::read(&system.sys())?;
    let with_cpus = state.nodes_of(&state.cpus_of(&state.online));
    let proc = system.proc();
    let judged = |device: PciDevice| {
        let cpus = device.interrupt_cpus(&proc);
        DeviceReport::new(device, &cpus, |cpus| state.nodes_of(cpus), &with_cpus)
    };
    let devices = PciDevice::all_of_sysfs(&system.sys()).into_iter().map(judged).collect();
    Ok(DevicesReport { nodes: state.online.len(), devices })
}

/// What a recording can observe. Starting the program oneself needs the fewest privileges.
fn sources() -> [Finding; 3] {
    let target = Target::Program;
    let options = PerfOptions { target: target.clone(), ..PerfOptions::default() };
    let without_pmu = "nearside lab record observes every program, and hint faults need no PMU";
    let samples = PerfSource::open(&options).map(drop).map_err(|error| (error, Some(without_pmu)));
    let side_band = SideBand::open(&target).map(drop).map_err(|error| (error, None));
    let faults = HintFaults::try_out().map(drop).map_err(|error| (error, None));
    [
        source("perf_samples", "record: accesses that the processor samples", samples),
        source("side_band", "record: processes, threads and mappings", side_band),
        source("hint_faults", "record: which thread uses a page, without a PMU", faults),
    ]
}

/// Whether the virtual PMU can be used, inside the lab.
fn lab_pmu() -> Option<Finding> {
    let found = LabPmu::find().transpose()?;
    let why = found.err().map(|error| error.to_string());
    Some(Finding {
        name: "lab_pmu".to_owned(),
        used_for: "record: accesses timed by the virtual machine".to_owned(),
        works: why.is_none(),
        what_to_do: None,
        why,
    })
}

/// A source, with an alternative where the processor lacks support.
fn source(name: &str, used_for: &str, tried: Result<(), (LiveError, Option<&str>)>) -> Finding {
    let error = tried.err();
    let diagnosis = error.as_ref().map(|(error, otherwise)| (&error.diagnosis, *otherwise));
    Finding {
        name: name.to_owned(),
        used_for: used_for.to_owned(),
        works: error.is_none(),
        why: diagnosis.map(|(diagnosis, _)| diagnosis.cause.to_string()),
        what_to_do: diagnosis
            .and_then(|(diagnosis, otherwise)| diagnosis.remedy.clone().or_else(|| otherwise.map(str::to_owned))),
    }
}

/// What resctrl offers to grants.
fn control_hardware(root: &Path) -> Finding {
    let found = Resctrl::find(root);
    let offered = found.as_ref().map(|resctrl| resctrl.offer.to_string()).unwrap_or_default();
    let is_known = bounded::text(root.join("proc/filesystems")).is_ok_and(|text| text.contains("\tresctrl\n"));
    let (why, what_to_do) = match &found {
        Some(resctrl) if resctrl.offer.limits_something() => (None, None),
        Some(_) => (Some("the processor limits neither ways of level 3 caches nor bandwidth by resctrl"), None),
        None if is_known => {
            (Some("resctrl is not mounted, or the processor does not support it"), Some(MOUNT_RESCTRL.to_owned()))
        }
        None => (Some("the kernel has no resctrl"), None),
    };
    let used_for = "reserve: ways of caches and limits of bandwidth, by the processor";
    Finding {
        name: "resctrl".to_owned(),
        used_for: if offered.is_empty() { used_for.to_owned() } else { format!("{used_for}: {offered}") },
        works: why.is_none(),
        why: why.map(str::to_owned),
        what_to_do,
    }
}

/// Whether virtual machines can be booted.
fn lab() -> Finding {
    let missing = Assets::find(None).err();
    Finding {
        name: "lab".to_owned(),
        used_for: "virtual machines: lab run".to_owned(),
        works: missing.is_none(),
        what_to_do: missing.is_some().then(|| "nearside lab setup".to_owned()),
        why: missing.map(|why| chain(&why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use saved_files::SavedFiles;

    #[test]
    fn what_resctrl_offers_is_said() {
        let root = SavedFiles::new();
        let said = || {
            let found = control_hardware(root.path());
            (found.works, found.why.unwrap_or(found.used_for), found.what_to_do)
        };
        assert_eq!(said().1, "the kernel has no resctrl");
        root.put("proc/filesystems", "nodev\tsysfs\nnodev\tresctrl\n");
        assert_eq!((said().0, said().2.as_deref()), (false, Some(MOUNT_RESCTRL)));
        root.put("sys/fs/resctrl/info/L3_MON/mon_features", "llc_occupancy\n");
        assert!(said().1.starts_with("the processor limits neither"), "{:?}", said());
        for (file, text) in
            [("cbm_mask", "7ff"), ("min_cbm_bits", "1"), ("num_closids", "16"), ("shareable_bits", "600")]
        {
            root.put(&format!("sys/fs/resctrl/info/L3/{file}"), &format!("{text}\n"));
        }
        root.put("sys/fs/resctrl/schemata", "L3:0=7ff\n");
        root.put("sys/devices/system/cpu/cpu0/cache/index3/level", "3\n");
        root.put("sys/devices/system/cpu/cpu0/cache/index3/id", "0\n");
        let said = said().1;
        assert!(said.ends_with(": 11 ways of 1 L3 cache (2 of them shared with devices), 16 classes"), "{said}");
    }
}
