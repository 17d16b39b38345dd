//! Paths and names that are made without the heap.

use core::ffi::CStr;

/// Longest path of a folder, bytes.
pub const PATH_BYTES: usize = 1024;

/// Joins the parts of a path, NUL-terminated.
pub struct PathBuffer {
    bytes: [u8; PATH_BYTES + 64],
    used: usize,
}

impl PathBuffer {
    pub fn empty() -> Self {
        Self { bytes: [0; PATH_BYTES + 64], used: 0 }
    }

    pub fn new(folder: &[u8]) -> Self {
        let mut path = Self::empty();
        path.push(folder);
        path.push(b"/");
        path
    }

    pub fn push(&mut self, part: &[u8]) {
        // The last byte stays zero. A truncated path does not exist.
        let room = self.bytes.len() - 1 - self.used;
        for &byte in part.iter().take(room) {
            if let Some(place) = self.bytes.get_mut(self.used) {
                *place = byte;
                self.used += 1;
            }
        }
    }

    pub fn push_number(&mut self, number: u64) {
        if number >= 10 {
            self.push_number(number / 10);
        }
        self.push(&[b'0' + (number % 10) as u8]);
    }

    pub fn as_c(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

/// `/proc/self/fd/N`.
pub fn descriptor_path(number: u32, use_path: impl FnOnce(&CStr)) {
    let mut path = PathBuffer::new(b"/proc/self/fd");
    path.push_number(number.into());
    use_path(path.as_c());
}

/// `[stack:N]`, the name of the mapping of a thread's stack.
pub fn stack_name(thread: u32, use_name: impl FnOnce(&[u8])) {
    let mut name = PathBuffer::empty();
    name.push(b"[stack:");
    name.push_number(thread.into());
    name.push(b"]");
    use_name(name.as_c().to_bytes());
}
