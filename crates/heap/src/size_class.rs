//! Sizes of blocks: multiples of 16 up to 128 bytes, then 8 sizes per doubling. So at most one eighth of a block is unused.

use crate::segment::SLICE_BYTES;

/// The smallest block, and the alignment of every block, in bytes: room for a link and a mark, and suits every C type.
pub const SMALLEST: usize = 16;
/// The largest block of a size class, in bytes. Larger objects get slices of their own.
pub const LARGEST: usize = 128 << 10;
/// Number of size classes.
pub const CLASSES: usize = 8 + 10 * 8;

/// Sizes up to this many bytes find their class in [`CLASS_OF`].
pub const SMALL_TABLE_BYTES: usize = 1024;
/// The class of each multiple of 16.
static CLASS_OF: [u8; SMALL_TABLE_BYTES / SMALLEST + 1] = {
    let mut table = [0; SMALL_TABLE_BYTES / SMALLEST + 1];
    let mut index = 0;
    while index < table.len() {
        table[index] = compute(index * SMALLEST) as u8;
        index += 1;
    }
    table
};

/// The size class of this many bytes, at most [`LARGEST`].
#[inline]
pub fn class_of(bytes: usize) -> usize {
    if bytes <= SMALL_TABLE_BYTES { class_of_small(bytes) } else { compute(bytes) }
}

/// The size class of at most [`SMALL_TABLE_BYTES`] bytes.
#[inline]
pub fn class_of_small(bytes: usize) -> usize {
    CLASS_OF[bytes.div_ceil(SMALLEST)].into()
}

const fn compute(bytes: usize) -> usize {
    if bytes <= 128 {
        return if bytes == 0 { 0 } else { (bytes - 1) / SMALLEST };
    }
    // The highest bit chooses the doubling, the three bits below it the step.
    let last = bytes - 1;
    let doubling = last.ilog2() as usize;
    8 + (doubling - 7) * 8 + ((last >> (doubling - 3)) & 7)
}

/// The size of this class's blocks in bytes.
pub fn block_bytes(class: usize) -> usize {
    if class < 8 {
        return (class + 1) * SMALLEST;
    }
    let (doubling, step) = (7 + (class - 8) / 8, (class - 8) % 8);
    (8 + step + 1) << (doubling - 3)
}

/// The smallest size from `bytes` on whose blocks are all aligned, as spans begin at slices; `None` if none is in a class.
pub fn aligned_size(bytes: usize, alignment: usize) -> Option<usize> {
    if alignment > SLICE_BYTES {
        return None;
    }
    let least = bytes.max(1).checked_next_multiple_of(alignment)?;
    if least > LARGEST {
        return None;
    }
    let fits = block_bytes(class_of(least)).is_multiple_of(alignment);
    let aligned = if fits { least } else { least.next_power_of_two() };
    (aligned <= LARGEST).then_some(aligned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_the_smallest_that_fits_and_wastes_at_most_an_eighth() {
        for bytes in 0..=LARGEST {
            let class = class_of(bytes);
            let block = block_bytes(class);
            assert!(class < CLASSES && block >= bytes && block.is_multiple_of(SMALLEST), "{bytes}: {block}");
            assert!(class == 0 || block_bytes(class - 1) < bytes, "{bytes} fits a smaller class");
            assert!(bytes <= 128 || (block - bytes) * 8 <= block, "{bytes}: {block}");
        }
        assert_eq!(block_bytes(CLASSES - 1), LARGEST);
    }

    #[test]
    fn aligned_sizes_keep_every_block_aligned() {
        for shift in 4..=16 {
            let alignment = 1 << shift;
            for bytes in (0..LARGEST).step_by(61) {
                if let Some(size) = aligned_size(bytes, alignment) {
                    assert!(
                        size >= bytes && block_bytes(class_of(size)).is_multiple_of(alignment),
                        "{bytes} {alignment}"
                    );
                }
            }
        }
        assert_eq!(aligned_size(LARGEST + 1, 16), None);
        assert_eq!(aligned_size(usize::MAX, 4096), None);
        assert_eq!(aligned_size(1, 2 * SLICE_BYTES), None);
    }
}
