//! `nearside pages`: where each page of a process is.

use crate::options::process_name::process;
use crate::options::regions::RegionsFile;
use crate::options::system::System;
use crate::options::usage_error::UsageError;
use crate::output;
use crate::output::json;
use crate::output::terminal::Terminal;
use crate::process::ranges;
use clap::{Args, ValueEnum};
use linux::{FrameFlags, Mapping, MappingUse, Page, PageWalk, Pid, Process, ProcessError, WalkError, parse_smaps};
use observe::Regions;
use report::{Detail, MappingPages, PAGE_HEADING, PageLine, PagesReport, PagesText, pages_svg};
use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::process::ExitCode;

/// Cells of a strip for a whole mapping, and of one for a requested range.
const FEW_CELLS: u64 = 256;
const MANY_CELLS: u64 = 1024;
/// Maximum number of rows per mapping: interleaved memory has as many rows as pages.
const MOST_RUNS: usize = 1 << 18;
/// Output is written in chunks of about this many bytes.
const PIECE_BYTES: usize = 1 << 20;

/// Show where each page of a process is: as strips, runs or single pages
///
/// A strip has a letter for each piece of address space: the number of the node that holds more than half of its memory
/// (a to z from 10 on, A to Z from 36 on), * where it is spread over several nodes, and a dot where nothing is in memory. Pages are not
/// touched, and swapped-out pages are left out.
///
/// Needs the process's user or root. Page frames and their flags are for root only.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside pages 4711                              a strip of each mapping with memory
  nearside pages 4711 '[heap]'                     a finer one of the heap, and its pages run by run
  nearside pages 4711 libc.so.6                    of the mappings of a file
  nearside pages 4711 7f2a40000000-7f2a80000000    of a range of addresses
  nearside pages 4711 7f2a40000000 --each          one page, with its frame
  nearside pages 4711 --each --json | jq -c 'select(.node == 1)'
  nearside pages 4711 --format svg > pages.svg     a picture

Exit codes:
  0  all went well
  1  the process is gone, is no user program, or may not be looked at
  2  the command line is wrong, or nothing is mapped there")]
pub struct Arguments {
    /// The process: its number, or its name if it is the only one of that name
    #[arg(value_name = "PID", value_parser = process)]
    pid: u32,

    /// Which part: hexadecimal addresses, START-END or a single one for its page, or a mapping name such as `[heap]` or
    /// `libc.so.6`, or the name of a range that the program or --regions gave [default: all]
    #[arg(value_name = "RANGE")]
    range: Option<String>,

    #[command(flatten)]
    names: RegionsFile,

    /// One line for each page, with its frame; in JSON, one object per line
    #[arg(long)]
    each: bool,

    /// With --each, also the kernel's flags of the frame (as root; three times as slow)
    #[arg(long, requires = "each")]
    kernel_flags: bool,

    /// How to show it
    #[arg(long, value_enum, default_value_t = Format::Text, conflicts_with = "each")]
    format: Format,

    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// Write to this file instead of standard output, which is -
    #[arg(long, short, value_name = "FILE", conflicts_with = "each")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Strips for a terminal, and runs of pages if a range is given
    Text,
    /// Sizes, strip and runs of each mapping (see docs/show.md)
    Json,
    /// Strips as a picture
    Svg,
}

/// Note for a process whose pages could not be read to the end.
const ENDED: &str = "the process ended, or executed another program, while it was read: the rest is missing";

/// Part of a mapping.
struct Part<'a> {
    of: &'a MappingUse,
    range: Range<u64>,
}

impl Part<'_> {
    fn hugetlb(&self) -> Option<u64> {
        (self.of.hugetlb_bytes > 0).then_some(self.of.page_bytes)
    }
}

