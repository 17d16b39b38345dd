//! Which accesses of a trace to look at, as options.

use clap::{Args, ValueEnum};
use linux::{Pid, Tid};
use machine::{CpuSet, NodeSet};
use profile::{Filter, ObjectKind, Predicate, Profile};
use std::ops::RangeInclusive;
use trace::{AccessKind, Served};

/// Which accesses to look at: those that all of these hold for.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Which accesses (those that all options hold for)")]
#[allow(clippy::struct_excessive_bools, reason = "each is an option without a value")]
pub struct FilterOptions {
    /// That go to another node
    #[arg(long, conflicts_with = "local")]
    remote: bool,

    /// That go to the node of their CPU
    #[arg(long)]
    local: bool,

    /// Of the program itself, not of the kernel
    #[arg(long)]
    user: bool,

    /// That read
    #[arg(long, conflicts_with = "stores")]
    loads: bool,

    /// That write
    #[arg(long)]
    stores: bool,

    /// That memory served
    #[arg(long)]
    dram: bool,

    /// That no cache of their own node served
    #[arg(long)]
    not_local_cache: bool,

    /// That took at least so long, ns
    #[arg(long, value_name = "NS")]
    min_latency: Option<f32>,

    /// Of processes with this name
    #[arg(long, value_name = "NAME")]
    application: Option<String>,

    /// Of these processes
    #[arg(long, value_name = "PID,...", value_delimiter = ',')]
    pid: Vec<u32>,

    /// Of these threads, by the kernel's numbers
    #[arg(long, value_name = "TID,...", value_delimiter = ',')]
    tid: Vec<u32>,

    /// On these CPUs, such as 0-3,8
    #[arg(long, value_name = "CPUS")]
    cpu: Option<CpuSet>,

    /// From CPUs of these nodes
    #[arg(long, value_name = "NODES")]
    from_node: Option<NodeSet>,

    /// To memory of these nodes
    #[arg(long, value_name = "NODES")]
    to_node: Option<NodeSet>,

    /// By functions whose names have this in them; =NAME is the whole name
    #[arg(long, value_name = "PART")]
    by_function: Option<String>,

    /// To objects of sites whose labels have this in them
    #[arg(long, value_name = "PART")]
    of_site: Option<String>,

    /// To objects of these kinds
    #[arg(long, value_name = "KIND,...", value_enum, value_delimiter = ',')]
    kind: Vec<Kind>,

    /// Not to stacks
    #[arg(long)]
    not_stacks: bool,

    /// In this time, seconds since the first access: FROM-TO, FROM- or -TO
    #[arg(long, value_name = "FROM-TO", value_parser = seconds)]
    time: Option<Seconds>,

    /// To these virtual addresses, START-END in hexadecimal, the end not included
    #[arg(long, value_name = "START-END", value_parser = addresses)]
    address: Option<Addresses>,

    /// To these physical addresses, START-END in hexadecimal, the end not included
    #[arg(long, value_name = "START-END", value_parser = addresses)]
    physical: Option<Addresses>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// What the program allocated
    Heap,
    /// Variables of programs and libraries
    Static,
    /// Mapped files that are no programs
    File,
    /// Parts of programs that are no variables
    Section,
    /// Stacks
    Stacks,
    /// What no known object lies at
    Unknown,
}

/// Times since the first access, s.
type Seconds = (f64, Option<f64>);
/// Addresses, both ends included.
type Addresses = RangeInclusive<u64>;

impl FilterOptions {
    /// As the profile's filter. Times are since its first access.
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
        found.extend(self.cpu.clone().map(Predicate::Cpu));
        found.extend(self.from_node.clone().map(Predicate::FromNode));
        found.extend(self.to_node.clone().map(Predicate::ToNode));
        found.extend(self.by_function.as_ref().map(|name| match name.strip_prefix('=') {
            Some(whole) => Predicate::Function(whole.to_owned()),
            None => Predicate::FunctionContains(name.clone()),
        }));
        found.extend(self.of_site.clone().map(Predicate::Site));
        if !self.kind.is_empty() {
            found.push(Predicate::Any(self.kind.iter().map(|kind| Predicate::Kind(kind.of_object())).collect()));
        }
        if let Some((from, to)) = self.time {
            let start = profile.span_ns().map_or(0, |(first, _)| first);
            let at = |seconds: f64| start.saturating_add((seconds * 1e9) as u64);
            found.push(Predicate::Time(at(from)..=to.map_or(u64::MAX, at)));
        }
        found.extend(self.address.clone().map(Predicate::Address));
        found.extend(self.physical.clone().map(Predicate::Physical));
        Filter(found)
    }

    /// In words, one for each option that was given.
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
            ("at least ns", self.min_latency.map(|ns| ns.to_string())),
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

impl Kind {
    fn of_object(self) -> ObjectKind {
        match self {
            Self::Heap => ObjectKind::Heap,
            Self::Static => ObjectKind::Static,
            Self::File => ObjectKind::MappedFile,
            Self::Section => ObjectKind::BinarySection,
            Self::Stacks => ObjectKind::Stacks,
            Self::Unknown => ObjectKind::Unknown,
        }
    }
}

fn seconds(text: &str) -> Result<Seconds, String> {
    let number = |text: &str| match text.trim().parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(seconds),
        _ => Err(format!("`{text}` is no number of seconds")),
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
        u64::from_str_radix(digits, 16).map_err(|_| format!("`{text}` is no address in hexadecimal"))
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
