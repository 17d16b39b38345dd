//! Options that select accesses of a trace.

use crate::options::places::{Cpus, Nodes};
use crate::options::usage_error::UsageError;
use clap::{Args, ValueEnum};
use linux::{Pid, Tid};
use machine::{CpuId, CpuSet, Machine, NodeId, NodeSet, SelectionError};
use profile::{CodeId, Filter, ObjectKind, Predicate, Process, Profile, Thread};
use report::TraceFacts;
use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;
use trace::{AccessKind, Served};

/// Selects the accesses for which all of these hold.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Filters on accesses (all must hold)")]
#[allow(clippy::struct_excessive_bools, reason = "each is an option without a value")]
pub struct FilterOptions {
    /// Accesses to other nodes
    #[arg(long, conflicts_with = "local")]
    remote: bool,

    /// Accesses to the node of their CPU
    #[arg(long)]
    local: bool,

    /// Accesses of the program itself, not of the kernel
    #[arg(long)]
    user: bool,

    /// Loads
    #[arg(long, conflicts_with = "stores")]
    loads: bool,

    /// Stores
    #[arg(long)]
    stores: bool,

    /// Served by memory
    #[arg(long)]
    dram: bool,

    /// Not served by a cache of their own node
    #[arg(long)]
    not_local_cache: bool,

    /// Latency of at least this, ns
    #[arg(long, value_name = "NS", value_parser = latency)]
    min_latency: Option<f32>,

    /// From processes with this name
    #[arg(long, value_name = "NAME")]
    application: Option<String>,

    /// From these processes
    #[arg(long, value_name = "PID,...", value_delimiter = ',')]
    pid: Vec<u32>,

    /// From these threads, by kernel thread id
    #[arg(long, value_name = "TID,...", value_delimiter = ',')]
    tid: Vec<u32>,

    /// From these CPUs of the recorded machine, such as 0-3,8 or l3:0, package:1.core:2
    #[arg(long, value_name = "CPUS")]
    cpu: Option<Cpus>,

    /// From CPUs of these nodes, such as 0,2 or package:1
    #[arg(long, value_name = "NODES")]
    from_node: Option<Nodes>,

    /// To memory of these nodes
    #[arg(long, value_name = "NODES")]
    to_node: Option<Nodes>,

    /// By functions whose names contain this; =NAME is the whole name
    #[arg(long, value_name = "PART")]
    by_function: Option<String>,

    /// To objects of sites whose labels contain this
    #[arg(long, value_name = "PART")]
    of_site: Option<String>,

    /// To objects of these kinds
    #[arg(long, value_name = "KIND,...", value_enum, value_delimiter = ',')]
    kind: Vec<Kind>,

    /// Not to stacks
    #[arg(long)]
    not_stacks: bool,

    /// To objects that more than one thread accesses
    #[arg(long, conflicts_with = "unshared")]
    shared: bool,

    /// To objects that only one thread accesses
    #[arg(long)]
    unshared: bool,

    /// Within this time, in seconds since the first access: FROM-TO, FROM- or -TO
    #[arg(long, value_name = "FROM-TO", value_parser = seconds, allow_hyphen_values = true)]
    time: Option<Seconds>,

    /// To these virtual addresses, START-END in hexadecimal, without the end
    #[arg(long, value_name = "START-END", value_parser = addresses)]
    address: Option<Addresses>,

    /// To these physical addresses, START-END in hexadecimal, without the end
    #[arg(long, value_name = "START-END", value_parser = addresses)]
    physical: Option<Addresses>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Heap allocations of the program
    Heap,
    /// Ranges that the program named
    Region,
    /// Variables of programs and libraries
    Static,
    /// Mapped files that are not programs or libraries
    File,
    /// Parts of programs and libraries other than variables
    Section,
    /// Stacks
    Stacks,
    /// Addresses outside all known objects
    Unknown,
}

/// Times since the first access, s.
type Seconds = (f64, Option<f64>);
/// Addresses, with both ends included.
type Addresses = RangeInclusive<u64>;

