//! The memory policy of shared memory: a System V segment, or a file on tmpfs or hugetlbfs.

use crate::output;
use crate::policy::{self, note};
use crate::wrong::Wrong;
use clap::Args;
use linux::{MemoryMode, MemoryPolicy, Misplaced, Row, SegmentKey, SharedRange};
use machine::size;
use std::error::Error;
use std::fmt::Write;
use std::path::PathBuf;

/// Which shared memory, and what to do with it beside giving it the policy.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools)] // switches of their own, each
#[command(next_help_heading = "Options for shared memory, instead of a command")]
pub struct Shared {
    /// Give the policy to the System V segment of this key file, which is made if there is a --length
    #[arg(long, short = 'S', value_name = "KEYFILE", group = "shared")]
    shm: Option<PathBuf>,

    /// The number of the segment's key beside its file
    #[arg(long, short = 'I', value_name = "ID", default_value_t = 0, requires = "shm")]
    shmid: i32,

    /// Give the policy to this file on tmpfs or hugetlbfs, which is made, or made longer, if there is a --length
    #[arg(long, short, value_name = "FILE", group = "shared")]
    file: Option<PathBuf>,

    /// From here on: bytes, or a number with K, M, G or T [default: 0]
    #[arg(long, short, value_name = "BYTES", value_parser = size::parse, requires = "shared")]
    offset: Option<u64>,

    /// So much of it: bytes, or a number with K, M, G or T [default: all the rest]
    #[arg(long, short = 'L', value_name = "BYTES", value_parser = size::parse, requires = "shared")]
    length: Option<u64>,

    /// The mode of what is made, in octal
    #[arg(long, short = 'M', value_name = "MODE", value_parser = parse_mode, default_value = "600")]
    shmmode: u32,

    /// Fail when a page lies elsewhere already; makes all its pages present
    #[arg(long, short = 't')]
    strict: bool,

    /// Make all its pages present, by the policy
    #[arg(long, short = 'T', requires = "shared")]
    touch: bool,

    /// Print the policies of its pages
    #[arg(long, short, requires = "shared")]
    dump: bool,

    /// Print the nodes of its pages, which are made present
    #[arg(long, short = 'D', requires = "shared")]
    dump_nodes: bool,
}

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode @ 0..=0o777) => Ok(mode),
        _ => Err("an octal number from 0 to 777".to_owned()),
    }
}

impl Shared {
    /// Whether shared memory is meant at all.
    pub fn is_asked_for(&self) -> bool {
        self.shm.is_some() || self.file.is_some()
    }

    /// Says what is asked for and does not count for a program.
    pub fn note_idle(&self) {
        if self.strict {
            note("--strict is for shared memory, and is ignored");
        }
    }

    /// Gives it the policy, and does the rest.
    pub fn run(&self, policy: Option<&MemoryPolicy>, huge: bool) -> Result<(), Box<dyn Error>> {
        if policy.is_none() && !self.touch && !self.dump && !self.dump_nodes {
            return Err(Wrong::because("nothing to do with it: name a policy, --touch, --dump or --dump-nodes"));
        }
        let (range, name) = self.range(huge)?;
        if let Some(policy) = policy {
            let set = |strict| {
                let misplaced = Misplaced { strict, moved: None };
                policy::set(policy, &name, |policy| range.set_policy(policy, misplaced))
            };
            set(false)?;
            if self.strict {
                // The kernel looks only at pages that this process maps.
                range.touch();
                set(true)?;
            }
        }
        if self.touch {
            range.touch();
        }
        let mut text = String::new();
        let failed = |error| format!("cannot look at the pages of {name} (get_mempolicy: {error})");
        if self.dump {
            range.policies().map_err(failed)?.iter().for_each(|row| line(&mut text, row, &described(&row.value)));
        }
        if self.dump_nodes {
            range.nodes().map_err(failed)?.iter().for_each(|row| line(&mut text, row, &row.value.to_string()));
        }
        Ok(output::write(&text, None)?)
    }

    fn range(&self, huge: bool) -> Result<(SharedRange, String), Box<dyn Error>> {
        let offset = self.offset.unwrap_or(0);
        let (range, name) = match (&self.shm, &self.file) {
            (Some(file), _) => {
                let key = SegmentKey { file, id: self.shmid, huge };
                let name = format!("the segment of {} and {}", file.display(), self.shmid);
                (SharedRange::of_segment(&key, offset, self.length, self.shmmode), name)
            }
            (None, Some(file)) => {
                let name = file.display().to_string();
                (SharedRange::of_file(file, offset, self.length, self.shmmode), name)
            }
            (None, None) => return Err(Wrong::because("no shared memory is named")),
        };
        match range {
            Ok(range) => Ok((range, name)),
            Err(error) if error.raw_os_error().is_none() => Err(Wrong::because(format!("{name}: {error}"))),
            Err(error) => {
                let hint =
                    if huge { "; to have huge pages for it: echo 64 | sudo tee /proc/sys/vm/nr_hugepages" } else { "" };
                Err(format!("cannot use {name}: {error}{hint}").into())
            }
        }
    }
}

fn line<T>(text: &mut String, row: &Row<T>, value: &str) {
    // Writing to a text cannot fail.
    let _ = writeln!(text, "{:016x}-{:016x}: {value}", row.range.start, row.range.end);
}

/// A policy in the kernel's words.
pub fn described(policy: &MemoryPolicy) -> String {
    let name = match policy.mode {
        MemoryMode::Default => "default",
        MemoryMode::Preferred => "preferred",
        MemoryMode::Bind => "bind",
        MemoryMode::Interleave => "interleave",
        MemoryMode::Local => "local",
        MemoryMode::PreferredMany => "preferred-many",
        MemoryMode::WeightedInterleave => "weighted interleave",
    };
    if policy.nodes.is_empty() { name.to_owned() } else { format!("{name}: {}", policy.nodes) }
}
