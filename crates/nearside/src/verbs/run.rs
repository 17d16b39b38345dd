//! `nearside run`: starts a program under a memory and CPU policy, with numactl's options.

use crate::options::heap::Heap;
use crate::options::places::{Cpus, Nodes, Places};
use crate::options::policy::{self, Policy, note};
use crate::options::shared_memory_policy::SharedMemoryOptions;
use crate::options::usage_error::UsageError;
use crate::output;
use crate::verbs::{replicate::replicate, steady};
use clap::{Args, ValueEnum};
use compare::ProgramTimes;
use linux::{
    Attempt, Cgroups, ChildSetup, MemoryMode, MemoryPolicy, Pid, Process, Switch, SystemState, Tid, affinity,
    allowed_memory_nodes, diagnose, forbid_huge_pages, memory_policy, monotonic_ns, next_interleave_node, program_file,
    set_affinity, set_memory_policy, why_not_started,
};
use machine::CpuSet;
use observe::objects::obstacle;
use report::{HardwareReport, PolicyReport};
use rustix::io::Errno;
use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Makes glibc's malloc use huge pages where the kernel's setting is `madvise`.
const TUNABLES: &str = "GLIBC_TUNABLES";
const ADVISING_MALLOC: &str = "glibc.malloc.hugetlb=1";

/// Start a program on chosen CPUs, with memory from chosen nodes
///
/// Takes numactl's options, with the same letters and the same effect; the program's child processes inherit them. The
/// program replaces nearside: same process, same exit status. Needs no privileges.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "switches of their own, each")]
#[command(infer_long_args = true, version, disable_version_flag = true)]
#[command(after_help = "\
Options may be abbreviated to a unique prefix (--inter, --cpunode, --mem).

NODES and CPUS: 0-3,5; all that the cpuset allows (all); all but (!0); relative to the allowed set (+0-1); those of the preceding \
option (same). Nodes also by a device: netdev:eth0, ip:HOST, file:PATH, block:sda, pci:[SEGMENT:]BUS:DEVICE[.FUNCTION]. \
Both also by objects, as for hwloc-bind: l3:0, package:1.core:2, node:1-.

Nodes without memory can be run on, and nodes without CPUs can provide memory.

Examples:
  nearside run --cpunodebind 0 --membind 0,1 -- ./program --its-options
  nearside run --cpus l3:0 ./program                              the CPUs of the first L3 cache
  nearside run -N netdev:eth0 -m same ./server                    near the network card
  nearside run --interleave all --huge never ./program
  sudo nearside run --steady ./benchmark                          pinned, without NUMA balancing
  nearside run -N 1 --replicate model.bin -- ./worker             reads its node's own copy
  nearside run --heap -- ./program                                memory of each thread on its node
  nearside run --cgroup /batch --weighted-interleave 0-3 ./program
  nearside run --interleave all --file /dev/shm/pool --length 1G --touch
  nearside run --dump-nodes --file /dev/shm/pool
  nearside run --membind 1 --show                 in numactl's format

