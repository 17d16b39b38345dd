//! Decodes the records of a perf.data file round by round, and into samples and events.

use super::bytes::Bytes;
use super::decoder::Decoder;
use super::input::{Header, Input};
use super::rounds::{Rounds, SortedRound};
use crate::error::ReadError;
use crate::{Loss, Record, Stacks};
use std::io;
use std::path::PathBuf;
use zstd_safe::{DCtx, InBuffer, OutBuffer};

// From the kernel's tools/lib/perf/include/perf/event.h.
pub(super) const TRACING_DATA: u32 = 66;
pub(super) const AUXTRACE: u32 = 71;
const COMPRESSED: u32 = 81;
const COMPRESSED2: u32 = 83;
/// Records that describe the file: attributes, features and the like.
const HEADERS: [u32; 6] = [64, 65, 67, 69, 79, 80];

/// Maximum size of a decompressed record: perf compresses the content of its buffers.
const MAX_PLAIN_BYTES: usize = 1 << 30;
const CHUNK_BYTES: usize = 128 << 10;

/// Samples and events of a perf.data file, in time order.
pub(crate) struct PerfRecords {
    decoded: PerfRounds,
    rounds: Rounds,
}

/// A perf.data file, decoded round by round.
pub(crate) struct PerfRounds {
    path: PathBuf,
    input: Input,
    decoder: Decoder,
    zstd: Option<DCtx<'static>>,
    /// Decompressed data, and how much of them is consumed.
    plain: Vec<u8>,
    used: usize,
    ended: bool,
}

impl PerfRecords {
    pub fn new(decoded: PerfRounds) -> Self {
        Self { decoded, rounds: Rounds::default() }
    }

    pub fn decoded(&self) -> &PerfRounds {
        &self.decoded
    }

    /// The decoder of the file, and the decoded rounds, for use in one thread each.
    pub fn parts(&mut self) -> (&mut PerfRounds, &mut Rounds) {
        (&mut self.decoded, &mut self.rounds)
    }

    /// The next record.
    pub fn next_record(&mut self) -> Result<Option<Record>, ReadError> {
        let mut used = SortedRound::default();
        loop {
            if let Some(record) = self.rounds.next() {
                return Ok(Some(record));
            }
            let Some(round) = self.decoded.next_round(used)? else { return Ok(None) };
            used = self.rounds.add(round);
        }
    }
}

impl PerfRounds {
    pub fn new(path: PathBuf, input: Input, decoder: Decoder) -> Self {
        Self { path, input, decoder, zstd: None, plain: Vec::new(), used: 0, ended: false }
    }

    pub fn stacks(&self) -> &Stacks {
        &self.decoder.stacks
    }

    pub fn lost(&self) -> &[Loss] {
        &self.decoder.lost
    }

    /// Decodes the records before the first one from the kernel.
    pub fn head(mut self) -> Result<Decoder, ReadError> {
        let failed = |source| ReadError::Io { path: self.path.clone(), source };
        while let Some((header, record)) = self.input.next().map_err(failed)? {
            if !HEADERS.contains(&header.kind) {
                break;
            }
            self.decoder.take(header.kind, header.misc, header.body(record).unwrap_or(Bytes(&[])));
        }
        Ok(self.decoder)
    }

    /// The next round, until the file ends. Reuses the memory of `used`.
    pub fn next_round(&mut self, used: SortedRound) -> Result<Option<SortedRound>, ReadError> {
        if self.ended {
            return Ok(None);
        }
        self.read_round().map_err(|source| ReadError::Io { path: self.path.clone(), source })?;
        let (used, orders) = used.into_used();
        let round = if self.ended { self.decoder.finish() } else { self.decoder.finish_round(used) };
        Ok(Some(round.sorted(orders)))
    }

    /// Reads to the end of a round, or of the file.
    fn read_round(&mut self) -> io::Result<()> {
        if self.take_plain() {
            return Ok(());
        }
        loop {
            let Some((header, record)) = self.input.next()? else {
                self.end();
                return Ok(());
            };
            let body = header.body(record).unwrap_or(Bytes(&[]));
            match header.kind {
                COMPRESSED | COMPRESSED2 => {
                    // Compressed data extend to the end of the record, or have a given length.
                    let mut body = body;
                    let counted = header.kind == COMPRESSED2;
                    let compressed = if counted { body.u64().and_then(|length| body.take(length)) } else { Some(body) };
                    let done = compressed.and_then(|from| decompress(&mut self.zstd, from.0, &mut self.plain));
                    if done.is_none() {
                        self.decoder.lose("compressed records that cannot be decompressed", 1);
                        self.end();
                        return Ok(());
                    }
                    if self.take_plain() {
                        return Ok(());
                    }
                }
                AUXTRACE => {
                    let bytes = { body }.u64().unwrap_or(0);
                    if self.decoder.spe.is_none() {
                        self.decoder.lose("bytes of processors' own trace formats, which are not read", bytes);
                    }
                    self.input.skip(bytes)?;
                }
                TRACING_DATA => {
                    let bytes = { body }.u32().unwrap_or(0);
                    self.input.skip(u64::from(bytes).next_multiple_of(8))?;
                }
                kind if self.decoder.take(kind, header.misc, body) => return Ok(()),
                _ => {}
            }
        }
    }

    /// Takes decompressed records up to the end of a round. Returns whether a round ended.
    fn take_plain(&mut self) -> bool {
        while let Some(rest) = self.plain.get(self.used..) {
            let Some(header) = Header::parse(rest) else { break };
            let Some(body) = header.body(rest) else { break };
            self.used += header.size;
            if self.decoder.take(header.kind, header.misc, body) {
                return true;
            }
        }
        // The start of an incomplete record is kept: the next compressed record continues it.
        self.plain.drain(..self.used);
        self.used = 0;
        false
    }

    fn end(&mut self) {
        let left = self.input.left() + self.plain.len() as u64;
        if left > 0 {
            self.decoder.lose("bytes at the end that are not a complete record", left);
        }
        self.ended = true;
    }
}

/// Appends decompressed data. The records of a file are one stream, without a marked end.
fn decompress(zstd: &mut Option<DCtx<'static>>, from: &[u8], to: &mut Vec<u8>) -> Option<()> {
    if zstd.is_none() {
        *zstd = DCtx::try_create();
    }
    let zstd = zstd.as_mut()?;
    let mut input = InBuffer::around(from);
    loop {
        let start = to.len();
        to.resize(start + CHUNK_BYTES, 0);
        let mut output = OutBuffer::around(to.get_mut(start..)?);
        let done = zstd.decompress_stream(&mut output, &mut input);
        let written = output.pos();
        to.truncate(start + written);
        done.ok()?;
        if written < CHUNK_BYTES && input.pos() == from.len() {
            return Some(());
        }
        if to.len() > MAX_PLAIN_BYTES {
            return None;
        }
    }
}
