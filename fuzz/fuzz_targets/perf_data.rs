//! A perf.data file: whatever it contains, the records can be stored and reported.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use trace::{AddressSpaces, Record, Trace};

// Owned by the fuzzer's one thread, as statics are not dropped at the end.
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
                // Each call chain comes before the sample that refers to it.
                assert!(sample.stack.is_none_or(|stack| (stack.0 as usize) < records.stacks().iter().len()));
            }
        }
    }
}
