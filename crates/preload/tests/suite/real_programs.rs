//! Unmodified programs of this system behave as they do without the library.

use crate::support::{options, record};
use std::process::{Command, Output};

const PYTHON: &str = "
import json, re, threading, subprocess, hashlib
def work(n):
    words = {str(i): [i] * (i % 50) for i in range(n)}
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()
results = [None] * 4
def store(i): results[i] = work(2000 + i)
threads = [threading.Thread(target=store, args=(i,)) for i in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(results, subprocess.run(['echo', 'child'], capture_output=True).stdout)
";
const PERL: &str = r#"my %h; $h{$_ % 977} .= "x$_" for 1..200000; print join(",", map { length $h{$_} } sort keys %h), "\n";
print scalar(`echo child`); fork // die; wait; print "$$\n" if 0;"#;
const SORT: &str = "seq 1 200000 | shuf --random-source=/bin/sh | sort --parallel=2 -S 4M | md5sum";
const SQLITE: &str = "create table t(a integer primary key, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) insert into t select i, hex(i * i) from n;
create index by_b on t(b); select count(*), min(b), max(b) from t; select a from t where b like '39%' order by b limit 20;";

/// `None` if the program is not installed: then the test is skipped.
fn alone(command: &[&str]) -> Option<Output> {
    let output = Command::new(command[0]).args(&command[1..]).output();
    output.inspect_err(|error| test_tools::skipped(format_args!("{}: {error}", command[0]))).ok()
}

fn same(command: &[&str]) {
    let Some(alone) = alone(command) else { return };
    let told = record(Command::new(command[0]).args(&command[1..]), &options());
    assert_eq!(told.output.status, alone.status, "{command:?}: {}", String::from_utf8_lossy(&told.output.stderr));
    assert!(told.output.stdout == alone.stdout && told.output.stderr == alone.stderr, "{command:?}");
    assert!(told.events.len() > 100, "{command:?} recorded {} events", told.events.len());
    assert_eq!(told.losses.malformed, 0, "{command:?}");
}

#[test]
fn python_with_threads_and_a_child() {
    same(&["/usr/bin/python3", "-c", PYTHON]);
}

#[test]
fn perl_with_a_fork() {
    same(&["perl", "-e", PERL]);
}

#[test]
fn sort_with_threads_in_a_shell() {
    same(&["sh", "-c", SORT]);
}

#[test]
fn sqlite() {
    same(&["sqlite3", ":memory:", SQLITE]);
}

#[test]
fn a_compiler_and_what_it_makes() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/operators.cc");
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("object.o");
    let to = to.to_str().unwrap();
    let command = ["c++", "-O2", "-std=c++17", "-c", source, "-o", to];
    let Some(_) = alone(&command) else { return };
    let first = std::fs::read(to).unwrap();
    same(&command);
    assert!(std::fs::read(to).unwrap() == first);
}
