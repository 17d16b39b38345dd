//! `nearside export`: the table agrees with the report.

use crate::report::{json, nearside, text, written};
use crate::traces;
use assert_cmd::prelude::*;
use parquet::file::reader::SerializedFileReader;
use parquet::record::{Field, Row};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

fn rows(file: &Path) -> Vec<Row> {
    let reader = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
    reader.into_iter().map(Result::unwrap).collect()
}

fn field<'a>(row: &'a Row, name: &str) -> &'a Field {
    row.get_column_iter().find(|(column, _)| *column == name).unwrap().1
}

#[test]
fn samples_are_joined_as_the_report_attributes_them() {
    let (folder, trace) = written(traces::face_recognition());
    let file = folder.path().join("samples.parquet");
    fs::write(&file, "old").unwrap();
    assert_eq!(text(&["export", &trace, "--parquet", file.to_str().unwrap()]), "");
    let rows = rows(&file);
    let told = json(&["report", &trace, "--top", "100"]);
    assert_eq!(rows.len() as u64, told["counts"]["samples"].as_u64().unwrap());
    // By site and by object: samples, and the remote ones.
    for (list, number, name) in [("sites", "site", "site"), ("objects", "object", "object")] {
        let mut counted: BTreeMap<u64, (u64, f64)> = BTreeMap::new();
        for row in &rows {
            let (Field::UInt(number), Field::Float(weight)) = (field(row, name), field(row, "weight")) else {
                panic!("{row}")
            };
            let (samples, remote) = counted.entry(u64::from(*number)).or_default();
            *samples += 1;
            *remote += if *field(row, "remote") == Field::Bool(true) { f64::from(*weight) } else { 0.0 };
        }
        let reported = told[list]["first"].as_array().unwrap();
        assert_eq!(counted.len(), reported.len(), "{list}");
        for row in reported {
            let (samples, remote) = counted[&row[number].as_u64().unwrap()];
            assert_eq!(row["samples"], Value::from(samples), "{row}");
            let difference = row["remote_accesses"].as_f64().unwrap() - remote;
            assert!(difference.abs() <= 1e-6 * remote, "{row}: {remote}");
        }
    }
    let site = &told["sites"]["first"][0];
    let of_site = |row: &&Row| matches!(field(row, "site"), Field::UInt(number) if u64::from(*number) == site["site"]);
    let row = rows.iter().find(of_site).unwrap();
    assert_eq!(field(row, "site_label"), &Field::Str(site["label"].as_str().unwrap().to_owned()));
    assert_eq!(field(row, "object_kind"), &Field::Str(site["kind"].as_str().unwrap().to_owned()));
}

#[test]
fn filters_hold_and_a_failure_leaves_the_old_file() {
    let (folder, trace) = written(traces::face_recognition());
    let file = folder.path().join("samples.parquet");
    let name = file.to_str().unwrap();
    text(&["export", &trace, "--remote", "--parquet", name]);
    let filtered = rows(&file);
    let told = json(&["report", &trace, "--remote"]);
    assert_eq!(filtered.len() as u64, told["counts"]["samples"].as_u64().unwrap());
    assert!(filtered.iter().all(|row| *field(row, "remote") == Field::Bool(true)));
    let before = fs::read(&file).unwrap();
    assert_eq!(nearside(&["export", "/nowhere", "--parquet", name]).code, 1);
    assert_eq!(nearside(&["export", &trace, "--node", "99", "--parquet", name]).code, 2);
    assert_eq!(fs::read(&file).unwrap(), before);
    assert_eq!(nearside(&["export", &trace, "--parquet", "/nowhere/x"]).code, 1);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the trace and the file");
    let (_empty, trace) = written(traces::Trace::new(&[]));
    text(&["export", &trace, "--parquet", name]);
    assert_eq!(rows(&file).len(), 0);
}

#[test]
fn links_devices_and_pipes_are_written_to_and_kept() {
    let (folder, trace) = written(traces::face_recognition());
    let at = |name: &str| folder.path().join(name);
    let export = |name: &str| text(&["export", &trace, "--parquet", at(name).to_str().unwrap()]);
    fs::write(at("samples"), "old").unwrap();
    symlink("samples", at("link")).unwrap();
    symlink("/dev/null", at("null")).unwrap();
    symlink("new", at("link to nothing")).unwrap();
    for name in ["link", "null", "link to nothing"] {
        export(name);
        assert!(at(name).symlink_metadata().unwrap().is_symlink(), "{name} was replaced");
    }
    assert!(at("new").is_file());
    let samples = rows(&at("samples")).len();
    assert!(samples > 0);
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let reader = Command::new("cat").arg(at("pipe")).stdout(File::create(at("copy")).unwrap()).spawn();
    export("pipe");
    assert!(reader.unwrap().wait().unwrap().success());
    assert_eq!(rows(&at("copy")).len(), samples);
    let full = nearside(&["export", &trace, "--parquet", "/dev/full"]);
    assert_eq!((full.code, full.err.as_str()), (1, "nearside: cannot write to /dev/full: the disk is full\n"));
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let (_folder, trace) = written(traces::face_recognition());
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let mut command = Command::cargo_bin("nearside").unwrap();
    let output = command.args(["export", &trace, "--parquet", "-"]).stdout(writer).stderr(Stdio::piped()).output();
    let output = output.unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}
