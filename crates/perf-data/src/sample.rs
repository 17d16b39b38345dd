//! Sample records of perf.data, whose layout follows from the event's attribute.

use crate::attribute as has;
use crate::attribute::Attribute;
use crate::bytes::Bytes;

/// The fields of a sample record that are used here.
#[derive(Clone, Copy, Debug)]
pub struct SampleFields<'a> {
    /// Address of the instruction.
    pub instruction: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Time, in ns.
    pub time: u64,
    /// Virtual address of the data.
    pub address: Option<u64>,
    /// The CPU.
    pub cpu: Option<u32>,
    /// ID of the counter.
    pub id: Option<u64>,
    /// The period at that time.
    pub period: Option<u64>,
    /// The call chain: innermost first, with markers between the kernel's part and the program's.
    pub chain: Bytes<'a>,
    /// What the event itself reports.
    pub raw: Option<Bytes<'a>>,
    /// The latency, in cycles.
    pub weight: Option<u64>,
    /// What served the access: see [`Observed::of_data_source`](crate::Observed::of_data_source).
    pub data_source: Option<u64>,
    /// Physical address of the data.
    pub physical: Option<u64>,
}

const GROUP: u64 = 1 << 3;
const HARDWARE_INDEX: u64 = 1 << 17;
const BRANCH_COUNTERS: u64 = 1 << 19;

impl<'a> SampleFields<'a> {
    /// Parses the body of a record. `None` if it is shorter than its attribute requires.
    pub fn parse(body: Bytes<'a>, attribute: &Attribute) -> Option<Self> {
        let mut from = body;
        let is = |what| attribute.has(what);
        let identifier = if is(has::IDENTIFIER) { Some(from.u64()?) } else { None };
        let instruction = if is(has::IP) { from.u64()? } else { 0 };
        let (pid, tid) = if is(has::TID) { (from.u32()?, from.u32()?) } else { (0, 0) };
        let time = if is(has::TIME) { from.u64()? } else { 0 };
        let address = if is(has::ADDR) { Some(from.u64()?) } else { None };
        let id = if is(has::ID) { Some(from.u64()?) } else { identifier };
        if is(has::STREAM_ID) {
            from.u64()?;
        }
        let cpu = if is(has::CPU) { Some(from.u64()? as u32) } else { None };
        let period = if is(has::PERIOD) { Some(from.u64()?) } else { None };
        if is(has::READ) {
            skip_read(&mut from, attribute.read_format)?;
        }
        let chain = if is(has::CALLCHAIN) {
            let count = from.u64()?;
            from.take_u64s(count)?
        } else {
            Bytes(&[])
        };
        let raw = if is(has::RAW) {
            let length = from.u32()?;
            Some(from.take(length.into())?)
        } else {
            None
        };
        if is(has::BRANCH_STACK) {
            skip_branches(&mut from, attribute.branch_sample_type)?;
        }
        if is(has::REGS_USER) {
            skip_registers(&mut from, attribute.user_registers)?;
        }
        if is(has::STACK_USER) {
            let length = from.u64()?;
            from.take(length)?;
            if length > 0 {
                from.u64()?;
            }
        }
        let weight = if is(has::WEIGHT) {
            Some(from.u64()?)
        } else if is(has::WEIGHT_STRUCT) {
            // Three weights: the first, of 32 bits, is the latency.
            Some(from.u64()? & u64::from(u32::MAX))
        } else {
            None
        };
        let data_source = if is(has::DATA_SRC) { Some(from.u64()?) } else { None };
        if is(has::TRANSACTION) {
            from.u64()?;
        }
        if is(has::REGS_INTR) {
            skip_registers(&mut from, attribute.interrupt_registers)?;
        }
        let physical = if is(has::PHYS_ADDR) { Some(from.u64()?) } else { None };
        Some(Self { instruction, pid, tid, time, address, cpu, id, period, chain, raw, weight, data_source, physical })
    }
}

/// Skips the value of the counter, or the values of its group: `PERF_FORMAT_` in `read_format`.
fn skip_read(from: &mut Bytes<'_>, format: u64) -> Option<()> {
    let times = u64::from((format & 3).count_ones());
    // Each value may have an ID and a lost count.
    let fields =
        1 + u64::from((format >> 2 & 1) + (format >> 4 & 1) > 0) * u64::from((format >> 2 & 0b101).count_ones());
    let count = if format & GROUP == 0 { 1 } else { from.u64()? };
    from.take_u64s(times.checked_add(count.checked_mul(fields)?)?)?;
    Some(())
}

fn skip_branches(from: &mut Bytes<'_>, of: u64) -> Option<()> {
    let count = from.u64()?;
    if of & HARDWARE_INDEX != 0 {
        from.u64()?;
    }
    from.take_u64s(count.checked_mul(if of & BRANCH_COUNTERS == 0 { 3 } else { 4 })?)?;
    Some(())
}

/// Skips registers, which are present only if the first word gives their ABI.
fn skip_registers(from: &mut Bytes<'_>, count: u32) -> Option<()> {
    if from.u64()? != 0 {
        from.take_u64s(count.into())?;
    }
    Some(())
}
