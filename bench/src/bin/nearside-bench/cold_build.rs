//! Duration of a build from nothing, and of one after a change.

use crate::target::{Row, Target};
use bench::Error;
use std::env;
use std::fs;
use std::io;
use std::process::Command;
use std::time::Instant;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Copies the files that git knows, as they are now, to the folder `$0`.
const COPY: &str = "git ls-files -z | xargs -0 cp --parents --target-directory \"$0\"";
/// Targets, minutes and s.
const MOST: f64 = 5.0;
const MOST_AFTER_CHANGE_S: f64 = 20.0;
/// What is changed: a constant that a decision of `predict` uses. Many crates depend on its crate, and the binary does.
const CHANGED: &str = "crates/placement/src/predict/waiting.rs";
const CHANGE: [&str; 2] = ["const CHANGED: f64 = 0.1;", "const CHANGED: f64 = 0.2;"];

/// Builds a copy of the workspace from nothing, and again after a change as developers do.
pub fn measure() -> Result<[Row; 2], Error> {
    let folder = tempfile::tempdir().map_err(Error::system("make a temporary folder"))?;
    run(Command::new("sh").current_dir(ROOT).args(["-c", COPY]).arg(folder.path()))?;
    let cargo = || {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(folder.path()).env("CARGO_TARGET_DIR", folder.path().join("target"));
        command
    };
    // Downloads are not counted.
    run(cargo().args(["fetch", "--locked", "--quiet"]))?;
    let build_s = |profile: &str| -> Result<f64, Error> {
        eprintln!("cargo build --profile {profile} --workspace --locked");
        let started = Instant::now();
        run(cargo().args(["build", "--profile", profile, "--workspace", "--locked", "--quiet"]))?;
        Ok(started.elapsed().as_secs_f64())
    };
    let cold_s = build_s("release")?;
    build_s("ci")?;
    let changed = folder.path().join(CHANGED);
    let text = fs::read_to_string(&changed).map_err(Error::system("read a file of placement"))?;
    if !text.contains(CHANGE[0]) {
        return Err(Error::system(format!("find `{}` in {CHANGED}", CHANGE[0]))(io::ErrorKind::NotFound.into()));
    }
    fs::write(&changed, text.replace(CHANGE[0], CHANGE[1])).map_err(Error::system("change a file of placement"))?;
    let after_change_s = build_s("ci")?;
    let row = |what: &str, most, measured, unit| Row {
        what: what.into(),
        target: Target::AtMost(most),
        measured,
        unit,
        command: "nearside-bench --cold-build".into(),
    };
    Ok([
        row("cold release build", MOST, cold_s / 60.0, "minutes"),
        row("build for tests after a change in placement", MOST_AFTER_CHANGE_S, after_change_s, "s"),
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
