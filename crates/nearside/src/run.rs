//! `nearside run`: starts a program under a policy of memory and CPUs, with numactl's options.

use crate::output;
use crate::places::{Cpus, Nodes, Places};
use crate::policy::{self, Policy, note};
use crate::shared::Shared;
use crate::wrong::Wrong;
use clap::{Args, ValueEnum};
use linux::{
    Attempt, Cgroups, MemoryMode, Situation, Switch, Tid, affinity, allowed_memory_nodes, diagnose, forbid_huge_pages,
    memory_policy, next_interleave_node, set_affinity, set_memory_policy,
};
use machine::CpuSet;
use report::{HardwareReport, PolicyReport};
use rustix::io::Errno;
use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What has glibc's malloc ask for huge pages where the switch says `madvise`.
const TUNABLES: &str = "GLIBC_TUNABLES";
const ADVISING_MALLOC: &str = "glibc.malloc.hugetlb=1";

/// Start a program on chosen CPUs, with its memory from chosen nodes
///
/// Takes the options of numactl, with the same letters and the same effect; the program, and all that it starts, inherit
/// them. It takes nearside's place: same process, same exit status. Needs no rights.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "switches of their own, each")]
#[command(infer_long_args = true)]
#[command(after_help = "\
Options may be shortened as long as no other begins so (--inter, --cpunode, --mem).

NODES and CPUS: 0-3,5; all that the cpuset allows (all); all but (!0); counted among those that are allowed (+0-1); those of the option \
before (same). Nodes also by a device: netdev:eth0, ip:HOST, file:PATH, block:sda, pci:[SEGMENT:]BUS:DEVICE[.FUNCTION].

Nodes without memory are good to run on, and nodes without CPUs to have memory of.

Examples:
  nearside run --cpunodebind 0 --membind 0,1 -- ./program --its-options
  nearside run -N netdev:eth0 -m same ./server                    near the network card
  nearside run --interleave all --huge never ./program
  nearside run --cgroup /batch --weighted-interleave 0-3 ./program
  nearside run --interleave all --file /dev/shm/pool --length 1G --touch
  nearside run --dump-nodes --file /dev/shm/pool
  nearside run --membind 1 --show                 in numactl's own lines

Exit codes, unless the program runs, which then has its own:
  0  the shared memory has its policy
  1  the system refused, the program cannot be started, or --verify found pages elsewhere; the message says why and what to do
  2  the command line is wrong, or names a node or CPU that is not there")]
pub struct Arguments {
    #[command(flatten)]
    policy: Policy,

    /// Run on the CPUs of these nodes only. Of this option and the next one, the last holds
    #[arg(
        long,
        short = 'N',
        visible_alias = "cpubind",
        short_alias = 'c',
        value_name = "NODES",
        overrides_with_all = ["cpunodebind", "physcpubind"]
    )]
    cpunodebind: Option<Nodes>,

    /// Run on these CPUs only
    #[arg(
        long,
        short = 'C',
        alias = "physcpunodebind",
        value_name = "CPUS",
        overrides_with_all = ["cpunodebind", "physcpubind"]
    )]
    physcpubind: Option<Cpus>,

    /// Mean the whole machine by `all`, `!` and `+`, and not the cpuset
    #[arg(long, short)]
    all: bool,

    /// Transparent huge pages: `never`, whatever the switch says; `always`, which also has malloc ask for them where the
    /// switch says madvise. Without a value: huge pages for a segment that --shm makes
    #[arg(long, short = 'u', value_enum, num_args = 0..=1, default_missing_value = "segment", value_name = "never|always", hide_possible_values = true)]
    huge: Option<Huge>,

    /// Run in this control group (version 2), which is made if it is not there: a path from the hierarchy's top, such as
    /// /batch
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,

    /// Print the policy and places that would hold for a program, as numactl does, and run nothing
    #[arg(long, short)]
    show: bool,

    /// Print the machine's nodes, as numactl does, whatever the cpuset allows, and run nothing
    #[arg(long, short = 'H', conflicts_with = "policy")]
    hardware: bool,

    /// With --hardware, print CPUs as ranges and how many they are
    #[arg(long, requires = "hardware")]
    cpu_compress: bool,

    #[command(flatten)]
    shared: Shared,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Huge {
    Never,
    Always,
    Segment,
}