Environment: NEARSIDE_HEAP_LIBRARY (the allocator's library, if it is not installed beside nearside).

Exit codes, unless the program runs, which then has its own:
  0  the shared memory has its policy
  1  the kernel refused, the program cannot be started, or --verify found pages elsewhere; the message says why and what to do
  2  the command line is wrong, or names a node or CPU that does not exist")]
pub struct Arguments {
    #[command(flatten)]
    policy: Policy,

    /// Run on the CPUs of these nodes only. If this and the next option are both given, the last one holds
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
        visible_alias = "cpus",
        alias = "physcpunodebind",
        value_name = "CPUS",
        overrides_with_all = ["cpunodebind", "physcpubind"]
    )]
    physcpubind: Option<Cpus>,

    /// Print the version
    #[arg(long, action = clap::ArgAction::Version)]
    version: Option<bool>,

    /// Let `all`, `!` and `+` refer to the whole machine instead of the cpuset and the inherited
    /// affinity
    #[arg(long, short)]
    all: bool,

    /// Transparent huge pages: `never`, regardless of the system setting; `always`, which also makes malloc use them
    /// where the system setting is madvise. Without a value: huge pages for a segment that --shm creates
    #[arg(long, short = 'u', value_enum, num_args = 0..=1, default_missing_value = "segment", value_name = "never|always", hide_possible_values = true)]
    huge: Option<Huge>,

    /// Use nearside's allocator, whose objects lie on the node of the thread that allocates them, on all allowed nodes
    /// page by page, or on one node. It does not place objects if the program has a memory policy of its own
    #[arg(long, num_args = 0..=1, default_missing_value = "local", value_name = "local|interleave|node:N")]
    heap: Option<Heap>,

    /// Run in this control group (version 2), which is created if missing: a path from the top of the hierarchy, such
    /// as /batch
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,

    /// Give the program and its children a copy of this file on its node (--membind, else --cpunodebind), as it is now and
    /// read-only; may be repeated. Needs root, or user namespaces that any user may make
    #[arg(long, value_name = "FILE", conflicts_with_all = ["show", "hardware"])]
    replicate: Vec<PathBuf>,

    /// The same conditions in each run, for measurements: without other choices, the CPUs of the first node and their
    /// node's memory; as root, the kernel's NUMA balancing off until the program ends. nearside stays until then
    #[arg(long, conflicts_with = "balancing")]
    steady: bool,

    /// Print the policy and affinity that a program would get, in numactl's format, and run nothing
    #[arg(long, short)]
    show: bool,

    /// Print the machine's nodes, in numactl's format, regardless of the cpuset, and run nothing
    #[arg(long, short = 'H', conflicts_with_all = ["policy", "heap", "cgroup", "steady"])]
    hardware: bool,

    /// With --hardware, print CPUs as ranges with their count
    #[arg(long, requires = "hardware")]
    cpu_compress: bool,

    /// For `nearside compare`: write when the program ran to this file
    #[arg(long, hide = true, value_name = "FILE")]
    times: Option<PathBuf>,

    #[command(flatten)]
    shared: SharedMemoryOptions,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Huge {
    Never,
    Always,
    #[value(hide = true)]
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

    /// Refuses what cannot be combined, before anything is changed.
    fn check(&self) -> Result<(), Box<dyn Error>> {
        let has_cpus = self.cpunodebind.is_some() || self.physcpubind.is_some();
        if self.shared.is_asked_for() {
            if !self.command.is_empty() || has_cpus || self.cgroup.is_some() {
                let why = "options for shared memory cannot be combined with a command, CPUs or a control group";
                return Err(UsageError::boxed(why));
            }
            let is_for_segment = self.huge.is_none_or(|huge| huge == Huge::Segment);
            if self.steady || self.heap.is_some() || !self.replicate.is_empty() || !is_for_segment {
                let why =
                    "options for shared memory start no program: --steady, --heap, --replicate and --huge are for one";
                return Err(UsageError::boxed(why));
            }
        } else if self.command.is_empty() && !self.show && !self.hardware {
            return Err(UsageError::boxed("no command to run: nearside run OPTIONS -- COMMAND"));
        }
        Ok(())
    }

    /// Notes options of numactl's that have no effect with --hardware: numactl takes them, too.
    fn note_idle_with_hardware(&self) {
        let has_cpus = self.cpunodebind.is_some() || self.physcpubind.is_some();
        if has_cpus || self.huge.is_some() || self.shared.is_asked_for() || !self.command.is_empty() {
            note("--hardware prints the nodes and runs nothing: CPUs, --huge, shared memory and a command are ignored");
        }
    }

    /// The memory policy and the CPUs.
    fn resolve(&self, places: &mut Places) -> Result<(Option<MemoryPolicy>, Option<CpuSet>), Box<dyn Error>> {
        // `same` refers to the other option's nodes, so those are resolved first.
        if self.policy.is_same() {
            let cpus = self.cpus(places)?;
            return Ok((self.policy.resolve(places)?, cpus));
        }
        Ok((self.policy.resolve(places)?, self.cpus(places)?))
    }
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    arguments.check()?;
    if arguments.hardware {
        arguments.note_idle_with_hardware();
        let hardware = HardwareReport { nodes: linux::nodes(Path::new("/sys"))?, compressed: arguments.cpu_compress };
        output::write(&hardware.to_string(), None)?;
        return Ok(ExitCode::SUCCESS);
    }
    let joined = arguments.cgroup.as_deref().map(Joined::new).transpose()?;
    let ended = start(arguments);
    if arguments.show || ended.is_err() {
        joined.iter().for_each(Joined::undo);
    }
    ended
}

