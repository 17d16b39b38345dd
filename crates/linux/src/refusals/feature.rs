//! Which kernel features work for this process, determined by trying them.

use crate::memory::advice::{Advice, AdvisedProcess, advise};
use crate::memory::memory_policy::{Misplaced, Whose, bind_range, set_home_node, set_memory_policy};
use crate::memory::pages::{HUGE_PAGE, Pages};
use crate::migration::page_batch::PageBatch;
use crate::nodes::interrupts::interrupts;
use crate::nodes::node_state::NodeState;
use crate::processes::cgroup::{CgroupError, Cgroups};
use crate::processes::process::{Pid, Process};
use crate::refusals::diagnosis::{Attempt, diagnose, diagnose_process};
use crate::refusals::refusal::{Capability, Cause, Diagnosis, with_capability};
use crate::refusals::switch::Switch;
use crate::refusals::system_state::SystemState;
use crate::residence::present::PresentPages;
use machine::{MemoryMode, MemoryPolicy, NodeId, NodeSet, chain, system_words};
use rustix::fs::{Access, access};
use std::error::Error;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A feature that the kernel may support and may allow this process to use.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// Its name, in words joined by underscores.
    pub name: &'static str,
    /// What nearside needs it for.
    pub used_for: &'static str,
    probe: fn(&Scratch) -> Result<(), Diagnosis>,
}

