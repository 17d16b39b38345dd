//! A machine as described by its firmware: the ACPI tables SRAT, SLIT and HMAT.
//!
//! Firmware tables have nodes, memory, distances and, in the HMAT, latency and bandwidth. They do not have cores,
//! packages and caches.

mod hmat;
mod slit;
mod srat;
mod table;
#[cfg(test)]
mod tests;

pub use hmat::{Hmat, Locality, MemoryAttributes, MemorySideCache, Performance, Quantity};
pub use slit::Slit;
pub use srat::{MemoryRange, Processor, ProcessorId, Srat};

use crate::bounded;
use crate::chain;
use crate::description::{Distances, Latency, Machine, Node};
use crate::ids::{CpuId, NodeId};
use crate::numbers::{BANDWIDTH, Checked};
use crate::pairs::LatencyPairs;
use crate::set::CpuSet;
use crate::source::Source;
use crate::violation::Violations;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Larger than any table: the HMAT of 1,024 nodes with all six data types has 13 MB.
const MAX_TABLE_BYTES: u64 = 64 << 20;

/// Why firmware tables do not describe a valid machine.
#[derive(Debug, thiserror::Error)]
pub enum AcpiError {
    /// A table breaks a rule of the ACPI specification.
    #[error("{table}, byte {offset} ({offset:#x}): {field}: {rule}")]
    Table {
        /// The table.
        table: &'static str,
        /// The offset in the table.
        offset: usize,
        /// The field.
        field: &'static str,
        /// The rule, and the actual value.
        rule: String,
    },
    /// A table cannot be read.
    #[error("cannot read the table {}: {error}{}", path.display(), advice(error))]
    Read {
        /// Its file.
        path: PathBuf,
        /// The system's error, which the advice follows.
        error: io::Error,
    },
    /// Each table is valid, but together they do not describe a valid machine.
    #[error("the firmware tables do not describe a valid machine")]
    Machine(#[from] Violations),
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => "; firmware tables are readable by root only: run as root, or copy them as root",
        ErrorKind::NotFound => "; the firmware of a machine with one node (and of most virtual machines) has no SRAT",
        _ => "",
    }
}

impl Machine {
    /// The machine that firmware tables describe.
    ///
    /// Nodes are numbered as in Linux ([`Srat::nodes`]), CPUs in the order of the SRAT's processors. A node's memory is
    /// what is present at boot: hot-pluggable and persistent ranges do not count, and a node that has nothing else is
    /// left out. A node's bandwidth is the largest that the HMAT gives for any initiator. Latencies are only set if the
    /// HMAT has all of them. Latencies and bandwidths that no machine has do not count.
    pub fn from_acpi(srat: &[u8], slit: Option<&[u8]>, hmat: Option<&[u8]>) -> Result<Self, AcpiError> {
        Ok(from_tables(srat, slit, hmat)?.0)
    }

    /// The machine described by the tables in a directory, in files named `SRAT`, `SLIT` and `HMAT` as in
    /// `/sys/firmware/acpi/tables`. The last two may be missing. One of them that breaks its rules is left out with a
    /// warning, as Linux leaves it out. So are latencies and bandwidths that no machine has.
    pub fn from_acpi_dir(folder: &Path) -> Result<(Self, Vec<String>), AcpiError> {
        let optional = |name| match read(&folder.join(name)) {
            Err(AcpiError::Read { error, .. }) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        };
        let srat = read(&folder.join("SRAT"))?;
        let (slit, hmat) = (optional("SLIT")?, optional("HMAT")?);
        let wrong = [
            ("SLIT", slit.as_deref().and_then(|slit| Slit::parse(slit).err())),
            ("HMAT", hmat.as_deref().and_then(|hmat| Hmat::parse(hmat).err())),
        ];
        let kept = |table: Option<Vec<u8>>, wrong: &Option<AcpiError>| table.filter(|_| wrong.is_none());
        let (machine, odd) =
            from_tables(&srat, kept(slit, &wrong[0].1).as_deref(), kept(hmat, &wrong[1].1).as_deref())?;
        let wrong = wrong.into_iter().filter_map(|(name, wrong)| Some((name, wrong?)));
        let warnings = wrong.map(|(name, wrong)| format!("the table {name} is left out: {}", chain(&wrong)));
        Ok((machine, warnings.chain(odd).collect()))
    }
}

/// The machine that the tables describe, and warnings about numbers that were left out.
fn from_tables(srat: &[u8], slit: Option<&[u8]>, hmat: Option<&[u8]>) -> Result<(Machine, Vec<String>), AcpiError> {
    let srat = Srat::parse(srat)?;
    let slit = slit.map(Slit::parse).transpose()?;
    let hmat = hmat.map(Hmat::parse).transpose()?;
    let mut warnings = Vec::new();
    let machine = assemble(&srat, slit.as_ref(), hmat.as_ref(), &mut warnings);
    let violations = machine.validate();
    if violations.is_empty() { Ok((machine, warnings)) } else { Err(Violations(violations).into()) }
}

