//! /proc/kpageflags: the flags of each page frame.

use crate::residence::pagemap::read_up_to;
use std::fs::File;
use std::io;
use std::path::Path;

/// Bytes per entry.
const ENTRY_BYTES: u64 = 8;
/// Gap up to which uninteresting frames are read too, as a further call would take longer.
const FRAMES_READ_ALONG: u64 = 64;
/// Frames per read.
const MOST_FRAMES: u64 = 32 << 10;

/// The kernel's names, by bit (`linux/kernel-page-flags.h`; later versions added some).
const NAMES: [&str; 27] = [
    "locked",
    "error",
    "referenced",
    "uptodate",
    "dirty",
    "lru",
    "active",
    "slab",
    "writeback",
    "reclaim",
    "buddy",
    "mmap",
    "anonymous",
    "swapcache",
    "swapbacked",
    "compound_head",
    "compound_tail",
    "hugetlb",
    "unevictable",
    "hwpoison",
    "nopage",
    "ksm",
    "thp",
    "offline",
    "zero_page",
    "idle",
    "pgtable",
];

/// The flags of one frame (Linux 2.6.25).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageFlags(pub u64);

impl PageFlags {
    /// The names of the set flags. Flags for kernel debugging have none.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().enumerate().filter(move |(bit, _)| self.0 >> bit & 1 == 1).map(|(_, name)| name)
    }
}

/// The flags of all frames.
#[derive(Debug)]
pub struct FrameFlags {
    file: File,
    bytes: Vec<u8>,
}

impl FrameFlags {
    /// Opens the file in this /proc. Needs root (EACCES), and a kernel with `CONFIG_PROC_PAGE_MONITOR` (ENOENT).
    pub fn open(proc: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(proc.join("kpageflags"))?, bytes: Vec::new() })
    }

    /// Reads the flags of frames, which are in ascending order, and calls `tell(index, flags)` with the index of each
    /// in `frames`. Frames past the end of memory are skipped.
    pub fn read(&mut self, frames: &[u64], mut tell: impl FnMut(usize, PageFlags)) -> io::Result<()> {
        let mut done = 0;
        while let Some(&first) = frames.get(done) {
            let rest = frames.iter().skip(done);
            let near = |(frame, before): &(&u64, &u64)| {
                frame.saturating_sub(**before) <= FRAMES_READ_ALONG && frame.saturating_sub(first) < MOST_FRAMES
            };
            let count = 1 + rest.clone().skip(1).zip(rest.clone()).take_while(near).count();
            let last = frames.get(done + count - 1).copied().unwrap_or(first).max(first);
            self.bytes.resize(((last - first + 1) * ENTRY_BYTES) as usize, 0);
            let filled = read_up_to(&self.file, &mut self.bytes, first.saturating_mul(ENTRY_BYTES))?;
            let (entries, _) = self.bytes.get(..filled).unwrap_or_default().as_chunks();
            for (index, frame) in rest.take(count).enumerate() {
                if let Some(entry) = frame.checked_sub(first).and_then(|ahead| entries.get(ahead as usize)) {
                    tell(done + index, PageFlags(u64::from_ne_bytes(*entry)));
                }
            }
            done += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn flags_have_the_kernels_names() {
        let flags = PageFlags(1 << 5 | 1 << 12 | 1 << 22 | 1 << 26 | 1 << 40);
        assert_eq!(flags.names().collect::<Vec<_>>(), ["lru", "anonymous", "thp", "pgtable"]);
    }

    proptest! {
        /// A file in which each frame's flags are its number.
        #[test]
        fn each_frame_gets_its_own_flags(frames in proptest::collection::btree_set(0..7000u64, 0..100)) {
            let folder = tempfile::tempdir().unwrap();
            let content: Vec<u8> = (0..6000u64).flat_map(u64::to_ne_bytes).collect();
            std::fs::write(folder.path().join("kpageflags"), content).unwrap();
            let frames: Vec<u64> = frames.into_iter().collect();
            let mut told = Vec::new();
            FrameFlags::open(folder.path()).unwrap().read(&frames, |index, flags| told.push((index, flags.0))).unwrap();
            let wanted = frames.iter().copied().enumerate().filter(|(_, frame)| *frame < 6000);
            prop_assert!(told.into_iter().eq(wanted));
        }
    }
}
