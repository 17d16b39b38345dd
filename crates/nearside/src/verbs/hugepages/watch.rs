//! `nearside hugepages watch`: what becomes of the huge pages of a running process.

use crate::interrupt::interrupted;
use crate::options::process_name::process;
use crate::options::seconds::seconds;
use crate::options::system::System;
use crate::output;
use crate::output::json;
use crate::process::ranges;
use clap::Args;
use linux::{MappingUse, PageWalk, Pid, Process, ProcessError, WalkError, parse_smaps};
use machine::{HUGE_PAGE, SMALL_PAGE};
use report::{BlockChange, BlockEvent, BlockState};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::ops::{ControlFlow, Range};
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest delay before Ctrl-C takes effect.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Show what becomes of the huge pages of a running process: placed, split, joined, moved
///
/// Prints a line for each block of 2 MiB that is a huge page at first, then one for each change of these and of later
/// ones. With ADDRESS it shows one block, whatever its pages are. Changes between two readings show as one. It ends with
/// the process, or by Ctrl-C, and changes nothing.
///
/// Needs the process's user or root, and Linux 6.7.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside hugepages watch 4711
  nearside hugepages watch 4711 7f0000200000 --interval 0.01
  nearside hugepages watch redis-server --json | jq -c 'select(.change == \"split\")'

Exit codes: 0 the process has ended, or Ctrl-C; 1 it may not be looked at; 2 the command line is wrong.")]
pub struct Arguments {
    /// The process: its number, or its name if it is the only one of that name
    #[arg(value_name = "PID", value_parser = process)]
    pid: u32,

    /// Only the block with this address, in hexadecimal
    #[arg(value_name = "ADDRESS", value_parser = ranges::parse)]
    address: Option<Range<u64>>,

    /// Time between two readings, in seconds; at least as long as a reading takes
    #[arg(long, value_name = "SECONDS", default_value = "0.1", value_parser = seconds(0.001..=3600.0))]
    interval: Duration,

    /// One line of JSON for each change (see docs/huge-pages.md)
    #[arg(long)]
    json: bool,
}

