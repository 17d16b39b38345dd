//! Which CPUs a thread may run on, for any number of CPUs: rustix's sets end at 1,024.

use std::io;

const BITS: usize = libc::c_ulong::BITS as usize;
/// Bits of the largest mask tried, far above any kernel's number of CPUs.
const MOST_CPUS: usize = 1 << 20;

/// The CPUs that the calling thread may run on, ascending.
pub fn affinity() -> io::Result<Vec<u32>> {
    let mut words = vec![0; 1024 / BITS];
    loop {
        let bytes = size_of_val(words.as_slice());
        // SAFETY: the kernel writes at most `bytes` bytes, which is how long `words` is; 0 is the calling thread.
        let result = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, bytes, words.as_mut_ptr()) };
        if result >= 0 {
            return Ok(ids(&words));
        }
        let error = io::Error::last_os_error();
        // EINVAL: the kernel has more CPUs than the mask has bits.
        if error.raw_os_error() != Some(libc::EINVAL) || words.len() * BITS >= MOST_CPUS {
            return Err(error);
        }
        words = vec![0; words.len() * 2];
    }
}

/// Lets the calling thread, and those that it starts from now on, run on these CPUs only. CPUs that do not exist or
/// that the cpuset hides are left out by the kernel; with none left it answers EINVAL.
pub fn set_affinity(cpus: &[u32]) -> io::Result<()> {
    let words = mask(cpus);
    let bytes = size_of_val(words.as_slice());
    // SAFETY: the kernel reads `bytes` bytes, which is how long `words` is; 0 is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, bytes, words.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The ids as the bits of a mask of at least one word.
pub(crate) fn mask(ids: &[u32]) -> Vec<libc::c_ulong> {
    let last = ids.iter().copied().max().unwrap_or(0) as usize;
    let mut words = vec![0; last / BITS + 1];
    for &id in ids {
        words[id as usize / BITS] |= 1 << (id as usize % BITS);
    }
    words
}

/// The bits of a mask as ids.
pub(crate) fn ids(words: &[libc::c_ulong]) -> Vec<u32> {
    let set = |(place, word): (usize, &libc::c_ulong)| {
        let word = *word;
        (0..BITS).filter(move |bit| word >> bit & 1 == 1).filter_map(move |bit| u32::try_from(place * BITS + bit).ok())
    };
    words.iter().enumerate().flat_map(set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_of_any_size() {
        for set in [vec![], vec![0], vec![63, 64], vec![1, 1023, 8191]] {
            assert_eq!(ids(&mask(&set)), set);
        }
    }

    #[test]
    fn a_thread_stays_where_it_is_put() {
        let allowed = affinity().unwrap();
        let last = *allowed.last().unwrap();
        let there = std::thread::spawn(move || set_affinity(&[last]).and_then(|()| affinity())).join().unwrap();
        assert_eq!(there.unwrap(), [last]);
        assert_eq!(affinity().unwrap(), allowed);
        assert!(set_affinity(&[100_000]).is_err());
    }
}
