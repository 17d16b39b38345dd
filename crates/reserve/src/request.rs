//! What a program asks for.

use crate::grant::GrantId;
use machine::{CpuSet, NodeId, NodeSet, Violation, size};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::collections::BTreeSet;

/// The least bound of a slow-down: below it, nothing would be left for others.
const LEAST_SLOWDOWN: f64 = 0.001;
/// Slow-down that a guarded program may suffer unless it says otherwise, as a part of its time: the published bound.
pub const USUAL_SLOWDOWN: f64 = 0.05;
/// Longest name of a grant, in bytes.
const MOST_NAME: usize = 64;
/// Longest lease: ten years, in seconds.
const MOST_LEASE_S: u64 = 10 * 365 * 24 * 3600;
/// Most cores in one request: above any machine's.
const MOST_CORES: u32 = 8192;

/// A request for cores and memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Request {
    /// What others call the grant.
    pub name: Option<String>,
    /// Its cores.
    pub cores: Cores,
    /// The node of its memory.
    pub memory: Memory,
    /// Further nodes of its memory.
    pub more_memory: NodeSet,
    /// Its memory, bytes: a limit, and an entry in the ledger. Linux reserves no pages for it.
    pub bytes: Option<u64>,
    /// What it does not share.
    pub isolate: Isolation,
    /// By which table its cores and memory are chosen.
    pub prefer: Preference,
    /// What it draws from memory at most. Without it, as much as its cores can.
    pub bandwidth: Option<ReadWrite>,
    /// Slow-down that it may suffer if its controller is guarded: 0.05 is 5 % more time.
    pub most_slowdown: f64,
    /// Whether the slow-down holds at each moment, and not only on average.
    pub strict: bool,
    /// Seconds until the grant ends by itself.
    pub lease_s: Option<u64>,
}

/// Which cores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cores {
    /// This number of cores of one node.
    Any(u32),
    /// The cores of these CPUs.
    These(CpuSet),
    /// This number of cores that share the exclusive cache of a grant of the same owner.
    OnCacheOf(GrantId, u32),
    /// Those of a grant of the same owner, which gets another node's memory.
    Of(GrantId),
}

/// Which memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// The best for the preference.
    #[default]
    Any,
    /// That of the node of its cores.
    Local,
    /// That of this node.
    Node(NodeId),
}

/// What a grant does not share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Isolation {
    /// Its cores: no other grant has them, and their SMT siblings idle.
    pub core: bool,
    /// Its last-level cache.
    pub cache: CacheIsolation,
    /// Its memory controllers and the links to them are guarded: others do not slow it by more than its bound.
    pub controller: bool,
    /// The links to its memory: no other grant's accesses cross them.
    pub route: bool,
}

/// How much of a last-level cache is a grant's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheIsolation {
    /// None.
    #[default]
    Shared,
    /// All of it: the other cores that share it idle.
    Exclusive,
    /// This number of ways.
    Ways(u32),
}

/// What the choice among several cores and nodes is for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, strum::EnumString, strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Preference {
    /// Cores with the fewest tenants, then local memory.
    #[default]
    None,
    /// Least idle latency.
    Latency,
    /// Most read bandwidth of a core.
    ReadBandwidth,
    /// Most write bandwidth of a core.
    WriteBandwidth,
}

/// Bytes per second, or bytes, of reads and of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadWrite {
    /// Reads.
    pub read: f64,
    /// Writes.
    pub write: f64,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            name: None,
            cores: Cores::Any(1),
            memory: Memory::Any,
            more_memory: NodeSet::new(),
            bytes: None,
            isolate: Isolation::default(),
            prefer: Preference::None,
            bandwidth: None,
            most_slowdown: USUAL_SLOWDOWN,
            strict: false,
            lease_s: None,
        }
    }
}

impl Request {
    /// The same, with what its isolation implies: an exclusive cache, or ways of one, has exclusive cores, also those that
    /// join it.
    #[must_use]
    pub fn complete(mut self) -> Self {
        let is_on_exclusive = matches!(self.cores, Cores::OnCacheOf(..));
        self.isolate.core |= self.isolate.cache != CacheIsolation::Shared || is_on_exclusive;
        self
    }

