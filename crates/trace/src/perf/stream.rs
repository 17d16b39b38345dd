//! The samples and events of a perf.data file, round by round.

use super::decoder::Decoder;
use super::rounds::{RoundPart, Rounds, SortedRound};
use crate::error::ReadError;
use crate::{Loss, Record, Stacks};
use perf_data::{PerfData, RecordReader};
use std::path::PathBuf;

/// Maximum number of samples of a round that are kept until it ends, where order does not matter. One second of
/// 48 CPUs at 1,000 samples per second has fewer.
const MOST_SAMPLES: usize = 1 << 16;
/// Maximum number of events of a round. perf starts a file with one for each mapping of all processes.
const MOST_EVENTS: usize = 1 << 22;

/// Samples and events of a perf.data file, in time order.
pub(crate) struct PerfRecords {
    decoded: PerfRounds,
    rounds: Rounds,
}

/// A perf.data file, decoded round by round.
pub(crate) struct PerfRounds {
    path: PathBuf,
    records: RecordReader,
    decoder: Decoder,
    ended: bool,
}

impl PerfRecords {
    pub fn new(file: &PerfData) -> Result<Self, ReadError> {
        Ok(Self { decoded: PerfRounds::new(file)?, rounds: Rounds::default() })
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
            let used_part = RoundPart { round: used, early: Vec::new() };
            let Some(part) = self.decoded.next_part(used_part, usize::MAX)? else { return Ok(None) };
            used = self.rounds.add(part.round);
        }
    }
}

impl PerfRounds {
    fn new(file: &PerfData) -> Result<Self, ReadError> {
        let path = file.path().to_owned();
        let mut decoder = Decoder::default();
        (decoder.session, decoder.spe) = (file.first_session(), file.spe()?);
        decoder.lose("bytes of records missing at the end of the file", file.cut_bytes());
        Ok(Self { path, records: file.records()?, decoder, ended: false })
    }

    pub fn stacks(&self) -> &Stacks {
        &self.decoder.stacks
    }

    pub fn lost(&self) -> &[Loss] {
        &self.decoder.lost
    }

    /// The next round, until the file ends, or the first samples of one with more than [`MOST_SAMPLES`]. Reuses the
    /// memory of `used`.
    pub fn next_or_early(&mut self, used: RoundPart) -> Result<Option<RoundPart>, ReadError> {
        self.next_part(used, MOST_SAMPLES)
    }

    fn next_part(&mut self, used: RoundPart, most_samples: usize) -> Result<Option<RoundPart>, ReadError> {
        if self.ended {
            return Ok(None);
        }
        let Self { records, decoder, path, .. } = self;
        let RoundPart { round: used, early } = used;
        let mut is_whole = false;
        let end = records.read_round(|kind, misc, body| {
            is_whole = decoder.take(kind, misc, body);
            is_whole || decoder.samples() >= most_samples || decoder.events() > MOST_EVENTS
        })?;
        if decoder.events() > MOST_EVENTS {
            let what = "it has more than 4,194,304 events, or names as large, in one round, the limit";
            return Err(ReadError::PerfData { path: path.clone(), what });
        }
        if end.is_none() && !is_whole {
            return Ok(Some(RoundPart { round: used, early: decoder.take_samples(early) }));
        }
        let part = |round| Ok(Some(RoundPart { round, early }));
        let (used, orders) = used.into_used();
        let Some(end) = end else { return part(decoder.finish_round(used).sorted(orders)) };
        self.ended = true;
        decoder.lose("compressed records that cannot be decompressed", end.is_undecompressed.into());
        decoder.lose("bytes at the end that are not a complete record", end.left_bytes);
        part(decoder.finish_last_round().sorted(orders))
    }
}
