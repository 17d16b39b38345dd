//! The samples and events of a perf.data file, round by round.

use super::decoder::Decoder;
use super::rounds::{Rounds, SortedRound};
use crate::error::ReadError;
use crate::{Loss, Record, Stacks};
use perf_data::{PerfData, RecordReader};

/// Samples and events of a perf.data file, in time order.
pub(crate) struct PerfRecords {
    decoded: PerfRounds,
    rounds: Rounds,
}

/// A perf.data file, decoded round by round.
pub(crate) struct PerfRounds {
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
            let Some(round) = self.decoded.next_round(used)? else { return Ok(None) };
            used = self.rounds.add(round);
        }
    }
}

impl PerfRounds {
    fn new(file: &PerfData) -> Result<Self, ReadError> {
        let mut decoder = Decoder::default();
        (decoder.session, decoder.spe) = (file.first_session(), file.spe()?);
        decoder.lose("bytes of records missing at the end of the file", file.cut_bytes());
        Ok(Self { records: file.records()?, decoder, ended: false })
    }

    pub fn stacks(&self) -> &Stacks {
        &self.decoder.stacks
    }

    pub fn lost(&self) -> &[Loss] {
        &self.decoder.lost
    }

    /// The next round, until the file ends. Reuses the memory of `used`.
    pub fn next_round(&mut self, used: SortedRound) -> Result<Option<SortedRound>, ReadError> {
        if self.ended {
            return Ok(None);
        }
        let Self { records, decoder, .. } = self;
        let end = records.read_round(|kind, misc, body| decoder.take(kind, misc, body))?;
        let (used, orders) = used.into_used();
        let Some(end) = end else { return Ok(Some(decoder.finish_round(used).sorted(orders))) };
        self.ended = true;
        decoder.lose("compressed records that cannot be decompressed", end.is_undecompressed.into());
        decoder.lose("bytes at the end that are not a complete record", end.left_bytes);
        Ok(Some(decoder.finish_last_round().sorted(orders)))
    }
}
