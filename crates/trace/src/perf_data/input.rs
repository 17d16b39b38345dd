//! The records of a perf.data file, one after the other, from a buffer that is filled as it is read.

use super::bytes::Bytes;
use std::fs::File;
use std::io::{self, Read, Seek};

/// Room for many records, each of which has at most 64 KiB.
const BUFFER_BYTES: usize = 4 << 20;
/// A record's type, what it says of itself, and its size.
const HEADER_BYTES: usize = 8;

/// What `struct perf_event_header` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: u32,
    pub misc: u16,
    /// Of the whole record, bytes.
    pub size: usize,
}

impl Header {
    /// The header at the front, if it can be one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut from = Bytes(bytes);
        let header = Self { kind: from.u32()?, misc: from.u16()?, size: from.u16()?.into() };
        (header.size >= HEADER_BYTES).then_some(header)
    }

    /// The record's body, from where the header is.
    pub fn body(self, bytes: &[u8]) -> Option<Bytes<'_>> {
        bytes.get(HEADER_BYTES..self.size).map(Bytes)
    }
}

/// A file, read from where its records begin.
#[derive(Debug)]
pub(crate) struct Input {
    file: File,
    /// How much of the records is not in the buffer yet, bytes.
    rest: u64,
    buffer: Vec<u8>,
    /// What of the buffer is filled and not used yet.
    start: usize,
    end: usize,
}

impl Input {
    /// Reads so many bytes from where the file is.
    pub fn new(file: File, bytes: u64) -> Self {
        Self { file, rest: bytes, buffer: vec![0; BUFFER_BYTES], start: 0, end: 0 }
    }

    /// What is there, at least so many bytes unless the file ends.
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

    /// The next record with its header. `Ok(None)` at the end, and where no record follows.
    pub fn next(&mut self) -> io::Result<Option<(Header, &[u8])>> {
        let Some(header) = Header::parse(self.at_least(HEADER_BYTES)?) else { return Ok(None) };
        if self.at_least(header.size)?.len() < header.size {
            return Ok(None);
        }
        let record = self.start..self.start + header.size;
        self.start = record.end;
        Ok(self.buffer.get(record).map(|record| (header, record)))
    }

    /// Leaves out what follows a record.
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

    /// How much there is that no record was made of, bytes.
    pub fn left(&self) -> u64 {
        (self.end - self.start) as u64 + self.rest
    }
}
