//! The cells that run in the lab: those of one machine and one state of its kernel share a boot, in which nearside runs
//! them as it would on a real machine. Time in the lab has nothing to do with that of the host, so this side ends a boot
//! whose next run takes too long. A run that took too long, or during which the machine failed, has failed; the others
//! have another boot.

use super::run_unit::new_unit;
use super::session::{BEGUN, failed_start};
use explore::{Campaign, Cell, LabMachine, Place, Progress, Results, Store, StoreError, Thp, UnitOutcome};
use linux::ChildSetup;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Interval between looks at the boots that run.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What cells of one boot have in common.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Boot {
    machine: LabMachine,
    balancing: Option<bool>,
    huge_pages: Option<Thp>,
    kernel_module: Option<String>,
}

/// Starts virtual machines.
pub struct Boots<'a> {
    pub campaign: &'a Campaign,
    pub store: &'a Store,
    pub file: &'a Path,
    pub into: &'a Path,
    /// The name of the host, which results have.
    pub host: &'a str,
    /// Most of them at the same time.
    pub jobs: usize,
    pub quiet: bool,
    pub interrupted: &'a AtomicBool,
    /// Gets a sentence as a run is ended.
    pub say: &'a dyn Fn(&str),
}

/// A virtual machine that runs.
struct Running<'a> {
    boot: Boot,
    cells: Vec<&'a Cell>,
    child: Child,
    /// The run that it does, or boots for, since when.
    next: Option<(&'a Cell, u32)>,
    since: Instant,
    /// The run that took too long.
    late: Option<(&'a Cell, u32)>,
}

/// What the end of a virtual machine means.
enum End {
    /// All is done, or the user interrupts.
    Done,
    /// One run failed; the others are left.
    RunFailed,
    /// No cell of this machine can run, for this reason.
    NeverBegan(String),
}

impl<'a> Boots<'a> {
    /// Runs these cells. Returns a sentence for each boot that failed.
    pub fn run(&self, cells: &[&'a Cell], results: &mut Results) -> Result<Vec<String>, Box<dyn Error>> {
        let mut waiting: Vec<(Boot, Vec<&Cell>)> = boots(cells).into_iter().rev().collect();
        let mut running: Vec<Running> = Vec::new();
        let mut failures = Vec::new();
        while !(running.is_empty() && (waiting.is_empty() || self.interrupted.load(Relaxed))) {
            let is_free = running.len() < self.jobs && !self.interrupted.load(Relaxed);
            if let Some((boot, cells)) = waiting.pop_if(|_| is_free) {
                running.push(self.start(boot, cells, results)?);
                continue;
            }
            sleep(POLL_INTERVAL);
            if self.interrupted.load(Relaxed) {
                for Running { child, .. } in &running {
                    end(child);
                }
            }
            let mut still = Vec::new();
            for mut running in running {
                self.follow(&mut running, results);
                match running.child.try_wait() {
                    Ok(None) => still.push(running),
                    Ok(Some(status)) => match self.ended(&mut running, status, results)? {
                        End::Done => {}
                        End::RunFailed => {
                            waiting.extend(running.next.is_some().then_some((running.boot, running.cells)));
                        }
                        End::NeverBegan(why) => failures.push(why),
                    },
                    Err(error) => {
                        failures.push(format!("cannot wait for the lab on {}: {error}", running.boot.machine.0));
                    }
                }
            }
            running = still;
        }
        Ok(failures)
    }

    /// The first run that is left of these cells, which is what the guest runs next.
    fn next(&self, cells: &[&'a Cell], results: &Results) -> Option<(&'a Cell, u32)> {
        let progress = Progress { campaign: self.campaign };
        let round = progress.next_round(results, cells)?;
        Some((*progress.round(results, cells, round).first()?, round))
    }

    /// Takes results as they come, and ends the machine if the next one takes too long.
    fn follow(&self, running: &mut Running<'a>, results: &mut Results) {
        while let Some(unit) = running.next.and_then(|(cell, round)| self.store.find(&cell.id, round)) {
            results.add(unit);
            running.next = self.next(&running.cells, results);
            running.since = Instant::now();
        }
        let limit = Duration::from_secs(self.campaign.lab.host_timeout_s.into());
        if running.next.is_some() && running.late.is_none() && running.since.elapsed() > limit {
            running.late = running.next;
            end(&running.child);
        }
    }

    /// What a machine's end means. A run that has failed is kept.
    fn ended(&self, running: &mut Running<'a>, status: ExitStatus, results: &mut Results) -> Result<End, StoreError> {
        self.follow(running, results);
        if self.interrupted.load(Relaxed) || (status.success() && running.late.is_none()) {
            return Ok(End::Done);
        }
        let mut said = String::new();
        // Without it, the machine counts as one that has not begun.
        let _ = running.child.stdout.take().map(|mut stdout| stdout.read_to_string(&mut said));
        let why = if running.late.is_some() {
            format!("it was ended after {} s of the host's time (host_timeout_s)", self.campaign.lab.host_timeout_s)
        } else if said == BEGUN {
            format!("the lab ended while it ran ({status})")
        } else {
            return Ok(End::NeverBegan(format!("the lab failed on {}: {status}", running.boot.machine.0)));
        };
        // The result of the run that took too long may have come before the machine's end.
        let is_it =
            |(cell, round): (&Cell, u32)| running.late.is_none_or(|late| (&late.0.id, late.1) == (&cell.id, round));
        let Some((cell, round)) = running.next.filter(|next| is_it(*next)) else { return Ok(End::RunFailed) };
        let mut unit = new_unit(self.campaign, cell, round, self.host);
        (self.say)(&format!("{}, run {}: {why}", cell.name, round + 1));
        unit.outcome = UnitOutcome::Failed { why, output: String::new() };
        self.store.keep(&unit)?;
        results.add(unit);
        running.next = self.next(&running.cells, results);
        Ok(End::RunFailed)
    }

    fn start(&self, boot: Boot, cells: Vec<&'a Cell>, results: &Results) -> Result<Running<'a>, String> {
        let program = std::env::current_exe().map_err(|error| failed_start(&error))?;
        let absolute = |path: &Path| std::path::absolute(path).map_err(|error| failed_start(&error));
        let (file, into): (PathBuf, PathBuf) = (absolute(self.file)?, absolute(self.into)?);
        let mut command = Command::new(&program);
        command.args(["lab", "run", "--quiet"]).args(self.machine(&boot));
        command.arg("--out").arg(&into).arg("--").arg(&program).arg("explore").arg(file).arg("--into").arg(into);
        command.args(["--inside", &self.campaign.hash, "--host", self.host]);
        if self.quiet {
            command.arg("--quiet");
        }
        let ids: Vec<&str> = cells.iter().map(|cell| cell.id.as_str()).collect();
        // Linux limits one argument to 128 KiB, and all of them to much more.
        ids.chunks(1000).for_each(|some| _ = command.arg("--cells").arg(some.join(",")));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // Ctrl-C is for this process, which ends the boots.
        command.process_group(0).die_with_parent();
        let child = command.spawn().map_err(|error| failed_start(&error))?;
        let next = self.next(&cells, results);
        Ok(Running { boot, cells, child, next, since: Instant::now(), late: None })
    }

    /// The options of `nearside lab run`.
    fn machine(&self, boot: &Boot) -> Vec<OsString> {
        let lab = &self.campaign.lab;
        let mut options: Vec<OsString> = vec!["--machine".into(), boot.machine.0.clone().into()];
        let mut give = |name: &str, value: Option<String>| {
            options.extend(value.into_iter().flat_map(|value| [name.into(), value.into()]));
        };
        give("--cpus-per-node", lab.cpus_per_node.map(|cpus| cpus.to_string()));
        give("--cpu-numbers", Some(lab.cpu_numbers.name().to_owned()));
        give("--memory-per-node", lab.memory_per_node.map(|bytes| bytes.to_string()));
        give("--time-scale", Some(lab.time_scale.to_string()));
        give("--fidelity", Some(lab.fidelity.name().to_owned()));
        give("--numa-balancing", boot.balancing.map(|on| if on { "on" } else { "off" }.to_owned()));
        give("--thp", boot.huge_pages.map(|huge_pages| huge_pages.name().to_owned()));
        give("--kernel-module", boot.kernel_module.clone());
        options.extend(lab.as_root.then(|| "--as-root".into()));
        // Runs in one saved boot would agree more than those of several boots do.
        options.push("--fresh-boot".into());
        options
    }
}

/// The cells of the lab, by boot.
fn boots<'a>(cells: &[&'a Cell]) -> BTreeMap<Boot, Vec<&'a Cell>> {
    let mut boots: BTreeMap<Boot, Vec<&Cell>> = BTreeMap::new();
    for cell in cells {
        if let Place::Lab(machine) = &cell.place {
            let boot = Boot {
                machine: machine.clone(),
                balancing: cell.balancing,
                huge_pages: cell.huge_pages,
                kernel_module: cell.kernel_module.clone(),
            };
            boots.entry(boot).or_default().push(cell);
        }
    }
    boots
}

/// Asks for the end of a virtual machine.
fn end(child: &Child) {
    // A process that has just ended needs no signal.
    let _ = Pid::from_raw(child.id().cast_signed()).map(|pid| kill_process(pid, Signal::TERM));
}