impl Feature {
    /// All features.
    pub const ALL: &'static [Self] = &[
        Self::new("nodes", "everything: the kernel has NUMA", nodes),
        Self::new("memory_policy", "run: bind, interleave, preferred, local", |s| policy(s, MemoryMode::Bind, false)),
        Self::new("preferred_many", "run --preferred-many", |s| policy(s, MemoryMode::PreferredMany, false)),
        Self::new("weighted_interleave", "run --weighted-interleave", |s| {
            policy(s, MemoryMode::WeightedInterleave, false)
        }),
        Self::new("bind_balancing", "run --membind --balancing", |s| policy(s, MemoryMode::Bind, true)),
        Self::new("home_node", "ranges that prefer a node's neighbours", home_node),
        Self::new("move_pages", "migrate, bind --follow", |s| move_pages(s, Whose::Private)),
        Self::new("move_shared_pages", "migrate --shared", |s| move_pages(s, Whose::All)),
        Self::new("other_users_memory", "migrate, show and pages of other users' processes", other_users_memory),
        Self::new("other_users_threads", "bind of other users' processes", other_users_threads),
        Self::new("pagemap_scan", "migrate and pages: only present pages are examined", pagemap_scan),
        Self::new("page_frames", "pages: frames", page_frames),
        Self::new("page_flags", "pages: flags", |_| readable("/proc/kpageflags", Capability::SysAdmin)),
        Self::new("huge_pages", "run --huge always", huge_pages),
        Self::new("collapse", "making huge pages of small ones", |s| advice(s, Advice::Collapse, "6.1")),
        Self::new("populate", "run --touch and --verify: pages that cannot be allocated are reported", |s| {
            advice(s, Advice::PopulateWrite, "5.14")
        }),
        Self::new("process_advice", "advice on other processes' memory", process_advice),
        Self::new("split_huge_pages", "splitting huge pages of other processes", |_| {
            writable("/sys/kernel/debug/split_huge_pages", "as root: mount -t debugfs debugfs /sys/kernel/debug")
        }),
        Self::new("numa_balancing_switch", "comparing with the kernel's own balancing", |_| {
            let none = "the kernel needs CONFIG_NUMA_BALANCING";
            writable(Switch::numa_balancing().path(), none)
        }),
        Self::new("huge_page_switch", "comparing page sizes", |_| {
            writable(Switch::huge_pages().path(), "the kernel needs CONFIG_TRANSPARENT_HUGEPAGE")
        }),
        Self::new("interleave_weights", "weights of --weighted-interleave", |scratch| {
            writable(Switch::interleave_weight(scratch.node).path(), "weighted interleave needs Linux 6.9")
        }),
        Self::new("cgroup_cpusets", "which cpuset is in the way", cgroup_cpusets),
        Self::new("cgroup_memory", "memory --cgroup; run --touch: limits are checked first", cgroup_memory),
        Self::new("cgroup_create", "run --cgroup", cgroup_create),
        Self::new("cgroup_partitions", "reserve: cores and memory of its own", cgroup_partitions),
        Self::new("interrupts", "reserve: interrupts on other cores", interrupt_cpus),
    ];

    const fn new(name: &'static str, used_for: &'static str, probe: fn(&Scratch) -> Result<(), Diagnosis>) -> Self {
        Self { name, used_for, probe }
    }

    /// Tries every feature on scratch memory and a scratch thread, without other side effects. Returns a diagnosis for
    /// each that does not work.
    pub fn examine_all() -> io::Result<Vec<(Self, Result<(), Diagnosis>)>> {
        // Policies belong to a thread, and end with it.
        let examine = || {
            let scratch = Scratch::new()?;
            Ok(Self::ALL.iter().map(|feature| (*feature, (feature.probe)(&scratch))).collect())
        };
        std::thread::Builder::new().spawn(examine)?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Scratch resources for the tests.
struct Scratch {
    memory: Pages,
    /// A node that the cpuset allows and that has memory.
    node: NodeId,
    system: SystemState,
}

impl Scratch {
    fn new() -> io::Result<Self> {
        let mut memory = Pages::reserve(2 * HUGE_PAGE)?;
        memory.touch(0);
        let system = SystemState::read(None);
        let usable = system.nodes.with_memory.intersection(&system.caller.nodes);
        Ok(Self { memory, node: usable.first().unwrap_or(NodeId(0)), system })
    }

    fn start(&self) -> usize {
        self.memory.range().start as usize
    }

    fn first_huge_page(&self) -> Range<usize> {
        self.start()..self.start() + HUGE_PAGE
    }
}

fn other(error: &io::Error) -> Diagnosis {
    Cause::Other(error.to_string()).into()
}

fn with_remedy(cause: Cause, remedy: impl Into<String>) -> Diagnosis {
    Diagnosis { cause, remedy: Some(remedy.into()) }
}

fn nodes(_: &Scratch) -> Result<(), Diagnosis> {
    NodeState::read(Path::new("/sys")).map(|_| ()).map_err(|error| Cause::Other(chain(&error)).into())
}

fn policy(scratch: &Scratch, mode: MemoryMode, balancing: bool) -> Result<(), Diagnosis> {
    let nodes: NodeSet = [scratch.node].into_iter().collect();
    let policy = MemoryPolicy { balancing, ..MemoryPolicy::new(mode, nodes) };
    let set = set_memory_policy(&policy);
    set.map_err(|error| diagnose(Attempt::Policy(&policy), errno(&error), &scratch.system))
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_default()
}

fn home_node(scratch: &Scratch) -> Result<(), Diagnosis> {
    let (start, bytes) = (scratch.start() + HUGE_PAGE, HUGE_PAGE);
    bind_range(start, bytes, &MemoryPolicy::bind(scratch.node), Misplaced::default()).map_err(|error| other(&error))?;
    set_home_node(start, bytes, scratch.node).map_err(|error| match errno(&error) {
        libc::ENOSYS => Cause::Unknown { what: "home nodes of ranges", since: "5.17" }.into(),
        _ => other(&error),
    })
}

fn move_pages(scratch: &Scratch, whose: Whose) -> Result<(), Diagnosis> {
    let mut batch = PageBatch::default();
    batch.push(scratch.start() as u64, Some(scratch.node));
    let to = [scratch.node].into_iter().collect();
    let moved = batch.move_pages(Pid(std::process::id()), whose);
    moved.map(drop).map_err(|error| diagnose(Attempt::Move { to: &to, whose }, errno(&error), &scratch.system))
}

/// Process 1 belongs to root, but in containers it may belong to the caller: then no other user is visible.
fn other_users_memory(_: &Scratch) -> Result<(), Diagnosis> {
    let first = Pid(1);
    let seen = Process::open(first).and_then(|process| process.mappings().and_then(|_| process.file("pagemap")));
    seen.map(|_| ()).map_err(|error| diagnose_process(&error, &SystemState::read(Some(first))))
}

fn other_users_threads(scratch: &Scratch) -> Result<(), Diagnosis> {
    let (what, capability) = ("moving threads of other users", Capability::SysNice);
    let may = capability.is_of(&scratch.system.caller);
    if may { Ok(()) } else { Err(with_remedy(Cause::Needs { what, capability }, with_capability(capability))) }
}

fn own() -> Result<Process, Diagnosis> {
    Process::open(Pid(std::process::id())).map_err(|error| Cause::Other(chain(&error)).into())
}

fn pagemap_scan(scratch: &Scratch) -> Result<(), Diagnosis> {
    let told = |error: &(dyn Error + 'static)| -> Diagnosis { Cause::Other(chain(error)).into() };
    let mut pages = PresentPages::new(&own()?).map_err(|error| told(&error))?;
    pages.find(&scratch.memory.range(), &mut Vec::new()).map_err(|error| told(&error))?;
    let unknown = Cause::Unknown { what: "PAGEMAP_SCAN", since: "6.7" };
    if pages.shows_huge_pages() { Ok(()) } else { Err(unknown.into()) }
}

/// Without the privilege the kernel shows frame 0.
fn page_frames(scratch: &Scratch) -> Result<(), Diagnosis> {
    const FRAME: u64 = (1 << 55) - 1;
    let mut entry = [0; 8];
    let file = own()?.file("pagemap").map_err(|error| Diagnosis::from(Cause::Other(chain(&error))))?;
    file.read_exact_at(&mut entry, scratch.start() as u64 / 4096 * 8).map_err(|error| other(&error))?;
    let (what, capability) = ("seeing frames in /proc/PID/pagemap", Capability::SysAdmin);
    let hidden = || with_remedy(Cause::Needs { what, capability }, with_capability(capability));
    if u64::from_ne_bytes(entry) & FRAME == 0 { Err(hidden()) } else { Ok(()) }
}

fn huge_pages(_: &Scratch) -> Result<(), Diagnosis> {
    let switch = Switch::huge_pages();
    let path = switch.path().display().to_string();
    match switch.value().map_err(|error| other(&error.source))?.as_str() {
        "never" => Err(with_remedy(
            Cause::Other(format!("{path} says never")),
            format!("to allow them to those that ask: echo madvise | sudo tee {path}"),
        )),
        _ => Ok(()),
    }
}

fn advice(scratch: &Scratch, advice: Advice, since: &'static str) -> Result<(), Diagnosis> {
    let what = if advice == Advice::Collapse { "MADV_COLLAPSE" } else { "MADV_POPULATE_WRITE" };
    advise(&scratch.first_huge_page(), advice).map_err(|error| match errno(&error) {
        libc::EINVAL => Cause::Unknown { what, since }.into(),
        _ => other(&error),
    })
}

fn process_advice(scratch: &Scratch) -> Result<(), Diagnosis> {
    let tried = AdvisedProcess::open(Pid(std::process::id()))
        .and_then(|process| process.advise(&[scratch.first_huge_page()], Advice::Cold));
    tried.map(|_| ()).map_err(|error| match errno(&error) {
        libc::ENOSYS => Cause::Unknown { what: "process_madvise", since: "5.10" }.into(),
        libc::EPERM => Cause::Filtered.into(),
        _ => other(&error),
    })
}

fn readable(path: &'static str, capability: Capability) -> Result<(), Diagnosis> {
    std::fs::File::open(path).map(|_| ()).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            with_remedy(Cause::Needs { what: "reading page flags", capability }, with_capability(capability))
        }
        _ => Cause::Other(format!("{path}: {error}")).into(),
    })
}

