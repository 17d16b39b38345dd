//! Options of an agent.

use crate::huge_page_service::HugePageOptions;
use crate::regions::RegionOrders;
use crate::scope::Scope;
use crate::status::Status;
use observe::{AccessSource, Target};
use placement::{Lesson, PolicyName, Settings};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Options of an agent.
#[derive(Clone, Debug)]
pub struct Options {
    /// The policy.
    pub policy: PolicyName,
    /// The policy's thresholds and limits.
    pub settings: Settings,
    /// What earlier runs of the program taught: see [`Lesson`].
    pub lesson: Option<Lesson>,
    /// What to manage: the program that the same thread starts, given processes, or all busy ones.
    pub target: Target,
    /// Restricts which of these are managed.
    pub scope: Scope,
    /// Named ranges that have a place, whatever the policy decides.
    pub regions: RegionOrders,
    /// The source of memory accesses.
    pub source: AccessSource,
    /// Length of a round.
    pub round: Duration,
    /// Most bytes to move per second.
    pub budget_bytes_per_s: Option<u64>,
    /// The part of one CPU that observing and deciding may use. Moving pages is limited by the budget instead.
    pub cpu_limit: f64,
    /// Decide, but change nothing.
    pub dry_run: bool,
    /// Leave the kernel's NUMA balancing on if it is, although the policy moves pages and threads too.
    pub keep_kernel_balancing: bool,
    /// Write all decisions and their inputs to this file.
    pub log: Option<PathBuf>,
    /// A log that exceeds this size, or that exists already (for example from a killed agent), is renamed to FILE.1,
    /// replacing the previous one, and a new one is begun. Without a limit it is overwritten and grows without bound.
    pub log_most_bytes: Option<u64>,
    /// Report decisions and their reasons, line by line: [`Agent::explained`](crate::Agent::explained).
    pub explain: bool,
    /// What to do about huge pages that nodes share falsely; none leaves them to the policy.
    pub huge_pages: Option<HugePageOptions>,
    /// A folder that only the agent's user can change, with a socket for programs that keep their memory on small pages.
    pub advice_folder: Option<PathBuf>,
    /// Once set, nothing more is moved and the caller should finish.
    pub stop: Arc<AtomicBool>,
    /// The live status, for readers and to pause the agent. One that follows another agent in it stays paused if that was.
    pub status: Arc<Mutex<Status>>,
    /// Called again and again while ranges of memory move, which may take minutes: the agent works.
    pub progress: fn(),
}

impl Options {
    /// This policy for a program to be started, with rounds of 1 s and the best available source.
    pub fn new(policy: PolicyName) -> Self {
        Self {
            policy,
            settings: Settings::default(),
            lesson: None,
            target: Target::Program,
            scope: Scope::default(),
            regions: RegionOrders::default(),
            source: AccessSource::Best,
            round: Duration::from_secs(1),
            budget_bytes_per_s: None,
            cpu_limit: 0.1,
            dry_run: false,
            keep_kernel_balancing: false,
            log: None,
            log_most_bytes: None,
            explain: false,
            huge_pages: None,
            advice_folder: None,
            stop: Arc::default(),
            status: Arc::default(),
            progress: || (),
        }
    }
}
