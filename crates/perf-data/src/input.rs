//! The records of a perf.data file, one at a time, from a buffer that is filled as it is read.

use crate::bytes::Bytes;
use std::fs::File;
use std::io::{self, Read, Seek};

/// Holds many records, each of which has at most 64 KiB.
const BUFFER_BYTES: usize = 4 << 20;
/// Size of the header: type, `misc` and size.
const HEADER_BYTES: usize = 8;

/// A `struct perf_event_header`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: u32,
    pub misc: u16,
    /// Size of the whole record, in bytes.
    pub size: usize,
}

impl Header {
    /// Parses the header at the front. `None` if it is invalid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut from = Bytes(bytes);
        let header = Self { kind: from.u32()?, misc: from.u16()?, size: from.u16()?.into() };
        (header.size >= HEADER_BYTES).then_some(header)
    }

    /// The body of the record, given the bytes from its header on.
    pub fn body(self, bytes: &[u8]) -> Option<Bytes<'_>> {
        bytes.get(HEADER_BYTES..self.size).map(Bytes)
    }
}

/// A file, read from the start of its records.
#[derive(Debug)]
pub(crate) struct Input {
    file: File,
    /// Bytes of records that are not in the buffer yet.
    rest: u64,
    buffer: Vec<u8>,
    /// The part of the buffer that is filled and not consumed.
    start: usize,
    end: usize,
}

impl Input {
    /// Reads this many bytes from the current position of the file.
    pub fn new(file: File, bytes: u64) -> Self {
        Self { file, rest: bytes, buffer: vec![0; BUFFER_BYTES], start: 0, end: 0 }
    }

    /// Returns the buffered data, at least this many bytes unless the file ends.
    fn at_least(&mut self, bytes: usize) -> io::Result<&[u8]> {
        if self.end - self.start < bytes {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            while self.end < bytes && self.rest > 0 {
                let room = self.buffer.get_mut(self.end..).unwrap_or_default();
                let most = room.len().min(usize::try_from(self.rest).unwrap_or(usize::MAX));
                let read = self.file.read(room.get_mut(..most).unwrap_or_default())?;
                self.rest = if read == 0 { 0 } else { self.rest - read as u64 };
                self.end += read;
            }
        }
        Ok(self.buffer.get(self.start..self.end).unwrap_or_default())
    }

    /// The next record with its header. `Ok(None)` at the end, or if the data are not a record.
    pub fn next(&mut self) -> io::Result<Option<(Header, &[u8])>> {
        let Some(header) = Header::parse(self.at_least(HEADER_BYTES)?) else { return Ok(None) };
        if self.at_least(header.size)?.len() < header.size {
            return Ok(None);
        }
        let record = self.start..self.start + header.size;
        self.start = record.end;
        Ok(self.buffer.get(record).map(|record| (header, record)))
    }

    /// Skips the data that follow a record.
    pub fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let there = (self.end - self.start) as u64;
        let buffered = there.min(bytes);
        self.start += buffered as usize;
        let beyond = (bytes - buffered).min(self.rest);
        if beyond > 0 {
            self.file.seek_relative(i64::try_from(beyond).unwrap_or(i64::MAX))?;
            self.rest -= beyond;
        }
        Ok(())
    }

    /// Number of remaining bytes that are not a record.
    pub fn left(&self) -> u64 {
        (self.end - self.start) as u64 + self.rest
    }
}
