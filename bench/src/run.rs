//! One command on one virtual machine.

use crate::Error;
use model::Measured;
use serde::Deserialize;
use serde_json::Value;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Limit of host time for a run of one command, including boot, s: a busy host takes a minute to boot 48 CPUs.
const TIMEOUT_S: u64 = 900;
/// The kernel's own balancing moves pages about once per second of simulated time: these runs are so short that it
/// would only add noise.
const NUMA_BALANCING: &str = "off";

/// A virtual machine to run a command on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// A preset, or the path of a machine file.
    pub machine: String,
    /// Memory of each node, bytes, if not the lab's own default.
    pub memory_per_node: Option<u64>,
    /// CPUs used of each node, if not all.
    pub cpus_per_node: Option<u32>,
    /// Transparent huge pages (`--thp`), if not the kernel's own default.
    pub thp: Option<&'static str>,
    /// The part of the model to use (`--fidelity`).
    pub fidelity: &'static str,
    /// Whether each run boots (`--fresh-boot`).
    pub fresh_boot: bool,
    /// Limit of host time, s.
    pub timeout_s: u64,
}

/// Result of a command in the lab.
#[derive(Clone, Debug)]
pub struct Run {
    /// The command line.
    pub command: String,
    /// Standard output.
    pub printed: String,
    /// Standard error.
    pub complained: String,
    /// The lab's report, as text.
    pub json: Value,
    /// The parsed fields of the report.
    pub report: Report,
}

/// The parsed fields of the lab's report.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Report {
    /// Host time from the start of the machine to the start of the command, s.
    pub boot_s: f64,
    /// Whether the machine continued a saved boot.
    pub saved_boot: bool,
    /// Host time that the command took, s.
    pub host_s: f64,
    /// The model's measurements.
    #[serde(flatten)]
    pub measured: Measured,
}

/// The full model.
pub const FULL: &str = "full";

/// Runs a command on all of a preset or a machine file, after a boot of its own: runs that continue from one boot agree more
/// than others. Fails unless its exit status is 0.
pub fn run(machine: &str, fidelity: &'static str, command: &[&str]) -> Result<Run, Error> {
    Machine::new(machine, fidelity).run(command, |_| ())
}

/// The command line of [`run`].
pub fn shown(machine: &str, fidelity: &'static str, command: &[&str]) -> String {
    Machine::new(machine, fidelity).shown(command)
}

impl Machine {
    /// All of a preset or a machine file, booted for each run.
    pub fn new(machine: &str, fidelity: &'static str) -> Self {
        let machine = machine.to_owned();
        let (memory_per_node, cpus_per_node, thp) = (None, None, None);
        Self { machine, memory_per_node, cpus_per_node, thp, fidelity, fresh_boot: true, timeout_s: TIMEOUT_S }
    }

    /// The command line for a command.
    pub fn shown(&self, command: &[&str]) -> String {
        let fidelity = if self.fidelity == FULL { String::new() } else { format!(" --fidelity {}", self.fidelity) };
        let boot = if self.fresh_boot { " --fresh-boot" } else { "" };
        let machine = &self.machine;
        format!(
            "nearside lab run -m {machine}{fidelity}{boot} --numa-balancing {NUMA_BALANCING} -- {}",
            command.join(" ")
        )
    }

