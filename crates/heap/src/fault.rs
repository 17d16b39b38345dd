//! Misuse that cannot go on: one sentence on standard error, then `abort`.

use core::fmt::{self, Write};

/// What a program did wrong.
#[derive(Clone, Copy)]
pub enum Fault {
    Foreign,
    Inside,
    Twice,
}

impl Fault {
    /// Ends the process.
    #[cold]
    pub fn abort(self, address: usize) -> ! {
        let what = match self {
            Self::Foreign => "was not allocated by this heap, or was freed before",
            Self::Inside => "is inside an object, not its start",
            Self::Twice => "was freed before",
        };
        let mut line = Line { bytes: [0; 160], length: 0 };
        // A sentence that is too long is cut. The process ends in any case.
        let _ = writeln!(line, "nearside heap: the program freed {address:#x}, which {what}.");
        let _ = rustix::io::write(rustix::stdio::stderr(), &line.bytes[..line.length]);
        // SAFETY: abort has no precondition.
        unsafe { libc::abort() }
    }
}

/// Text without allocations.
struct Line {
    bytes: [u8; 160],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let place = self.bytes.get_mut(self.length..self.length + text.len()).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}
