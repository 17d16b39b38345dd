//! The machine as shown in sysfs: `/sys`, or a tree saved from another machine, also in an archive.
//!
//! Saved trees are old, cut, or edited by hand. What is missing is taken from where an older kernel has it; what
//! contradicts itself is left out with a warning, as hwloc leaves it out.

mod cores;
mod nodes;
mod tree;

use crate::description::Machine;
use crate::files::{Archive, Files};
use crate::set::CpuSet;
use crate::source::Source;
use crate::violation::{Violation, lines};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use tree::Tree;

/// The key of [`Machine::sources`] for data from sysfs.
const SOURCE: &str = "sysfs";

/// Why a sysfs tree does not give a machine.
#[derive(Debug, thiserror::Error)]
pub enum SysfsError {
    /// The tree has no CPUs.
    #[error(
        "{} has neither nodes in devices/system/node nor CPUs in devices/system/cpu: {}", root.display(), remedy(root)
    )]
    NotSysfs {
        /// The given directory.
        root: PathBuf,
    },
    /// An archive cannot be read.
    #[error("cannot read the archive {}: nearside reads tar, alone or packed by gzip, bzip2 or xz", path.display())]
    Archive {
        /// The archive.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file is not in the kernel's format.
    #[error("{} holds `{text}`: {why}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The beginning of its contents.
        text: String,
        /// The error.
        why: String,
    },
    /// The tree describes an impossible machine.
    #[error("the tree at {} breaks rules of a machine:\n{}", root.display(), lines(violations))]
    Rules {
        /// The given directory.
        root: PathBuf,
        /// The broken rules.
        violations: Vec<Violation>,
    },
}

fn remedy(root: &Path) -> &'static str {
    if root == Path::new("/sys") {
        "it is not mounted, or is hidden in this container: mount it (sudo mount -t sysfs sysfs /sys)"
    } else {
        "name the root of a sysfs tree, such as /sys"
    }
}

impl Machine {
    /// Reads the machine from a sysfs tree: `/sys`, or the root of a saved one. Offline CPUs and nodes are left out. A
    /// kernel without NUMA gives one node; its memory is in `../proc/meminfo`, relative to the root.
    pub fn from_sysfs(root: &Path) -> Result<Self, SysfsError> {
        Ok(Self::from_saved_sysfs(root)?.0)
    }

    /// As [`Machine::from_sysfs`], with warnings about parts of the tree that were left out because they contradict
    /// others.
    pub fn from_saved_sysfs(root: &Path) -> Result<(Self, Vec<String>), SysfsError> {
        read(Tree::new(Files::Folder(root.to_owned()), root))
    }

    /// Reads the machine from an archive of a sysfs tree, or of a saved system that has one. `path` is for errors only.
    pub fn from_archive(bytes: &[u8], path: &Path) -> Result<(Self, Vec<String>), SysfsError> {
        let unpacked = Archive::read(bytes);
        let archive = unpacked.map_err(|source| SysfsError::Archive { path: path.to_owned(), source })?;
        let root = archive.sysfs().ok_or_else(|| SysfsError::NotSysfs { root: path.to_owned() })?;
        let shown = path.join(&root);
        read(Tree::new(Files::Archive { archive, root }, &shown))
    }
}

fn read(mut tree: Tree) -> Result<(Machine, Vec<String>), SysfsError> {
    let online = tree.online_cpus()?;
    let (nodes, distances) = match tree.online_nodes()? {
        Some(ids) => {
            let nodes = tree.nodes(&ids, online.as_ref())?;
            let distances = tree.distances(&ids, &nodes)?;
            (nodes, distances)
        }
        None => match &online {
            Some(online) => (vec![tree.only_node(online)?], None),
            None => return Err(SysfsError::NotSysfs { root: tree.root }),
        },
    };
    let mut machine = Machine {
        name: "host".to_owned(),
        description: tree.processor()?.unwrap_or_default(),
        sources: BTreeMap::from([(SOURCE.to_owned(), format!("Linux, sysfs tree {}", tree.root.display()))]),
        smt_cores: Vec::new(),
        core: None,
        coherence: None,
        control: None,
        disk: None,
        tlbs: Vec::new(),
        latency: None,
        distances,
        packages: Vec::new(),
        nodes,
        caches: Vec::new(),
        links: Vec::new(),
        routes: Vec::new(),
    };
    let cpus = machine.cpus();
    let homeless: CpuSet = online.iter().flat_map(CpuSet::iter).filter(|&cpu| !cpus.contains(cpu)).collect();
    if !homeless.is_empty() {
        tree.warn(format!("CPU {homeless} is left out: no node that is read has it"));
    }
    tree.read_cores(&cpus, &mut machine)?;
    machine.caches = tree.caches(&machine)?;
    tree.read_performance(&mut machine)?;
    let (unknown, violations) = machine.validate().into_iter().partition::<Vec<_>, _>(Violation::is_unknown_memory);
    for unknown in unknown {
        tree.warn(unknown.rule);
    }
    if violations.is_empty() {
        Ok((machine, tree.warnings))
    } else {
        Err(SysfsError::Rules { root: tree.root, violations })
    }
}

#[allow(clippy::unnecessary_wraps, reason = "every table holds an Option<Source>")]
fn source() -> Option<Source> {
    Some(Source::All(SOURCE.to_owned()))
}