    /// Runs a command, and passes on each line of its output. Fails unless its exit status is 0. nearside's own
    /// programs are on its search path.
    pub fn run(&self, command: &[&str], mut tell: impl FnMut(&str)) -> Result<Run, Error> {
        let (nearside, path) = programs()?;
        let json = tempfile::NamedTempFile::new().map_err(Error::system("make a temporary file"))?;
        let mut complaints = tempfile::tempfile().map_err(Error::system("make a temporary file"))?;
        let for_program = complaints.try_clone().map_err(Error::system("make a temporary file"))?;
        let mut program = Command::new(nearside);
        program.args(["lab", "run", "--quiet", "--numa-balancing", NUMA_BALANCING, "--machine", &self.machine]);
        program.args(["--fidelity", self.fidelity, "--timeout", &self.timeout_s.to_string()]);
        if let Some(bytes) = self.memory_per_node {
            program.args(["--memory-per-node", &bytes.to_string()]);
        }
        if let Some(cpus) = self.cpus_per_node {
            program.args(["--cpus-per-node", &cpus.to_string()]);
        }
        if let Some(thp) = self.thp {
            program.args(["--thp", thp]);
        }
        if self.fresh_boot {
            program.arg("--fresh-boot");
        }
        program.arg("--json").arg(json.path()).arg("--").args(command);
        program.env("PATH", path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(for_program);
        let mut running = program.spawn().map_err(Error::system("run nearside"))?;
        let mut printed = Vec::new();
        if let Some(output) = running.stdout.take() {
            let mut output = BufReader::new(output);
            let mut read_line = |printed: &mut Vec<u8>| -> std::io::Result<bool> {
                let before = printed.len();
                output.read_until(b'\n', printed)?;
                tell(&String::from_utf8_lossy(printed.get(before..).unwrap_or_default()));
                Ok(printed.len() > before)
            };
            while read_line(&mut printed).map_err(Error::system("read what nearside prints"))? {}
        }
        let status = running.wait().map_err(Error::system("wait for nearside"))?;
        let mut complained = Vec::new();
        let read = complaints.rewind().and_then(|()| complaints.read_to_end(&mut complained));
        read.map_err(Error::system("read a temporary file"))?;
        let [printed, complained] = [printed, complained].map(|text| String::from_utf8_lossy(&text).into_owned());
        let command = self.shown(command);
        if !status.success() {
            return Err(Error::Failed { command, status: status.to_string(), said: printed + &complained });
        }
        let text = fs::read(json.path()).map_err(Error::system("read the lab's report"))?;
        let read = serde_json::from_slice(&text).and_then(|json: Value| Ok((Report::deserialize(&json)?, json)));
        match read {
            Ok((report, json)) => Ok(Run { command, printed, complained, json, report }),
            Err(why) => Err(Error::Report { command, why }),
        }
    }
}

/// The path of nearside, beside this program.
pub fn nearside() -> Result<PathBuf, Error> {
    Ok(programs()?.0)
}

/// The path of nearside, beside this program, and a search path that starts with its folder.
pub fn programs() -> Result<(PathBuf, OsString), Error> {
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
    Ok((folder.join("nearside"), path))
}

impl Run {
    /// The number at this JSON pointer (`/mean_ns`) of the only line of JSON that the command printed.
    pub fn figure(&self, path: &str) -> Result<f64, Error> {
        match explore::numbers(&self.printed, path)[..] {
            [figure] => Ok(figure),
            _ => Err(self.no_figure(path)),
        }
    }

    /// The error for a missing figure.
    pub fn no_figure(&self, figure: &str) -> Error {
        let said = self.printed.clone() + &self.complained;
        Error::NoFigure { command: self.command.clone(), figure: figure.to_owned(), said }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{
        "simulated": true, "machine": "small", "exit_status": 0, "boot_s": 5.04, "saved_boot": false, "host_s": 4.2, "instructions": 7, "cpu_time_s": 0.3, "memory_wait_s": 0.1,
        "time_s": 0.228, "loads": 2, "stores": 3, "instruction_fetches": 0, "l1_hits": 1, "l2_hits": 1, "l3_hits": 1, "stream_misses": 0,
        "dram_accesses": 2, "peer_hits": 0, "page_walks": 0, "write_backs": 0, "dram_latency_mean_ns": 104.64, "local_access_ratio": 0.5, "imbalance": null, "nodes": [0],
        "dram_accesses_by_node": [[2]],
        "controllers": [{"node": 0, "bytes": 128, "utilisation": 0.1, "queue_delay_mean_ns": 0.0}], "links": []
    }"#;

    fn run_that_printed(printed: &str) -> Run {
        let json: Value = serde_json::from_str(REPORT).unwrap();
        let report = Report::deserialize(&json).unwrap();
        Run { command: "program".into(), printed: printed.into(), complained: "oh".into(), json, report }
    }

    #[test]
    fn the_labs_report_is_read() {
        let report = run_that_printed("").report;
        assert_eq!((report.measured.instructions, report.measured.counters.stores), (7, 3));
    }

    #[test]
    fn a_figure_is_found_where_there_is_one() {
        let error = run_that_printed("hello\n{\"a\": 1}\n{\"a\": 2}\n").figure("/a").unwrap_err().to_string();
        assert!(error.contains("printed no /a: hello") && error.ends_with("oh"), "{error}");
        assert!((run_that_printed("{\"a\": 4}").figure("/a").unwrap() - 4.0).abs() < 1e-9);
    }
}