    /// The rules that it breaks on every machine.
    pub fn violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut rule = |broken: bool, field: &str, rule: String| {
            if broken {
                found.push(Violation { field: field.to_owned(), rule });
            }
        };
        match &self.cores {
            Cores::Any(count) | Cores::OnCacheOf(_, count) => {
                let text = format!("a grant has 1 to {MOST_CORES} cores, not {count}");
                rule(!(1..=MOST_CORES).contains(count), "cores", text);
            }
            Cores::These(cpus) => rule(cpus.is_empty(), "cpus", "a grant has at least one CPU".to_owned()),
            Cores::Of(_) => {}
        }
        rule(self.bytes == Some(0), "bytes", "a grant's memory has at least one byte".to_owned());
        if let CacheIsolation::Ways(ways) = self.isolate.cache {
            rule(ways == 0, "cache_ways", "a grant has at least one way of the cache".to_owned());
        }
        if let Some(ReadWrite { read, write }) = self.bandwidth {
            let good = read.is_finite() && write.is_finite() && read >= 0.0 && write >= 0.0 && read + write > 0.0;
            rule(!good, "bandwidth", format!("bandwidth is a positive number of bytes/s, not {read} and {write}"));
        }
        let slowdown = self.most_slowdown;
        let text = format!("a slow-down is from 0.1 to 100 %, not {} %", 100.0 * slowdown);
        rule(!(LEAST_SLOWDOWN..=1.0).contains(&slowdown), "most_slowdown_percent", text);
        if let Some(lease) = self.lease_s {
            rule(!(1..=MOST_LEASE_S).contains(&lease), "lease", "a lease is from 1 s to 10 years".to_owned());
        }
        if let Some(name) = &self.name {
            let broken = name_rule(name);
            rule(broken.is_some(), "name", broken.unwrap_or_default());
        }
        found
    }
}

/// Why a text is no name of a grant: names are also those of folders.
fn name_rule(name: &str) -> Option<String> {
    let shown: String = name.chars().take(40).collect();
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() {
        Some("a name has at least one letter".to_owned())
    } else if name.len() > MOST_NAME {
        Some(format!("a name has at most {MOST_NAME} bytes, and {shown:?}... has {}", name.len()))
    } else if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(allowed) {
        Some(format!("a name begins with a letter and has letters, digits, `-`, `_` and `.`, unlike {shown:?}"))
    } else {
        None
    }
}

/// Parses a bandwidth in bytes/s: `5.9G`, `800M`, `2e9`. Units are powers of 1,000, as in machine files.
pub fn parse_bandwidth(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no bandwidth: write bytes per second, or a number with K, M, G or T: 5.9G");
    let trimmed = text.trim();
    let units = [("K", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];
    let unit = units.iter().find_map(|(unit, factor)| Some((trimmed.strip_suffix(unit)?, *factor)));
    let (number, factor) = unit.unwrap_or((trimmed, 1.0));
    let value = number.trim().parse::<f64>().map_err(|_| wrong())? * factor;
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err(format!("a bandwidth is above 0, unlike `{text}`")) }
}

/// A request as people and programs write it, in files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenRequest {
    name: Option<String>,
    cores: Option<u32>,
    #[serde(default)]
    cpus: CpuSet,
    #[serde(default)]
    local: bool,
    node: Option<NodeId>,
    #[serde(default, deserialize_with = "optional_size", skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(default)]
    isolate: BTreeSet<Part>,
    cache_ways: Option<u32>,
    #[serde(default)]
    prefer: Preference,
    bandwidth: Option<Rate>,
    write_bandwidth: Option<Rate>,
    most_slowdown_percent: Option<f64>,
    #[serde(default)]
    strict: bool,
    lease_s: Option<u64>,
}

/// A word of `isolate`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::EnumString, strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Part {
    /// [`Isolation::core`].
    Core,
    /// [`CacheIsolation::Exclusive`].
    Cache,
    /// [`Isolation::controller`].
    Controller,
    /// [`Isolation::route`].
    Route,
}

/// A bandwidth in a file: a number, or a text such as `5.9G`.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
struct Rate(f64);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a bandwidth: bytes/s, or a text such as \"5.9G\"")]
        enum Written {
            Number(f64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(number) => Ok(Self(number)),
            Written::Text(text) => parse_bandwidth(&text).map(Self).map_err(de::Error::custom),
        }
    }
}

pub(crate) fn optional_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    size::deserialize(deserializer).map(Some)
}

impl Isolation {
    /// From the words of `--isolate` and a number of ways. Fails where both an exclusive cache and ways are wanted.
    pub fn from_parts(parts: &BTreeSet<Part>, ways: Option<u32>) -> Result<Self, String> {
        let has = |part| parts.contains(&part);
        let cache = match (has(Part::Cache), ways) {
            (true, Some(_)) => return Err("a cache is isolated whole or by ways, not both".to_owned()),
            (true, None) => CacheIsolation::Exclusive,
            (false, Some(ways)) => CacheIsolation::Ways(ways),
            (false, None) => CacheIsolation::Shared,
        };
        Ok(Self { core: has(Part::Core), cache, controller: has(Part::Controller), route: has(Part::Route) })
    }
}

impl WrittenRequest {
    /// Whether it says where, by what and with which isolation.
    pub(crate) fn has_place(&self) -> bool {
        let isolates = !self.isolate.is_empty() || self.cache_ways.is_some();
        isolates || !self.cpus.is_empty() || self.local || self.node.is_some() || self.prefer != Preference::None
    }