impl FilterOptions {
    /// The profile's filter for these options. Times are relative to its first access.
    pub fn filter(&self, profile: &Profile) -> Filter {
        let mut found: Vec<Predicate> = Vec::new();
        let flags = [
            (self.remote, Predicate::Remote),
            (self.local, Predicate::Local),
            (self.user, Predicate::User),
            (self.loads, Predicate::Access(AccessKind::Load)),
            (self.stores, Predicate::Access(AccessKind::Store)),
            (self.dram, Predicate::Served(vec![Served::Dram])),
            (self.not_local_cache, Predicate::NotLocalCache),
            (self.not_stacks, Predicate::Not(Box::new(Predicate::Kind(ObjectKind::Stacks)))),
            (self.shared, Predicate::Shared),
            (self.unshared, Predicate::Not(Box::new(Predicate::Shared))),
        ];
        found.extend(flags.into_iter().filter(|(given, _)| *given).map(|(_, predicate)| predicate));
        found.extend(self.min_latency.map(Predicate::LatencyAtLeast));
        found.extend(self.application.clone().map(Predicate::Application));
        if !self.pid.is_empty() {
            found.push(Predicate::Pid(self.pid.iter().copied().map(Pid).collect()));
        }
        if !self.tid.is_empty() {
            found.push(Predicate::Tid(self.tid.iter().copied().map(Tid).collect()));
        }
        // What a machine lacks, no access of its traces has; `check` reports what all of them lack.
        let Parts { cpus, from, to } = self.parts(profile.machine()).unwrap_or_else(|_| Parts::nothing(self));
        found.extend(cpus.map(Predicate::Cpu));
        found.extend(from.map(Predicate::FromNode));
        found.extend(to.map(Predicate::ToNode));
        found.extend(self.by_function.as_ref().map(|name| match name.strip_prefix('=') {
            Some(whole) => Predicate::Function(whole.to_owned()),
            None => Predicate::FunctionContains(name.clone()),
        }));
        found.extend(self.of_site.clone().map(Predicate::Site));
        if !self.kind.is_empty() {
            found.push(Predicate::Any(self.kind.iter().map(|kind| Predicate::Kind(kind.of_object())).collect()));
        }
        found.extend(self.time_ns(profile.span_ns().map_or(0, |(first, _)| first)).map(Predicate::Time));
        found.extend(self.address.clone().map(Predicate::Address));
        found.extend(self.physical.clone().map(Predicate::Physical));
        Filter(found)
    }

    /// The CPUs and nodes that the options name on this machine.
    fn parts(&self, machine: &Machine) -> Result<Parts, SelectionError> {
        let nodes = |nodes: &Option<Nodes>| nodes.as_ref().map(|nodes| nodes.of_machine(machine)).transpose();
        Ok(Parts {
            cpus: self.cpu.as_ref().map(|cpus| cpus.of_machine(machine)).transpose()?,
            from: nodes(&self.from_node)?,
            to: nodes(&self.to_node)?,
        })
    }

    /// The selected time of a trace that begins at `start_ns`, ns.
    fn time_ns(&self, start_ns: u64) -> Option<RangeInclusive<u64>> {
        let at = |seconds: f64| start_ns.saturating_add((seconds * 1e9) as u64);
        self.time.map(|(from, to)| at(from)..=to.map_or(u64::MAX, at))
    }

    /// Restricts a trace's facts to the selected time.
    pub fn facts(&self, facts: TraceFacts) -> TraceFacts {
        match self.time_ns(facts.start_ns) {
            Some(time) => facts.within((*time.start(), *time.end())),
            None => facts,
        }
    }

    /// Checks that everything named in the options exists in one of these traces, even if it has no matching access.
    pub fn check(&self, profiles: &[&Profile]) -> Result<(), Box<dyn Error>> {
        let parts: Vec<Result<Parts, SelectionError>> =
            profiles.iter().map(|profile| self.parts(profile.machine())).collect();
        let known: Vec<&Parts> = parts.iter().flatten().collect();
        if let (true, Some(Err(error))) = (known.is_empty(), parts.first()) {
            return Err(UsageError::boxed(format!("on the machine of the trace: {error}")));
        }
        let missing = self.named(&known).into_iter().find(|named| !profiles.iter().any(|profile| named.is_in(profile)));
        let who = if profiles.len() == 1 { "the trace has no" } else { "neither trace has a" };
        missing.map_or(Ok(()), |named| Err(UsageError::boxed(format!("{who} {named}"))))?;
        let lengths_ns = profiles.iter().filter_map(|profile| profile.span_ns()).map(|(first, last)| last - first);
        match (self.time, lengths_ns.max()) {
            (Some((from, to)), Some(longest_ns)) if from * 1e9 > longest_ns as f64 => Err(UsageError::boxed(format!(
                "--time {from}-{}: all accesses are within {} s after the first one",
                to.map_or_else(String::new, |to| to.to_string()),
                longest_ns as f64 / 1e9
            ))),
            _ => Ok(()),
        }
    }

