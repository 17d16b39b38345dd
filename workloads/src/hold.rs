//! A process that holds memory of a known kind until it is killed, for tests of commands that inspect and move memory
//! of other processes.

use crate::error::Error;
use crate::options::HoldOptions;
use linux::{Pages, SharedWords};
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe, splice};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

const PAGE_WORDS: usize = 512;

/// Fills the memory, prints its address, and waits.
pub fn run(options: &HoldOptions) -> Result<(), Error> {
    let bytes = options.size as usize;
    let words;
    let start = if let Some(path) = &options.file {
        words = map(path, options.size).map_err(Error::System)?;
        words.as_ptr() as usize
    } else {
        let mut pages = Pages::reserve(bytes).map_err(Error::System)?;
        pages.advise_huge(options.huge).map_err(Error::System)?;
        pages.fill(|word| word as u64).as_ptr() as usize
    };
    // File pages that wait in a pipe are in use: the kernel does not move them.
    let held = match &options.file {
        Some(path) if options.pinned => Some(into_pipe(path, bytes).map_err(Error::System)?),
        _ => None,
    };
    let mut output = io::stdout().lock();
    writeln!(output, "holding {start:x}-{:x}", start + bytes)?;
    output.flush()?;
    drop(output);
    loop {
        // May return spuriously.
        thread::park();
        std::hint::black_box(&held);
    }
}

fn map(path: &Path, bytes: u64) -> io::Result<SharedWords> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    file.set_len(bytes)?;
    let words = SharedWords::map(&file, bytes as usize)?;
    for page in words.chunks(PAGE_WORDS) {
        page.iter().take(1).for_each(|word| word.store(7, Relaxed));
    }
    Ok(words)
}

fn into_pipe(path: &Path, bytes: usize) -> io::Result<(std::os::fd::OwnedFd, std::os::fd::OwnedFd)> {
    let (out, into) = pipe()?;
    fcntl_setpipe_size(&into, bytes.min(1 << 20))?;
    let file = OpenOptions::new().read(true).open(path)?;
    splice(&file, None, &into, None, bytes, SpliceFlags::NONBLOCK)?;
    Ok((out, into))
}
