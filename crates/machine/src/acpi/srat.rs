//! SRAT: the proximity domain of each processor and memory range (ACPI 6.5, 5.2.16).

use super::AcpiError;
use super::table::{Entry, EntryHeader, Table};
use crate::ids::NodeId;
use crate::set::MAX_ID;
use crate::validate::MAX_NODES;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Header, a reserved 4-byte word, a reserved 8-byte word.
const FIRST_ENTRY: usize = 48;
const ENABLED: u32 = 1;
const HOT_PLUGGABLE: u32 = 1 << 1;
const NON_VOLATILE: u32 = 1 << 2;

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    kind: u8,
    length: u8,
}

impl EntryHeader for Head {
    fn kind(&self) -> u16 {
        self.kind.into()
    }
    fn length(&self) -> usize {
        self.length.into()
    }
}

/// Type 0.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ApicAffinity {
    _head: Head,
    domain_low: u8,
    apic_id: u8,
    flags: U32,
    _sapic_eid: u8,
    domain_high: [u8; 3],
    _clock_domain: U32,
}

/// Type 1.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct MemoryAffinity {
    _head: Head,
    domain: U32,
    _reserved: U16,
    base: U64,
    length: U64,
    _reserved_2: U32,
    flags: U32,
    _reserved_3: U64,
}

/// Type 2.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct X2ApicAffinity {
    _head: Head,
    _reserved: U16,
    domain: U32,
    x2apic_id: U32,
    flags: U32,
    _clock_domain: U32,
    _reserved_2: U32,
}

/// Type 3.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct GiccAffinity {
    _head: Head,
    domain: U32,
    processor_uid: U32,
    flags: U32,
    _clock_domain: U32,
}

/// Type 5.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct GenericInitiatorAffinity {
    _head: Head,
    _reserved: u8,
    _device_handle_type: u8,
    domain: U32,
    _device_handle: [u8; 16],
    flags: U32,
    _reserved_2: U32,
}

/// The firmware's identifier of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessorId {
    /// Its APIC or x2APIC ID (x86).
    Apic(u32),
    /// Its ACPI processor UID (Arm).
    Uid(u32),
}

/// One enabled processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Its identifier.
    pub id: ProcessorId,
    /// Its proximity domain.
    pub domain: u32,
}

/// One enabled range of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// Its proximity domain.
    pub domain: u32,
    /// Physical address of its first byte.
    pub base: u64,
    /// Length in bytes.
    pub length: u64,
    /// Memory can be added here later; the table does not say whether any is present now.
    pub hot_pluggable: bool,
    /// Persistent memory, which Linux does not count as a node's memory.
    pub non_volatile: bool,
    offset: usize,
}

/// The enabled entries of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Srat {
    /// Processors in the order of the table; Linux's CPU numbers follow the order of the MADT, which firmware keeps the
    /// same.
    pub processors: Vec<Processor>,
    /// Memory in the order of the table.
    pub memory: Vec<MemoryRange>,
    /// Domains with a device that accesses memory.
    pub initiators: Vec<u32>,
    /// The node of each proximity domain, numbered as in Linux: in the order in which the table first names them,
    /// processors and generic initiators before memory.
    pub nodes: BTreeMap<u32, NodeId>,
    /// The OEM and table ID.
    pub maker: String,
}

impl Srat {
    /// Parses and checks the table. Disabled entries and entries of unknown types are skipped.
    pub fn parse(bytes: &[u8]) -> Result<Self, AcpiError> {
        let table = Table::open("SRAT", bytes)?;
        let mut srat = Self { maker: table.maker(), ..Self::default() };
        let mut domain_of = BTreeMap::new();
        for entry in table.entries::<Head>(FIRST_ENTRY) {
            srat.take(&entry?, &mut domain_of)?;
        }
        for range in 0..srat.memory.len() {
            let MemoryRange { domain, offset, .. } = srat.memory[range];
            srat.number(&table, offset, domain)?;
        }
        srat.check_overlap(&table)?;
        if srat.nodes.is_empty() {
            return Err(table.error(FIRST_ENTRY, "entries", "none is enabled: the firmware describes no NUMA node"));
        }
        Ok(srat)
    }

