//! `nearside sql` on traces made here, and on files that are not traces.

use crate::support::RunOutput;
use crate::traces::{allocated, event, freed, machine, sample};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use trace::{About, Count, Counter, Flush, Sample, What, Writer};

const FIRST: u64 = 0x1000;
const SECOND: u64 = 0x2000;
/// When the first object is freed and its memory reused.
const REUSE: u64 = 1_000_000;
/// An address that uses all 64 bits.
const LAST: u64 = u64::MAX;

/// Two objects, and a third one in the first one's place: 500, 1,000 and 1,000 samples, in files of 1,000.
fn write(folder: &Path, finish: bool) {
    let about = About::of_command(vec!["program".into()]);
    let mut writer = Writer::create(folder, about, &machine(), Flush { rows: 1000, ..Flush::default() }).unwrap();
    let stack = writer.stacks().id(&[0x40_1000, 0x40_2000]);
    let events = [
        (1, What::ProcessStarted { parent: None }),
        (2, What::Named { name: "red\u{1b}[31m".into(), exec: true }),
        (3, allocated(FIRST, 0x100, stack)),
        (4, allocated(SECOND, 0x200, stack)),
        (REUSE, freed(FIRST)),
        (REUSE + 1, allocated(FIRST, 0x80, stack)),
    ];
    for (time_ns, what) in events {
        writer.event(event(time_ns, 1, 1, what)).unwrap();
    }
    writer
        .count(Count { time_ns: 5, counter: Counter::Instructions, from: None, to: None, cpu: None, value: LAST })
        .unwrap();
    for number in 0..2500 {
        let (begins, object) = match number {
            1500.. => (REUSE + 10, FIRST),
            _ if number % 3 == 0 => (10, FIRST),
            _ => (10, SECOND),
        };
        let latency_ns = Some(if number % 2 == 0 { 100.0 } else { 150.0 });
        let stack = (number % 2 == 0).then_some(stack);
        let one = sample(begins + number, 1, 1 + number as u32 % 2, object + number % 0x80);
        writer.sample(Sample { latency_ns, stack, ..one }).unwrap();
    }
    if finish {
        writer.finish().unwrap();
    }
}

fn written(finish: bool) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    write(&trace, finish);
    (folder, trace)
}

fn nearside(arguments: &[&str]) -> RunOutput {
    let ran = RunOutput::from(Command::new(assert_cmd::cargo::cargo_bin("nearside")).args(arguments).output().unwrap());
    assert!((0..3).contains(&ran.status) && !ran.error.contains("panicked"), "{arguments:?}: {}", ran.error);
    ran
}

fn sql(trace: &Path, query: &str) -> RunOutput {
    nearside(&["sql", trace.to_str().unwrap(), query])
}

/// The rows of a result, each with the values of its columns.
fn rows(trace: &Path, query: &str) -> Value {
    let ran = nearside(&["sql", trace.to_str().unwrap(), query, "--json"]).succeeded();
    serde_json::from_str(ran.text()).unwrap()
}

fn count(trace: &Path, table: &str) -> u64 {
    rows(trace, &format!("SELECT count(*) AS rows FROM {table}"))[0]["rows"].as_u64().unwrap()
}

/// The contents of every file.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { all.extend(content(&path)) } else { drop(all.insert(path.clone(), fs::read(path).unwrap())) }
    }
    all
}

#[test]
fn each_table_has_the_rows_that_were_written() {
    let (_folder, trace) = written(true);
    let counts = ["samples", "events", "stacks", "counts", "images", "code"].map(|table| count(&trace, table));
    assert_eq!(counts, [2500, 6, 2, 1, 0, 0]);
    let by_thread = "SELECT tid, count(*) AS samples, avg(latency_ns) AS latency_ns, count(stack) AS stacks
        FROM samples WHERE served = 'dram' AND NOT kernel GROUP BY tid ORDER BY tid";
    assert_eq!(
        rows(&trace, by_thread),
        json!([
            {"tid": 1, "samples": 1250, "latency_ns": 100.0, "stacks": 1250},
            {"tid": 2, "samples": 1250, "latency_ns": 150.0, "stacks": 0},
        ])
    );
}

