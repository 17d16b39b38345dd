//! The memory policy of a command line, with numactl's options.

use crate::options::places::{Nodes, Places};
use crate::options::usage_error::UsageError;
use clap::Args;
use linux::{Attempt, MemoryMode, MemoryPolicy, SystemState, diagnose};
use machine::NodeSet;
use report::escape_message;
use std::error::Error;
use std::io::{self, Write};

/// At most one policy.
#[derive(Debug, Args)]
pub struct Policy {
    /// Interleave memory over these nodes, page by page
    #[arg(long, short, alias = "interleaved", value_name = "NODES", group = "policy")]
    interleave: Option<Nodes>,

    /// Interleave memory over these nodes, with pages per node as set in `/sys/kernel/mm/mempolicy/weighted_interleave`
    /// (Linux 6.9)
    #[arg(long, short, value_name = "NODES", group = "policy")]
    weighted_interleave: Option<Nodes>,

    /// Allocate memory on this node, and on others when it is full
    #[arg(long, short, value_name = "NODE", group = "policy")]
    preferred: Option<Nodes>,

    /// Allocate memory on these nodes, the nearest first, and on others when they are full (Linux 5.15)
    #[arg(long, short = 'P', value_name = "NODES", group = "policy")]
    preferred_many: Option<Nodes>,

    /// Allocate memory on these nodes only; when they are full, the program is out of memory
    #[arg(long, short, value_name = "NODES", group = "policy")]
    membind: Option<Nodes>,

    /// Allocate memory on the node of the CPU that touches it first, and on others when it is full
    #[arg(long, short, group = "policy")]
    localalloc: bool,

    /// With --membind, let the kernel's NUMA balancing move pages among these nodes (Linux 5.12)
    #[arg(long, short)]
    balancing: bool,
}

impl Policy {
    /// Whether its nodes are those of another option (`same`).
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

    /// The policy, if one was requested.
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
            return Err(UsageError::boxed(format!(
                "--preferred takes one node, but got {}: --preferred-many takes several",
                policy.nodes
            )));
        }
        policy.balancing = self.balancing && policy.mode == MemoryMode::Bind;
        self.note_idle_balancing(Some(policy.mode));
        Ok(Some(policy))
    }

    /// numactl ignores it silently in other modes.
    fn note_idle_balancing(&self, mode: Option<MemoryMode>) {
        if self.balancing && mode != Some(MemoryMode::Bind) {
            note("--balancing is only for --membind, and is ignored");
        }
    }
}

/// Prints a note that is not an error.
pub fn note(text: &str) {
    // With standard error closed there is nowhere to report this.
    let _ = writeln!(io::stderr(), "nearside: {}", escape_message(text));
}

/// Sets a policy. A kernel without balancing under it gets the policy without the flag, as with numactl, and a note.
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
    let why = diagnose(Attempt::Policy(policy), errno, &SystemState::read(None));
    Err(format!("cannot set the memory policy of {what} ({error}): {why}").into())
}
