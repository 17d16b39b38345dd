//! Why a request is refused: what is in the way, whose it is, and what would be granted instead.

use crate::facts::Throttle;
use crate::grant::{Grant, GrantId};
use machine::number::significant;
use machine::{CpuSet, NodeId};
use serde::Serialize;
use std::fmt;

/// Most obstacles that are spelled out.
const SPELLED_OUT: usize = 8;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Each place that it could have has an obstacle.
    #[error("{}", lines(obstacles, nearest.as_deref()))]
    NoCandidate {
        /// The obstacles, each once, most common first.
        obstacles: Vec<Obstacle>,
        /// The nearest request that would be granted.
        nearest: Option<Box<Alternative>>,
    },
    /// Nothing can limit the rest of the machine as strictly as asked.
    #[error(
        "a slow-down that holds at each moment needs the processor's bandwidth control, and this machine has {0}: without --strict it holds on average"
    )]
    NoControl(ThrottleName),
    /// The hardware limits all CPUs of the node that no grant has for itself, and so would limit the program itself.
    #[error(
        "the hardware limits all CPUs of a guarded node that no grant has for itself, so that the program would be limited, too: ask for --isolate core,controller, or for --throttle duty"
    )]
    SharedCores,
    /// The machine's caches have no masks of ways.
    #[error(
        "the caches of this machine have no masks of ways (CAT): --isolate cache leaves its other cores idle instead"
    )]
    NoWays,
    /// Fewer ways than a mask can have.
    #[error("a mask of this machine's caches has at least {least} ways, not {wanted}")]
    FewWays {
        /// The fewest.
        least: u32,
        /// Asked for.
        wanted: u32,
    },
    /// The machine's description has no last-level cache.
    #[error("the description of this machine has no caches, so none can be isolated")]
    NoCaches,
    /// More than the user's share.
    #[error("the user may have {} in all, has {} and asks for {}", share(what, *most), amount(what, *had), amount(what, *wanted))]
    Quota {
        /// Of what.
        what: &'static str,
        /// The limit.
        most: u64,
        /// In use.
        had: u64,
        /// Asked for.
        wanted: u64,
    },
    /// No isolation of controllers and links without a cache directory.
    #[error(
        "this machine has no cache directory: misses of all nodes probe every other, so no controller or link can be kept for one program; --without-directory grants it all the same"
    )]
    NoDirectory,
    /// The links between nodes are not known.
    #[error(
        "the links between the nodes of this machine are not known, so no route to remote memory can be isolated: use --local, or a machine file with links"
    )]
    NoRoutes,
    /// Latencies or bandwidths are not known.
    #[error(
        "the latencies and bandwidths of this machine are not known, so no slow-down can be forecast and no controller guarded: run `nearside measure --output FILE` and use --machine FILE"
    )]
    NotMeasured,
    /// There is no such grant.
    #[error("there is no grant {0}")]
    UnknownGrant(GrantId),
    /// The grant is another user's.
    #[error("grant {0} is another user's")]
    NotYours(GrantId),
    /// A grant that holds no exclusive cache has none to share.
    #[error("grant {0} has no exclusive cache: it was made without --isolate cache")]
    NoOwnCache(GrantId),
    /// The machine has no such CPU or node.
    #[error("{0}")]
    Unknown(String),
    /// Another grant has the name.
    #[error("the name is taken by {0}")]
    NameTaken(String),
}

/// A throttle's name in a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ThrottleName(pub Throttle);

impl fmt::Display for ThrottleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Throttle::None => "no limit of bandwidth at all",
            Throttle::Duty => "only shares of CPU time (cpu.max)",
            Throttle::Hardware => "it",
        })
    }
}

/// A grant that is in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// Its number.
    pub id: GrantId,
    /// Its name.
    pub name: Option<String>,
    /// How long it has existed, s.
    pub age_s: u64,
}

