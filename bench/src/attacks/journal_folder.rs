//! D1: a journal of another user, which root's agent would carry out, in a folder that is exchanged while the agent starts.

use crate::attacks::{Ground, OTHER, Start, Tally, failed, while_another_user};
use agent::journal::{Change, FORMAT, Header, ThreadIdentity};
use linux::{ChildSetup, CpuSet, Pid, Tid, affinity};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::Serialize;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command};

/// A switch that nearside never sets, and that gives the machine to who sets it.
const FOREIGN: &str = "/proc/sys/kernel/core_pattern";

/// A process of root that the journal would bind to one CPU.
struct Victim {
    child: Child,
    cpus: CpuSet,
    foreign: String,
}

impl Victim {
    fn new() -> io::Result<Self> {
        let child = Command::new("sleep").arg("100000").die_with_parent().spawn()?;
        let cpus = affinity(Tid(child.id()))?;
        if cpus.len() < 2 {
            return Err(failed("needs two CPUs"));
        }
        Ok(Self { child, cpus, foreign: fs::read_to_string(FOREIGN)? })
    }

    /// A journal that says that an agent has given the victim all its CPUs, and had found it bound to the first.
    fn journal(&self) -> io::Result<Vec<u8>> {
        let pid = Pid(self.child.id());
        let (thread, _) = ThreadIdentity::from_proc(pid, Tid(pid.0)).ok_or_else(|| failed("the victim has ended"))?;
        let before: CpuSet = self.cpus.iter().take(1).collect();
        let after = self.cpus.clone();
        let header = Header { journal: FORMAT, boot: linux::boot_id()?, pid: Pid(1) };
        let affinity = Change::Affinity { thread, before, after, at: linux::ticks() };
        let (path, before) = (FOREIGN.into(), "core-of-another-user".to_owned());
        let switch = Change::Switch { path, before, after: self.foreign.trim_end().to_owned() };
        Ok([line(&header)?, line(&affinity)?, line(&switch)?].concat())
    }

    /// What of the journal was carried out; undone.
    fn harm(&self) -> io::Result<Option<String>> {
        let (tid, found) = (Tid(self.child.id()), fs::read_to_string(FOREIGN)?);
        if found != self.foreign {
            fs::write(FOREIGN, &self.foreign)?;
            return Ok(Some(format!("{FOREIGN} was written: {found}")));
        }
        let cpus = affinity(tid)?;
        if cpus == self.cpus {
            return Ok(None);
        }
        linux::set_affinity(tid, &self.cpus)?;
        Ok(Some(format!("a process of root was bound to CPUs {cpus}")))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line(of: &impl Serialize) -> io::Result<Vec<u8>> {
    Ok([&serde_json::to_vec(of)?[..], b"\n"].concat())
}

fn configuration(folder: &Path) -> String {
    format!("folder = \"{}\"", folder.display())
}

pub fn run(ground: &Ground, starts: usize) -> io::Result<Tally> {
    let victim = Victim::new()?;
    would_work(ground, &victim)?;
    let mut tally = Tally::default();
    below_theirs(ground, &victim, starts.div_ceil(2), &mut tally)?;
    beside_theirs(ground, &victim, starts / 2, &mut tally)?;
    Ok(tally)
}

/// The journal is carried out where root itself has put it, except for the foreign switch: otherwise the attack would show
/// nothing.
fn would_work(ground: &Ground, victim: &Victim) -> io::Result<()> {
    let folder = ground.folder("own", 0, 0o755)?;
    fs::write(folder.join("agent.journal"), victim.journal()?)?;
    let mut agent = ground.agent(&configuration(&folder), &[])?;
    let start = agent.wait_until_up()?;
    let said = agent.said();
    agent.stop()?;
    match victim.harm()? {
        Some(harm) if harm.contains("was bound") && start == Start::Up => Ok(()),
        harm => Err(failed(format!("the journal has no effect in root's own folder: {start:?} {harm:?} {said}"))),
    }
}

fn start(ground: &Ground, victim: &Victim, folder: &Path, tally: &mut Tally) -> io::Result<bool> {
    let mut agent = ground.agent(&configuration(folder), &[])?;
    let start = agent.wait_until_up()?;
    tally.tried += 1;
    tally.won.extend(victim.harm()?);
    if start == Start::Hung || agent.stop()?.is_none() {
        tally.won.push("the agent hung".to_owned());
    }
    Ok(start == Start::Up)
}

/// The folder lies below one of the attacker's, who exchanges it by another one: no agent may start at all.
fn below_theirs(ground: &Ground, victim: &Victim, starts: usize, tally: &mut Tally) -> io::Result<()> {
    let theirs = ground.folder("theirs", OTHER, 0o755)?;
    let [run, trap] = [ground.folder("theirs/run", 0, 0o755)?, ground.folder("theirs/trap", OTHER, 0o755)?];
    fs::write(trap.join("agent.journal"), victim.journal()?)?;
    let exchange = || {
        let _ = renameat_with(CWD, &run, CWD, &trap, RenameFlags::EXCHANGE);
    };
    while_another_user(exchange, || {
        for _ in 0..starts {
            if start(ground, victim, &theirs.join("run"), tally)? {
                tally.won.push("an agent keeps its journal below a folder of another user".to_owned());
            }
        }
        Ok(())
    })
}

/// The folder is made in one where all users may make files, and the attacker makes it first, in turn as a folder with the
/// journal and as a link to one.
fn beside_theirs(ground: &Ground, victim: &Victim, starts: usize, tally: &mut Tally) -> io::Result<()> {
    let sticky = ground.folder("sticky", 0, 0o1777)?;
    let trap = ground.folder("trap", OTHER, 0o777)?;
    let (journal, run) = (victim.journal()?, sticky.join("run"));
    fs::write(trap.join("agent.journal"), &journal)?;
    let mut is_link = false;
    let make = || {
        is_link = !is_link;
        if is_link {
            let _ = symlink(&trap, &run);
            let _ = fs::remove_file(&run);
        } else {
            let _ = fs::create_dir(&run).and_then(|()| fs::write(run.join("agent.journal"), &journal));
            // Fails for root's folder: the bit protects it.
            let _ = fs::remove_dir_all(&run);
        }
    };
    while_another_user(make, || {
        for _ in 0..starts {
            tally.worked += usize::from(start(ground, victim, &run, tally)?);
            // Root's own from this start; the attacker's is the attacker's to remove.
            let _ = fs::remove_dir_all(&run);
        }
        Ok(())
    })
}
