//! The files of a sysfs tree, parsed.

use super::SysfsError;
use crate::files::Files;
use crate::ids::{CpuId, NodeId};
use crate::set::{CpuSet, IdSet, MAX_ID, NodeSet};
use rustix::io::Errno;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub(super) const CPUS: &str = "devices/system/cpu";
pub(super) const NODES: &str = "devices/system/node";

pub(super) struct Tree {
    pub files: Files,
    /// The root in messages.
    pub root: PathBuf,
    /// What was left out.
    pub warnings: Vec<String>,
}

impl Tree {
    pub fn new(files: Files, root: &Path) -> Self {
        Self { files, root: root.to_owned(), warnings: Vec::new() }
    }

    pub fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// The text of a file, trimmed; `None` if there is no such file.
    pub fn text(&self, path: &str) -> Result<Option<String>, SysfsError> {
        match self.files.text(path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            // What it describes has gone since it was opened.
            Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => Ok(None),
            Err(source) => Err(SysfsError::Read { path: self.root.join(path), source }),
        }
    }

    pub fn wrong(&self, path: &str, text: &str, why: &dyn fmt::Display) -> SysfsError {
        SysfsError::Text { path: self.root.join(path), text: text.chars().take(60).collect(), why: why.to_string() }
    }

    /// The value of a file; `None` if there is no such file, or it is empty.
    pub fn parsed<T: FromStr<Err: fmt::Display>>(&self, path: &str) -> Result<Option<T>, SysfsError> {
        let Some(text) = self.text(path)?.filter(|text| !text.is_empty()) else { return Ok(None) };
        text.parse().map(Some).map_err(|why: T::Err| self.wrong(path, &text, &why))
    }

    /// A set in the first of these files that exists: a list, or for a name without `list` a mask.
    pub fn set<T: From<u32> + Into<u32>>(&self, folder: &str, names: &[&str]) -> Result<Option<IdSet<T>>, SysfsError> {
        for name in names {
            let path = format!("{folder}/{name}");
            if let Some(text) = self.text(&path)? {
                let set = if name.ends_with("list") { text.parse() } else { IdSet::from_mask(&text) };
                return set.map(Some).map_err(|why| self.wrong(&path, &text, &why));
            }
        }
        Ok(None)
    }

    /// The numbers of the entries of a folder that are named by a word and a number.
    pub fn numbered(&self, folder: &str, word: &str) -> Vec<u32> {
        let number = |name: &String| name.strip_prefix(word)?.parse().ok().filter(|&number| number <= MAX_ID);
        let mut numbers: Vec<u32> = self.files.names(folder).iter().filter_map(number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The CPUs that are online; `None` if the tree has no CPUs. Kernels before 2.6.26 only have a file per CPU.
    pub fn online_cpus(&self) -> Result<Option<CpuSet>, SysfsError> {
        if let Some(online) = self.parsed(&format!("{CPUS}/online"))? {
            return Ok(Some(online));
        }
        let mut online = CpuSet::new();
        for cpu in self.numbered(CPUS, "cpu") {
            if self.text(&format!("{CPUS}/cpu{cpu}/online"))?.as_deref() != Some("0") {
                online.insert(CpuId(cpu));
            }
        }
        Ok(Some(online).filter(|online| !online.is_empty()))
    }

    /// The nodes that are online; `None` for a kernel without NUMA.
    pub fn online_nodes(&self) -> Result<Option<NodeSet>, SysfsError> {
        if let Some(online) = self.parsed(&format!("{NODES}/online"))? {
            return Ok(Some(online));
        }
        let nodes: NodeSet = self.numbered(NODES, "node").into_iter().map(NodeId).collect();
        Ok(Some(nodes).filter(|nodes| !nodes.is_empty()))
    }

    /// The name of the first CPU's model, as the kernels of x86, POWER and s390 have it.
    pub fn processor(&self) -> Result<Option<String>, SysfsError> {
        let text = self.text("../proc/cpuinfo")?.unwrap_or_default();
        let value = |key: &str| {
            let mut fields = text.lines().filter_map(|line| line.split_once(':'));
            fields.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
        };
        Ok(["model name", "Model Name", "cpu"].into_iter().find_map(value).filter(|name| !name.is_empty()))
    }
}
