//! Duration of a build from nothing, and of one after a change.

use crate::target::{Row, Target};
use bench::Error;
use std::env;
use std::fs::File;
use std::process::Command;
use std::time::{Instant, SystemTime};

const COMMAND: [&str; 4] = ["build", "--release", "--workspace", "--locked"];
/// Targets, minutes and s.
const MOST: f64 = 5.0;
const MOST_AFTER_CHANGE_S: f64 = 20.0;
/// What is changed: many crates depend on it, and the binary does.
const CHANGED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/placement/src/lib.rs");

/// Builds the workspace in a temporary target folder, then again after a change.
pub fn measure() -> Result<[Row; 2], Error> {
    let target = tempfile::tempdir().map_err(Error::system("make a temporary folder"))?;
    let cargo = || {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).env("CARGO_TARGET_DIR", target.path());
        command
    };
    // Downloads are not counted.
    run(cargo().args(["fetch", "--locked", "--quiet"]))?;
    eprintln!("cargo {}, twice", COMMAND.join(" "));
    let timed = || -> Result<f64, Error> {
        let started = Instant::now();
        run(cargo().args(COMMAND).arg("--quiet"))?;
        Ok(started.elapsed().as_secs_f64())
    };
    let cold_s = timed()?;
    let touched = File::options().append(true).open(CHANGED).and_then(|file| file.set_modified(SystemTime::now()));
    touched.map_err(Error::system("touch a file of placement"))?;
    let after_change_s = timed()?;
    let row = |what: &str, most, measured, unit| Row {
        what: what.into(),
        target: Target::AtMost(most),
        measured,
        unit,
        command: "nearside-bench --cold-build".into(),
    };
    Ok([
        row("cold release build", MOST, cold_s / 60.0, "minutes"),
        row("release build after a change in placement", MOST_AFTER_CHANGE_S, after_change_s, "s"),
    ])
}

fn run(command: &mut Command) -> Result<(), Error> {
    let output = command.output().map_err(Error::system("run cargo"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Failed {
        command: format!("{command:?}"),
        status: output.status.to_string(),
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
