//! Selects accesses.

use crate::ids::{ObjectId, SiteId, ThreadId};
use crate::object::ObjectKind;
use crate::profile::{Access, Profile};
use machine::{CpuSet, NodeSet, Pid, Tid};
use std::ops::RangeInclusive;
use trace::{AccessKind, Served, Source};

/// A property of an access.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// It goes to another node.
    Remote,
    /// It goes to the node of its CPU.
    Local,
    /// By the program; the opposite is by the kernel.
    User,
    /// Its process has this name.
    Application(String),
    /// Its process has one of these PIDs.
    Pid(Vec<Pid>),
    /// Its thread has one of these TIDs.
    Tid(Vec<Tid>),
    /// Its thread is this one, even if its TID was reused.
    Thread(ThreadId),
    /// On one of these CPUs.
    Cpu(CpuSet),
    /// Its CPU was of one of these nodes.
    FromNode(NodeSet),
    /// It goes to one of these nodes.
    ToNode(NodeSet),
    /// The function of its instruction has this name.
    Function(String),
    /// The function of its instruction contains this in its name.
    FunctionContains(String),
    /// The site of its object contains this in its label: see [`Profile::site_label`].
    Site(String),
    /// Its object is of this site.
    OfSite(SiteId),
    /// To this object.
    Object(ObjectId),
    /// Its object is of this kind. To exclude stacks: `Not(Kind(Stacks))`.
    Kind(ObjectKind),
    /// Its object is accessed by several threads, counting accesses outside the filter too.
    Shared,
    /// Of this kind: load or store.
    Access(AccessKind),
    /// Served by one of these.
    Served(Vec<Served>),
    /// Not served by a cache of its own node, but by memory or another cache.
    NotLocalCache,
    /// From one of these sources.
    Source(Vec<Source>),
    /// With at least this latency, ns.
    LatencyAtLeast(f32),
    /// Within this time, ns, both ends included.
    Time(RangeInclusive<u64>),
    /// Its virtual address is one of these.
    Address(RangeInclusive<u64>),
    /// Its physical address is known and one of these.
    Physical(RangeInclusive<u64>),
    /// Any of these holds.
    Any(Vec<Predicate>),
    /// This does not hold.
    Not(Box<Predicate>),
}

impl Predicate {
    /// Whether it selects accesses by their outcome: where they go, what they do or what serves them. Such a selection
    /// is local or slow by construction.
    pub(crate) fn selects_outcomes(&self) -> bool {
        match self {
            Self::Remote
            | Self::Local
            | Self::ToNode(_)
            | Self::Access(_)
            | Self::Served(_)
            | Self::NotLocalCache
            | Self::LatencyAtLeast(_) => true,
            Self::Any(predicates) => predicates.iter().any(Self::selects_outcomes),
            Self::Not(predicate) => predicate.selects_outcomes(),
            _ => false,
        }
    }

    /// Whether it selects processes: of memory that others map too, it leaves accesses out.
    pub(crate) fn selects_processes(&self) -> bool {
        match self {
            Self::Pid(_) | Self::Application(_) => true,
            Self::Any(predicates) => predicates.iter().any(Self::selects_processes),
            Self::Not(predicate) => predicate.selects_processes(),
            _ => false,
        }
    }

    /// Whether it leaves accesses to an object out while it has others of the same time: what is left does not show who
    /// shares or writes the object.
    pub(crate) fn hides_accesses(&self) -> bool {
        match self {
            Self::Tid(_)
            | Self::Thread(_)
            | Self::Cpu(_)
            | Self::FromNode(_)
            | Self::Function(_)
            | Self::FunctionContains(_) => true,
            Self::Any(predicates) => predicates.iter().any(Self::hides_accesses),
            Self::Not(predicate) => predicate.hides_accesses(),
            _ => self.selects_outcomes(),
        }
    }
}

/// Selects the accesses for which every predicate holds; all accesses if there are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter(pub Vec<Predicate>);

/// A property looked up by the number of the access's code, thread or object.
type Table = Vec<bool>;

/// A predicate whose names are resolved.
enum Prepared<'a> {
    Is(&'a Predicate),
    Code(Table),
    Thread(Table),
    Object(Table),
    Any(Vec<Prepared<'a>>),
    Not(Box<Prepared<'a>>),
}

/// The filter, resolved for one profile.
pub(crate) struct PreparedFilter<'a>(Vec<Prepared<'a>>);

impl Filter {
    pub(crate) fn prepare(&self, profile: &Profile) -> PreparedFilter<'_> {
        PreparedFilter(self.0.iter().map(|predicate| prepare(predicate, profile)).collect())
    }
}

