//! The page cache, brought to the same state before each run, so that no run pays for files that an earlier one has
//! read.

use linux::{CpuSet, Switch, SwitchError, affinity, program_file, set_affinity};
use machine::Tid;
use rustix::system::sysinfo;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The files that the page cache must hold before each run.
pub struct PageCache(BTreeSet<PathBuf>);

impl PageCache {
    /// Starts with the files of a program and of the programs that start it.
    pub fn new(command: &[OsString], nearside: &Path) -> Self {
        let path = std::env::var_os("PATH");
        let program = command.first().and_then(|program| program_file(program, path.as_deref()));
        Self(program.into_iter().chain([nearside.to_owned()]).collect())
    }

    /// Adds files.
    pub fn add(&mut self, files: BTreeSet<PathBuf>) {
        self.0.extend(files);
    }

    /// Drops all clean pages from the page cache, compacts free memory, and reads the files from one CPU, so that their
    /// pages are on the same nodes each time. Files that would fill more than half of the free memory are left out.
    /// Needs root.
    pub fn settle(&self) -> Result<(), SwitchError> {
        rustix::fs::sync();
        Switch::at("/proc/sys/vm/drop_caches").set("1")?;
        Switch::at("/proc/sys/vm/compact_memory").set("1")?;
        let free = sysinfo();
        let most_bytes = free.freeram.saturating_mul(free.mem_unit.into()) / 2;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let own = Tid(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
                // If this is refused, pages are wherever the kernel runs this thread.
                if let Some(first) = affinity(own).ok().and_then(|cpus| cpus.first()) {
                    let _ = set_affinity(own, &CpuSet::from_iter([first]));
                }
                read(&self.0, most_bytes);
            });
        });
        Ok(())
    }
}

/// Reads files to their ends, up to a total number of bytes.
fn read(files: &BTreeSet<PathBuf>, most_bytes: u64) {
    let mut left = most_bytes;
    for file in files {
        let Some(found) = fs::metadata(file).ok().filter(|found| found.is_file() && found.len() <= left) else {
            continue;
        };
        // A file that cannot be read fails when the program reads it, with a reason. One that grows is read to its former end.
        let read = File::open(file).and_then(|file| io::copy(&mut file.take(found.len()), &mut io::sink()));
        left = left.saturating_sub(read.unwrap_or_default());
    }
}