/// What is in the way of one or several candidates.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Obstacle {
    /// Not enough free cores.
    Cores {
        /// The node.
        node: NodeId,
        /// All CPUs of the cores that were looked at.
        cpus: CpuSet,
        /// Cores that could be had.
        free: usize,
        /// Cores that are wanted.
        wanted: usize,
        /// The grants on the others.
        by: Vec<Holder>,
    },
    /// A cache with tenants cannot be one grant's alone.
    CacheTenants {
        /// The CPUs that share it.
        cpus: CpuSet,
        /// Its tenants.
        by: Vec<Holder>,
    },
    /// A cache that also serves CPUs outside of the zone, or kept back.
    CacheOutside {
        /// The CPUs that share it.
        cpus: CpuSet,
    },
    /// Not enough ways.
    Ways {
        /// The CPUs that share the cache.
        cpus: CpuSet,
        /// The longest run of free ways.
        free: u32,
        /// Ways that are wanted.
        wanted: u32,
    },
    /// All classes of service are taken.
    Classes {
        /// Their number, without the default one.
        most: u32,
    },
    /// The node has no memory.
    NoMemory {
        /// The node.
        node: NodeId,
    },
    /// The hardware limits the CPUs of a guarded node, and this node has none.
    NoCpus {
        /// The node.
        node: NodeId,
    },
    /// Not enough memory.
    Memory {
        /// The node.
        node: NodeId,
        /// What is not promised, bytes.
        free: u64,
        /// What is wanted, bytes.
        wanted: u64,
    },
    /// A link that another grant has for itself, or uses where it shall be isolated.
    Link {
        /// From.
        from: NodeId,
        /// To.
        to: NodeId,
        /// The grants that use it.
        by: Vec<Holder>,
    },
    /// Promised bandwidth exceeds what a controller can carry.
    Controller {
        /// The node.
        node: NodeId,
        /// What is not promised, bytes/s.
        free: f64,
        /// What is wanted, bytes/s.
        wanted: f64,
    },
    /// Promised bandwidth exceeds what a link can carry.
    LinkFull {
        /// From.
        from: NodeId,
        /// To.
        to: NodeId,
        /// What is not promised, bytes/s.
        free: f64,
        /// What is wanted, bytes/s.
        wanted: f64,
    },
    /// A guarded grant would be slowed by more than its bound.
    Slowed {
        /// The node of the memory that is wanted.
        node: NodeId,
        /// The grant; `None` for the request itself.
        who: Option<Holder>,
        /// By how much, as a part of its time.
        by: f64,
        /// Its bound.
        most: f64,
    },
    /// The study's rule: what is drawn and the hungriest core's share exceed a guarded controller's capacity.
    Committed {
        /// The node.
        node: NodeId,
        /// `reads` or `writes`.
        kind: &'static str,
        /// What is drawn, bytes/s.
        used: f64,
        /// What a newcomer is expected to draw, bytes/s.
        expected: f64,
        /// The capacity, bytes/s.
        capacity: f64,
    },
}

/// A similar request that would be granted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alternative {
    /// What to change, in words of the command line.
    pub change: String,
    /// What it would get.
    pub grant: Grant,
    /// Idle latency of its memory, ns.
    pub latency_ns: Option<f64>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grant {}", self.id)?;
        match (&self.name, age(self.age_s)) {
            (None, None) => Ok(()),
            (Some(name), None) => write!(f, " ({name})"),
            (None, Some(age)) => write!(f, " (since {age})"),
            (Some(name), Some(age)) => write!(f, " ({name}, since {age})"),
        }
    }
}

/// A time in its largest unit; none below a second.
fn age(seconds: u64) -> Option<String> {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    units.into_iter().find(|(size, _)| seconds >= *size).map(|(size, unit)| format!("{} {unit}", seconds / size))
}

fn list(holders: &[Holder]) -> String {
    let mut names: Vec<String> = holders.iter().take(SPELLED_OUT).map(Holder::to_string).collect();
    if holders.len() > SPELLED_OUT {
        names.push(format!("{} more", holders.len() - SPELLED_OUT));
    }
    names.join(", ")
}

fn cpus(set: &CpuSet) -> String {
    format!("CPU{} {set}", if set.len() == 1 { "" } else { "s" })
}

/// A share of what quotas limit, with its name.
fn share(what: &str, number: u64) -> String {
    let name = match what {
        "bytes" => "of memory",
        "controllers" => "guarded controllers",
        other => other,
    };
    format!("{} {name}", amount(what, number))
}

fn amount(what: &str, number: u64) -> String {
    if what == "bytes" { machine::size::rounded(number) } else { number.to_string() }
}

fn giga(bytes_per_s: f64) -> String {
    format!("{:.1} GB/s", bytes_per_s / 1e9)
}

