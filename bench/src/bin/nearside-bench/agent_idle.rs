//! Cost of the service on a machine with nothing to place.

use crate::target::{Row, Target};
use bench::{Error, nearside};
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Length of the observation.
const WATCHED: Duration = Duration::from_secs(30);
/// Limit for the agent to answer, on a host however busy.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The service; dropping this ends it.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Observes a service that writes its metrics every five seconds and answers one status query.
pub fn measure() -> Result<Vec<Row>, Error> {
    let nodes = linux::nodes(Path::new("/sys")).map_or(0, |nodes| nodes.len());
    if nodes != 1 {
        eprintln!("the agent's cost on one node is not measured: this machine has {nodes}");
        return Ok(Vec::new());
    }
    eprintln!("an agent that has nothing to place, {} s", WATCHED.as_secs());
    let folder = tempfile::tempdir().map_err(Error::system("make a temporary folder"))?;
    let at = |name: &str| folder.path().join(name);
    let (run, metrics) = (at("run"), at("metrics.prom"));
    let (run, metrics) = (run.display(), metrics.display());
    let configuration = format!("folder = '{run}'\n[metrics]\nfile = '{metrics}'\nevery_s = 5\n");
    fs::write(at("agent.toml"), configuration).map_err(Error::system("write a configuration"))?;
    let mut command = Command::new(nearside()?);
    command.arg("agent").arg("--config").arg(at("agent.toml")).stdout(Stdio::null()).stderr(Stdio::null());
    let service = Service(command.spawn().map_err(Error::system("run nearside agent"))?);
    let started = Instant::now();
    while !asked(&at("run/agent.sock"))? {
        if started.elapsed() > ANSWER_TIMEOUT {
            return Err(no_figure("answer"));
        }
        sleep(Duration::from_millis(50));
    }
    let (before, since) = (cpu_time_ns(&service)?, Instant::now());
    sleep(WATCHED);
    let used_ns = cpu_time_ns(&service)?.saturating_sub(before);
    let row = |what: &str, target, measured, unit| Row {
        what: format!("nearside agent on a host with one node: {what}"),
        target: Target::AtMost(target),
        measured,
        unit,
        command: "nearside agent --config FILE (metrics every 5 s)".into(),
    };
    let share = used_ns as f64 / since.elapsed().as_nanos() as f64 * 100.0;
    Ok(vec![row("of one CPU", 0.2, share, "%"), row("resident", 20.0, resident_mib(&service)?, "MiB")])
}

/// Whether the agent answers.
fn asked(socket: &Path) -> Result<bool, Error> {
    let mut command = Command::new(nearside()?);
    command.args(["agent", "status", "--socket"]).arg(socket).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.status().map_err(Error::system("run nearside agent status"))?.success())
}

/// CPU time of all its threads, from `schedstat`, whose first number is nanoseconds.
fn cpu_time_ns(service: &Service) -> Result<u64, Error> {
    let read = || -> io::Result<u64> {
        let mut all = 0;
        for task in fs::read_dir(format!("/proc/{}/task", service.0.id()))? {
            let text = fs::read_to_string(task?.path().join("schedstat"))?;
            all += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(all)
    };
    read().map_err(Error::system("read the schedstat of nearside agent"))
}

fn resident_mib(service: &Service) -> Result<f64, Error> {
    let text = fs::read_to_string(format!("/proc/{}/status", service.0.id()));
    let text = text.map_err(Error::system("read the status of nearside agent"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0).ok_or_else(|| no_figure("VmRSS"))
}

fn no_figure(figure: &str) -> Error {
    Error::NoFigure { command: "nearside agent".into(), figure: figure.into(), said: "nothing".into() }
}
