//! One command on one virtual machine.

use crate::Error;
use model::Measured;
use serde::Deserialize;
use serde_json::Value;
use std::env;
use std::fs;
use std::process::{Command, Stdio};

/// Host time after which a run is given up, booting included, s: a busy host needs a minute to boot 48 CPUs.
const TIMEOUT_S: &str = "300";
/// The kernel's own balancing moves pages about once a second of simulated time: runs here are too short for it to do
/// more than noise.
const NUMA_BALANCING: &str = "off";

/// What came of a command in the lab.
#[derive(Clone, Debug)]
pub struct Run {
    /// The command, as one can type it.
    pub command: String,
    /// What it printed on standard output and standard error.
    pub said: String,
    /// What the lab measured.
    pub report: Report,
}

/// What is read of the lab's report.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Report {
    /// Host time from the start of the machine to the start of the command, s.
    pub boot_s: f64,
    /// Host time that the command took, s.
    pub host_s: f64,
    /// What the model measured.
    #[serde(flatten)]
    pub measured: Measured,
}

/// Runs a command on a preset or a machine file. Fails unless its exit status is 0. It finds nearside's own programs by
/// name.
pub fn run(machine: &str, command: &[&str]) -> Result<Run, Error> {
    let program = env::current_exe().map_err(Error::system("find this program"))?;
    let folder = program.parent().unwrap_or(&program);
    for name in ["nearside", "nearside-workloads"] {
        if !folder.join(name).exists() {
            return Err(Error::NotBuilt { name, folder: folder.to_owned() });
        }
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([folder.to_owned()].into_iter().chain(env::split_paths(&path))).map_err(|why| {
        Error::System { what: format!("put {} on PATH", folder.display()), why: std::io::Error::other(why) }
    })?;
    let json = tempfile::NamedTempFile::new().map_err(Error::system("make a temporary file"))?;
    let output = Command::new(folder.join("nearside"))
        .args([
            "lab",
            "run",
            "--quiet",
            "--timeout",
            TIMEOUT_S,
            "--numa-balancing",
            NUMA_BALANCING,
            "--machine",
            machine,
        ])
        .arg("--json")
        .arg(json.path())
        .arg("--")
        .args(command)
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::system("run nearside"))?;
    let command = shown(machine, command);
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let said = said.into_owned();
    if !output.status.success() {
        return Err(Error::Failed { command, status: output.status.to_string(), said });
    }
    let text = fs::read(json.path()).map_err(Error::system("read the lab's report"))?;
    match serde_json::from_slice(&text) {
        Ok(report) => Ok(Run { command, said, report }),
        Err(why) => Err(Error::Report { command, why }),
    }
}

/// A command in the lab, as one can type it.
pub fn shown(machine: &str, command: &[&str]) -> String {
    format!("nearside lab run -m {machine} --numa-balancing {NUMA_BALANCING} -- {}", command.join(" "))
}

impl Run {
    /// The number at this path (`/mean_ns`) of each line of JSON that the command printed.
    pub fn figures(&self, path: &str) -> Vec<f64> {
        let line = |line| serde_json::from_str(line).ok();
        self.said.lines().filter_map(line).filter_map(|json: Value| json.pointer(path)?.as_f64()).collect()
    }

    /// The number at this path of the only line of JSON that the command printed.
    pub fn figure(&self, path: &str) -> Result<f64, Error> {
        match self.figures(path)[..] {
            [figure] => Ok(figure),
            _ => Err(self.no_figure(path)),
        }
    }

    /// That the command did not print what was looked for.
    pub fn no_figure(&self, figure: &str) -> Error {
        Error::NoFigure { command: self.command.clone(), figure: figure.to_owned(), said: self.said.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{
        "simulated": true, "machine": "small", "exit_status": 0, "boot_s": 5.04, "host_s": 4.2, "instructions": 7,
        "time_s": 0.228, "loads": 2, "stores": 3, "instruction_fetches": 0, "l1_hits": 1, "l2_hits": 1, "l3_hits": 1, "stream_misses": 0,
        "dram_accesses": 2, "dram_latency_mean_ns": 104.64, "local_access_ratio": 0.5, "imbalance": null, "nodes": [0],
        "dram_accesses_by_node": [[2]],
        "controllers": [{"node": 0, "bytes": 128, "utilisation": 0.1, "queue_delay_mean_ns": 0.0}], "links": []
    }"#;

    fn run_that_said(said: &str) -> Run {
        let report = serde_json::from_str(REPORT).unwrap();
        Run { command: "program".into(), said: said.into(), report }
    }

    #[test]
    fn the_labs_report_is_read() {
        let report = run_that_said("").report;
        assert_eq!((report.measured.instructions, report.measured.counters.stores), (7, 3));
    }

    #[test]
    fn figures_are_found_among_what_a_command_prints() {
        let run = run_that_said("hello\n{\"a\": {\"b\": [1, 2.5]}}\n{\"a\": 1}\n{\"a\": {\"b\": [1, 3]}}\n");
        assert_eq!(run.figures("/a/b/1"), [2.5, 3.0]);
        assert!(run.figure("/a/b/1").unwrap_err().to_string().contains("printed no /a/b/1: hello"));
        assert!((run_that_said("{\"a\": 4}").figure("/a").unwrap() - 4.0).abs() < 1e-9);
    }
}