    /// Everything that the options name, one by one.
    fn named(&self, parts: &[&Parts]) -> Vec<Named<'_>> {
        let mut named: Vec<Named> = Vec::new();
        named.extend(self.application.as_deref().map(Named::Application));
        named.extend(self.pid.iter().copied().map(Pid).map(Named::Process));
        named.extend(self.tid.iter().copied().map(Tid).map(Named::Thread));
        for Parts { cpus, from, to } in parts {
            named.extend(cpus.iter().flat_map(CpuSet::iter).map(Named::Cpu));
            named.extend([from, to].into_iter().flatten().flat_map(NodeSet::iter).map(Named::Node));
        }
        named.extend(self.by_function.as_deref().map(|name| match name.strip_prefix('=') {
            Some(whole) => Named::Function(whole),
            None => Named::PartOfFunction(name),
        }));
        named.extend(self.of_site.as_deref().map(Named::PartOfSite));
        named
    }

    /// Descriptions for reports, one for each option given.
    pub fn words(&self) -> Vec<String> {
        let flags = [
            (self.remote, "remote accesses"),
            (self.local, "local accesses"),
            (self.user, "accesses of the program itself"),
            (self.loads, "loads"),
            (self.stores, "stores"),
            (self.dram, "served by memory"),
            (self.not_local_cache, "not served by a local cache"),
            (self.not_stacks, "not to stacks"),
            (self.shared, "to objects of several threads"),
            (self.unshared, "to objects of one thread"),
        ];
        let mut words: Vec<String> =
            flags.iter().filter(|(given, _)| *given).map(|(_, word)| (*word).to_owned()).collect();
        let list = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let kinds = self.kind.iter().filter_map(|kind| Some(kind.to_possible_value()?.get_name().to_owned()));
        let kinds = kinds.collect::<Vec<_>>().join(",");
        let range = |addresses: &Addresses| format!("{:x}-{:x}", addresses.start(), addresses.end().saturating_add(1));
        let time = self.time.map(|(from, to)| match to {
            Some(to) => format!("{from} to {to} s"),
            None => format!("from {from} s on"),
        });
        let valued = [
            ("latency of at least", self.min_latency.map(|ns| format!("{ns} ns"))),
            ("application", self.application.clone()),
            ("process", Some(list(&self.pid)).filter(|pids| !pids.is_empty())),
            ("thread", Some(list(&self.tid)).filter(|tids| !tids.is_empty())),
            ("CPU", self.cpu.as_ref().map(ToString::to_string)),
            ("from node", self.from_node.as_ref().map(ToString::to_string)),
            ("to node", self.to_node.as_ref().map(ToString::to_string)),
            ("function", self.by_function.clone()),
            ("site", self.of_site.clone()),
            ("kind", Some(kinds).filter(|kinds| !kinds.is_empty())),
            ("time", time),
            ("addresses", self.address.as_ref().map(range)),
            ("physical addresses", self.physical.as_ref().map(range)),
        ];
        words.extend(valued.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?))));
        words
    }
}

/// The CPUs and nodes that options name on one machine; `None` without the option.
struct Parts {
    cpus: Option<CpuSet>,
    from: Option<NodeSet>,
    to: Option<NodeSet>,
}

impl Parts {
    /// Nothing of what the options name.
    fn nothing(options: &FilterOptions) -> Self {
        let none = |nodes: &Option<Nodes>| nodes.as_ref().map(|_| NodeSet::new());
        Self {
            cpus: options.cpu.as_ref().map(|_| CpuSet::new()),
            from: none(&options.from_node),
            to: none(&options.to_node),
        }
    }
}

