//! What the records of a recording need to be read: its events, and what describes its machine.

use crate::attribute::{ADDR, Attribute, CPU, ID, IDENTIFIER, IP, STREAM_ID, TID, TIME};
use crate::bytes::Bytes;
use crate::features::{Features, Timer};
use crate::kind::{HEADER_ATTR, HEADER_BUILD_ID, HEADER_EVENT_TYPE, HEADER_FEATURE, ID_INDEX, TIME_CONV};
use machine::{CpuId, Pid, Tid};
use std::collections::HashMap;

/// The events and features of a recording.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// What describes the machine and the recording.
    pub features: Features,
    attributes: Vec<Attribute>,
    attribute_of_id: HashMap<u64, usize>,
}

/// A thread starts or stops running on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Time, in ns.
    pub time: u64,
    /// The CPU.
    pub cpu: CpuId,
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
}

impl Session {
    /// Whether records of this type describe the recording: [`Session::describe`] takes them.
    pub fn is_description(kind: u32) -> bool {
        [HEADER_ATTR, HEADER_EVENT_TYPE, HEADER_BUILD_ID, ID_INDEX, TIME_CONV, HEADER_FEATURE].contains(&kind)
    }

    /// Takes a record that describes the recording. `None` if it is too short.
    pub fn describe(&mut self, kind: u32, misc: u16, body: Bytes<'_>) -> Option<()> {
        match kind {
            HEADER_ATTR => self.attribute(body),
            HEADER_FEATURE => self.feature(body),
            HEADER_BUILD_ID => self.features.add_build_id(misc, body),
            TIME_CONV => self.time_conversion(body),
            _ => Some(()),
        }
    }

    /// Adds the attribute of an event.
    pub fn add_attribute(&mut self, attribute: Attribute) {
        let number = self.attributes.len();
        self.attribute_of_id.extend(attribute.ids.iter().map(|id| (*id, number)));
        self.attributes.push(attribute);
    }

    /// The events.
    pub fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }

    /// Names events whose names were stored separately.
    pub(crate) fn name_events(&mut self) {
        let names = self.features.names();
        for (number, attribute) in self.attributes.iter_mut().enumerate() {
            let by_id = attribute.ids.iter().find_map(|id| names.get(id).copied());
            if let Some(name) = by_id.or_else(|| self.features.name_of(number)) {
                attribute.set_name(name);
            }
        }
    }

    /// Finds the event of a record, a sample or another one, by the ID at its start or end. `None` if it is too short.
    pub fn attribute_of(&self, sample: bool, body: Bytes<'_>) -> Option<&Attribute> {
        let first = self.attributes.first()?;
        if self.attributes.len() == 1 {
            return Some(first);
        }
        // perf places the IDs of all events of a file at the same position.
        let offset = match (first.has(IDENTIFIER), sample) {
            (true, true) => 0,
            (true, false) => body.0.len().checked_sub(8)?,
            (false, true) if first.has(ID) => 8 * (first.sample_type & (IP | TID | TIME | ADDR)).count_ones() as usize,
            (false, false) if first.has(ID) => {
                let after = (first.sample_type & (STREAM_ID | CPU)).count_ones() as usize;
                body.0.len().checked_sub(8 * (after + 1))?
            }
            (false, _) => return Some(first),
        };
        let id = Bytes(body.0.get(offset..)?).u64()?;
        // Records synthesized by perf have no ID.
        self.attributes.get(self.attribute_of_id.get(&id).copied().unwrap_or(0))
    }

    /// Time of a record other than a sample, in ns: 0 for those of what existed already, `None` if it has none.
    pub fn time(&self, body: Bytes<'_>) -> Option<u64> {
        let attribute = self.attribute_of(false, body)?;
        let skipped = if attribute.has(TID) { 8 } else { 0 };
        let start = (body.0.len() as u64).checked_sub(attribute.trailer())?;
        let mut trailer = body;
        trailer.take(start + skipped)?;
        (attribute.trailer() > 0 && attribute.has(TIME)).then(|| trailer.u64()).flatten()
    }

    /// The thread, time and CPU at the end of a record: `Some(None)` if it has not all of them, `None` if it is too
    /// short.
    pub fn turn(&self, body: Bytes<'_>) -> Option<Option<Turn>> {
        let attribute = self.attribute_of(false, body)?;
        let (needed, sample_type) = (TID | TIME | CPU, attribute.sample_type);
        if attribute.trailer() == 0 || sample_type & needed != needed {
            return Some(None);
        }
        let mut trailer = body;
        trailer.take((body.0.len() as u64).checked_sub(attribute.trailer())?)?;
        let (pid, tid, time) = (Pid(trailer.u32()?), Tid(trailer.u32()?), trailer.u64()?);
        trailer.take_u64s((sample_type & (ID | STREAM_ID)).count_ones().into())?;
        Some(Some(Turn { time, cpu: CpuId(trailer.u32()?), pid, tid }))
    }

    fn attribute(&mut self, body: Bytes<'_>) -> Option<()> {
        let (attribute, size) = Attribute::parse(body)?;
        let mut ids = body;
        ids.take(size)?;
        self.add_attribute(Attribute { ids: ids.u64s().collect(), ..attribute });
        Some(())
    }

    fn feature(&mut self, body: Bytes<'_>) -> Option<()> {
        let mut from = body;
        let feature = u32::try_from(from.u64()?).ok()?;
        self.features.read(feature, from);
        self.name_events();
        Some(())
    }

    /// Takes the conversion of the time counter to ns. Except on Arm, the counter runs at the processor's base
    /// frequency.
    fn time_conversion(&mut self, body: Bytes<'_>) -> Option<()> {
        self.features.timer = Some(Timer::parse(body)?);
        if self.features.architecture != "aarch64" {
            let mut from = body;
            let (shift, multiplier) = (from.u64()?, from.u64()?);
            let per_ns = 2_f64.powi(i32::try_from(shift).ok()?) / multiplier as f64;
            self.features.cycles_per_ns = Some(per_ns).filter(|per_ns| per_ns.is_finite() && *per_ns > 0.0);
        }
        Some(())
    }
}
