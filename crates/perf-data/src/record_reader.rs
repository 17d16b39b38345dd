//! Reads the records of a perf.data file round by round, decompressed.

use crate::bytes::Bytes;
use crate::error::PerfDataError;
use crate::input::{Header, Input};
use crate::kind::{AUXTRACE, COMPRESSED, COMPRESSED2, TRACING_DATA};
use std::io;
use std::path::PathBuf;
use zstd_safe::{DCtx, InBuffer, OutBuffer};

/// Data are decompressed in pieces of this size, in bytes, so that a record that expands a million times takes no more
/// memory than others.
const CHUNK_BYTES: usize = 128 << 10;

/// The records of a file.
pub struct RecordReader {
    path: PathBuf,
    input: Input,
    zstd: Option<DCtx<'static>>,
    /// The last compressed record, and how much of it is consumed; `None` once all of it is decompressed.
    compressed: Option<(Vec<u8>, usize)>,
    /// Decompressed data, and how much of them is consumed.
    plain: Vec<u8>,
    used: usize,
}

/// What is missing at the end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileEnd {
    /// Whether it ends at a compressed record that cannot be decompressed.
    pub is_undecompressed: bool,
    /// Number of bytes that are not a complete record.
    pub left_bytes: u64,
}

impl RecordReader {
    pub(crate) fn new(path: PathBuf, input: Input) -> Self {
        Self { path, input, zstd: None, compressed: None, plain: Vec::new(), used: 0 }
    }

    /// Passes records to `take`, with their type, `misc` and body, until it returns true: its record ended a round.
    /// Returns the end of the file if that comes first.
    pub fn read_round(
        &mut self,
        take: impl FnMut(u32, u16, Bytes<'_>) -> bool,
    ) -> Result<Option<FileEnd>, PerfDataError> {
        self.read(take).map_err(|source| PerfDataError::Io { path: self.path.clone(), source })
    }

    fn read(&mut self, mut take: impl FnMut(u32, u16, Bytes<'_>) -> bool) -> io::Result<Option<FileEnd>> {
        loop {
            if self.take_plain(&mut take) {
                return Ok(None);
            }
            if self.compressed.is_some() {
                if self.decompress().is_none() {
                    return Ok(Some(self.end(true)));
                }
                continue;
            }
            let Some((header, record)) = self.input.next()? else { return Ok(Some(self.end(false))) };
            let body = header.body(record).unwrap_or(Bytes(&[]));
            let after = match header.kind {
                COMPRESSED | COMPRESSED2 => {
                    // Compressed data extend to the end of the record, or have a given length.
                    let mut body = body;
                    let counted = header.kind == COMPRESSED2;
                    let compressed = if counted { body.u64().and_then(|length| body.take(length)) } else { Some(body) };
                    let Some(compressed) = compressed else { return Ok(Some(self.end(true))) };
                    self.compressed = Some((compressed.0.to_vec(), 0));
                    continue;
                }
                AUXTRACE => { body }.u64().unwrap_or(0),
                TRACING_DATA => u64::from({ body }.u32().unwrap_or(0)).next_multiple_of(8),
                _ => 0,
            };
            let ends = take(header.kind, header.misc, body);
            self.input.skip(after)?;
            if ends {
                return Ok(None);
            }
        }
    }

    /// Takes decompressed records up to the end of a round. Returns whether a round ended.
    fn take_plain(&mut self, take: &mut impl FnMut(u32, u16, Bytes<'_>) -> bool) -> bool {
        while let Some(rest) = self.plain.get(self.used..) {
            let Some(header) = Header::parse(rest) else { break };
            let Some(body) = header.body(rest) else { break };
            self.used += header.size;
            if take(header.kind, header.misc, body) {
                return true;
            }
        }
        // The start of an incomplete record is kept: the next compressed record continues it.
        self.plain.drain(..self.used);
        self.used = 0;
        false
    }

    fn end(&self, is_undecompressed: bool) -> FileEnd {
        FileEnd { is_undecompressed, left_bytes: self.input.left() + self.plain.len() as u64 }
    }

    /// Decompresses the next piece. The records of a file are one stream, without a marked end.
    fn decompress(&mut self) -> Option<()> {
        let (from, consumed) = self.compressed.as_mut()?;
        if self.zstd.is_none() {
            self.zstd = DCtx::try_create();
        }
        let mut input = InBuffer::around(from);
        input.set_pos(*consumed);
        let start = self.plain.len();
        self.plain.resize(start + CHUNK_BYTES, 0);
        let mut output = OutBuffer::around(self.plain.get_mut(start..)?);
        let done = self.zstd.as_mut()?.decompress_stream(&mut output, &mut input);
        let written = output.pos();
        self.plain.truncate(start + written);
        done.ok()?;
        *consumed = input.pos();
        if written < CHUNK_BYTES && *consumed == from.len() {
            self.compressed = None;
        }
        Some(())
    }
}
