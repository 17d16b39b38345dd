//! Recognizes the page faults that the kernel provokes to see which thread uses a page. To the processor, a page
//! marked by NUMA balancing looks like one that is not present, so the error code is that of a first touch. They
//! differ in what the kernel does next: at a first touch it gives the process memory, which its tracepoint
//! `kmem:rss_stat` reports; at a hint fault it only clears the mark.

use std::collections::HashMap;
use trace::Sample;

/// One event of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// A fault at a page that was not present, or marked.
    Fault(Sample),
    /// The resident memory of its process grew or shrank.
    MemoryChanged,
    /// The kernel unmapped a page in order to move it.
    PageMoved,
}

/// A fault that the kernel provoked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HintFault {
    pub sample: Sample,
    /// Whether the kernel moved the page on this fault.
    pub moved: bool,
}

/// Faults not yet classified, by thread.
#[derive(Debug, Default)]
pub(super) struct Faults {
    open: HashMap<u32, HintFault>,
    /// First touches since the last call. These pages are present from then on.
    pub touched: Vec<Sample>,
    /// Latest time seen at the end of the last batch of steps.
    latest: u64,
}

/// x86 error code: the page was present but the access is not permitted.
pub(super) const PROTECTION: u64 = 1;
/// x86 error code: the access was a write.
pub(super) const WRITE: u64 = 1 << 1;
/// x86 error code: the access was an instruction fetch.
pub(super) const INSTRUCTION: u64 = 1 << 4;

impl Faults {
    /// Takes the next batch of steps, with times and threads, in time order. Appends the faults that are now known to
    /// be hint faults. A fault with no later step is known once a whole batch has ended after it.
    pub fn take(&mut self, steps: impl IntoIterator<Item = (u64, u32, Step)>, found: &mut Vec<HintFault>) {
        let mut latest = self.latest;
        for (time, thread, step) in steps {
            latest = latest.max(time);
            match step {
                Step::Fault(sample) => found.extend(self.open.insert(thread, HintFault { sample, moved: false })),
                Step::MemoryChanged => self.touched.extend(self.open.remove(&thread).map(|fault| fault.sample)),
                Step::PageMoved => self.open.get_mut(&thread).into_iter().for_each(|fault| fault.moved = true),
            }
        }
        self.give(self.latest, found);
        self.latest = latest;
    }

    /// Appends all remaining faults.
    pub fn finish(&mut self, found: &mut Vec<HintFault>) {
        self.give(u64::MAX, found);
    }

    fn give(&mut self, until: u64, found: &mut Vec<HintFault>) {
        let ready = self.open.extract_if(|_, fault| fault.sample.time_ns <= until);
        found.extend(ready.map(|(_, fault)| fault));
        found.sort_by_key(|fault| fault.sample.time_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::{Pid, Tid};
    use machine::CpuId;
    use proptest::prelude::*;
    use trace::{AccessKind, Source};

    fn fault(time: u64, thread: u32) -> (u64, u32, Step) {
        let sample = Sample {
            time_ns: time,
            cpu: CpuId(0),
            pid: Pid(7),
            tid: Tid(thread),
            instruction: 0,
            address: time << 12,
            physical: None,
            kind: AccessKind::Load,
            served: None,
            node: None,
            latency_ns: None,
            kernel: false,
            stack: None,
            weight: 1.0,
            source: Source::HintFault,
        };
        (time, thread, Step::Fault(sample))
    }

    fn told(found: &[HintFault]) -> Vec<(u64, bool)> {
        found.iter().map(|fault| (fault.sample.time_ns, fault.moved)).collect()
    }

    #[test]
    fn a_fault_that_brings_memory_is_none_and_one_that_nothing_follows_is_one() {
        let (mut faults, mut found) = (Faults::default(), Vec::new());
        let steps = [
            fault(1, 7),
            (2, 8, Step::MemoryChanged),
            fault(3, 7),
            (4, 7, Step::MemoryChanged),
            fault(5, 8),
            (6, 8, Step::PageMoved),
            fault(7, 8),
        ];
        faults.take(steps, &mut found);
        assert_eq!(told(&found), [(1, false), (5, true)]);
        assert_eq!(faults.touched.iter().map(|sample| sample.time_ns).collect::<Vec<_>>(), [3]);
        // The step after the last fault comes in a later batch.
        faults.take([(8, 8, Step::MemoryChanged), fault(9, 7)], &mut found);
        assert_eq!(found.len(), 2);
        faults.take([], &mut found);
        assert_eq!(told(&found), [(1, false), (5, true), (9, false)]);
    }

    proptest! {
        /// However the steps are split into batches, no fault is reported twice, and no first touch is reported.
        #[test]
        fn each_fault_is_reported_at_most_once(
            steps in prop::collection::vec((0..3_u32, 0..3_u8), 0..60),
            row in 1..9_usize
        ) {
            let step = |(time, (thread, kind)): (u64, &(u32, u8))| match kind {
                0 => fault(time, *thread),
                1 => (time, *thread, Step::MemoryChanged),
                _ => (time, *thread, Step::PageMoved),
            };
            let steps: Vec<_> = (1..).zip(&steps).map(step).collect();
            let (mut faults, mut found) = (Faults::default(), Vec::new());
            steps.chunks(row).for_each(|row| faults.take(row.iter().copied(), &mut found));
            faults.finish(&mut found);
            let brought = |time: u64, thread: u32| {
                let mut later = steps.iter().filter(|(at, by, _)| *at > time && *by == thread);
                let next = later.find(|(_, _, step)| *step != Step::PageMoved);
                matches!(next, Some((_, _, Step::MemoryChanged)))
            };
            let faults = steps.iter().filter(|(.., step)| matches!(step, Step::Fault(_)));
            let expected = faults.filter(|(time, thread, _)| !brought(*time, *thread));
            let expected: Vec<u64> = expected.map(|(time, ..)| *time).collect();
            let mut times: Vec<u64> = found.iter().map(|fault| fault.sample.time_ns).collect();
            times.sort_unstable();
            // A fault with no later step in a whole batch is reported; later steps do not belong to it.
            prop_assert!(times.is_sorted_by(|a, b| a < b));
            prop_assert!(expected.iter().all(|time| times.contains(time)));
        }
    }
}
