//! The memory policy that a command line asks for, option for option as numactl has them.

use crate::places::{Nodes, Places};
use crate::wrong::Wrong;
use clap::Args;
use linux::{Attempt, MemoryMode, MemoryPolicy, Situation, diagnose};
use machine::NodeSet;
use std::error::Error;
use std::io::{self, Write};

/// At most one policy.
#[derive(Debug, Args)]
pub struct Policy {
    /// Take memory from these nodes in turn, page by page
    #[arg(long, short, alias = "interleaved", value_name = "NODES", group = "policy")]
    interleave: Option<Nodes>,

    /// Take memory from these nodes in turn, so many pages of each as its weight says in
    /// `/sys/kernel/mm/mempolicy/weighted_interleave` (Linux 6.9)
    #[arg(long, short, value_name = "NODES", group = "policy")]
    weighted_interleave: Option<Nodes>,

    /// Take memory from this node, and from others when it is full
    #[arg(long, short, value_name = "NODE", group = "policy")]
    preferred: Option<Nodes>,

    /// Take memory from these nodes, the nearest first, and from others when they are full (Linux 5.15)
    #[arg(long, short = 'P', value_name = "NODES", group = "policy")]
    preferred_many: Option<Nodes>,

    /// Take memory from these nodes only; when they are full, the program is out of memory
    #[arg(long, short, value_name = "NODES", group = "policy")]
    membind: Option<Nodes>,

    /// Take memory from the node of the CPU that touches it first, and from others when it is full
    #[arg(long, short, group = "policy")]
    localalloc: bool,

    /// With --membind, let the kernel's NUMA balancing move pages among the nodes (Linux 5.12)
    #[arg(long, short)]
    balancing: bool,
}

impl Policy {
    /// Whether its nodes are those that another option names.
    pub fn is_same(&self) -> bool {
        self.asked().is_some_and(|(nodes, _)| nodes.is_same())
    }

    fn asked(&self) -> Option<(&Nodes, MemoryMode)> {
        let asked = [
            (&self.interleave, MemoryMode::Interleave),
            (&self.weighted_interleave, MemoryMode::WeightedInterleave),
            (&self.preferred, MemoryMode::Preferred),
            (&self.preferred_many, MemoryMode::PreferredMany),
            (&self.membind, MemoryMode::Bind),
        ];
        asked.into_iter().find_map(|(nodes, mode)| Some((nodes.as_ref()?, mode)))
    }

    /// The policy, if one is asked for.
    pub fn resolve(&self, places: &mut Places) -> Result<Option<MemoryPolicy>, Box<dyn Error>> {
        let mut policy = match self.asked() {
            Some((nodes, mode)) => MemoryPolicy::new(mode, places.memory(nodes)?),
            None if self.localalloc => MemoryPolicy::new(MemoryMode::Local, NodeSet::new()),
            None => {
                self.note_idle_balancing(None);
                return Ok(None);
            }
        };
        if policy.mode == MemoryMode::Preferred && policy.nodes.len() != 1 {
            return Err(Wrong::because(format!(
                "--preferred takes one node, and got {}: --preferred-many takes several",
                policy.nodes
            )));
        }
        policy.balancing = self.balancing && policy.mode == MemoryMode::Bind;
        self.note_idle_balancing(Some(policy.mode));
        Ok(Some(policy))
    }

    /// numactl ignores it elsewhere, and says nothing.
    fn note_idle_balancing(&self, mode: Option<MemoryMode>) {
        if self.balancing && mode != Some(MemoryMode::Bind) {
            note("--balancing goes with --membind only, and is ignored");
        }
    }
}

/// Says something that is no error.
pub fn note(text: &str) {
    // There is nobody left to tell when standard error is closed.
    let _ = writeln!(io::stderr(), "nearside: {text}");
}

/// Has a policy set. A kernel that has no balancing under it gets it without, as numactl does, and says so.
pub fn set(
    policy: &MemoryPolicy,
    what: &str,
    set: impl Fn(&MemoryPolicy) -> io::Result<()>,
) -> Result<(), Box<dyn Error>> {
    let Err(error) = set(policy) else { return Ok(()) };
    if policy.balancing {
        let without = MemoryPolicy { balancing: false, ..policy.clone() };
        if set(&without).is_ok() {
            note("this kernel does not balance under --membind (since Linux 5.12): --balancing is ignored");
            return Ok(());
        }
    }
    let errno = error.raw_os_error().unwrap_or_default();
    let why = diagnose(Attempt::Policy(policy), errno, &Situation::of(None));
    Err(format!("cannot set the memory policy of {what} ({error}): {why}").into())
}
