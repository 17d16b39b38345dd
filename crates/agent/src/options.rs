//! What an agent is to do.

use crate::chosen::Scope;
use placement::{PolicyName, Settings};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use trace::live::{AccessSource, Target};

/// What an agent is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The policy.
    pub policy: PolicyName,
    /// What it decides by.
    pub settings: Settings,
    /// Whom to manage: the program to be started by the same thread, processes, or whoever is busy.
    pub target: Target,
    /// Of these, whom.
    pub scope: Scope,
    /// Who observes accesses to memory.
    pub source: AccessSource,
    /// How long a round is.
    pub round: Duration,
    /// Bytes to move in a second, at most.
    pub budget_bytes_per_s: Option<u64>,
    /// The part of one CPU that observing and deciding may take. Moving pages is paid by the budget.
    pub cpu_limit: f64,
    /// Decide, and change nothing.
    pub dry_run: bool,
    /// Leave the kernel's NUMA balancing on, where it is, although the policy moves pages and threads, too.
    pub keep_kernel_balancing: bool,
    /// Write all that is decided into this file, with what it was decided by.
    pub log: Option<PathBuf>,
    /// A log that is longer, or there already (of one that was killed, say), is kept as FILE.1, in place of the one before, and
    /// another one begun. Without this it is overwritten, and becomes as long as it may.
    pub log_most_bytes: Option<u64>,
    /// Say what is done and why, line by line: [`Agent::explained`](crate::Agent::explained).
    pub explain: bool,
    /// When this is set nothing more is moved, and it is time to finish.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    /// This policy for a program that is to be started, with rounds of a second and the best source.
    pub fn new(policy: PolicyName) -> Self {
        Self {
            policy,
            settings: Settings::default(),
            target: Target::Program,
            scope: Scope::default(),
            source: AccessSource::Best,
            round: Duration::from_secs(1),
            budget_bytes_per_s: None,
            cpu_limit: 0.1,
            dry_run: false,
            keep_kernel_balancing: false,
            log: None,
            log_most_bytes: None,
            explain: false,
            stop: Arc::default(),
        }
    }
}
