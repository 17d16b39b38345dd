//! A trace of a process that is still running.

use crate::open_trace::Reading;
use crate::options::usage_error::UsageError;
use crate::process::target::unseen;
use linux::{PresentPages, Process, ProcessError};
use machine::{HUGE_PAGE, NodeId, SMALL_PAGE};
use profile::{Filter, MemoryHome, Profile, ThreadHome};
use std::collections::BTreeMap;
use std::error::Error;
use std::ops::Range;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use trace::{About, Clock};

/// Addresses of a process, by the node that should hold them.
pub type RangesByNode = BTreeMap<NodeId, Vec<Range<u64>>>;

/// What a trace says about a running process.
pub struct TraceOfProcess<'a> {
    profile: Profile,
    process: &'a Process,
}

impl<'a> TraceOfProcess<'a> {
    /// Reads a trace. Rejects one of another machine, of an earlier process with this pid, or without this process.
    pub fn read(trace: &Path, max_memory: Option<u64>, process: &'a Process) -> Result<Self, Box<dyn Error>> {
        let recorded = Reading::with_max_memory(max_memory).read(trace)?;
        let traced = Self { profile: recorded.profile, process };
        let why = is_from_elsewhere(&recorded.about).or(traced.is_of_another()?);
        why.map_or(Ok(traced), |why| Err(UsageError::boxed(format!("{} cannot be used: {why}", trace.display()))))
    }

    /// The best node of each of its threads that still run.
    pub fn thread_homes(&self) -> Vec<ThreadHome> {
        let mut homes = self.profile.view(&Filter::default()).thread_homes(self.process.pid());
        homes.retain(|home| {
            let start = self.process.thread_start_time(home.tid);
            start.is_some_and(|start| start.monotonic_ns() <= home.last_ns)
        });
        homes
    }

    /// The best node of each part of its memory. A huge page is treated as a whole.
    pub fn memory_homes(&self) -> Result<RangesByNode, Box<dyn Error>> {
        let homes = self.profile.view(&Filter::default()).memory_homes(self.process.pid());
        let mut present = PresentPages::new(self.process).map_err(|error| unseen(self.process.pid(), &error))?;
        let mut ranges = RangesByNode::new();
        for MemoryHome { start, node, pages } in homes {
            let part = start..start.saturating_add(HUGE_PAGE);
            if pages.is_empty() || is_huge(&part, &mut present) {
                ranges.entry(node).or_default().push(part);
            } else {
                for (page, node) in pages {
                    ranges.entry(node).or_default().push(page..page.saturating_add(SMALL_PAGE));
                }
            }
        }
        Ok(ranges)
    }

    /// Explains why the trace is not of this process.
    fn is_of_another(&self) -> Result<Option<String>, Box<dyn Error>> {
        let pid = self.process.pid();
        let start = match self.process.start_time() {
            Err(error @ ProcessError::Gone(_)) => return Err(unseen(pid, &error).into()),
            start => start?,
        };
        Ok(match self.profile.view(&Filter::default()).last_access_ns(pid) {
            None => Some(format!("it has no accesses of process {pid}: nearside report shows what it has, and why")),
            Some(last_ns) if start.monotonic_ns() > last_ns => {
                Some(format!("process {pid} started later: it is not the recorded one"))
            }
            Some(_) => None,
        })
    }
}

/// Whether a huge page is present, as far as the kernel reports it.
fn is_huge(part: &Range<u64>, present: &mut PresentPages) -> bool {
    let mut extents = Vec::new();
    present.find(part, &mut extents).is_ok() && extents.iter().any(|extent| extent.page_bytes == HUGE_PAGE)
}

/// Explains why processes of a trace cannot be those of this machine.
fn is_from_elsewhere(about: &About) -> Option<String> {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let booted = now.saturating_sub(linux::ticks() / 100);
    if about.host != host {
        Some(format!("it was recorded on {}, and this is {host}", about.host))
    } else if about.clock != Clock::Monotonic {
        let cure = "use perf record -k CLOCK_MONOTONIC, or nearside record";
        Some(format!("its times are from perf's own clock, which cannot be compared with those of processes: {cure}"))
    } else if about.began_unix_s + 1 < booted {
        Some("this machine has rebooted since".to_owned())
    } else {
        None
    }
}