pub fn run(arguments: &Arguments, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let system = System::live();
    let process = system.process(Pid(arguments.pid))?;
    let unseen = |error| system.unseen(process.pid(), &error);
    let smaps = process.text("smaps").map_err(unseen)?;
    let uses = parse_smaps(&smaps)?;
    let mut notes = Vec::new();
    let parts = parts(&uses, arguments.range.as_deref(), &mut arguments.names.load()?, &mut notes)?;
    let flags = arguments.kernel_flags.then(|| FrameFlags::open(&system.proc())).transpose();
    let flags =
        flags.map_err(|why| format!("cannot read /proc/kpageflags, which is for root alone (CAP_SYS_ADMIN): {why}"))?;
    let mut walk = PageWalk::new(&process, flags).map_err(unseen)?;
    if arguments.each {
        return each(arguments, &mut walk, &parts, &notes);
    }
    let most_cells = if arguments.range.is_some() { MANY_CELLS } else { FEW_CELLS };
    let name = process.status().map_err(unseen)?.name;
    let format = if arguments.json { Format::Json } else { arguments.format };
    let with_runs = format == Format::Json || format == Format::Text && arguments.range.is_some();
    let detail = Detail { cells: most_cells, runs: if with_runs { MOST_RUNS } else { 0 } };
    let report = look(&process, name, &mut walk, &parts, detail, notes)?;
    let text = match format {
        Format::Text => {
            let colours = arguments.output.is_none() && terminal.is_coloured();
            let text = PagesText { report: &report, runs: arguments.range.is_some(), colours };
            if arguments.output.is_some() { text.to_string() } else { terminal.text(&text) }
        }
        Format::Json => json::document(&report)?,
        Format::Svg => pages_svg(&report),
    };
    output::write_private(&text, arguments.output.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// Selects the requested parts of those mappings that have memory.
fn parts<'a>(
    uses: &'a [MappingUse],
    range: Option<&str>,
    regions: &mut Regions,
    notes: &mut Vec<String>,
) -> Result<Vec<Part<'a>>, Box<dyn Error>> {
    let mappings: Vec<Mapping> = uses.iter().map(|used| used.mapping.clone()).collect();
    let chosen = match range.map(|text| (ranges::parse(text), text)) {
        None => ranges::choose(&mappings, &[], &[], regions),
        Some((Ok(range), _)) => ranges::choose(&mappings, &[range], &[], regions),
        Some((Err(why), name)) => ranges::choose(&mappings, &[], &[name.to_owned()], regions)
            .map_err(|no_name| if name.starts_with(|c: char| c.is_ascii_digit()) { why } else { no_name }),
    };
    let chosen = chosen.map_err(UsageError::boxed)?;
    if chosen.unmapped_bytes > 0 {
        notes.push(format!("{} of the range are not mapped", machine::size::rounded(chosen.unmapped_bytes)));
    }
    let part = |range: Range<u64>| {
        // Mappings are sorted by address.
        let of = uses.get(uses.partition_point(|used| used.mapping.range.end <= range.start))?;
        Some(Part { of, range })
    };
    let mut parts: Vec<Part> = chosen.ranges.into_iter().filter_map(part).collect();
    let swapped = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.of.swapped_bytes));
    if swapped > 0 {
        notes.push(format!("{} of these mappings are swapped out", machine::size::rounded(swapped)));
    }
    parts.retain(|part| part.of.resident_bytes.max(part.of.hugetlb_bytes) > 0);
    Ok(parts)
}

fn look(
    process: &Process,
    name: String,
    walk: &mut PageWalk,
    parts: &[Part],
    detail: Detail,
    mut notes: Vec<String>,
) -> Result<PagesReport, Box<dyn Error>> {
    let mut mappings = Vec::new();
    for part in parts {
        let mut pages = MappingPages::new(&part.of.mapping, &part.range, part.hugetlb().is_some(), detail);
        let visited = walk.visit(&part.range, part.hugetlb(), |page| {
            pages.add(page);
            ControlFlow::Continue(())
        });
        pages.finish();
        if !pages.is_empty() {
            mappings.push(pages);
        }
        match visited {
            Err(error) if has_ended(&error) => {
                notes.push(ENDED.to_owned());
                break;
            }
            // Any other error ends the command.
            visited => drop(visited?),
        }
    }
    if mappings.is_empty() {
        notes.push("none of its pages is in memory".to_owned());
    }
    let left_out = mappings.iter().fold(0, |sum: u64, pages| sum.saturating_add(pages.runs_left_out));
    if left_out > 0 {
        notes.push(format!(
            "{left_out} rows of pages are left out, after the first {MOST_RUNS} of each mapping: --each shows all"
        ));
    }
    if !walk.shows_huge_pages() && parts.iter().any(|part| part.of.transparent_huge_bytes > 0) {
        notes.push(
            "transparent huge pages are shown as base pages: the kernel tells them apart since Linux 6.7".to_owned(),
        );
    }
    Ok(PagesReport { pid: process.pid().0, name, mappings, notes })
}

/// Prints each page at once: there may be many millions of them.
fn each(
    arguments: &Arguments,
    walk: &mut PageWalk,
    parts: &[Part],
    notes: &[String],
) -> Result<ExitCode, Box<dyn Error>> {
    for text in notes {
        note(text);
    }
    let mut text = if arguments.json { String::new() } else { format!("{PAGE_HEADING}\n") };
    let mut failed = None;
    let mut frames_hidden = false;
    for part in parts {
        let flow = walk.visit(&part.range, part.hugetlb(), |page| {
            frames_hidden |= page.entry.is_present() && page.entry.frame().is_none();
            add_line(&mut text, page, arguments.json);
            if text.len() < PIECE_BYTES {
                return ControlFlow::Continue(());
            }
            let written = output::write_more(&text);
            text.clear();
            match written {
                Ok(true) => return ControlFlow::Continue(()),
                // The reader has closed the output.
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
            ControlFlow::Break(())
        });
        let flow = match flow {
            Err(error) if has_ended(&error) => {
                note(ENDED);
                break;
            }
            flow => flow?,
        };
        if flow.is_break() {
            return failed.map_or(Ok(ExitCode::SUCCESS), |error| Err(error.into()));
        }
    }
    output::write(&text, None)?;
    if frames_hidden {
        note("frames are not shown: the kernel shows them only to root (CAP_SYS_ADMIN)");
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a note on standard error, apart from the lines.
fn note(text: &str) {
    // With standard error closed there is nowhere to report this.
    let _ = writeln!(io::stderr(), "nearside: note: {text}");
}

/// Whether the process's memory disappeared during the read. This is no error: what was read is reported.
fn has_ended(error: &WalkError) -> bool {
    matches!(error, WalkError::Process(ProcessError::Gone(_)))
}

fn add_line(text: &mut String, page: &Page, json: bool) {
    // Writing to a String cannot fail, and a page serializes to JSON without error.
    let _ = if json {
        json::line(&PageLine(page)).map(|line| *text += &line).map_err(|_| std::fmt::Error)
    } else {
        writeln!(text, "{}", PageLine(page))
    };
}
