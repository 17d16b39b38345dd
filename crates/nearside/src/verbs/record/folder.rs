//! Where a trace is written.

use std::path::{Path, PathBuf};

/// The default folder.
pub const DEFAULT: &str = "nearside-trace";

/// The first of `nearside-trace`, `nearside-trace-2`, ... that does not exist yet.
pub fn unused(folder: &Path) -> PathBuf {
    let first = std::iter::once(DEFAULT.to_owned());
    let others = (2_u64..).map(|number| format!("{DEFAULT}-{number}"));
    let mut names = first.chain(others).map(|name| folder.join(name));
    // There is always a next number.
    names.find(|path| path.symlink_metadata().is_err()).unwrap_or_else(|| folder.join(DEFAULT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_trace_takes_the_place_of_another() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        for name in ["nearside-trace", "nearside-trace-2", "nearside-trace-3"] {
            let unused = unused(folder.path());
            assert_eq!(unused, folder.path().join(name));
            std::fs::create_dir(unused)?;
        }
        Ok(())
    }
}