fn read(path: &Path) -> Result<Vec<u8>, AcpiError> {
    bounded::bytes(path, MAX_TABLE_BYTES).map_err(|error| AcpiError::Read { path: path.to_owned(), error })
}

fn assemble(srat: &Srat, slit: Option<&Slit>, hmat: Option<&Hmat>, warnings: &mut Vec<String>) -> Machine {
    let mut cpus: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for (number, processor) in (0..).zip(&srat.processors) {
        cpus.entry(processor.domain).or_default().insert(CpuId(number));
    }
    let memory = srat.memory_bytes();
    let initiators: BTreeSet<u32> = srat.initiators.iter().copied().collect();
    let bandwidth = hmat.map(|hmat| bandwidth(hmat, warnings)).unwrap_or_default();
    let mut nodes: Vec<(u32, Node)> = srat
        .nodes
        .iter()
        .filter(|(domain, _)| cpus.contains_key(domain) || memory.contains_key(domain) || initiators.contains(domain))
        .map(|(&domain, &id)| (domain, node(id, cpus.get(&domain), memory.get(&domain), bandwidth.get(&domain))))
        .collect();
    nodes.sort_by_key(|(_, node)| node.id);
    let (domains, nodes): (Vec<u32>, Vec<Node>) = nodes.into_iter().unzip();

    let distances = slit.map(|slit| Distances {
        matrix: domains.iter().map(|&from| domains.iter().map(|&to| slit.distance(from, to)).collect()).collect(),
        source: Some(Source::All("slit".into())),
    });
    let latency = hmat.and_then(|hmat| latency(hmat, &domains, &nodes, warnings));
    let tables = [("srat", true), ("slit", slit.is_some()), ("hmat", hmat.is_some())];
    let sources = tables.into_iter().filter(|(_, given)| *given);
    let cite = |table: &str| format!("firmware table {} of {}", table.to_uppercase(), srat.maker);
    Machine {
        name: "acpi".into(),
        description: format!("as the firmware tables of {} describe it", srat.maker),
        sources: sources.map(|(table, _)| (table.to_owned(), cite(table))).collect(),
        smt_cores: Vec::new(),
        core: None,
        coherence: None,
        control: None,
        disk: None,
        tlbs: Vec::new(),
        latency,
        distances,
        packages: Vec::new(),
        nodes,
        caches: Vec::new(),
        links: Vec::new(),
        routes: Vec::new(),
    }
}

fn node(id: NodeId, cpus: Option<&CpuSet>, memory: Option<&u64>, bandwidth: Option<&f64>) -> Node {
    let by_field = [("memory_bytes", Some("srat")), ("bandwidth_bytes_per_s", bandwidth.map(|_| "hmat"))];
    let by_field = by_field.into_iter().filter_map(|(field, table)| Some((field.to_owned(), table?.to_owned())));
    Node {
        id,
        cpus: cpus.cloned().unwrap_or_default(),
        memory_bytes: memory.copied().unwrap_or(0),
        bandwidth_bytes_per_s: bandwidth.copied(),
        write_cost: None,
        source: Some(Source::ByField(by_field.collect())),
    }
}

/// The largest bandwidth of each domain's memory, bytes/s; that of reads if the table distinguishes them.
fn bandwidth(hmat: &Hmat, warnings: &mut Vec<String>) -> BTreeMap<u32, f64> {
    let mut largest = BTreeMap::new();
    let mut checked = Checked::new("bandwidths", BANDWIDTH);
    for quantity in [Quantity::ReadBandwidth, Quantity::AccessBandwidth] {
        for (_, to, performance) in hmat.memory(quantity) {
            if let Performance::Known(bandwidth) = performance
                && let Some(bandwidth) = checked.take(bandwidth)
            {
                let known = largest.entry(to).or_insert(bandwidth);
                *known = bandwidth.max(*known);
            }
        }
    }
    warnings.extend(checked.warning());
    largest
}

/// The latency of each pair of nodes; that of reads if the table distinguishes them.
fn latency(hmat: &Hmat, domains: &[u32], nodes: &[Node], warnings: &mut Vec<String>) -> Option<Latency> {
    let index: BTreeMap<u32, usize> = domains.iter().enumerate().map(|(index, &domain)| (domain, index)).collect();
    let mut pairs = LatencyPairs::new(nodes.len());
    for quantity in [Quantity::AccessLatency, Quantity::ReadLatency] {
        for (from, to, performance) in hmat.memory(quantity) {
            if let (Performance::Known(latency_ns), Some(&from), Some(&to)) =
                (performance, index.get(&from), index.get(&to))
            {
                pairs.set(from, to, latency_ns);
            }
        }
    }
    warnings.extend(pairs.warning());
    pairs.into_latency(nodes, Some(Source::All("hmat".into())))
}
