//! The journal of a killed agent.

use agent::journal::{FORMAT, Header, JournalRecord, parse};
use machine::Pid;

/// The journal of a killed agent. Writing the entries again preserves them.
pub(crate) fn journal(bytes: &[u8]) {
    let _ = parse(bytes, "boot");
    let header = Header { journal: FORMAT, boot: "boot".to_owned(), pid: Pid(7) };
    let mut text = serde_json::to_vec(&header).unwrap();
    text.push(b'\n');
    text.extend(bytes);
    let parsed = parse(&text, "boot");
    assert!(!parsed.foreign);
    let mut anew = JournalRecord::default();
    parsed.record.changes().for_each(|change| anew.add(&change));
    assert_eq!(anew, parsed.record);
}
