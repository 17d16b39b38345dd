//! Mappings of processes with their resident memory, for policies that move whole mappings.

use crate::memory::asked_for;
use linux::{Process, Tid, parse_numa_maps, thread_policy};
use placement::{NodeBytes, Range, SharedMemory};
use std::time::{Duration, Instant};

/// Mappings are read again after this multiple of the time that reading them took: the kernel walks all pages for it.
const PAUSE_FACTOR: u32 = 50;

/// A process's mappings, and when they may be read again.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    next: Option<Instant>,
    last: Vec<Range>,
}

impl Mappings {
    /// The resident mappings, if reading is due; otherwise none.
    pub fn read(&mut self, process: &Process) -> Vec<Range> {
        let began = Instant::now();
        if self.next.is_some_and(|next| began < next) {
            return Vec::new();
        }
        self.last = ranges(process).unwrap_or_default();
        self.next = Some(Instant::now() + (began.elapsed() * PAUSE_FACTOR).max(Duration::from_millis(1)));
        self.last.clone()
    }

    /// The resident mappings that were read last.
    pub fn last(&self) -> &[Range] {
        &self.last
    }

    /// Whether the mapping at this address, as it was last read, is shared.
    pub fn are_shared_at(&self, address: u64) -> bool {
        let after = self.last.partition_point(|range| range.start <= address);
        let range = after.checked_sub(1).and_then(|at| self.last.get(at));
        range.is_some_and(|range| address < range.end && range.shared.is_some())
    }

    /// The resident mappings, as they were last read.
    pub fn read_or_last(&mut self, process: &Process) -> Vec<Range> {
        let read = self.read(process);
        if read.is_empty() { self.last.clone() } else { read }
    }
}

fn ranges(process: &Process) -> Option<Vec<Range>> {
    let pid = process.pid();
    let own = thread_policy(process, Tid(pid.0))?;
    let mappings = process.mappings().ok()?;
    let numa = parse_numa_maps(&process.text("numa_maps").ok()?).ok()?;
    let range = |numa: linux::NumaMapping| {
        let index = mappings.binary_search_by_key(&numa.start, |mapping| mapping.range.start).ok()?;
        let mapping = mappings.get(index).filter(|_| !numa.pages.is_empty())?;
        let bytes = numa.pages.iter().map(|&(node, pages)| NodeBytes { node, bytes: pages * numa.page_bytes });
        Some(Range {
            pid,
            start: mapping.range.start,
            end: mapping.range.end,
            bytes: bytes.collect(),
            memory_policy: asked_for(&numa.policy).filter(|_| numa.policy != own),
            shared: mapping.shared.then_some(SharedMemory {
                device: mapping.device,
                inode: mapping.inode,
                offset: mapping.offset,
            }),
        })
    };
    Some(numa.into_iter().filter_map(range).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::Pid;
    use machine::NodeId;
    use saved_files::SavedFiles;

    #[test]
    fn mappings_are_read_with_their_memory_and_not_too_often() {
        let root = SavedFiles::new();
        let numa = "1000 bind:3 anon=1 N3=1 kernelpagesize_kB=4\n2000 default file=/bin/a N0=1 N1=2 kernelpagesize_kB=4\n\
                    5000 default\n";
        root.put("7/numa_maps", numa);
        root.put("7/task/7/numa_maps", numa);
        root.put("7/maps", "1000-2000 rw-p 0 0:0 0\n2000-5000 r--s 1000 8:1 5 /bin/a\n5000-7000 rw-p 0 0:0 0\n");
        let process = Process::open_in(root.path(), Pid(7)).unwrap();
        let mut mappings = Mappings { next: Some(Instant::now() + Duration::from_secs(60)), last: Vec::new() };
        assert_eq!(mappings.read(&process), []);
        mappings.next = None;
        let ranges = mappings.read(&process);
        assert_eq!((ranges.len(), mappings.read_or_last(&process).len()), (2, 2));
        assert_eq!(ranges[0].memory_policy.as_ref().unwrap().to_string(), "bind: 3");
        let on = [(0, 4096), (1, 8192)].map(|(node, bytes)| NodeBytes { node: NodeId(node), bytes });
        assert_eq!((ranges[1].start, ranges[1].end, &ranges[1].memory_policy), (0x2000, 0x5000, &None));
        assert_eq!(ranges[1].bytes, on);
        let shared = SharedMemory { device: 0x801, inode: 5, offset: 0x1000 };
        assert_eq!([ranges[0].shared, ranges[1].shared], [None, Some(shared)]);
        let are_shared = [0x1000, 0x2000, 0x4fff, 0x5000].map(|address| mappings.are_shared_at(address));
        assert_eq!(are_shared, [false, true, true, false]);
    }
}
