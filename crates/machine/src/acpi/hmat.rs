//! HMAT: latency and bandwidth between proximity domains, and memory-side caches (ACPI 6.5, 5.2.27; revision 1 as in
//! ACPI 6.2).

use super::AcpiError;
use super::table::{Entry, EntryHeader, Table};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Header and a reserved 4-byte word.
const FIRST_ENTRY: usize = 40;
/// ACPI counts bandwidth in MB/s.
const MEGABYTE: f64 = 1e6;

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    kind: U16,
    _reserved: U16,
    length: U32,
}

impl EntryHeader for Head {
    fn kind(&self) -> u16 {
        self.kind.get()
    }
    fn length(&self) -> usize {
        self.length.get() as usize
    }
}

/// Type 0, in revision 1 with an address range in the last two words, which later revisions reserve.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAttributes {
    _head: Head,
    flags: U16,
    _reserved: U16,
    initiator: U32,
    memory: U32,
    _reserved_2: U32,
    _base: U64,
    _length: U64,
}

/// Type 1, before its lists.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLocality {
    _head: Head,
    flags: u8,
    data_type: u8,
    _minimum_transfer: u8,
    _reserved: u8,
    initiators: U32,
    targets: U32,
    _reserved_2: U32,
    base_unit: U64,
}

/// Type 2, before its list of SMBIOS handles.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawCache {
    _head: Head,
    memory: U32,
    _reserved: U32,
    size: U64,
    attributes: U32,
    _reserved_2: U16,
    handles: U16,
}

/// The processors' domain that a domain's memory is attached to (type 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAttributes {
    /// The domain of the memory.
    pub memory: u32,
    /// The domain of the processors or device that it is attached to, if the table gives it.
    pub initiator: Option<u32>,
}

/// The quantity in a locality structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Latency of reads and writes, ns.
    AccessLatency,
    /// Latency of reads, ns.
    ReadLatency,
    /// Latency of writes, ns.
    WriteLatency,
    /// Bandwidth of reads and writes, bytes/s.
    AccessBandwidth,
    /// Bandwidth of reads, bytes/s.
    ReadBandwidth,
    /// Bandwidth of writes, bytes/s.
    WriteBandwidth,
}

/// The table's value for one pair of domains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Performance {
    /// No value (the entry is 0).
    Unknown,
    /// The initiator cannot reach the target (the entry is 0xFFFF).
    Unreachable,
    /// In the unit of its [`Quantity`].
    Known(f64),
}

/// Latency or bandwidth between domains (type 1).
#[derive(Clone, Debug, PartialEq)]
pub struct Locality {
    /// 0 for the memory itself, 1 to 3 for a level of memory-side cache.
    pub hierarchy: u8,
    /// The quantity of the values.
    pub quantity: Quantity,
    /// The accessing domains: the rows.
    pub initiators: Vec<u32>,
    /// The memory's domains: the columns.
    pub targets: Vec<u32>,
    values: Vec<Performance>,
}

impl Locality {
    /// Every pair: initiator, target and value.
    pub fn pairs(&self) -> impl Iterator<Item = (u32, u32, Performance)> {
        let pairs = self.initiators.iter().flat_map(|&from| self.targets.iter().map(move |&to| (from, to)));
        pairs.zip(&self.values).map(|((from, to), &value)| (from, to, value))
    }
}

/// A cache in front of a domain's memory (type 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySideCache {
    /// The domain whose memory is cached.
    pub memory: u32,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The number of levels of memory-side cache.
    pub levels: u8,
    /// The level of this cache, from 1.
    pub level: u8,
    /// 0 none, 1 direct mapped, 2 complex.
    pub associativity: u8,
    /// 0 none, 1 write back, 2 write through.
    pub write_policy: u8,
    /// Line size in bytes.
    pub line_bytes: u16,
}

/// The structures of the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hmat {
    /// Type 0.
    pub attributes: Vec<MemoryAttributes>,
    /// Type 1.
    pub localities: Vec<Locality>,
    /// Type 2.
    pub caches: Vec<MemorySideCache>,
}

