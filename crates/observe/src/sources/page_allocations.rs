//! Physical memory that the kernel allocates for the recorded programs: the tracepoint `kmem:mm_page_alloc`.

use super::perf_rings::{Rings, Wanted};
use super::permission::{Refusal, Scope};
use super::tracepoint::{Field, Tracepoint};
use super::{LiveError, Target};
use linux::Cause;
use machine::{CpuId, Pid, SMALL_PAGE, Tid};
use perf_data::attribute::{CPU, IDENTIFIER, RAW, TID, TIME};
use perf_data::kind::{LOST, SAMPLE};
use perf_data::{Attribute, Bytes, SampleFields, lost_count};
use perf_event::Builder;
use perf_event::events::Tracepoint as TracepointEvent;
use trace::{Event, Loss, What};

const WHAT: &str = "record page allocations (perf)";
const DROPPED: &str = "page allocations that the kernel dropped";
const RING_BYTES: usize = 512 << 10;
const SAMPLE_TYPE: u64 = IDENTIFIER | TID | TIME | CPU | RAW;

/// A live source of page allocations.
pub struct PageAllocations {
    rings: Rings,
    record: AllocationRecord,
    lost: Vec<Loss>,
}

/// How the kernel reports an allocation.
#[derive(Debug)]
struct AllocationRecord {
    attribute: Attribute,
    frame: Field,
    order: Field,
}

impl PageAllocations {
    /// Opens the source. Needs root, or `CAP_PERFMON` and read access to tracefs.
    pub fn open(target: &Target) -> Result<Self, LiveError> {
        let tracepoint = Tracepoint::find("kmem/mm_page_alloc")?;
        let record = AllocationRecord::new(&tracepoint).ok_or_else(|| {
            LiveError::new(WHAT, Cause::Other("the tracepoint kmem:mm_page_alloc has no pfn or order".to_owned()))
        })?;
        let mut builder = Builder::new(TracepointEvent::with_id(tracepoint.id));
        // Tracepoints fire in the kernel.
        builder.exclude_kernel(false).sample_period(1);
        builder.attrs_mut().sample_type = SAMPLE_TYPE;
        let refused = |refusal: Refusal| LiveError::refused(WHAT, &refusal, Scope::Tracepoint);
        let mut rings = Rings::open(target, &[Wanted::new(builder)], RING_BYTES).map_err(refused)?;
        rings.enable(target).map_err(refused)?;
        Ok(Self { rings, record, lost: Vec::new() })
    }

    /// Adds the allocations since the last call. Never blocks.
    pub fn drain(&mut self, events: &mut Vec<Event>) {
        let Self { rings, record, lost } = self;
        rings.drain(|kind, _, body| match kind {
            SAMPLE => events.extend(record.event(Bytes(body))),
            LOST => Loss::add(lost, DROPPED, lost_count(Bytes(body), 8).unwrap_or(0)),
            _ => {}
        });
    }

    /// Adds the rest, after the program has ended.
    pub fn finish(&mut self, events: &mut Vec<Event>) {
        self.drain(events);
        Loss::add(&mut self.lost, DROPPED, self.rings.take_losses());
    }

    /// Losses so far.
    pub fn lost(&self) -> &[Loss] {
        &self.lost
    }
}

impl AllocationRecord {
    fn new(tracepoint: &Tracepoint) -> Option<Self> {
        let (frame, order) = (tracepoint.field("pfn")?, tracepoint.field("order")?);
        Some(Self { attribute: Attribute::live("", SAMPLE_TYPE, 1, Vec::new()), frame, order })
    }

    /// None for an allocation that failed: its frame number is the largest.
    fn event(&self, body: Bytes<'_>) -> Option<Event> {
        let fields = SampleFields::parse(body, &self.attribute)?;
        let raw = fields.raw?;
        let physical = self.frame.of(raw)?.checked_mul(SMALL_PAGE)?;
        let order = u32::try_from(self.order.of(raw)?).ok().filter(|order| *order < 32)?;
        let what = What::FramesAllocated { physical, bytes: SMALL_PAGE << order };
        let (pid, tid) = (Pid(fields.pid), Tid(fields.tid));
        Some(Event { time_ns: fields.time, pid, tid, cpu: fields.cpu.map(CpuId), what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMAT: &str = "name: mm_page_alloc\nID: 540\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned long pfn;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int order;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long gfp_flags;\toffset:24;\tsize:8;\tsigned:0;\n";

    fn record() -> AllocationRecord {
        AllocationRecord::new(&Tracepoint::parse(FORMAT).unwrap()).unwrap()
    }

    /// A record of the kernel's: identifier, process and thread, time, CPU, and the tracepoint's fields.
    fn body(frame: u64, order: u32) -> Vec<u8> {
        let mut raw = vec![0_u8; 32];
        raw[8..16].copy_from_slice(&frame.to_ne_bytes());
        raw[16..20].copy_from_slice(&order.to_ne_bytes());
        let mut body = Vec::new();
        body.extend(99_u64.to_ne_bytes());
        body.extend([7_u32, 8].map(u32::to_ne_bytes).concat());
        body.extend(1234_u64.to_ne_bytes());
        body.extend([5_u32, 0, 32].map(u32::to_ne_bytes).concat());
        body.extend(raw);
        body
    }

    /// F20 of the study of Linux's balancing: frame, order, CPU and time.
    #[test]
    fn an_allocation_has_its_place_size_cpu_and_time() {
        let event = record().event(Bytes(&body(0x1_2345, 9))).unwrap();
        assert_eq!(event.what, What::FramesAllocated { physical: 0x1234_5000, bytes: 2 << 20 });
        assert_eq!((event.time_ns, event.pid, event.tid, event.cpu), (1234, Pid(7), Tid(8), Some(CpuId(5))));
        assert_eq!(record().event(Bytes(&body(u64::MAX, 0))), None, "it failed");
        assert!(AllocationRecord::new(&Tracepoint::parse("ID: 1\n").unwrap()).is_none());
    }

    proptest! {
        #[test]
        fn any_record_is_an_allocation_or_none(bytes: Vec<u8>, frame: u64, order: u32) {
            let _ = record().event(Bytes(&bytes));
            let _ = record().event(Bytes(&body(frame, order)));
        }
    }
}
