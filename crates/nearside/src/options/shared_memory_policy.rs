//! The memory policy of shared memory: a System V segment, or a file on tmpfs or hugetlbfs.

use crate::options::policy::{self, note};
use crate::options::usage_error::UsageError;
use crate::output;
use crate::process::verify::mismatches;
use clap::Args;
use linux::{FreeMemory, MemoryMode, MemoryPolicy, Misplaced, Row, SegmentKey, SharedRange};
use machine::{SMALL_PAGE, size};
use rustix::io::Errno;
use std::error::Error;
use std::fmt::{Display, Write};
use std::io;
use std::path::PathBuf;

/// Which shared memory, and what to do with it besides setting the policy.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "switches of their own, each")]
#[command(next_help_heading = "Options for shared memory, instead of a command")]
pub struct SharedMemoryOptions {
    /// Set the policy of the System V segment with this key file, which is created if --length is given
    #[arg(long, short = 'S', value_name = "KEYFILE", group = "shared")]
    shm: Option<PathBuf>,

    /// The project id of the segment's key, besides its file
    #[arg(long, short = 'I', value_name = "ID", default_value_t = 0, requires = "shm")]
    shmid: i32,

    /// Set the policy of this file on tmpfs or hugetlbfs, which is created or extended if --length is given
    #[arg(long, short, value_name = "FILE", group = "shared")]
    file: Option<PathBuf>,

    /// Start offset: bytes, or a number with K, M, G or T [default: 0]
    #[arg(long, short, value_name = "BYTES", value_parser = size::parse, requires = "shared")]
    offset: Option<u64>,

    /// Length: bytes, or a number with K, M, G or T [default: all the rest]
    #[arg(long, short = 'L', value_name = "BYTES", value_parser = size::parse, requires = "shared")]
    length: Option<u64>,

    /// The mode of a created segment or file, in octal [default: 600]
    #[arg(long, short = 'M', value_name = "MODE", value_parser = parse_mode)]
    shmmode: Option<u32>,

    /// Fail if a page is on another node already; faults in all its pages
    #[arg(long, short = 't')]
    strict: bool,

    /// Fault in all its pages, by the policy
    #[arg(long, short = 'T', requires = "shared")]
    touch: bool,

    /// Fail if pages have another policy or are on other nodes than the policy says, and print which; faults them in
    #[arg(long, short = 'V', requires = "shared", requires = "policy")]
    verify: bool,

    /// Print the policies of its pages
    #[arg(long, short, requires = "shared")]
    dump: bool,

    /// Print the nodes of its pages, which are faulted in
    #[arg(long, short = 'D', requires = "shared")]
    dump_nodes: bool,
}

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode @ 0..=0o777) => Ok(mode),
        _ => Err("an octal number from 0 to 777".to_owned()),
    }
}

impl SharedMemoryOptions {
    /// Whether shared memory is requested at all.
    pub fn is_asked_for(&self) -> bool {
        self.shm.is_some() || self.file.is_some()
    }

    /// Notes options that have no effect on a program.
    pub fn note_idle(&self) {
        for (option, is_given) in [("--strict", self.strict), ("--shmmode", self.shmmode.is_some())] {
            if is_given {
                note(&format!("{option} is for shared memory, and is ignored"));
            }
        }
    }

    /// Sets the policy, and does the rest.
    pub fn run(&self, policy: Option<&MemoryPolicy>, huge: bool) -> Result<(), Box<dyn Error>> {
        if policy.is_none() && !self.touch && !self.dump && !self.dump_nodes {
            return Err(UsageError::boxed("nothing to do with it: name a policy, --touch, --dump or --dump-nodes"));
        }
        if huge && self.file.is_some() {
            note("--huge is for --shm, and is ignored: a file has the pages of its file system");
        }
        let (range, name) = self.range(huge, policy.is_some() || self.dump || self.verify)?;
        // The kernel looks only at pages that this process maps.
        let populated = self.touch || self.verify || self.dump_nodes || (self.strict && policy.is_some());
        let set = |policy, strict| {
            let misplaced = Misplaced { strict, moved: None };
            policy::set(policy, &name, |policy| range.set_policy(policy, misplaced))
        };
        let room = if populated { has_room(&range, &name, policy) } else { Ok(()) };
        let prepared = room.and_then(|()| policy.map_or(Ok(()), |policy| set(policy, false)));
        if let Err(refused) = prepared {
            range.undo();
            return Err(refused);
        }
        if populated {
            range.populate().map_err(|error| {
                let begin = if policy.is_some() { "the policy is set, but cannot" } else { "cannot" };
                format!("{begin} make all pages of {name} present (madvise: {error}): {}", why_absent(&error, &range))
            })?;
        }
        if self.strict {
            policy.map_or(Ok(()), |policy| set(policy, true))?;
        }
        let failed = |error| format!("cannot look at the pages of {name} (get_mempolicy: {error})");
        let mut text = String::new();
        if self.dump {
            range.policies().map_err(failed)?.iter().for_each(|row| line(&mut text, row, &row.value));
        }
        if self.dump_nodes {
            range.nodes().map_err(failed)?.iter().for_each(|row| line(&mut text, row, &row.value));
        }
        let wrong = match policy.filter(|_| self.verify) {
            Some(policy) => {
                let (policies, nodes) = (range.policies().map_err(failed)?, range.nodes().map_err(failed)?);
                mismatches(policy, range.page_bytes(), &policies, &nodes)
            }
            None => Vec::new(),
        };
        for row in &wrong {
            line(&mut text, row, &row.value);
        }
        output::write(&text, None)?;
        if wrong.is_empty() { Ok(()) } else { Err(format!("not all of {name} is as the policy says").into()) }
    }

