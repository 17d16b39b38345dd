//! A trace of a process that still runs.

use crate::recorded::Reading;
use crate::target::unseen;
use crate::wrong::Wrong;
use linux::{PresentPages, Process, ProcessError};
use machine::NodeId;
use profile::{Filter, HUGE_PAGE, MemoryHome, Profile, SMALL_PAGE, ThreadHome};
use std::collections::BTreeMap;
use std::error::Error;
use std::ops::Range;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use trace::{About, Clock};

/// Addresses of a process, by the node that they belong to.
pub type RangesByNode = BTreeMap<NodeId, Vec<Range<u64>>>;

/// What a trace says of a process that still runs.
pub struct Traced<'a> {
    profile: Profile,
    process: &'a Process,
}

impl<'a> Traced<'a> {
    /// Reads a trace. One of another machine, of another process that had this number, or of none, is refused.
    pub fn read(trace: &Path, process: &'a Process) -> Result<Self, Box<dyn Error>> {
        let recorded = Reading::default().read(trace)?;
        let traced = Self { profile: recorded.profile, process };
        let why = is_from_elsewhere(&recorded.about).or(traced.is_of_another()?);
        why.map_or(Ok(traced), |why| Err(Wrong::because(format!("{} cannot be used: {why}", trace.display()))))
    }

    /// Where its threads belong, as far as they still are.
    pub fn thread_homes(&self) -> Vec<ThreadHome> {
        let mut homes = self.profile.view(&Filter::default()).thread_homes(self.process.pid());
        homes.retain(|home| {
            let birth = self.process.thread_birth(home.tid);
            birth.is_some_and(|birth| birth.monotonic_ns() <= home.last_ns)
        });
        homes
    }

    /// What of its memory belongs on which node. A huge page goes as a whole.
    pub fn memory_homes(&self) -> Result<RangesByNode, Box<dyn Error>> {
        let homes = self.profile.view(&Filter::default()).memory_homes(self.process.pid());
        let mut present = PresentPages::of(self.process).map_err(|error| unseen(self.process.pid(), &error))?;
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

    /// Why the trace is not of this process.
    fn is_of_another(&self) -> Result<Option<String>, Box<dyn Error>> {
        let pid = self.process.pid();
        let birth = match self.process.birth() {
            Err(error @ ProcessError::Gone(_)) => return Err(unseen(pid, &error).into()),
            birth => birth?,
        };
        Ok(match self.profile.view(&Filter::default()).last_access_ns(pid) {
            None => Some(format!("it has no accesses of process {pid}: nearside report says what it has, and why")),
            Some(last_ns) if birth.monotonic_ns() > last_ns => {
                Some(format!("process {pid} has begun since, and is another one than the trace's"))
            }
            Some(_) => None,
        })
    }
}

/// Whether a huge page is there, as far as the kernel tells.
fn is_huge(part: &Range<u64>, present: &mut PresentPages) -> bool {
    let mut extents = Vec::new();
    present.find(part, &mut extents).is_ok() && extents.iter().any(|extent| extent.page_bytes == HUGE_PAGE)
}

/// Why processes of a trace cannot be those of this machine.
fn is_from_elsewhere(about: &About) -> Option<String> {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let booted = now.saturating_sub(linux::ticks() / 100);
    if about.host != host {
        Some(format!("it is of {}, and this is {host}", about.host))
    } else if about.clock != Clock::Monotonic {
        let cure = "perf record -k CLOCK_MONOTONIC, and nearside record, have a clock that can";
        Some(format!("its times are perf's own, which cannot be compared with those of processes: {cure}"))
    } else if about.began_unix_s + 1 < booted {
        Some("this machine has started again since".to_owned())
    } else {
        None
    }
}