/// Blocks by first address.
type Blocks = BTreeMap<u64, BlockState>;

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let system = System::live();
    let process = system.process(Pid(arguments.pid))?;
    let unseen = |error| system.unseen(process.pid(), &error);
    let mut walk = PageWalk::new(&process, None).map_err(unseen)?;
    if !walk.shows_huge_pages() {
        return Err("this kernel does not tell huge pages from small ones: that needs Linux 6.7".into());
    }
    let only = arguments.address.as_ref().map(|page| page.start / HUGE_PAGE * HUGE_PAGE);
    let stop = interrupted()?;
    let (began, mut known) = (Instant::now(), Blocks::new());
    while !stop.load(Relaxed) {
        let started = Instant::now();
        let Some(found) = look(&process, &mut walk, only, &known).or_else(|error| ended(&system, &process, error))?
        else {
            break;
        };
        let time_us = began.elapsed().as_micros() as u64;
        let mut text = String::new();
        for change in changes(&known, &found, time_us) {
            if arguments.json {
                text += &json::line(&change)?;
            } else {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{change}");
            }
        }
        if !output::write_more(&text)? {
            break;
        }
        known = found;
        // Of a large process a reading takes longer than the interval, and half of the time is left to others.
        let next = started + arguments.interval.max(2 * started.elapsed());
        while !stop.load(Relaxed) && Instant::now() < next {
            sleep(next.saturating_duration_since(Instant::now()).min(POLL_INTERVAL));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A process that has ended is no failure.
fn ended(system: &System, process: &Process, error: WalkError) -> Result<Option<Blocks>, Box<dyn Error>> {
    match error {
        WalkError::Process(ProcessError::Gone(_)) => Ok(None),
        WalkError::Process(error) => Err(system.unseen(process.pid(), &error).into()),
        error @ WalkError::Call { .. } => Err(error.into()),
    }
}

/// The block that was asked for; else those that are huge, or were.
fn look(
    process: &Process,
    walk: &mut PageWalk,
    only: Option<u64>,
    known: &Blocks,
) -> Result<Option<Blocks>, WalkError> {
    let smaps = process.text("smaps").map_err(WalkError::Process)?;
    // The text is the kernel's own: none of it means that the process has just ended.
    let uses = parse_smaps(&smaps).unwrap_or_default();
    if uses.is_empty() {
        return Ok(None);
    }
    let mut found = Blocks::new();
    for range in uses.iter().filter_map(|used| part(used, only, known)) {
        let _ = walk.visit(&range, None, |page| {
            if let Ok(node) = page.node {
                let block = found.entry(page.address / HUGE_PAGE * HUGE_PAGE).or_default();
                block.add(node, page.page_bytes / SMALL_PAGE, page.page_bytes == HUGE_PAGE);
            }
            ControlFlow::Continue(())
        })?;
    }
    found.retain(|address, block| {
        Some(*address) == only || only.is_none() && (block.huge || known.contains_key(address))
    });
    Ok(Some(found))
}

/// The part of a mapping that may have blocks to look at.
fn part(used: &MappingUse, only: Option<u64>, known: &Blocks) -> Option<Range<u64>> {
    let Range { start, end } = used.mapping.range;
    // Pages of a pool are never split or joined.
    if used.hugetlb_bytes > 0 {
        return None;
    }
    if let Some(address) = only {
        let block = start.max(address)..end.min(address.saturating_add(HUGE_PAGE));
        return (block.start < block.end).then_some(block);
    }
    let has_known = known.range(start / HUGE_PAGE * HUGE_PAGE..end).next().is_some();
    (used.transparent_huge_bytes > 0 || has_known).then_some(start..end)
}

/// What became of each block.
fn changes<'a>(before: &'a Blocks, after: &'a Blocks, time_us: u64) -> impl Iterator<Item = BlockChange> + 'a {
    let gone = before.keys().filter(|address| !after.contains_key(address));
    let mut addresses: Vec<u64> = after.keys().chain(gone).copied().collect();
    addresses.sort_unstable();
    addresses.into_iter().filter_map(move |address| {
        let (before, after) = (before.get(&address), after.get(&address));
        let change = BlockEvent::between(before, after)?;
        Some(BlockChange { time_us, address, change, state: after.cloned() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::NodeId;

    fn huge() -> BlockState {
        BlockState { huge: true, pages: [(NodeId(0), 512)].into() }
    }

    #[test]
    fn changes_come_in_order_of_addresses() {
        let before: Blocks = [(HUGE_PAGE, huge()), (2 * HUGE_PAGE, huge())].into();
        let after: Blocks = [(0, huge()), (2 * HUGE_PAGE, BlockState { huge: false, ..huge() })].into();
        let found: Vec<_> = changes(&before, &after, 5).map(|change| (change.address, change.change)).collect();
        assert_eq!(found, [(0, BlockEvent::Placed), (HUGE_PAGE, BlockEvent::Gone), (2 * HUGE_PAGE, BlockEvent::Split)]);
        assert_eq!(changes(&after, &after, 5).count(), 0);
    }

    #[test]
    fn only_mappings_with_huge_pages_or_known_blocks_are_read() {
        let smaps = |huge_kib: u64| {
            format!(
                "200000-800000 rw-p 0 0:0 0 \nRss: 6144 kB\nAnonHugePages: {huge_kib} kB\n800000-a00000 rw-p 0 0:0 0 \nRss: 4 kB\n"
            )
        };
        let parts = |huge_kib, only, known: &Blocks| -> Vec<(u64, u64)> {
            let uses = parse_smaps(&smaps(huge_kib)).unwrap();
            uses.iter().filter_map(|used| part(used, only, known)).map(|part| (part.start, part.end)).collect()
        };
        let none = Blocks::new();
        assert_eq!(parts(0, None, &none), []);
        assert_eq!(parts(2048, None, &none), [(0x20_0000, 0x80_0000)]);
        assert_eq!(parts(0, None, &[(0x80_0000, huge())].into()), [(0x80_0000, 0xa0_0000)]);
        assert_eq!(parts(0, Some(0x60_0000), &none), [(0x60_0000, 0x80_0000)]);
    }
}
