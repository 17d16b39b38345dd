//! A request as options of the command line.

use crate::options::places::{Cpus, Nodes};
use crate::options::usage_error::UsageError;
use clap::{Args, ValueEnum};
use machine::{CpuSet, Machine, NodeSet, size};
use reserve::{Cores, GrantId, Isolation, Memory, Part, Preference, ReadWrite, Request, parse_bandwidth};
use std::collections::BTreeSet;
use std::error::Error;

/// What to ask for.
#[derive(Debug, Args)]
pub struct RequestOptions {
    /// Cores, all of one node
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "cpus")]
    cores: u32,

    /// The cores of these CPUs instead, such as 0-3,8 or l3:0, package:1.core:2
    #[arg(long, value_name = "CPUS")]
    cpus: Option<Cpus>,

    /// Cores on the exclusive cache of this grant of yours, by its number; no other grant can have them
    #[arg(long, value_name = "GRANT", conflicts_with = "cpus")]
    on_cache_of: Option<u32>,

    /// Memory of this node, or of several, such as 1, 0-1 or package:1 [default: the best for --prefer]
    #[arg(long, value_name = "NODES")]
    node: Option<Nodes>,

    /// Memory of the node of the grant's cores
    #[arg(long, conflicts_with = "node")]
    local: bool,

    /// Limit of the grant's memory; Linux reserves no pages for it
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    bytes: Option<u64>,

    /// What the grant does not share with other programs
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT,...")]
    isolate: Vec<Isolate>,

    /// Number of ways of the last-level cache for the grant alone, with its cores
    #[arg(long, value_name = "N")]
    cache_ways: Option<u32>,

    /// What to optimise when cores and memory are chosen
    #[arg(long, value_enum, default_value_t = Prefer::None)]
    prefer: Prefer,

    /// Maximum bandwidth of its reads from memory, bytes/s, such as 5.9G for 5.9 GB/s (G is 10^9) [default: as much as its cores can]
    #[arg(long, value_name = "RATE", value_parser = parse_bandwidth)]
    bandwidth: Option<f64>,

    /// Maximum bandwidth of its writes to memory, bytes/s
    #[arg(long, value_name = "RATE", value_parser = parse_bandwidth)]
    write_bandwidth: Option<f64>,

    /// Maximum slowdown by other programs, if the controller is isolated, in percent of its run time
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    most_slowdown: f64,

    /// Hold this bound at each moment, not on average: refused where only shares of CPU time limit other programs
    #[arg(long)]
    strict: bool,

    /// The grant ends after this number of seconds, or up to one more
    #[arg(long, value_name = "SECONDS")]
    lease: Option<u64>,

    /// Name of the grant, as `list` shows it
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Isolate {
    /// Its cores; their SMT siblings idle
    Core,
    /// Its last-level cache; the other cores of it idle
    Cache,
    /// Its memory controller and the links to it: others do not slow it by more than --most-slowdown
    Controller,
    /// The links to its memory: no other grant uses them
    Route,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Prefer {
    /// Cores with the fewest tenants, local memory
    None,
    /// Least latency
    Latency,
    /// Most read bandwidth of a core
    ReadBandwidth,
    /// Most write bandwidth of a core
    WriteBandwidth,
}

impl RequestOptions {
    /// The request, for this machine, which is read only if an option names a part of it. Fails if it breaks a rule that
    /// holds on every machine.
    pub fn request(&self, machine: impl Fn() -> Result<Machine, Box<dyn Error>>) -> Result<Request, Box<dyn Error>> {
        let cpus = self.cpus.as_ref().map(|cpus| cpus_of(cpus, &machine)).transpose()?;
        let mut nodes = match &self.node {
            Some(nodes) => nodes.of_machine(&machine()?).map_err(UsageError::boxed)?,
            None => NodeSet::new(),
        };
        let node = nodes.first();
        node.map(|first| nodes.remove(first));
        let part = |isolate: &Isolate| match isolate {
            Isolate::Core => Part::Core,
            Isolate::Cache => Part::Cache,
            Isolate::Controller => Part::Controller,
            Isolate::Route => Part::Route,
        };
        let parts: BTreeSet<Part> = self.isolate.iter().map(part).collect();
        let rate = |rate: Option<f64>| rate.unwrap_or(0.0);
        let is_stated = self.bandwidth.or(self.write_bandwidth).is_some();
        let both = ReadWrite { read: rate(self.bandwidth), write: rate(self.write_bandwidth) };
        let memory = node.map(Memory::Node);
        let request = Request {
            name: self.name.clone(),
            cores: match (cpus, self.on_cache_of) {
                (Some(cpus), _) => Cores::These(cpus),
                (None, Some(grant)) => Cores::OnCacheOf(GrantId(grant), self.cores),
                (None, None) => Cores::Any(self.cores),
            },
            memory: memory.unwrap_or(if self.local { Memory::Local } else { Memory::Any }),
            more_memory: nodes,
            bytes: self.bytes,
            isolate: Isolation::from_parts(&parts, self.cache_ways).map_err(UsageError::boxed)?,
            prefer: match self.prefer {
                Prefer::None => Preference::None,
                Prefer::Latency => Preference::Latency,
                Prefer::ReadBandwidth => Preference::ReadBandwidth,
                Prefer::WriteBandwidth => Preference::WriteBandwidth,
            },
            bandwidth: is_stated.then_some(both),
            most_slowdown: self.most_slowdown / 100.0,
            strict: self.strict,
            lease_s: self.lease,
        };
        let broken = request.violations();
        if broken.is_empty() {
            return Ok(request.complete());
        }
        let words: Vec<String> = broken.iter().map(|broken| broken.rule.clone()).collect();
        Err(UsageError::boxed(words.join("\n")))
    }
}

/// The CPUs that an option names on this machine.
pub fn cpus_of(cpus: &Cpus, machine: &impl Fn() -> Result<Machine, Box<dyn Error>>) -> Result<CpuSet, Box<dyn Error>> {
    cpus.of_machine(&machine()?).map_err(UsageError::boxed)
}
