//! A file of a table of a trace, beside a good description: records come in order. The first byte chooses the table.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use trace::{About, Flush, Record, Trace, Writer};

/// Owned by the fuzzer's one thread, as statics are not dropped at the end.
fn folder() -> TempDir {
    let folder = TempDir::new_in("/dev/shm").expect("a folder");
    let machine = machine::presets::find("small-2x2").expect("a preset");
    let writer = Writer::create(folder.path(), About::of_command(Vec::new()), &machine, Flush::default());
    writer.and_then(Writer::finish).expect("an empty trace");
    for table in TABLES {
        fs::create_dir(folder.path().join(table)).expect("a folder");
    }
    folder
}

thread_local!(static FOLDER: TempDir = folder());

const TABLES: [&str; 3] = ["samples", "events", "stacks"];

fuzz_target!(|input: &[u8]| {
    FOLDER.with(|folder| read(folder.path(), input));
});

fn read(folder: &Path, input: &[u8]) {
    let Some((table, bytes)) = input.split_first() else { return };
    let table = folder.join(TABLES[usize::from(*table) % TABLES.len()]);
    let file = table.join("000001.parquet");
    fs::write(&file, bytes).expect("a file");
    let trace = Trace::open(folder).expect("a trace");
    if let Ok(records) = trace.records() {
        let times = records.map_while(Result::ok).map(|record| match record {
            Record::Sample(sample) => sample.time_ns,
            Record::Event(event) => event.time_ns,
        });
        assert!(times.is_sorted());
    }
    fs::remove_file(&file).expect("removed");
}