/// Applies the options to this process, and becomes the program.
fn start(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let mut places = Places::of_caller(SystemState::read(None), arguments.all);
    let (policy, cpus) = arguments.resolve(&mut places)?;
    if arguments.shared.is_asked_for() {
        arguments.shared.run(policy.as_ref(), arguments.huge == Some(Huge::Segment))?;
        return Ok(ExitCode::SUCCESS);
    }
    arguments.shared.note_idle();
    let (policy, cpus) = if arguments.steady {
        let (cpus, policy) = steady::pinned(cpus, policy, &mut places)?;
        (Some(policy), Some(cpus))
    } else {
        (policy, cpus)
    };
    let program = arguments.command.first();
    let heap = arguments.heap.as_ref().map(|heap| heap.environment(&mut places)).transpose()?;
    if let Some((_, program)) = heap.as_ref().zip(program)
        && let Some(file) = program_file(program, env::var_os("PATH").as_deref())
        && let Ok(Some(obstacle)) = obstacle(&file)
    {
        note(&format!("the program keeps its own heap: {obstacle}"));
    }
    if heap.is_some() && policy.is_some() {
        note("the program has a memory policy, so its heap does not place objects");
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
    if heap.is_some() && tunables.is_some() {
        note(
            "--huge always does not reach the objects of --heap: they have huge pages where the system setting is always",
        );
    }
    let Some(program) = program.filter(|_| !arguments.show) else {
        output::write(&shown(&places)?.to_string(), None)?;
        return Ok(ExitCode::SUCCESS);
    };
    replicate(&arguments.replicate, policy.as_ref(), &places.situation.nodes)?;
    let mut command = Command::new(program);
    command.args(arguments.command.iter().skip(1)).envs(tunables.map(|value| (TUNABLES, value)));
    command.envs(heap.into_iter().flatten());
    if arguments.steady {
        return steady::run(command);
    }
    if let Some(file) = &arguments.times {
        // The comparison then counts this process's time.
        let _ = ProgramTimes { began_ns: monotonic_ns(), ended_ns: None }.write(file);
    }
    let error = command.with_own_inheritance().exec();
    Err(format!("cannot start {}: {}", Path::new(program).display(), why_not_started(program, &error)).into())
}

/// A control group that this process has joined.
struct Joined {
    folder: PathBuf,
    is_new: bool,
    /// The group before, if it is one below the mount.
    before: Option<PathBuf>,
}

impl Joined {
    /// Joins a control group, and creates it first if missing.
    fn new(cgroup: &Path) -> Result<Self, Box<dyn Error>> {
        let relative = cgroup.strip_prefix("/").unwrap_or(cgroup);
        if relative.components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
            return Err(UsageError::boxed(format!("{} is not a path of a control group", cgroup.display())));
        }
        let cgroups = Cgroups::find()?;
        let folder = cgroups.folder().join(relative);
        let before = Process::open(Pid(std::process::id())).ok().and_then(|own| cgroups.of(&own).ok());
        let before = before.map(|before| cgroups.folder().join(before.trim_start_matches('/')));
        let failed = |what: &str, error: std::io::Error| {
            let why = why_not_joined(&error);
            format!("cannot {what} the control group {} ({error}): {why}", folder.display())
        };
        let is_new = match fs::create_dir(&folder) {
            Err(why) if why.kind() == ErrorKind::AlreadyExists => false,
            made => made.map(|()| true).map_err(|error| failed("make", error))?,
        };
        let joined = enter(&folder).map_err(|error| failed("join", error));
        let group = Self { folder, is_new, before };
        joined.inspect_err(|_| group.undo())?;
        Ok(group)
    }

    /// Leaves it, and removes it if it is new.
    fn undo(&self) {
        // What is not possible is left as it is: the error that led here is the one to report. The kernel keeps groups
        // with processes.
        let _ = self.before.as_deref().map(enter);
        if self.is_new {
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

/// Moves this process into a control group, for which 0 stands.
fn enter(folder: &Path) -> std::io::Result<()> {
    fs::write(folder.join("cgroup.procs"), "0")
}

fn why_not_joined(error: &std::io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::BUSY) => {
            "it enables controllers for its child groups, so it cannot have processes itself: name a child group"
        }
        Some(Errno::OPNOTSUPP) => "it is a threaded group, or below one: name another",
        Some(Errno::AGAIN) => {
            "a group above it has reached its limit of groups: see its cgroup.max.descendants and cgroup.max.depth"
        }
        Some(Errno::NOENT) => "a group above it does not exist, or was just removed: create that one first",
        _ => "it needs root, or a group that was delegated to you (systemd-run --user --scope -p Delegate=yes)",
    }
}

/// Sets the huge page settings that the program inherits, and returns its environment variables for them.
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
                        "huge pages are off for all programs: {path} says {other}; to allow them on request: \
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

/// Prints the policy and affinity that a program would get.
fn shown(places: &Places) -> Result<PolicyReport, Box<dyn Error>> {
    let failed = |error: std::io::Error| format!("cannot read the current policy: {error}");
    let policy = memory_policy().map_err(failed)?;
    let in_turn = matches!(policy.mode, MemoryMode::Interleave | MemoryMode::WeightedInterleave);
    let next = in_turn.then(next_interleave_node).transpose().map_err(failed)?;
    // Kernels without these files give each node the weight 1.
    let weight = |node| Switch::interleave_weight(node).value().ok().and_then(|value| value.parse().ok()).unwrap_or(1);
    let is_weighted = policy.mode == MemoryMode::WeightedInterleave;
    let weights = if is_weighted { policy.nodes.iter().map(weight).collect() } else { Vec::new() };
    let cpus = affinity(Tid::CALLER).map_err(failed)?;
    let memory_nodes = allowed_memory_nodes().map_err(failed)?;
    Ok(PolicyReport { policy, next, weights, nodes: places.situation.nodes.nodes_of(&cpus), cpus, memory_nodes })
}
