//! Kernel settings: files that hold one value, such as those of NUMA balancing and huge pages.

use machine::{NodeId, bounded};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A setting. Reading needs no privileges beyond the file's; writing needs root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    path: PathBuf,
}

/// Why a setting cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}", path.display())]
pub struct SwitchError {
    /// The attempted operation.
    pub what: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The error.
    pub source: io::Error,
}

impl SwitchError {
    /// Whether another nearside has changed the setting until its program has ended.
    pub fn is_busy(&self) -> bool {
        self.source.kind() == io::ErrorKind::ResourceBusy
    }
}

impl Switch {
    /// Any file that holds a value, or a choice such as `always [madvise] never`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Whether the kernel's NUMA balancing moves pages: 0, 1, or 2 for memory tiering. Since Linux 3.13.
    pub fn numa_balancing() -> Self {
        Self::at("/proc/sys/kernel/numa_balancing")
    }

    /// When memory gets transparent huge pages: `always`, `madvise` or `never`. Since Linux 2.6.38.
    pub fn huge_pages() -> Self {
        Self::at("/sys/kernel/mm/transparent_hugepage/enabled")
    }

    /// Number of consecutive pages that weighted interleave places on a node, 1 to 255. Since Linux 6.9.
    pub fn interleave_weight(node: NodeId) -> Self {
        Self::at(format!("/sys/kernel/mm/mempolicy/weighted_interleave/node{node}"))
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The current value: of a choice, the one in brackets.
    pub fn value(&self) -> Result<String, SwitchError> {
        let text = bounded::text(&self.path).map_err(|source| self.error("read", source))?;
        Ok(chosen(&text).to_owned())
    }

    /// Sets it permanently.
    pub fn set(&self, value: &str) -> Result<(), SwitchError> {
        // A missing setting is not created.
        let file = OpenOptions::new().write(true).truncate(true).open(&self.path);
        let written = file.and_then(|mut file| file.write_all(value.as_bytes()));
        written.map_err(|source| self.error("set", source))
    }

    pub(super) fn error(&self, what: &'static str, source: io::Error) -> SwitchError {
        SwitchError { what, path: self.path.clone(), source }
    }
}

/// Splits the transparent huge pages in an address range of a process into small ones, through debugfs. Pages that are
/// in use stay huge, which the kernel does not report: see [`huge_pages_by_node`](crate::huge_pages_by_node). Since
/// Linux 5.13. Needs root (EACCES), and debugfs mounted (ENOENT).
pub fn split_huge_pages(pid: crate::Pid, range: &std::ops::Range<u64>) -> Result<(), SwitchError> {
    Switch::at("/sys/kernel/debug/split_huge_pages").set(&format!("{pid},{:#x},{:#x}", range.start, range.end))
}

/// The bracketed value of a choice, or the whole text.
fn chosen(text: &str) -> &str {
    let in_brackets = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    in_brackets.map_or(text, |(value, _)| value).trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_cannot_be_switched_names_the_file() {
        let error = machine::chain(&Switch::at("/nowhere").set_for_now("1").unwrap_err());
        assert!(error.starts_with("cannot read /nowhere: "), "{error}");
        let missing = tempfile::tempdir().unwrap().path().join("switch");
        assert_eq!(Switch::at(&missing).set("1").unwrap_err().source.kind(), io::ErrorKind::NotFound);
        assert!(!missing.exists());
    }

    #[test]
    fn the_choice_is_in_brackets() {
        assert_eq!(["always [madvise] never\n", "1\n", "[x", ""].map(chosen), ["madvise", "1", "[x", ""]);
    }

    proptest! {
        #[test]
        fn any_text_has_a_value(text in ".*") {
            prop_assert!(text.contains(chosen(&text)));
        }
    }
}
