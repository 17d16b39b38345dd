//! Traces, and what other recorders write.

use perf_data::spe::SpeRecords;
use std::fs;
use tempfile::TempDir;
use trace::{About, AddressSpaces, Flush, Record, Trace, Writer};

// One folder per thread, as targets run millions of times.
thread_local! {
    static TRACE: TempDir = empty_trace();
    static PERF_DATA: TempDir = TempDir::new_in("/dev/shm").expect("a folder");
}

const TABLES: [&str; 3] = ["samples", "events", "stacks"];

fn empty_trace() -> TempDir {
    let folder = TempDir::new_in("/dev/shm").expect("a folder");
    let machine = machine::presets::find("small-2x2").expect("a preset");
    let writer = Writer::create(folder.path(), About::of_command(Vec::new()), &machine, Flush::default());
    writer.and_then(Writer::finish).expect("an empty trace");
    for table in TABLES {
        fs::create_dir(folder.path().join(table)).expect("a folder");
    }
    folder
}

/// A file of a table of a trace, beside a good description: what is read is in order. The first byte chooses the table.
pub(crate) fn trace(input: &[u8]) {
    let Some((table, bytes)) = input.split_first() else { return };
    TRACE.with(|folder| {
        let table = folder.path().join(TABLES[usize::from(*table) % TABLES.len()]);
        let file = table.join("000001.parquet");
        fs::write(&file, bytes).expect("a file");
        let trace = Trace::open(folder.path()).expect("a trace");
        if let Ok(records) = trace.records() {
            let times = records.map_while(Result::ok).map(|record| match record {
                Record::Sample(sample) => sample.time_ns,
                Record::Event(event) => event.time_ns,
            });
            assert!(times.is_sorted());
        }
        fs::remove_file(&file).expect("removed");
    });
}

/// A perf.data file: what is read of it can be kept and reported, whatever is in it.
pub(crate) fn perf_data(bytes: &[u8]) {
    PERF_DATA.with(|folder| {
        let file = folder.path().join("perf.data");
        fs::write(&file, bytes).expect("a file");
        let Ok(trace) = Trace::open(&file) else { return };
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
    });
}

/// Data of Arm's SPE: records share no bytes, and follow each other in the order of their bytes.
pub(crate) fn spe(data: &[u8]) {
    let mut records = SpeRecords::new(data, 0);
    let mut offset = 0;
    while let Some(record) = records.next() {
        assert!(records.offset() > offset && records.offset() <= data.len());
        // What was read of the bytes from here on is the same.
        assert_eq!(SpeRecords::new(data, offset).next(), Some(record));
        assert!(record.access_cycles() <= record.total_cycles);
        offset = records.offset();
    }
    assert!(records.offset() >= offset && records.offset() <= data.len());
}