    fn take(&mut self, entry: &Entry, domain_of: &mut BTreeMap<ProcessorId, u32>) -> Result<(), AcpiError> {
        // Before revision 2 a domain had 8 bits and the rest of the field was reserved; Linux masks it likewise.
        let wide = entry.table.revision >= 2;
        match entry.kind {
            0 => {
                let apic: &ApicAffinity = entry.read("processor affinity")?;
                let [high_0, high_1, high_2] = if wide { apic.domain_high } else { [0; 3] };
                let domain = u32::from_le_bytes([apic.domain_low, high_0, high_1, high_2]);
                self.take_processor(entry, apic.flags, ProcessorId::Apic(apic.apic_id.into()), domain, domain_of)
            }
            1 => self.take_memory(entry, wide),
            2 => {
                let apic: &X2ApicAffinity = entry.read("x2APIC affinity")?;
                let id = ProcessorId::Apic(apic.x2apic_id.get());
                self.take_processor(entry, apic.flags, id, apic.domain.get(), domain_of)
            }
            3 => {
                let gicc: &GiccAffinity = entry.read("GICC affinity")?;
                let id = ProcessorId::Uid(gicc.processor_uid.get());
                self.take_processor(entry, gicc.flags, id, gicc.domain.get(), domain_of)
            }
            5 => {
                let initiator: &GenericInitiatorAffinity = entry.read("generic initiator affinity")?;
                if initiator.flags.get() & ENABLED != 0 {
                    self.number(&entry.table, entry.offset, initiator.domain.get())?;
                    self.initiators.push(initiator.domain.get());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn take_processor(
        &mut self,
        entry: &Entry,
        flags: U32,
        id: ProcessorId,
        domain: u32,
        domain_of: &mut BTreeMap<ProcessorId, u32>,
    ) -> Result<(), AcpiError> {
        if flags.get() & ENABLED == 0 {
            return Ok(());
        }
        match domain_of.entry(id) {
            Slot::Occupied(before) if *before.get() != domain => {
                let rule = format!("{id:?} is in domain {} already, here in {domain}", before.get());
                return Err(entry.table.error(entry.offset, "processor id", rule));
            }
            Slot::Occupied(_) => return Ok(()),
            Slot::Vacant(slot) => slot.insert(domain),
        };
        if self.processors.len() >= MAX_ID as usize {
            return Err(entry.table.error(entry.offset, "processors", format!("there are more than {MAX_ID}")));
        }
        self.number(&entry.table, entry.offset, domain)?;
        self.processors.push(Processor { id, domain });
        Ok(())
    }

    fn take_memory(&mut self, entry: &Entry, wide: bool) -> Result<(), AcpiError> {
        let memory: &MemoryAffinity = entry.read("memory affinity")?;
        let flags = memory.flags.get();
        if flags & ENABLED == 0 {
            return Ok(());
        }
        let (base, length) = (memory.base.get(), memory.length.get());
        if base.checked_add(length).is_none() {
            let rule = format!("{length:#x} bytes from {base:#x} on end beyond the last address");
            return Err(entry.table.error(entry.offset, "memory range", rule));
        }
        self.memory.push(MemoryRange {
            domain: memory.domain.get() & if wide { u32::MAX } else { 0xff },
            base,
            length,
            hot_pluggable: flags & HOT_PLUGGABLE != 0,
            non_volatile: flags & NON_VOLATILE != 0,
            offset: entry.offset,
        });
        Ok(())
    }

    fn number(&mut self, table: &Table, offset: usize, domain: u32) -> Result<(), AcpiError> {
        let next = self.nodes.len();
        if !self.nodes.contains_key(&domain) && next >= MAX_NODES {
            let rule = format!("{domain} would be one node more than the {MAX_NODES} a machine may have");
            return Err(table.error(offset, "proximity domain", rule));
        }
        self.nodes.entry(domain).or_insert(NodeId(next as u32));
        Ok(())
    }

    /// The memory of each domain that is present at boot, bytes; ranges of one domain may overlap.
    pub fn memory_bytes(&self) -> BTreeMap<u32, u64> {
        let mut bytes = BTreeMap::new();
        let mut end = 0;
        for range in by_address(&self.memory).filter(|range| !range.hot_pluggable && !range.non_volatile) {
            let range_end = range.base + range.length;
            *bytes.entry(range.domain).or_default() += range_end.saturating_sub(range.base.max(end));
            end = range_end.max(end);
        }
        bytes
    }

    /// Linux rejects the whole table if ranges of two domains overlap, so such a table is invalid here too.
    fn check_overlap(&self, table: &Table) -> Result<(), AcpiError> {
        let mut last: Option<&MemoryRange> = None;
        for range in by_address(&self.memory) {
            match last.filter(|last| last.base + last.length > range.base) {
                Some(other) if other.domain != range.domain => {
                    let at = other.offset;
                    let rule = format!(
                        "overlaps that of domain {} at byte {at} from address {:#x} on",
                        other.domain, range.base
                    );
                    return Err(table.error(range.offset, "memory range", rule));
                }
                Some(other) if other.base + other.length > range.base + range.length => {}
                _ => last = Some(range),
            }
        }
        Ok(())
    }
}

/// The non-empty ranges, in ascending order of address.
fn by_address(ranges: &[MemoryRange]) -> impl Iterator<Item = &MemoryRange> {
    let mut ranges: Vec<&MemoryRange> = ranges.iter().filter(|range| range.length > 0).collect();
    ranges.sort_by_key(|range| range.base);
    ranges.into_iter()
}