/// Whether a file is writable; `missing` explains its absence.
fn writable(path: impl AsRef<Path>, missing: &str) -> Result<(), Diagnosis> {
    let path = path.as_ref();
    access(path, Access::WRITE_OK).map_err(|error| {
        let cause = Cause::Other(format!("{}: {}", path.display(), system_words(&io::Error::from(error))));
        let is_missing = error == rustix::io::Errno::NOENT;
        with_remedy(
            cause,
            if is_missing { missing.to_owned() } else { "only root may write it: run it with sudo".to_owned() },
        )
    })
}

fn cgroup_cpusets(_: &Scratch) -> Result<(), Diagnosis> {
    let of_group = |cgroups: &Cgroups, group: &str| cgroups.effective_cpuset(group).map(|found| found.is_some());
    controller("cpuset", of_group)
}

fn cgroup_memory(_: &Scratch) -> Result<(), Diagnosis> {
    controller("memory", |cgroups, group| cgroups.memory(group).map(|found| found.is_some()))
}

/// Whether our own control group has a controller.
fn controller(name: &str, of_group: impl Fn(&Cgroups, &str) -> Result<bool, CgroupError>) -> Result<(), Diagnosis> {
    let told = |error: CgroupError| -> Diagnosis { Cause::Other(chain(&error)).into() };
    let cgroups = Cgroups::find().map_err(told)?;
    let group = cgroups.of(&own()?).map_err(told)?;
    if of_group(&cgroups, &group).map_err(told)? {
        return Ok(());
    }
    cgroups.requires(name).map_err(told)?;
    Err(with_remedy(
        Cause::Other(format!("control group {group} has no {name} controller")),
        format!("to have one: echo +{name} | sudo tee {}/cgroup.subtree_control", cgroups.folder().display()),
    ))
}

