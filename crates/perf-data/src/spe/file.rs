//! The data of Arm's SPE in a perf.data file, which lie between its records.

use super::queues::{Buffer, Held, SpeQueues};
use crate::bytes::Bytes;
use crate::input::Input;
use crate::kind::{AUXTRACE, AUXTRACE_INFO, TRACING_DATA};
use machine::CpuId;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

/// The type of SPE in `AUXTRACE_INFO`, from the kernel's tools/perf/util/auxtrace.h.
const ARM_SPE: u32 = 4;

/// Finds the data among the records of a file, from `start` on. `None` if there are none of SPE.
pub(crate) fn find(path: &Path, start: u64, bytes: u64) -> io::Result<Option<SpeQueues>> {
    let mut opened = machine::bounded::open(path)?;
    opened.seek(SeekFrom::Start(start))?;
    let file = Arc::new(opened.try_clone()?);
    let mut input = Input::new(opened, bytes);
    let mut queues = SpeQueues::default();
    let mut is_spe = false;
    while let Some((header, record)) = input.next()? {
        let body = header.body(record).unwrap_or(Bytes(&[]));
        let after = match header.kind {
            AUXTRACE_INFO => {
                is_spe |= { body }.u32() == Some(ARM_SPE);
                0
            }
            AUXTRACE => {
                let told = told_data(body);
                let place = start + (bytes - input.left());
                if let Some((cpu, offset, bytes)) = told {
                    queues.add(cpu, Buffer { offset, held: Held::InFile(file.clone(), place, bytes) });
                }
                told.map_or(0, |(_, _, bytes)| bytes)
            }
            TRACING_DATA => { body }.u32().map_or(0, |bytes| u64::from(bytes).next_multiple_of(8)),
            _ => 0,
        };
        input.skip(after)?;
    }
    Ok(is_spe.then_some(queues))
}

/// Parses an `AUXTRACE` record: the CPU of the data that follow, their offset in memory, and their length.
fn told_data(body: Bytes<'_>) -> Option<(CpuId, u64, u64)> {
    let mut from = body;
    let (bytes, offset, _reference) = (from.u64()?, from.u64()?, from.u64()?);
    let (_index, _tid, cpu) = (from.u32()?, from.u32()?, from.u32()?);
    Some((CpuId(cpu), offset, bytes))
}
