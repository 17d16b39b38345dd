//! A process with known memory on known nodes, in pages of known sizes, and threads with known policies, for tests of
//! commands that show where the memory of other processes is.

use crate::error::Error;
use crate::options::{PagesKind, Part, PlaceOptions};
use linux::{Advice, HUGE_PAGE, MemoryPolicy, NodeState, Pages, Tid, advise, set_affinity, set_memory_policy};
use machine::NodeId;
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread;

const SMALL_PAGE: usize = machine::SMALL_PAGE as usize;

/// Places each part by its own thread, which keeps its policy and its CPUs; prints the parts' addresses, and waits.
pub fn run(options: &PlaceOptions) -> Result<(), Error> {
    let parts = options.parts.len();
    let (sender, receiver) = channel();
    for (number, part) in options.parts.iter().cloned().enumerate() {
        let sender = sender.clone();
        let name = format!("place-{number}");
        let started = thread::Builder::new().name(name).spawn(move || of_thread(&part, number, &sender));
        started.map_err(|error| Error::Thread { thread: number, threads: parts, error })?;
    }
    let mut lines = vec![String::new(); parts];
    for _ in 0..parts {
        let (number, line) = receiver.recv().map_err(|_| Error::System(io::Error::other("a thread ended")))?;
        if let Some(place) = lines.get_mut(number) {
            *place = line.map_err(Error::System)?;
        }
    }
    let mut output = io::stdout().lock();
    writeln!(output, "{}", lines.join("\n"))?;
    output.flush()?;
    drop(output);
    loop {
        thread::park();
    }
}

fn of_thread(part: &Part, number: usize, sender: &Sender<(usize, io::Result<String>)>) {
    let placed = place(part);
    let line = placed.as_ref().map(|pages| format!("{:x}-{:x}", pages.range().start, pages.range().end));
    // The receiver is gone if another part has failed.
    let _ = sender.send((number, line.map_err(|error| io::Error::other(format!("{part:?}: {error}")))));
    loop {
        // Keeps the thread and its pages alive.
        thread::park();
        std::hint::black_box(&placed);
    }
}

/// Pieces of a huge page's size are interleaved over the nodes.
fn place(part: &Part) -> io::Result<Pages> {
    let bytes = part.bytes as usize;
    let mut pages =
        if part.kind == PagesKind::Hugetlb { Pages::reserve_hugetlb(bytes)? } else { Pages::reserve(bytes)? };
    match part.kind {
        PagesKind::Base => pages.advise_huge(false)?,
        PagesKind::Huge => pages.advise_huge(true)?,
        PagesKind::Mixed | PagesKind::Hugetlb => {}
    }
    let start = pages.range().start as usize;
    for (piece, node) in (0..bytes / HUGE_PAGE).zip(part.nodes.iter().cycle()) {
        go_to(NodeId(*node))?;
        for byte in (piece * HUGE_PAGE..(piece + 1) * HUGE_PAGE).step_by(SMALL_PAGE) {
            pages.touch(byte);
        }
        if part.kind == PagesKind::Mixed && piece % 2 == 1 {
            advise(&(start + piece * HUGE_PAGE..start + (piece + 1) * HUGE_PAGE), Advice::Collapse)?;
        }
    }
    Ok(pages)
}

/// Binds the calling thread to a node's CPUs, if it has any, and to its memory.
fn go_to(node: NodeId) -> io::Result<()> {
    let cpus = NodeState::read(Path::new("/sys")).map_err(io::Error::other)?.cpus_of(&[node].into_iter().collect());
    if !cpus.is_empty() {
        set_affinity(Tid::CALLER, &cpus)?;
    }
    set_memory_policy(&MemoryPolicy::bind(node))
}
