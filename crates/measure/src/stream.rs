//! Bandwidth: passes over blocks of lines, with integers only, as a simulator may be much slower with floating-point
//! numbers. Each line ends at a compiler barrier, which keeps the loops from turning into `memcpy` or `memset`: those
//! may bypass the caches. Within a line the compiler uses vectors.

use crate::plan::Access;
use std::hint::black_box;

/// A cache line of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub(crate) struct Words(pub [u64; 8]);

/// Bytes of a line.
pub(crate) const LINE: usize = size_of::<Words>();
/// Lines between two stop checks, 4 KiB: also the burst of a paced stream.
pub(crate) const BLOCK: usize = 64;

/// Streams over `part` repeatedly until `stop` returns true. `stop` is called after each block with the bytes done so
/// far. Returns the bytes as the program counts them: a copy's are read and written; for a write, the implicit reads
/// are not counted.
pub(crate) fn stream(access: Access, part: &mut [Words], mut stop: impl FnMut(usize) -> bool) -> usize {
    let half = part.len() / 2;
    let mut bytes = 0;
    loop {
        let mut begin = 0;
        let end = if access == Access::Copy { half } else { part.len() };
        if end == 0 {
            return bytes;
        }
        while begin < end {
            let block = begin..(begin + BLOCK).min(end);
            bytes += match access {
                Access::Read => read(&part[block.clone()]),
                Access::Write => write(&mut part[block.clone()], bytes as u64),
                Access::Copy => {
                    let (from, to) = part.split_at_mut(half);
                    copy(&from[block.clone()], &mut to[block.clone()])
                }
            };
            begin = block.end;
            if stop(bytes) {
                return bytes;
            }
        }
    }
}

/// Reads all lines in order.
pub(crate) fn read(lines: &[Words]) -> usize {
    let mut sums = [0_u64; 8];
    for line in lines {
        sums = std::array::from_fn(|i| sums[i].wrapping_add(line.0[i]));
        black_box(());
    }
    black_box(sums);
    size_of_val(lines)
}

#[inline(never)]
fn write(lines: &mut [Words], value: u64) -> usize {
    for line in lines.iter_mut() {
        *line = Words([value; 8]);
        black_box(());
    }
    size_of_val(lines)
}

#[inline(never)]
fn copy(from: &[Words], to: &mut [Words]) -> usize {
    for (from, to) in from.iter().zip(to.iter_mut()) {
        *to = *from;
        black_box(());
    }
    2 * size_of_val(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(lines: usize) -> Vec<Words> {
        (0..lines as u64).map(|line| Words([line; 8])).collect()
    }

    #[test]
    fn bytes_are_counted_as_the_program_sees_them() {
        for (access, once) in [(Access::Read, 64_000), (Access::Write, 64_000), (Access::Copy, 64_000)] {
            let mut calls = 0;
            let bytes = stream(access, &mut part(1000), |bytes| {
                calls += 1;
                bytes >= 3 * once
            });
            assert_eq!(bytes, 3 * once, "{access:?}");
            assert!(calls >= 3);
        }
    }

    #[test]
    fn a_copy_goes_from_the_first_half_to_the_second() {
        let mut lines = part(1001);
        stream(Access::Copy, &mut lines, |bytes| bytes >= 64_000);
        assert!(lines[500..1000] == lines[..500] && lines[1000] == Words([1000; 8]));
        stream(Access::Write, &mut lines, |bytes| bytes >= 64_064);
        assert!(lines[0] != lines[600] && lines[0].0 == [lines[0].0[0]; 8]);
    }

    #[test]
    fn an_empty_part_is_done_at_once() {
        assert_eq!(stream(Access::Copy, &mut part(1), |_| false), 0);
        assert_eq!(stream(Access::Read, &mut [], |_| false), 0);
    }
}