    /// The request, or the rules that it breaks.
    pub fn read(self) -> Result<Request, Vec<Violation>> {
        let mut found = Vec::new();
        let mut rule =
            |field: &str, rule: &str| found.push(Violation { field: field.to_owned(), rule: rule.to_owned() });
        if self.local && self.node.is_some() {
            rule("node", "memory is local or of a node, not both");
        }
        if self.cores.is_some() && !self.cpus.is_empty() {
            rule("cpus", "cores are a number or given by their CPUs, not both");
        }
        let isolate = Isolation::from_parts(&self.isolate, self.cache_ways).unwrap_or_else(|text| {
            rule("cache_ways", &text);
            Isolation::default()
        });
        let cores = if self.cpus.is_empty() { Cores::Any(self.cores.unwrap_or(1)) } else { Cores::These(self.cpus) };
        let rate = |rate: Option<Rate>| rate.map_or(0.0, |rate| rate.0);
        let stated = self.bandwidth.is_some() || self.write_bandwidth.is_some();
        let both = ReadWrite { read: rate(self.bandwidth), write: rate(self.write_bandwidth) };
        let request = Request {
            name: self.name,
            cores,
            memory: self.node.map_or(if self.local { Memory::Local } else { Memory::Any }, Memory::Node),
            more_memory: NodeSet::new(),
            bytes: self.bytes,
            isolate,
            prefer: self.prefer,
            bandwidth: stated.then_some(both),
            most_slowdown: self.most_slowdown_percent.map_or(USUAL_SLOWDOWN, |percent| percent / 100.0),
            strict: self.strict,
            lease_s: self.lease_s,
        };
        found.extend(request.violations());
        if found.is_empty() { Ok(request.complete()) } else { Err(found) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_read_as_people_write_them() {
        for (text, value) in [("5.9G", 5.9e9), (" 800 M", 8e8), ("2e9", 2e9), ("1K", 1e3), ("0.5T", 5e11)] {
            assert_eq!(parse_bandwidth(text), Ok(value), "{text}");
        }
        for text in ["", "0", "-1G", "NaN", "inf", "5.9GB/s", "G", "1e999"] {
            assert!(parse_bandwidth(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_a_grants_own_of_a_cache_is_of_cores_that_are_its_own() {
        for (cache, has_cores) in
            [(CacheIsolation::Shared, false), (CacheIsolation::Ways(8), true), (CacheIsolation::Exclusive, true)]
        {
            let request = Request { isolate: Isolation { cache, ..Isolation::default() }, ..Request::default() };
            assert_eq!(request.complete().isolate.core, has_cores, "{cache:?}");
        }
    }

    #[test]
    fn requests_that_no_machine_can_fulfil_are_refused_by_the_field_at_fault() {
        let good = Request::default();
        assert_eq!(good.violations(), []);
        let rate = |read, write| Request { bandwidth: Some(ReadWrite { read, write }), ..good.clone() };
        let named = |name: &str| Request { name: Some(name.to_owned()), ..good.clone() };
        let ways = Isolation { cache: CacheIsolation::Ways(0), ..Isolation::default() };
        let cases = [
            (Request { cores: Cores::Any(0), ..good.clone() }, "cores"),
            (Request { cores: Cores::Any(u32::MAX), ..good.clone() }, "cores"),
            (Request { cores: Cores::These(CpuSet::new()), ..good.clone() }, "cpus"),
            (Request { bytes: Some(0), ..good.clone() }, "bytes"),
            (Request { isolate: ways, ..good.clone() }, "cache_ways"),
            (rate(0.0, 0.0), "bandwidth"),
            (rate(-1.0, 0.0), "bandwidth"),
            (rate(f64::NAN, 0.0), "bandwidth"),
            (rate(f64::INFINITY, 0.0), "bandwidth"),
            (Request { most_slowdown: 0.0, ..good.clone() }, "most_slowdown_percent"),
            (Request { most_slowdown: 0.0009, ..good.clone() }, "most_slowdown_percent"),
            (Request { most_slowdown: 10.0, ..good.clone() }, "most_slowdown_percent"),
            (Request { most_slowdown: f64::NAN, ..good.clone() }, "most_slowdown_percent"),
            (Request { lease_s: Some(0), ..good.clone() }, "lease"),
            (Request { lease_s: Some(u64::MAX), ..good.clone() }, "lease"),
            (named(""), "name"),
            (named("a/b"), "name"),
            (named(".."), "name"),
            (named("a\nb"), "name"),
            (named(&"a".repeat(300)), "name"),
        ];
        for (request, field) in cases {
            let found = request.violations();
            assert!(found.len() == 1 && found[0].field == field, "{request:?}: {found:?}");
        }
    }
}
