//! Requests to a program to advise its own memory.
//!
//! A program finds the path of a socket in [`ADVICE_VARIABLE`] and connects. For each [`AdviceRequest`] that it reads
//! there, of [`ADVICE_BYTES`], it writes as many bytes, which begin with an error number or 0.

/// The environment variable with the path of the socket.
pub const ADVICE_VARIABLE: &str = "NEARSIDE_ADVICE";
/// Length of a request and of an answer.
pub const ADVICE_BYTES: usize = 24;

/// What a program is asked to advise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvisedTo {
    /// `MADV_COLD` on one small page, which splits its huge page.
    Split = 1,
    /// `MADV_NOHUGEPAGE`: the kernel does not join these pages.
    StaySmall = 2,
    /// `MADV_HUGEPAGE` and `MADV_COLLAPSE` on a whole huge page: its small pages are joined now.
    Join = 3,
}

/// A request to advise a range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdviceRequest {
    /// The first address.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
    /// The advice.
    pub to: AdvisedTo,
}

impl AdviceRequest {
    /// As it is sent.
    pub fn to_bytes(self) -> [u8; ADVICE_BYTES] {
        let mut bytes = [0; ADVICE_BYTES];
        let words = [self.start, self.bytes, self.to as u64];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_ne_bytes()));
        bytes
    }

    /// From bytes that were sent; none for another advice.
    pub fn from_bytes(bytes: &[u8; ADVICE_BYTES]) -> Option<Self> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at * 8..at * 8 + 8]);
            u64::from_ne_bytes(word)
        };
        let to = match word(2) {
            1 => AdvisedTo::Split,
            2 => AdvisedTo::StaySmall,
            3 => AdvisedTo::Join,
            _ => return None,
        };
        Some(Self { start: word(0), bytes: word(1), to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_arrive_as_they_were_sent_and_others_are_refused() {
        for to in [AdvisedTo::Split, AdvisedTo::StaySmall, AdvisedTo::Join] {
            let request = AdviceRequest { start: 0x7f00_0020_0000, bytes: 4096, to };
            assert_eq!(AdviceRequest::from_bytes(&request.to_bytes()), Some(request));
        }
        assert_eq!(AdviceRequest::from_bytes(&[0; ADVICE_BYTES]), None);
        assert_eq!(AdviceRequest::from_bytes(&[255; ADVICE_BYTES]), None);
    }
}
