//! The page cache, brought to the same state before each run: no run pays for files that another one has read.

use crate::record::program::find as program_file;
use linux::{CpuSet, Switch, SwitchError, affinity, set_affinity};
use machine::Tid;
use rustix::system::sysinfo;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// What the page cache has to hold before each run.
pub struct PageCache(BTreeSet<PathBuf>);

impl PageCache {
    /// To begin with, the files of a program and of what starts it.
    pub fn new(command: &[OsString], nearside: &Path) -> Self {
        let path = std::env::var_os("PATH");
        let program = command.first().and_then(|program| program_file(program, path.as_deref()));
        Self(program.into_iter().chain([nearside.to_owned()]).collect())
    }

    /// It has to hold these as well.
    pub fn add(&mut self, files: BTreeSet<PathBuf>) {
        self.0.extend(files);
    }

    /// Empties the page cache of all that no running program uses, joins free memory to large pieces, and reads the
    /// files, from one CPU: their pages are on the same nodes each time. Files that would fill more than half of the
    /// free memory are left out. Needs root.
    pub fn settle(&self) -> Result<(), SwitchError> {
        rustix::fs::sync();
        Switch::at("/proc/sys/vm/drop_caches").set("1")?;
        Switch::at("/proc/sys/vm/compact_memory").set("1")?;
        let free = sysinfo();
        let most_bytes = free.freeram.saturating_mul(free.mem_unit.into()) / 2;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let own = Tid(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
                // Where that is refused, pages are wherever the kernel has this thread run.
                if let Some(first) = affinity(own).ok().and_then(|cpus| cpus.first()) {
                    let _ = set_affinity(own, &CpuSet::from_iter([first]));
                }
                read(&self.0, most_bytes);
            });
        });
        Ok(())
    }
}

/// Reads files to their ends, but no more than some bytes of all together.
fn read(files: &BTreeSet<PathBuf>, most_bytes: u64) {
    let mut left = most_bytes;
    for file in files {
        let room = fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() <= left);
        // What cannot be read fails when the program reads it, with a reason.
        if room && let Ok(bytes) = File::open(file).and_then(|mut file| io::copy(&mut file, &mut io::sink())) {
            left = left.saturating_sub(bytes);
        }
    }
}
