//! Conversion of sets to and from the kernel's bit masks of any size.

use machine::IdSet;

/// Bits per word of a mask.
pub(crate) const BITS: usize = libc::c_ulong::BITS as usize;

/// The IDs as a bit mask of at least one word.
pub(crate) fn mask<T: From<u32> + Into<u32>>(set: &IdSet<T>) -> Vec<libc::c_ulong> {
    let ids = || set.iter().map(|id| id.into() as usize);
    let mut words = vec![0; ids().next_back().unwrap_or(0) / BITS + 1];
    for id in ids() {
        words[id / BITS] |= 1 << (id % BITS);
    }
    words
}

/// The bits of a mask as IDs.
pub(crate) fn set<T: Into<u32> + From<u32>>(words: &[libc::c_ulong]) -> IdSet<T> {
    let ids = |(index, word): (usize, &libc::c_ulong)| {
        let word = *word;
        (0..BITS).filter(move |bit| word >> bit & 1 == 1).filter_map(move |bit| u32::try_from(index * BITS + bit).ok())
    };
    words.iter().enumerate().flat_map(ids).map(T::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::CpuSet;

    #[test]
    fn masks_are_of_any_size() {
        for text in ["", "0", "63-64", "1,1023,8191"] {
            let cpus: CpuSet = text.parse().unwrap();
            assert_eq!(set::<machine::CpuId>(&mask(&cpus)), cpus);
        }
    }
}
