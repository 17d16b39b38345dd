//! Reads little-endian numbers and texts from the front of a slice. Readers return `None` if it is too short.

/// The rest of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// Takes a number of 16 bits.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Takes a number of 32 bits.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Takes a number of 64 bits.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes this many bytes.
    #[inline]
    pub fn take(&mut self, length: u64) -> Option<Bytes<'a>> {
        let (first, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(Self(first))
    }

    /// Takes this many `u64`, undecoded.
    #[inline]
    pub fn take_u64s(&mut self, count: u64) -> Option<Bytes<'a>> {
        self.take(count.checked_mul(8)?)
    }

    /// All of it as numbers.
    pub fn u64s(self) -> impl Iterator<Item = u64> + 'a {
        self.0.chunks_exact(8).filter_map(|bytes| Bytes(bytes).u64())
    }

    /// The text up to the first NUL, or to the end. Invalid UTF-8 is replaced.
    pub fn text(self) -> String {
        let text = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }

    /// A text preceded by its length, as in the sections of perf.data.
    pub(crate) fn counted_text(&mut self) -> Option<String> {
        let length = self.u32()?;
        Some(self.take(length.into())?.text())
    }
}