/// The join of docs/trace.md: the object at an address changes with time.
#[test]
fn samples_are_joined_with_the_objects_that_were_there() {
    let (_folder, trace) = written(true);
    let documentation = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/trace.md")).unwrap();
    let (_, query) = documentation.split_once("$ cat objects.sql\n").expect("the query is there");
    let (query, _) = query.split_once("\n$ ").unwrap();
    let answer = rows(&trace, query);
    let told = |row: &Value| [&row["address"], &row["bytes"], &row["samples"]].map(Value::to_string).join(" ");
    let mut told: Vec<String> = answer.as_array().unwrap().iter().map(told).collect();
    told.sort_unstable();
    assert_eq!(told, [r#""1000" 128 1000"#, r#""1000" 256 500"#, r#""2000" 512 1000"#]);
}

#[test]
fn without_a_query_tables_and_columns_are_listed() {
    let (_folder, trace) = written(true);
    let path = trace.to_str().unwrap();
    let documentation = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/trace.md")).unwrap();
    let listed: Value = serde_json::from_str(nearside(&["sql", path, "--json"]).succeeded().text()).unwrap();
    let mut tables: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in listed.as_array().unwrap() {
        let name = |key: &str| row[key].as_str().unwrap();
        assert!(documentation.contains(&format!("`{}`", name("column"))), "{row}");
        tables.entry(name("table")).or_default().push(name("column"));
    }
    assert_eq!(tables.len(), 8);
    for (table, columns) in tables {
        // None of them needs quotes.
        sql(&trace, &format!("SELECT {} FROM {table}", columns.join(", "))).succeeded();
    }
    assert_eq!(listed[0], json!({"table": "code", "column": "image", "type": "UInt32", "optional": false}));
    let ran = nearside(&["sql", path]).succeeded();
    assert!(ran.text().starts_with("table"), "{}", ran.text());
    assert!(ran.text().contains("latency_ns"), "{}", ran.text());
}

#[test]
fn text_is_aligned_whatever_it_holds() {
    let (_folder, trace) = written(true);
    let ran = sql(&trace, "SELECT event, name, address, exec FROM events ORDER BY time_ns LIMIT 3").succeeded();
    let expected = "\
event                name  address  exec
process_started         -        -     -
named            red?[31m        -  true
allocated               -     4096     -
";
    assert_eq!(ran.text(), expected);
    // More rows than are buffered for alignment.
    let ran = sql(&trace, "SELECT a.time_ns FROM samples a, samples b LIMIT 50000").succeeded();
    assert_eq!(ran.text().lines().count(), 50_001);
    assert_eq!(sql(&trace, "SELECT pid FROM samples WHERE pid = 7").succeeded().text(), "pid\n");
}

#[test]
fn json_has_every_value_and_every_column() {
    let (_folder, trace) = written(true);
    let value = rows(&trace, "SELECT value, from_node, 0.0 / 0.0 AS nan, 'a\"b' AS text FROM counts");
    assert_eq!(value, json!([{"value": LAST, "from_node": null, "nan": null, "text": "a\"b"}]));
    assert_eq!(rows(&trace, "SELECT pid FROM samples WHERE pid = 7"), json!([]));
    let path = trace.to_str().unwrap();
    let ran = nearside(&["sql", path, "SELECT a.pid, b.pid FROM samples a, samples b LIMIT 1", "--json"]);
    ran.failed(2, &["two columns of the answer are called pid", "AS"]);
}

#[test]
fn what_would_write_is_refused() {
    let (folder, trace) = written(true);
    let out = folder.path().join("out.csv").display().to_string();
    let before = content(folder.path());
    let copy = format!("COPY samples TO '{out}' STORED AS CSV");
    let writes = [
        "CREATE TABLE copy AS SELECT * FROM samples",
        "CREATE VIEW copy AS SELECT * FROM samples",
        "CREATE EXTERNAL TABLE passwords (line TEXT) STORED AS CSV LOCATION '/etc/passwd'",
        "INSERT INTO samples SELECT * FROM samples",
        "DELETE FROM samples",
        "UPDATE samples SET pid = 1",
        "DROP TABLE samples",
        "SET datafusion.execution.batch_size = 1",
        &copy,
        &format!("EXPLAIN {copy}"),
        &format!("EXPLAIN ANALYZE {copy}"),
        "PREPARE later AS SELECT 1",
    ];
    for query in writes {
        sql(&trace, query).failed(2, &["nearside: a trace is read-only"]);
    }
    // Only files of the trace are read.
    sql(&trace, "SELECT * FROM '/etc/passwd'").failed(2, &["not found"]);
    assert!(content(folder.path()) == before, "nothing was written");
}

#[test]
fn what_is_asked_wrongly_is_reported_with_what_there_is() {
    let (_folder, trace) = written(true);
    sql(&trace, "SELECT * FROM objects").failed(2, &["objects", "not found", "the tables are", "samples"]);
    sql(&trace, "SELECT adress FROM samples").failed(2, &["adress", "address", "lists their columns"]);
    sql(&trace, "SELEKT 1").failed(2, &["SELEKT"]);
    sql(&trace, "").failed(2, &[]);
    sql(&trace, "SELECT 1; SELECT 2").failed(2, &["single"]);
    sql(&trace, "SELECT 1 / (pid - 1) FROM samples").failed(1, &["the query failed", "ivide by zero"]);
    // Scripts write long queries. DataFusion takes four times as long for twice the terms.
    let long = vec!["address = 1"; 500].join(" OR ");
    assert_eq!(count(&trace, &format!("samples WHERE {long}")), 0);
    let deep = format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000));
    sql(&trace, &deep).failed(2, &["ecursion"]);
}

/// What a query keeps is bounded, and what goes through it is not.
#[test]
fn a_query_that_needs_too_much_memory_ends_with_the_bound() {
    let (_folder, trace) = written(true);
    let limited = |query: &str, most: &str| nearside(&["sql", trace.to_str().unwrap(), query, "--max-memory", most]);
    let sorted = "SELECT a.time_ns, b.address FROM samples a, samples b ORDER BY a.time_ns + b.address";
    let grouped =
        "SELECT count(*) FROM (SELECT a.time_ns, b.address FROM samples a, samples b WHERE a.tid = 1 GROUP BY 1, 2)";
    let joined = "SELECT count(*) FROM samples a JOIN samples b ON a.time_ns = b.time_ns";
    for (query, most) in [(sorted, "8M"), (grouped, "8M"), (joined, "4K")] {
        let said = if most == "8M" { "more than 8 MiB of memory" } else { "more than 4 KiB of memory" };
        limited(query, most).failed(1, &["the query needs", said, "--max-memory 1G allows more"]);
    }
    for query in [grouped, joined] {
        limited(query, "1G").succeeded();
    }
    limited("SELECT count(*) FROM samples a, samples b WHERE a.address < b.address", "8M").succeeded();
}

#[test]
fn what_is_no_trace_is_named() {
    let folder = TempDir::new().unwrap();
    sql(&folder.path().join("missing"), "SELECT 1").failed(1, &["there is no such file"]);
    sql(folder.path(), "SELECT 1").failed(1, &["is not a trace"]);
    let perf = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/perf_data/plain.data");
    sql(Path::new(perf), "SELECT 1").failed(1, &["a perf.data file has no tables", "nearside report"]);
}

/// The same rule as in `nearside report`, which counts the same samples.
#[test]
fn a_recording_that_was_killed_is_read_up_to_the_last_file() {
    let (_folder, trace) = written(false);
    let said = "nearside: note: the recording was cut off";
    let reported = || -> Value {
        let ran = nearside(&["report", trace.to_str().unwrap(), "--json"]).succeeded();
        serde_json::from_str::<Value>(ran.text()).unwrap()["counts"]["samples"].clone()
    };
    // The last 500 were not written yet.
    assert_eq!((count(&trace, "samples"), reported()), (2000, json!(2000)));
    assert!(sql(&trace, "SELECT 1").succeeded().error.starts_with(said));
    let file = |number: u32| trace.join(format!("samples/{number:06}.parquet"));
    let cut = |number: u32| {
        let whole = fs::read(file(number)).unwrap();
        fs::write(file(number), &whole[..whole.len() / 2]).unwrap();
    };
    fs::write(trace.join("samples/000003.part"), "not complete").unwrap();
    assert_eq!(count(&trace, "samples"), 2000);
    cut(2);
    assert_eq!((count(&trace, "samples"), reported()), (1000, json!(1000)));
    cut(1);
    sql(&trace, "SELECT count(*) FROM samples").failed(1, &["the query failed", "samples/000001.parquet is damaged"]);
    // The other tables are intact.
    assert_eq!(count(&trace, "events"), 6);
}

#[test]
fn a_finished_trace_that_is_damaged_is_refused() {
    let (_folder, trace) = written(true);
    assert_eq!(sql(&trace, "SELECT 1").succeeded().error, "");
    let last = trace.join("samples/000003.parquet");
    let whole = fs::read(&last).unwrap();
    let noise: Vec<u8> = whole.iter().enumerate().map(|(at, byte)| byte ^ (at % 7) as u8).collect();
    for bytes in [&whole[..whole.len() / 2], &[], &noise] {
        fs::write(&last, bytes).unwrap();
        sql(&trace, "SELECT sum(pid) FROM samples").failed(1, &["samples/000003.parquet is damaged"]);
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let (_folder, trace) = written(true);
    for form in [&["--json"][..], &[]] {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("nearside"));
        command.arg("sql").arg(&trace).arg("SELECT a.* FROM samples a, samples b").args(form);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0; 100]).unwrap();
        let ran = RunOutput::from(child.wait_with_output().unwrap()).succeeded();
        assert_eq!(ran.error, "");
    }
}