    fn range(&self, huge: bool, for_policy: bool) -> Result<(SharedRange, String), Box<dyn Error>> {
        let (offset, mode) = (self.offset.unwrap_or(0), self.shmmode.unwrap_or(0o600));
        let (range, name) = match (&self.shm, &self.file) {
            (Some(file), _) => {
                let key = SegmentKey { file, id: self.shmid, huge };
                let name =
                    format!("the segment with the key of {} (--shm) and id {} (--shmid)", file.display(), self.shmid);
                (SharedRange::of_segment(&key, offset, self.length, mode), name)
            }
            (None, Some(file)) => {
                let name = file.display().to_string();
                (SharedRange::of_file(file, offset, self.length, mode, for_policy), name)
            }
            (None, None) => return Err(UsageError::boxed("no shared memory is named")),
        };
        match range {
            Ok(range) => Ok((range, name)),
            Err(error) if error.raw_os_error().is_none() => Err(UsageError::boxed(format!("{name}: {error}"))),
            Err(error) => Err(format!("cannot use {name}: {error}{}", why_unusable(&error, huge)).into()),
        }
    }
}

/// Rejects requests for which the kernel would kill a process, before the policy is set.
fn has_room(range: &SharedRange, name: &str, policy: Option<&MemoryPolicy>) -> Result<(), Box<dyn Error>> {
    // Huge pages come from pools, not from a node's free memory.
    if is_huge(range) {
        return Ok(());
    }
    let absent =
        range.absent_bytes().map_err(|error| format!("cannot look at the pages of {name} (mincore: {error})"))?;
    let bound = policy.filter(|policy| policy.mode == MemoryMode::Bind).map(|policy| &policy.nodes);
    let refused = |why| format!("cannot make all pages of {name} present; its policy is unchanged: {why}").into();
    FreeMemory::for_caller().in_the_way(absent, bound).map_or(Ok(()), |why| Err(refused(why)))
}

/// Whether its pages come from hugetlb's pools.
fn is_huge(range: &SharedRange) -> bool {
    range.page_bytes() > SMALL_PAGE
}

fn why_absent(error: &io::Error, range: &SharedRange) -> &'static str {
    match (error.raw_os_error().map(Errno::from_raw_os_error), is_huge(range)) {
        (_, true) => {
            "the pools of the policy's nodes have no huge page left: nearside show lists them, \
                      /sys/devices/system/node/node*/hugepages/*/nr_hugepages sets them"
        }
        (Some(Errno::FAULT), false) => {
            "its file system is full: df shows its size, mount -o remount,size=BYTES sets it"
        }
        _ => "the policy's nodes have no memory left",
    }
}

fn why_unusable(error: &io::Error, huge: bool) -> &'static str {
    match (error.raw_os_error().map(Errno::from_raw_os_error), huge) {
        (Some(Errno::PERM), true) => {
            "; huge pages for a segment need CAP_IPC_LOCK, or the group of vm.hugetlb_shm_group"
        }
        (Some(Errno::NOMEM), _) => {
            "; if it uses huge pages, reserve some: echo 64 | sudo tee /proc/sys/vm/nr_hugepages; else it is longer than a \
             process may map"
        }
        (Some(Errno::INVAL), false) => "; a segment has at most kernel.shmmax bytes",
        _ => "",
    }
}

fn line<T>(text: &mut String, row: &Row<T>, value: &dyn Display) {
    // Writing to a text cannot fail.
    let _ = writeln!(text, "{:016x}-{:016x}: {value}", row.range.start, row.range.end);
}