fn percent(part: f64) -> String {
    if part < 10.0 { format!("+{:.1} %", 100.0 * part) } else { "more than tenfold".to_owned() }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cores { node, cpus: set, free, wanted, by } => {
                write!(f, "node {node}: {free} of the cores of {} are free, {wanted} wanted", cpus(set))?;
                if by.is_empty() { Ok(()) } else { write!(f, ": {}", list(by)) }
            }
            Self::CacheTenants { cpus: set, by } => {
                write!(f, "the last-level cache of {} has tenants: {}", cpus(set), list(by))
            }
            Self::CacheOutside { cpus: set } => {
                write!(f, "the last-level cache of {} also serves CPUs outside of the zone or kept back", cpus(set))
            }
            Self::Ways { cpus: set, free, wanted } => {
                write!(f, "the last-level cache of {} has {free} free ways in a row, {wanted} wanted", cpus(set))
            }
            Self::Classes { most } => write!(f, "all {most} classes of service are taken"),
            Self::NoMemory { node } => write!(f, "node {node} has no memory"),
            Self::NoCpus { node } => write!(
                f,
                "node {node} has no CPUs, and the hardware limits those of a guarded node: --throttle duty limits control groups"
            ),
            Self::Memory { node, free, wanted } => {
                let size = machine::size::rounded;
                write!(f, "node {node}: {} of its memory are not promised, {} wanted", size(*free), size(*wanted))
            }
            Self::Link { from, to, by } => write!(f, "the link from node {from} to node {to} is used by {}", list(by)),
            Self::Controller { node, free, wanted } => {
                write!(f, "controller {node}: {} are not promised, {} wanted", giga(*free), giga(*wanted))
            }
            Self::LinkFull { from, to, free, wanted } => {
                let (free, wanted) = (giga(*free), giga(*wanted));
                write!(f, "the link from node {from} to node {to}: {free} are not promised, {wanted} wanted")
            }
            Self::Slowed { node, who, by, most } => {
                let who = who.as_ref().map_or_else(|| "it".to_owned(), Holder::to_string);
                let (by, most) = (percent(*by), significant(100.0 * most));
                write!(f, "memory of node {node}: {who} would be slowed by {by}, the bound is {most} %")
            }
            Self::Committed { node, kind, used, expected, capacity } => write!(
                f,
                "controller {node}: {} of {kind} are drawn, the newcomer counts as {}, and it carries {}",
                giga(*used),
                giga(*expected),
                giga(*capacity)
            ),
        }
    }
}

impl fmt::Display for Alternative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Grant { cpus: set, memory, .. } = &self.grant;
        write!(f, "{}: {}, memory of node {memory}", self.change, cpus(set))?;
        self.latency_ns.map_or(Ok(()), |ns| write!(f, " ({ns:.1} ns)"))
    }
}

fn lines(obstacles: &[Obstacle], nearest: Option<&Alternative>) -> String {
    let mut lines: Vec<String> = obstacles.iter().take(SPELLED_OUT).map(Obstacle::to_string).collect();
    if obstacles.len() > SPELLED_OUT {
        lines.push(format!("and {} more obstacles", obstacles.len() - SPELLED_OUT));
    }
    lines.extend(nearest.map(|nearest| format!("nearest: {nearest}")));
    lines.join("\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Asker, Control, Facts, Ledger, Memory, Request, Rules};
    use std::sync::Arc;

    #[test]
    fn bounds_have_three_digits() {
        let said = |most| Obstacle::Slowed { node: NodeId(0), who: None, by: 0.11, most }.to_string();
        let tenth = said(0.1 * 0.07);
        assert!(tenth.ends_with("would be slowed by +11.0 %, the bound is 0.7 %"), "{tenth}");
        assert!(said(0.05).ends_with("the bound is 5 %") && said(0.001).ends_with("the bound is 0.1 %"));
    }

    #[test]
    fn nodes_without_memory_are_refused_by_name() {
        let mut machine = machine::presets::find("small-2x2").unwrap();
        machine.nodes[1].memory_bytes = 0;
        let ledger = Ledger::new(Arc::new(Facts::new(machine, Control::default())), Rules::default());
        let on_node_1 = Request { memory: Memory::Node(NodeId(1)), ..Request::default() };
        let refusal = ledger.admit(&[on_node_1], &Asker::default()).unwrap_err();
        assert!(refusal.to_string().starts_with("node 1 has no memory"), "{refusal}");
    }
}