impl Arguments {
    fn cpus(&self, places: &mut Places) -> Result<Option<CpuSet>, Box<dyn Error>> {
        Ok(match (&self.cpunodebind, &self.physcpubind) {
            (Some(nodes), _) => Some(places.cpus_of(nodes)?),
            (None, Some(cpus)) => Some(places.cpus(cpus)?),
            (None, None) => None,
        })
    }
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    if arguments.hardware {
        let hardware = HardwareReport { nodes: linux::nodes(Path::new("/sys"))?, compressed: arguments.cpu_compress };
        output::write(&hardware.to_string(), None)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(cgroup) = &arguments.cgroup {
        join(cgroup)?;
    }
    let mut places = Places::new(Situation::of(None), arguments.all);
    // `same` means the other option's nodes, which are therefore first.
    let (policy, cpus) = if arguments.policy.is_same() {
        let cpus = arguments.cpus(&mut places)?;
        (arguments.policy.resolve(&mut places)?, cpus)
    } else {
        (arguments.policy.resolve(&mut places)?, arguments.cpus(&mut places)?)
    };
    if arguments.shared.is_asked_for() {
        if !arguments.command.is_empty() || cpus.is_some() || arguments.cgroup.is_some() {
            return Err(Wrong::because("shared memory runs no command, and has no CPUs and no control group"));
        }
        arguments.shared.run(policy.as_ref(), arguments.huge == Some(Huge::Segment))?;
        return Ok(ExitCode::SUCCESS);
    }
    arguments.shared.note_idle();
    let program = arguments.command.first();
    if program.is_none() && !arguments.show {
        return Err(Wrong::because("no command to run: nearside run OPTIONS -- COMMAND"));
    }
    if let Some(cpus) = &cpus {
        set_affinity(Tid::CALLER, cpus).map_err(|error| {
            let why = diagnose(Attempt::Run(cpus), error.raw_os_error().unwrap_or_default(), &places.situation);
            format!("cannot run on CPUs {cpus} (sched_setaffinity: {error}): {why}")
        })?;
    }
    if let Some(policy) = &policy {
        policy::set(policy, "what is run", set_memory_policy)?;
    }
    let tunables = arguments.huge.map(huge_pages).transpose()?.flatten();
    let Some(program) = program.filter(|_| !arguments.show) else {
        output::write(&shown(&places)?.to_string(), None)?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut command = Command::new(program);
    command.args(arguments.command.iter().skip(1)).envs(tunables.map(|value| (TUNABLES, value)));
    let error = command.exec();
    Err(format!("cannot start {}: {error}", Path::new(program).display()).into())
}

/// Joins a control group, and makes it first if it is not there.
fn join(cgroup: &Path) -> Result<(), Box<dyn Error>> {
    let relative = cgroup.strip_prefix("/").unwrap_or(cgroup);
    if relative.components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
        return Err(Wrong::because(format!("{} is no path of a control group", cgroup.display())));
    }
    let folder = Cgroups::find()?.folder().join(relative);
    let failed = |what: &str, error: std::io::Error| {
        let why = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::BUSY) => {
                "it hands controllers on to groups below it, and then has no processes of its own: name one below it"
            }
            Some(Errno::OPNOTSUPP) => "it is of threads, or below one that is: name another",
            Some(Errno::AGAIN) => {
                "a group above it may have no more groups: see its cgroup.max.descendants and cgroup.max.depth"
            }
            Some(Errno::NOENT) => "a group above it is not there, or it was removed just now: make that one first",
            _ => "it needs root, or a group that was delegated to you (systemd-run --user --scope -p Delegate=yes)",
        };
        format!("cannot {what} the control group {} ({error}): {why}", folder.display())
    };
    if !folder.is_dir() {
        fs::create_dir(&folder).map_err(|error| failed("make", error))?;
    }
    // 0 is the process that writes.
    Ok(fs::write(folder.join("cgroup.procs"), "0").map_err(|error| failed("join", error))?)
}

/// Sets what the program inherits of huge pages, and returns what its environment needs.
fn huge_pages(huge: Huge) -> Result<Option<OsString>, Box<dyn Error>> {
    let failed = |error| format!("cannot set the use of huge pages (prctl PR_SET_THP_DISABLE: {error})");
    match huge {
        Huge::Never => forbid_huge_pages(true).map_err(failed)?,
        Huge::Always => {
            forbid_huge_pages(false).map_err(failed)?;
            let switch = Switch::huge_pages();
            match switch.value()?.as_str() {
                "always" => {}
                "madvise" => {
                    let before = env::var_os(TUNABLES).filter(|before| !before.is_empty());
                    let mut value = before.map_or_else(OsString::new, |mut before| {
                        before.push(":");
                        before
                    });
                    value.push(ADVISING_MALLOC);
                    return Ok(Some(value));
                }
                other => {
                    let path = switch.path().display();
                    return Err(format!(
                        "no program can have huge pages: {path} says {other}; to allow them to those that ask: \
                         echo madvise | sudo tee {path}"
                    )
                    .into());
                }
            }
        }
        Huge::Segment => note("--huge without `never` or `always` is for --shm, and is ignored"),
    }
    Ok(None)
}

/// What holds for what is run.
fn shown(places: &Places) -> Result<PolicyReport, Box<dyn Error>> {
    let failed = |error: std::io::Error| format!("cannot read what holds: {error}");
    let policy = memory_policy().map_err(failed)?;
    let in_turn = matches!(policy.mode, MemoryMode::Interleave | MemoryMode::WeightedInterleave);
    let next = in_turn.then(next_interleave_node).transpose().map_err(failed)?;
    let cpus = affinity(Tid::CALLER).map_err(failed)?;
    let memory_nodes = allowed_memory_nodes().map_err(failed)?;
    Ok(PolicyReport { policy, next, nodes: places.situation.nodes.nodes_of(&cpus), cpus, memory_nodes })
}
