//! Common parts of all firmware tables: the header with its length and checksum, and bounds-checked reads.

use super::AcpiError;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The common header of all tables (ACPI 6.5, 5.2.6), 36 bytes.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    signature: [u8; 4],
    length: U32,
    revision: u8,
    _checksum: u8,
    oem_id: [u8; 6],
    oem_table_id: [u8; 8],
    _oem_revision: U32,
    _creator_id: [u8; 4],
    _creator_revision: U32,
}

/// Offsets of the length and the checksum in the header.
const LENGTH_AT: usize = 4;
const CHECKSUM_AT: usize = 9;

/// The start of one structure of a table's body.
pub(super) trait EntryHeader: FromBytes + KnownLayout + Immutable + Unaligned {
    /// The structure's type.
    fn kind(&self) -> u16;
    /// The structure's length including this header, bytes.
    fn length(&self) -> usize;
}

/// The bytes of a table, or of a table up to the end of one of its entries. Offsets always count from the table's
/// start, so that an error names the same byte as a hex dump.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    name: &'static str,
    bytes: &'a [u8],
    /// The table's revision.
    pub revision: u8,
}

/// One entry of a table.
pub(super) struct Entry<'a> {
    /// Its type.
    pub kind: u16,
    /// Its offset.
    pub offset: usize,
    /// The table up to the entry's end: reading past the entry is an error.
    pub table: Table<'a>,
}

impl<'a> Table<'a> {
    /// Checks the header: signature, length and checksum. Bytes after the table's own length are ignored.
    pub fn open(name: &'static str, bytes: &'a [u8]) -> Result<Self, AcpiError> {
        let all = Self { name, bytes, revision: 0 };
        let header: &Header = all.read(0, "header")?;
        if header.signature != name.as_bytes() {
            let found = header.signature.escape_ascii();
            return Err(all.error(0, "signature", format!("must be `{name}`, is `{found}`")));
        }
        let length = header.length.get() as usize;
        let Some(own) = bytes.get(..length).filter(|own| own.len() >= size_of::<Header>()) else {
            let rule = format!("must be from 36 to the {} bytes there are, is {length}", bytes.len());
            return Err(all.error(LENGTH_AT, "length", rule));
        };
        let sum = own.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        if sum != 0 {
            return Err(all.error(
                CHECKSUM_AT,
                "checksum",
                format!("all bytes must add up to 0, they add up to {sum}"),
            ));
        }
        Ok(Self { name, bytes: own, revision: header.revision })
    }

    /// The maker of the table: the OEM and table ID, printable.
    pub fn maker(&self) -> String {
        let text = self.read::<Header>(0, "header").map(|header| {
            let id = [&header.oem_id[..], b" ", &header.oem_table_id[..]].concat();
            id.into_iter().map(|byte| if byte.is_ascii_graphic() { byte as char } else { ' ' }).collect::<String>()
        });
        text.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// An error for a broken rule of this table.
    pub fn error(&self, offset: usize, field: &'static str, rule: impl Into<String>) -> AcpiError {
        AcpiError::Table { table: self.name, offset, field, rule: rule.into() }
    }

    /// The plain data at an offset.
    pub fn read<T>(&self, offset: usize, field: &'static str) -> Result<&'a T, AcpiError>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let read = self.bytes.get(offset..).and_then(|rest| T::ref_from_prefix(rest).ok());
        read.map(|(data, _)| data).ok_or_else(|| self.too_short(offset, field, size_of::<T>()))
    }

    /// `count` items of plain data, starting at an offset.
    pub fn list<T>(&self, offset: usize, count: usize, field: &'static str) -> Result<&'a [T], AcpiError>
    where
        T: FromBytes + Immutable + Unaligned,
    {
        let read = self.bytes.get(offset..).and_then(|rest| <[T]>::ref_from_prefix_with_elems(rest, count).ok());
        read.map(|(data, _)| data).ok_or_else(|| self.too_short(offset, field, count.saturating_mul(size_of::<T>())))
    }

    fn too_short(&self, offset: usize, field: &'static str, size: usize) -> AcpiError {
        self.error(
            offset,
            field,
            format!("takes {size} bytes, but what it is part of ends at byte {}", self.bytes.len()),
        )
    }

    /// The entries from an offset to the table's end. The first invalid one ends the iteration with its error.
    pub fn entries<H: EntryHeader>(self, first: usize) -> impl Iterator<Item = Result<Entry<'a>, AcpiError>> {
        let mut at = first;
        std::iter::from_fn(move || {
            (at < self.bytes.len()).then(|| {
                let entry = self.entry::<H>(at);
                at = entry.as_ref().map_or(self.bytes.len(), |entry| entry.table.bytes.len());
                entry
            })
        })
    }

    fn entry<H: EntryHeader>(self, offset: usize) -> Result<Entry<'a>, AcpiError> {
        let header: &H = self.read(offset, "entry header")?;
        let length = header.length();
        let end = offset.checked_add(length).filter(|_| length >= size_of::<H>());
        let Some(bytes) = end.and_then(|end| self.bytes.get(..end)) else {
            let left = self.bytes.len() - offset;
            let rule = format!("must be from {} to the {left} bytes left of the table, is {length}", size_of::<H>());
            return Err(self.error(offset, "entry length", rule));
        };
        Ok(Entry { kind: header.kind(), offset, table: Table { bytes, ..self } })
    }
}

impl<'a> Entry<'a> {
    /// The whole entry as plain data.
    pub fn read<T>(&self, field: &'static str) -> Result<&'a T, AcpiError>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        self.table.read(self.offset, field)
    }
}