/// Something that an option names.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Named<'a> {
    Application(&'a str),
    Process(Pid),
    Thread(Tid),
    Cpu(CpuId),
    Node(NodeId),
    Function(&'a str),
    PartOfFunction(&'a str),
    PartOfSite(&'a str),
}

impl Named<'_> {
    fn is_in(self, profile: &Profile) -> bool {
        let process = |is: &dyn Fn(&Process) -> bool| profile.processes().iter().any(is);
        let thread = |is: &dyn Fn(&Thread) -> bool| profile.threads().iter().any(is);
        let function = |is: &dyn Fn(&str) -> bool| {
            let mut places = (0..).map_while(|number| profile.code(CodeId(number)));
            places.any(|code| code.function.as_ref().is_some_and(|function| is(&function.name)))
        };
        match self {
            Self::Application(name) => process(&|process| process.name.as_deref() == Some(name)),
            Self::Process(pid) => process(&|process| process.pid == pid),
            Self::Thread(tid) => thread(&|thread| thread.tid == tid),
            // The machine's description may cover less than what was recorded.
            Self::Cpu(cpu) => {
                profile.machine().node_of_cpu(cpu).is_some() || profile.accesses().any(|access| access.cpu == cpu)
            }
            Self::Node(node) => {
                profile.machine().node(node).is_some() || profile.accesses().any(|access| access.to == Some(node))
            }
            Self::Function(name) => function(&|known| known == name),
            Self::PartOfFunction(part) => function(&|known| known.contains(part)),
            Self::PartOfSite(part) => profile.site_ids().any(|site| profile.site_label(site).contains(part)),
        }
    }
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Application(name) => write!(f, "process with the name `{name}`"),
            Self::Process(Pid(pid)) => write!(f, "process {pid}"),
            Self::Thread(Tid(tid)) => write!(f, "thread {tid}"),
            Self::Cpu(cpu) => write!(f, "CPU {cpu}"),
            Self::Node(node) => write!(f, "node {node}"),
            Self::Function(name) => write!(f, "function `{name}` (= takes the whole name)"),
            Self::PartOfFunction(part) => write!(f, "function with `{part}` in its name"),
            Self::PartOfSite(part) => write!(f, "site with `{part}` in its label"),
        }
    }
}

impl Kind {
    fn of_object(self) -> ObjectKind {
        match self {
            Self::Heap => ObjectKind::Heap,
            Self::Static => ObjectKind::Static,
            Self::Region => ObjectKind::Region,
            Self::File => ObjectKind::MappedFile,
            Self::Section => ObjectKind::BinarySection,
            Self::Stacks => ObjectKind::Stacks,
            Self::Unknown => ObjectKind::Unknown,
        }
    }
}

fn latency(text: &str) -> Result<f32, String> {
    let ns = text.parse::<f32>().ok().filter(|ns| ns.is_finite() && *ns >= 0.0);
    ns.ok_or_else(|| "a latency is a number of ns".to_owned())
}

fn seconds(text: &str) -> Result<Seconds, String> {
    let number = |text: &str| match text.trim().parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(seconds),
        _ => Err(format!("`{text}` is not a number of seconds")),
    };
    let (from, to) = text.split_once('-').ok_or("a time is FROM-TO, FROM- or -TO, in seconds")?;
    let from = if from.trim().is_empty() { 0.0 } else { number(from)? };
    let to = if to.trim().is_empty() { None } else { Some(number(to)?) };
    if to.is_some_and(|to| to < from) {
        return Err("the time ends before it begins".to_owned());
    }
    Ok((from, to))
}

fn addresses(text: &str) -> Result<Addresses, String> {
    let hex = |text: &str| {
        let digits = text.trim().trim_start_matches("0x");
        u64::from_str_radix(digits, 16).map_err(|_| format!("`{text}` is not a hexadecimal address"))
    };
    let (start, end) = text.split_once('-').ok_or("addresses are START-END, in hexadecimal")?;
    let (start, end) = (hex(start)?, hex(end)?);
    if end <= start {
        return Err("the range ends before it begins, or is empty".to_owned());
    }
    Ok(start..=end - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_addresses_are_ranges() {
        assert_eq!(seconds("0.5-1"), Ok((0.5, Some(1.0))));
        assert_eq!((seconds("2-"), seconds("-0.25")), (Ok((2.0, None)), Ok((0.0, Some(0.25)))));
        assert_eq!(addresses("0x1000-2000"), Ok(0x1000..=0x1fff));
        for text in ["", "1", "2-1", "x-1", "1-inf", "nan-1"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        for text in ["", "1000", "2000-1000", "1000-1000", "-5", "x-y"] {
            assert!(addresses(text).is_err(), "{text}");
        }
    }
}