impl PreparedFilter<'_> {
    pub fn holds(&self, access: &Access) -> bool {
        self.0.iter().all(|predicate| predicate.holds(access))
    }
}

fn prepare<'a>(predicate: &'a Predicate, profile: &Profile) -> Prepared<'a> {
    let functions = |is: &dyn Fn(&str) -> bool| {
        let codes = profile.codes().iter();
        Prepared::Code(codes.map(|code| code.function.as_ref().is_some_and(|function| is(&function.name))).collect())
    };
    let threads = |is: &dyn Fn(&crate::Thread) -> bool| Prepared::Thread(profile.threads().iter().map(is).collect());
    let process = |thread: &crate::Thread| &profile.processes()[thread.process.index()];
    let objects_of = |is: &dyn Fn(SiteId) -> bool| {
        Prepared::Object(profile.sites_of_objects().iter().map(|&site| is(site)).collect())
    };
    match predicate {
        Predicate::Application(name) => threads(&|thread| process(thread).name.as_deref() == Some(name)),
        Predicate::Pid(pids) => threads(&|thread| pids.contains(&process(thread).pid)),
        Predicate::Tid(tids) => threads(&|thread| tids.contains(&thread.tid)),
        Predicate::Function(name) => functions(&|function| function == name),
        Predicate::FunctionContains(part) => functions(&|function| function.contains(part)),
        Predicate::Site(part) => {
            let sites: Table = profile.site_ids().map(|site| profile.site_label(site).contains(part)).collect();
            objects_of(&|site| sites[site.index()])
        }
        Predicate::OfSite(site) => objects_of(&|of| of == *site),
        Predicate::Kind(kind) => {
            Prepared::Object(profile.objects().iter().map(|object| object.kind == *kind).collect())
        }
        Predicate::Shared => Prepared::Object(profile.shared_objects()),
        Predicate::Any(any) => Prepared::Any(any.iter().map(|predicate| prepare(predicate, profile)).collect()),
        Predicate::Not(not) => Prepared::Not(Box::new(prepare(not, profile))),
        _ => Prepared::Is(predicate),
    }
}

impl Prepared<'_> {
    fn holds(&self, access: &Access) -> bool {
        let has = |table: &Table, at: usize| table.get(at).copied().unwrap_or(false);
        match self {
            Self::Is(predicate) => predicate.holds(access),
            Self::Code(codes) => has(codes, access.code.index()),
            Self::Thread(threads) => has(threads, access.thread.index()),
            Self::Object(objects) => has(objects, access.object.index()),
            Self::Any(any) => any.iter().any(|predicate| predicate.holds(access)),
            Self::Not(not) => !not.holds(access),
        }
    }
}

impl Predicate {
    /// Whether it holds, for predicates that need only the access. Others are resolved to tables first.
    fn holds(&self, access: &Access) -> bool {
        match self {
            Self::Remote => access.is_remote(),
            Self::Local => access.is_local(),
            Self::User => !access.kernel,
            Self::Thread(thread) => access.thread == *thread,
            Self::Object(object) => access.object == *object,
            Self::Cpu(cpus) => cpus.contains(access.cpu),
            Self::FromNode(nodes) => access.from.is_some_and(|node| nodes.contains(node)),
            Self::ToNode(nodes) => access.to.is_some_and(|node| nodes.contains(node)),
            Self::Access(kind) => access.kind == *kind,
            Self::Served(served) => access.served.is_some_and(|by| served.contains(&by)),
            Self::NotLocalCache => !matches!(access.served, Some(Served::L1 | Served::L2 | Served::L3)),
            Self::Source(sources) => sources.contains(&access.source),
            Self::LatencyAtLeast(least) => access.latency_ns.is_some_and(|latency_ns| latency_ns >= *least),
            Self::Time(times) => times.contains(&access.time_ns),
            Self::Address(addresses) => addresses.contains(&access.address),
            Self::Physical(addresses) => access.physical.is_some_and(|physical| addresses.contains(&physical)),
            Self::Application(_)
            | Self::Pid(_)
            | Self::Tid(_)
            | Self::Function(_)
            | Self::FunctionContains(_)
            | Self::Site(_)
            | Self::OfSite(_)
            | Self::Kind(_)
            | Self::Shared
            | Self::Any(_)
            | Self::Not(_) => false,
        }
    }
}
