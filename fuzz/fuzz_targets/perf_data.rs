//! A perf.data file: what is read of it can be kept and told, whatever is in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use trace::{AddressSpaces, Record, Trace};

// Of the fuzzer's one thread, as nothing removes a static at the end.
thread_local!(static FOLDER: TempDir = TempDir::new_in("/dev/shm").expect("a folder"));

fuzz_target!(|bytes: &[u8]| {
    FOLDER.with(|folder| read(&folder.path().join("perf.data"), bytes));
});

fn read(file: &Path, bytes: &[u8]) {
    fs::write(file, bytes).expect("a file");
    let Ok(trace) = Trace::open(file) else { return };
    let Ok(mut records) = trace.records() else { return };
    let mut spaces = AddressSpaces::default();
    while let Some(Ok(record)) = records.next() {
        match record {
            Record::Event(event) => spaces.take(&event),
            Record::Sample(sample) => {
                let _ = spaces.find(sample.pid, sample.address);
                // Each call chain is there before the sample that names it.
                assert!(sample.stack.is_none_or(|stack| (stack.0 as usize) < records.stacks().iter().len()));
            }
        }
    }
}
