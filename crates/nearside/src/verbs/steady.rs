//! `nearside run --steady`: the same conditions in every run, so that times can be compared.

use crate::interrupt::asked_to_end;
use crate::options::places::{Nodes, Places};
use crate::options::policy::note;
use crate::verbs::record::program::Program;
use crate::verbs::reserve::wait;
use agent::Journal;
use agent::journal::{self, OwnSwitch};
use linux::{MemoryMode, MemoryPolicy};
use machine::{CpuSet, NodeSet, chain};
use std::error::Error;
use std::process::{Command, ExitCode};
use std::sync::atomic::Ordering;

/// The CPUs and the memory of a program for which the user chose none of both, or one: the CPUs of the first node, and
/// the memory of the nodes that the CPUs are at.
pub fn pinned(
    cpus: Option<CpuSet>,
    policy: Option<MemoryPolicy>,
    places: &mut Places,
) -> Result<(CpuSet, MemoryPolicy), Box<dyn Error>> {
    let cpus = match cpus {
        Some(cpus) => cpus,
        None => places.cpus_of_first_node(),
    };
    if let Some(policy) = policy {
        return Ok((cpus, policy));
    }
    let state = &places.situation.nodes;
    let near: NodeSet = state.nodes_of(&cpus).intersection(&state.with_memory);
    if near.is_empty() {
        return Err(format!("the nodes of CPUs {cpus} have no memory: choose some with --membind").into());
    }
    let nodes = places.memory(&Nodes::from(near))?;
    Ok((cpus, MemoryPolicy { mode: MemoryMode::Bind, nodes, ..MemoryPolicy::default() }))
}

/// Runs a program with the kernel's NUMA balancing off, and puts that back when it has ended, was interrupted, or after
/// a SIGKILL by the next command that has a journal.
pub fn run(command: Command) -> Result<ExitCode, Box<dyn Error>> {
    // No signal ends this process before it has put the setting back.
    let to_end = asked_to_end()?;
    let journal = without_balancing()?;
    if to_end.load(Ordering::Relaxed) {
        return Err("a signal asked to end before the program was started".into());
    }
    Ok(ExitCode::from(wait(Program::spawn(command)?, |_| false, journal)))
}

/// The journal of the change; `None` where nothing could be changed.
fn without_balancing() -> Result<Option<Journal>, Box<dyn Error>> {
    let own = OwnSwitch::NumaBalancing;
    // A kernel without it has no such file.
    let is_on = || own.switch().value().is_ok_and(|value| value != "0");
    if !rustix::process::geteuid().is_root() {
        if is_on() {
            note("the kernel's NUMA balancing stays on, and may move pages and threads: only root can switch it off");
        }
        return Ok(None);
    }
    // Puts back first what a killed command has left off.
    let name = format!("steady-{}", std::process::id());
    let (mut journal, put_back) = Journal::open(&journal::default_folder(), &name)?;
    if !put_back.is_nothing() {
        note(&format!("{}\n{put_back}", put_back.heading()));
    }
    if is_on() {
        journal.will_set(own, "0")?;
        if let Err(error) = own.switch().set("0") {
            note(&format!("the kernel's NUMA balancing stays on, and may move pages and threads: {}", chain(&error)));
        }
    }
    Ok(Some(journal))
}
