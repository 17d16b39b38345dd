//! Duration of a build from nothing.

use crate::target::{Row, Target};
use bench::Error;
use std::env;
use std::process::Command;
use std::time::Instant;

const COMMAND: [&str; 4] = ["build", "--release", "--workspace", "--locked"];
/// Target, minutes.
const MOST: f64 = 6.0;

/// Builds the workspace in a temporary target folder.
pub fn measure() -> Result<Row, Error> {
    let target = tempfile::tempdir().map_err(Error::system("make a temporary folder"))?;
    let cargo = || {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).env("CARGO_TARGET_DIR", target.path());
        command
    };
    // Downloads are not counted.
    run(cargo().args(["fetch", "--locked", "--quiet"]))?;
    eprintln!("cargo {}", COMMAND.join(" "));
    let started = Instant::now();
    run(cargo().args(COMMAND).arg("--quiet"))?;
    Ok(Row {
        what: "cold release build".into(),
        target: Target::AtMost(MOST),
        measured: started.elapsed().as_secs_f64() / 60.0,
        unit: "minutes",
        command: format!("cargo {}", COMMAND.join(" ")),
    })
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
