//! `nearside explore --slurm` with Slurm itself: a controller and a node on this machine.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use test_tools::skipped;

const PROGRAMS: [&str; 5] = ["munged", "slurmctld", "slurmd", "sbatch", "scontrol"];
/// Until a daemon is ready, or a job's state is as expected.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Slurm's daemons, which end with this.
struct Cluster {
    folder: TempDir,
    daemons: Vec<Child>,
}

impl Cluster {
    /// Starts them, in a folder of their own and on free ports. Fails with what the daemons said.
    fn start() -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        // Munge wants its socket to be reachable by all users.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let mut cluster = Self { folder, daemons: Vec::new() };
        for name in ["state", "spool"] {
            fs::create_dir(cluster.path(name)).unwrap();
        }
        fs::write(cluster.path("munge.key"), [7; 1024]).unwrap();
        fs::set_permissions(cluster.path("munge.key"), Permissions::from_mode(0o400)).unwrap();
        fs::write(cluster.path("slurm.conf"), cluster.configuration()).unwrap();
        let at = |name: &str| cluster.path(name).display().to_string();
        let munged = [
            "key-file=munge.key",
            "socket=munge",
            "pid-file=munged.pid",
            "log-file=munged.log",
            "seed-file=munge.seed",
        ];
        let munged =
            munged.map(|option| option.split_once('=').unwrap()).map(|(name, file)| format!("--{name}={}", at(file)));
        let of_slurm = ["-D".to_owned(), "-f".to_owned(), at("slurm.conf")];
        let node = [&of_slurm[..], &["-N".to_owned(), host()]].concat();
        cluster.daemon("munged", &[&munged[..], &["--foreground".to_owned()]].concat());
        cluster.wait("munge's socket", |cluster| cluster.path("munge").exists())?;
        cluster.daemon("slurmctld", &of_slurm);
        cluster.daemon("slurmd", &node);
        cluster.wait("an idle node", |cluster| cluster.said("sinfo", &["-h", "-o", "%T"]).starts_with("idle"))?;
        Ok(cluster)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn configuration(&self) -> String {
        // Both are free until they are closed, together.
        let ports = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let [controller, node] = ports.each_ref().map(|port| port.local_addr().unwrap().port());
        let (here, host) = (self.folder.path().display(), host());
        format!(
            "ClusterName=nearside\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={here}/munge\nSlurmctldPort={controller}\nSlurmdPort={node}\n\
             StateSaveLocation={here}/state\nSlurmdSpoolDir={here}/spool\nSlurmctldPidFile={here}/slurmctld.pid\n\
             SlurmdPidFile={here}/slurmd.pid\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             SchedulerType=sched/builtin\nSelectType=select/cons_tres\nJobAcctGatherType=jobacct_gather/none\n\
             ReturnToService=2\nMpiDefault=none\nNodeName={host} NodeAddr=127.0.0.1 CPUs=1\n\
             PartitionName=all Nodes={host} Default=YES State=UP\n"
        )
    }

    fn daemon(&mut self, program: &str, arguments: &[String]) {
        let log = fs::File::create(self.path(&format!("{program}.out"))).unwrap();
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.daemons.push(command.spawn().unwrap());
    }

    /// What a command of Slurm's prints.
    fn said(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program).args(arguments).env("SLURM_CONF", self.path("slurm.conf")).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn wait(&self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<(), String> {
        let began = Instant::now();
        while !is_so(self) {
            if began.elapsed() > TIMEOUT {
                let logs = ["munged", "slurmctld", "slurmd"].map(|name| self.path(&format!("{name}.out")));
                let said: String = logs.iter().filter_map(|log| fs::read_to_string(log).ok()).collect();
                return Err(format!("no {what}: {said}"));
            }
            sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.split('.').next().unwrap_or_default().to_owned()
}

fn has(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').any(|folder| Path::new(folder).join(program).exists())
}

/// A task is put back into the queue while it runs, as by an administrator or a failed node: in the end each cell has its
/// runs, once.
#[test]
fn a_job_array_that_is_requeued_runs_the_whole_campaign() {
    if !rustix::process::geteuid().is_root() {
        return skipped("Slurm's daemons need root");
    }
    if let Some(missing) = PROGRAMS.iter().find(|program| !has(program)) {
        return skipped(format_args!("{missing} is not installed (packages slurm-wlm and munge)"));
    }
    // Another process may take a port that was free.
    let cluster = match Cluster::start().or_else(|_| Cluster::start()) {
        Ok(cluster) => cluster,
        // As in containers that lack what its daemons need.
        Err(why) => return skipped(format_args!("Slurm does not start here: {why}")),
    };
    let campaign = "title = \"eight cells\"\ncommand = \"sh program {a}{b}\"\nseconds = \"/seconds\"\n\
                    runs = { min = 1, max = 1 }\n[grid]\na = [1, 2]\nb = [0, 1, 2, 3]\n";
    fs::write(cluster.path("c.toml"), campaign).unwrap();
    fs::write(cluster.path("program"), "echo $1 >> began\nsleep 0.5\necho \"{\\\"seconds\\\": $1}\"\n").unwrap();
    let nearside = |arguments: &[&str]| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("nearside"));
        command.current_dir(cluster.folder.path()).args(["explore", "c.toml"]).args(arguments);
        command.env("SLURM_CONF", cluster.path("slurm.conf")).output().unwrap()
    };
    let submitted = nearside(&["--slurm", "2"]);
    assert!(submitted.status.success(), "{}", String::from_utf8_lossy(&submitted.stderr));
    let began = |cluster: &Cluster| fs::read_to_string(cluster.path("began")).unwrap_or_default().lines().count();
    cluster.wait("run", |cluster| began(cluster) > 0).unwrap();
    let running = cluster.said("squeue", &["-h", "-t", "R", "-o", "%A"]);
    cluster.said("scontrol", &["requeue", running.trim()]);
    cluster
        .wait("requeued task", |cluster| cluster.said("squeue", &["-h", "-t", "PD", "-o", "%r"]).contains("BeginTime"))
        .unwrap();
    // Slurm would wait for two minutes.
    cluster.said("scontrol", &["update", &format!("JobId={}", running.trim()), "StartTime=now"]);
    cluster.wait("end of all tasks", |cluster| cluster.said("squeue", &["-h"]).is_empty()).unwrap();
    let collected = nearside(&["--collect"]);
    let printed = String::from_utf8_lossy(&collected.stdout);
    assert!(collected.status.success() && printed.starts_with("eight cells: 8 cells, 8 runs\n"), "{printed}");
    // The run that was cut short began once more; no other did.
    assert!((8..=9).contains(&began(&cluster)), "{}", began(&cluster));
}
