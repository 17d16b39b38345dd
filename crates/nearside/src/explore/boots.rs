//! The cells that run in the lab: those of one machine and one state of its kernel share a boot, in which nearside runs
//! them as it would on a real machine.

use super::session::failed_start;
use explore::{Campaign, Cell, LabMachine, Place, Thp};
use linux::ChildSetup;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::Duration;

/// Interval between looks at the boots that run.
const LOOK: Duration = Duration::from_millis(50);

/// What cells of one boot have in common.
type Boot = (LabMachine, Option<bool>, Option<Thp>);

/// Starts virtual machines.
pub struct Boots<'a> {
    pub campaign: &'a Campaign,
    pub file: &'a Path,
    pub into: &'a Path,
    /// Most of them at the same time.
    pub jobs: usize,
    pub quiet: bool,
    pub interrupted: &'a AtomicBool,
}

impl Boots<'_> {
    /// Runs these cells. Returns a sentence for each boot that failed.
    pub fn run(&self, cells: &[&Cell]) -> Result<Vec<String>, String> {
        let mut waiting: Vec<(Boot, Vec<&Cell>)> = boots(cells).into_iter().rev().collect();
        let mut running: Vec<(String, Child)> = Vec::new();
        let mut failures = Vec::new();
        while !(running.is_empty() && (waiting.is_empty() || self.interrupted.load(Relaxed))) {
            let is_free = running.len() < self.jobs && !self.interrupted.load(Relaxed);
            if let Some((boot, cells)) = waiting.pop_if(|_| is_free) {
                running.push((boot.0.0.clone(), self.start(&boot, &cells)?));
                continue;
            }
            sleep(LOOK);
            if self.interrupted.load(Relaxed) {
                for (_, child) in &running {
                    end(child);
                }
            }
            let mut still = Vec::new();
            for (machine, mut child) in running {
                match child.try_wait() {
                    Ok(None) => still.push((machine, child)),
                    Ok(Some(status)) if status.success() || self.interrupted.load(Relaxed) => {}
                    Ok(Some(status)) => failures.push(format!("the lab failed on {machine}: {status}")),
                    Err(error) => failures.push(format!("cannot wait for the lab on {machine}: {error}")),
                }
            }
            running = still;
        }
        Ok(failures)
    }

    fn start(&self, boot: &Boot, cells: &[&Cell]) -> Result<Child, String> {
        let program = std::env::current_exe().map_err(|error| failed_start(&error))?;
        let absolute = |path: &Path| std::path::absolute(path).map_err(|error| failed_start(&error));
        let (file, into): (PathBuf, PathBuf) = (absolute(self.file)?, absolute(self.into)?);
        let mut command = Command::new(&program);
        command.args(["lab", "run", "--quiet"]).args(self.machine(boot));
        command.arg("--out").arg(&into).arg("--").arg(&program).arg("explore").arg(file).arg("--into").arg(into);
        command.args(["--inside", &self.campaign.hash]);
        if self.quiet {
            command.arg("--quiet");
        }
        let cells: Vec<&str> = cells.iter().map(|cell| cell.id.as_str()).collect();
        // Linux limits one argument to 128 KiB, and all of them to much more.
        cells.chunks(1000).for_each(|some| _ = command.arg("--cells").arg(some.join(",")));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // Ctrl-C is for this process, which ends the boots.
        command.process_group(0).die_with_parent();
        command.spawn().map_err(|error| failed_start(&error))
    }

    /// The options of `nearside lab run`.
    fn machine(&self, (LabMachine(machine), balancing, huge_pages): &Boot) -> Vec<OsString> {
        let lab = &self.campaign.lab;
        let mut options: Vec<OsString> = vec!["--machine".into(), machine.into()];
        let mut give = |name: &str, value: Option<String>| {
            options.extend(value.into_iter().flat_map(|value| [name.into(), value.into()]));
        };
        give("--cpus-per-node", lab.cpus_per_node.map(|cpus| cpus.to_string()));
        give("--memory-per-node", lab.memory_per_node.map(|bytes| bytes.to_string()));
        give("--time-scale", Some(lab.time_scale.to_string()));
        give("--fidelity", Some(lab.fidelity.name().to_owned()));
        give("--numa-balancing", balancing.map(|on| if on { "on" } else { "off" }.to_owned()));
        give("--thp", huge_pages.map(|huge_pages| huge_pages.name().to_owned()));
        options
    }
}

/// The cells of the lab, by boot.
fn boots<'a>(cells: &[&'a Cell]) -> BTreeMap<Boot, Vec<&'a Cell>> {
    let mut boots: BTreeMap<Boot, Vec<&Cell>> = BTreeMap::new();
    for cell in cells {
        if let Place::Lab(machine) = &cell.place {
            boots.entry((machine.clone(), cell.balancing, cell.huge_pages)).or_default().push(cell);
        }
    }
    boots
}

/// Asks for the end of a virtual machine.
fn end(child: &Child) {
    // A process that has just ended needs no signal.
    let _ = Pid::from_raw(child.id().cast_signed()).map(|pid| kill_process(pid, Signal::TERM));
}
