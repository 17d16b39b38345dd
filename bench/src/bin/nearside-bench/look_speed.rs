//! How fast `nearside show` reads a large process, and `nearside pages` a million pages.

use crate::saved_process::{MAPPINGS, PID, RESIDENT_BYTES, saved_process};
use crate::target::{Row, Target, median};
use bench::{Error, nearside};
use linux::SharedWords;
use serde_json::Value;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Number of runs of each.
const RUNS: usize = 11;
/// Pages of this process to show: a file of `FILE_BYTES`, mapped `TIMES` times, which has that many pages without as
/// much memory.
const PAGES: usize = 1 << 20;
const FILE_BYTES: usize = 64 << 20;
const TIMES: usize = PAGES * 4096 / FILE_BYTES;

/// Times both commands.
pub fn measure() -> Result<Vec<Row>, Error> {
    Ok(vec![show()?, pages()?])
}

fn show() -> Result<Row, Error> {
    let root = saved_process()?;
    let (folder, pid) = (root.path().display().to_string(), PID.to_string());
    let told: Value = serde_json::from_slice(&run(&["show", "--json", "--root", &folder, &pid])?)
        .map_err(|why| Error::Report { command: "nearside show --json".into(), why })?;
    let bytes: u64 = told["nodes"].as_array().into_iter().flatten().filter_map(|node| node["bytes"].as_u64()).sum();
    let mappings = told["mappings"].as_array().map_or(0, Vec::len) as u64;
    if (mappings, bytes) != (MAPPINGS, RESIDENT_BYTES) {
        let said = format!("{mappings} mappings with {bytes} bytes");
        let figure = "mappings and bytes of the saved process".to_owned();
        return Err(Error::NoFigure { command: "nearside show --json".into(), figure, said });
    }
    Ok(Row {
        what: "nearside show, 10,000 mappings, 64 GiB".into(),
        target: Target::AtMost(150.0),
        measured: 1000.0 * timed(&["show", "--root", &folder, &pid])?,
        unit: "ms",
        command: format!("nearside show --root FOLDER {pid} (a saved process)"),
    })
}

fn pages() -> Result<Row, Error> {
    let refused = || Error::system("map a file in /dev/shm");
    let file = tempfile::Builder::new().prefix("nearside-pages-").tempfile_in("/dev/shm").map_err(refused())?;
    file.as_file().set_len(FILE_BYTES as u64).map_err(refused())?;
    let mapped: Result<Vec<SharedWords>, _> =
        (0..TIMES).map(|_| SharedWords::map(file.as_file(), FILE_BYTES)).collect();
    let mapped = mapped.map_err(refused())?;
    for page in mapped.iter().flat_map(|words| words.chunks(512)) {
        page.iter().take(1).for_each(|word| word.store(1, Relaxed));
    }
    let (pid, name) = (std::process::id().to_string(), file.path().display().to_string());
    let arguments = ["pages", &pid, &name, "--each"];
    let lines = String::from_utf8_lossy(&run(&arguments)?).lines().count();
    if lines != PAGES + 1 {
        let said = format!("{lines} lines");
        return Err(Error::NoFigure {
            command: "nearside pages --each".into(),
            figure: "line for each page".into(),
            said,
        });
    }
    Ok(Row {
        what: "nearside pages --each, 1,048,576 pages".into(),
        target: Target::AtMost(1.0),
        measured: timed(&arguments)?,
        unit: "s",
        command: "nearside pages PID FILE --each".into(),
    })
}

/// Standard output of a nearside command.
fn run(arguments: &[&str]) -> Result<Vec<u8>, Error> {
    let output = Command::new(nearside()?).args(arguments).output().map_err(Error::system("run nearside"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Error::Failed {
        command: format!("nearside {}", arguments.join(" ")),
        status: output.status.to_string(),
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Median run time of a command whose output is discarded, s.
fn timed(arguments: &[&str]) -> Result<f64, Error> {
    let nearside = nearside()?;
    let mut seconds = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let mut command = Command::new(&nearside);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        let started = Instant::now();
        command.status().map_err(Error::system("run nearside"))?;
        seconds.push(started.elapsed().as_secs_f64());
    }
    Ok(median(seconds))
}