impl Hmat {
    /// Parses and checks the table. Structures and data types that ACPI 6.5 does not define are skipped.
    pub fn parse(bytes: &[u8]) -> Result<Self, AcpiError> {
        let table = Table::open("HMAT", bytes)?;
        if table.revision == 0 {
            return Err(table.error(8, "revision", "must be 1 (ACPI 6.2) or more, is 0"));
        }
        let mut hmat = Self::default();
        for entry in table.entries::<Head>(FIRST_ENTRY) {
            let entry = entry?;
            match entry.kind {
                0 => hmat.attributes.push(attributes(&entry)?),
                1 => hmat.localities.extend(locality(&entry)?),
                2 => hmat.caches.push(cache(&entry)?),
                _ => {}
            }
        }
        Ok(hmat)
    }

    /// The table's values of a quantity for the memory itself, pair by pair.
    pub fn memory(&self, quantity: Quantity) -> impl Iterator<Item = (u32, u32, Performance)> {
        let wanted =
            self.localities.iter().filter(move |locality| (locality.hierarchy, locality.quantity) == (0, quantity));
        wanted.flat_map(Locality::pairs)
    }
}

fn attributes(entry: &Entry) -> Result<MemoryAttributes, AcpiError> {
    let raw: &RawAttributes = entry.read("memory proximity domain attributes")?;
    let initiator = (raw.flags.get() & 1 != 0).then(|| raw.initiator.get());
    Ok(MemoryAttributes { memory: raw.memory.get(), initiator })
}

fn locality(entry: &Entry) -> Result<Option<Locality>, AcpiError> {
    let raw: &RawLocality = entry.read("system locality latency and bandwidth")?;
    let quantity = match raw.data_type {
        0 => Quantity::AccessLatency,
        1 => Quantity::ReadLatency,
        2 => Quantity::WriteLatency,
        3 => Quantity::AccessBandwidth,
        4 => Quantity::ReadBandwidth,
        5 => Quantity::WriteBandwidth,
        _ => return Ok(None),
    };
    let (rows, columns) = (raw.initiators.get() as usize, raw.targets.get() as usize);
    let initiators_at = entry.offset + size_of::<RawLocality>();
    let initiators: &[U32] = entry.table.list(initiators_at, rows, "initiator list")?;
    let targets_at = initiators_at + size_of_val(initiators);
    let targets: &[U32] = entry.table.list(targets_at, columns, "target list")?;
    let values_at = targets_at + size_of_val(targets);
    // Both factors are 32 bits wide and were just read as lists, so the product fits.
    let values: &[U16] = entry.table.list(values_at, rows.saturating_mul(columns), "latency or bandwidth entries")?;
    let unit = unit(entry.table.revision, quantity) * raw.base_unit.get() as f64;
    if unit == 0.0 && !values.is_empty() {
        return Err(entry.table.error(entry.offset + 24, "entry base unit", "must not be 0"));
    }
    let performance = |value: &U16| match value.get() {
        0 => Performance::Unknown,
        0xffff => Performance::Unreachable,
        value => Performance::Known(f64::from(value) * unit),
    };
    Ok(Some(Locality {
        hierarchy: raw.flags & 0xf,
        quantity,
        initiators: initiators.iter().map(|domain| domain.get()).collect(),
        targets: targets.iter().map(|domain| domain.get()).collect(),
        values: values.iter().map(performance).collect(),
    }))
}

/// The value of an entry of 1 with a base unit of 1, in ns or bytes/s. From revision 2 on, ACPI uses ps and MB/s. In
/// revision 1 the product is ten times the ns or MB/s, as Linux reads it (`hmat_normalize` in
/// `drivers/acpi/numa/hmat.c`).
fn unit(revision: u8, quantity: Quantity) -> f64 {
    match (revision, quantity) {
        (1, Quantity::AccessLatency | Quantity::ReadLatency | Quantity::WriteLatency) => 0.1,
        (1, _) => MEGABYTE / 10.0,
        (_, Quantity::AccessLatency | Quantity::ReadLatency | Quantity::WriteLatency) => 0.001,
        (_, _) => MEGABYTE,
    }
}

fn cache(entry: &Entry) -> Result<MemorySideCache, AcpiError> {
    let raw: &RawCache = entry.read("memory-side cache")?;
    let handles_at = entry.offset + size_of::<RawCache>();
    entry.table.list::<U16>(handles_at, raw.handles.get().into(), "SMBIOS handles")?;
    let bits = raw.attributes.get();
    let field = |shift: u32| (bits >> shift & 0xf) as u8;
    Ok(MemorySideCache {
        memory: raw.memory.get(),
        size_bytes: raw.size.get(),
        levels: field(0),
        level: field(4),
        associativity: field(8),
        write_policy: field(12),
        line_bytes: (bits >> 16) as u16,
    })
}
