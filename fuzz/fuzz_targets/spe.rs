//! Data of Arm's SPE: records are in order and do not share bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trace::spe::SpeRecords;

fuzz_target!(|data: &[u8]| {
    let mut records = SpeRecords::new(data, 0);
    let mut place = 0;
    while let Some(record) = records.next() {
        assert!(records.place() > place && records.place() <= data.len());
        // Reading the rest from here gives the same records.
        assert_eq!(SpeRecords::new(data, place).next(), Some(record));
        assert!(record.access_cycles() <= record.total_cycles);
        place = records.place();
    }
    assert!(records.place() >= place && records.place() <= data.len());
});