fn cgroup_create(_: &Scratch) -> Result<(), Diagnosis> {
    let cgroups = Cgroups::find().map_err(|error| Diagnosis::from(Cause::Other(chain(&error))))?;
    let remedy = "groups below one that was delegated to you work: systemd-run --user --scope -p Delegate=yes";
    access(cgroups.folder(), Access::WRITE_OK).map_err(|error| {
        let why = format!("{}: {}", cgroups.folder().display(), io::Error::from(error));
        with_remedy(Cause::Other(why), format!("run it with sudo; {remedy}"))
    })
}

fn cgroup_partitions(_: &Scratch) -> Result<(), Diagnosis> {
    let failed = |error: &CgroupError| Diagnosis::from(Cause::Other(chain(error)));
    let cgroups = Cgroups::find().map_err(|error| failed(&error))?;
    cgroups.requires("cpuset").map_err(|error| failed(&error))?;
    writable(cgroups.folder().join("cgroup.subtree_control"), "grants need control groups of version 2")
}

fn interrupt_cpus(_: &Scratch) -> Result<(), Diagnosis> {
    let first = interrupts(Path::new("/proc")).into_iter().next();
    let none = || Diagnosis::from(Cause::Other("/proc/irq has no interrupts".to_owned()));
    writable(first.ok_or_else(none)?.path, "the kernel needs CONFIG_SMP")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_is_found_to_work_or_not_and_nothing_is_left_changed() {
        let before = crate::memory_policy();
        let found = Feature::examine_all().unwrap();
        assert_eq!(found.len(), Feature::ALL.len());
        for (feature, result) in &found {
            if let Err(diagnosis) = result {
                assert!(!diagnosis.to_string().is_empty(), "{}", feature.name);
            }
        }
        assert_eq!(before.ok(), crate::memory_policy().ok());
        let mut names: Vec<_> = found.iter().map(|(feature, _)| feature.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), found.len());
    }
}
