//! Groups of resctrl: their CPUs, and what they may take. Not yet tested on hardware.

pub use super::folder::ResctrlFiles;
use super::folder::{Folder, MONITORING};
use super::offer;
pub use super::offer::{BandwidthLimit, BandwidthUnit, CacheWays, ResctrlOffer};
use super::schemata::{Schemata, number, parse_schemata, schemata_line};
use machine::CpuSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::str::FromStr;

/// Where it is mounted.
const FOLDER: &str = "sys/fs/resctrl";

/// The groups of resctrl. The topmost one has the empty name. Since Linux 4.10; changes need root.
#[derive(Debug)]
pub struct Resctrl {
    files: Box<dyn ResctrlFiles>,
    /// What the hardware can do.
    pub offer: ResctrlOffer,
}

impl Resctrl {
    /// That of the system below `root`, if it is mounted at its usual place.
    pub fn find(root: &Path) -> Option<Self> {
        let folder = root.join(FOLDER);
        folder.join("info").is_dir().then(|| Self::with_files(Box::new(Folder(folder)), root))
    }

    /// The same with another access to its files.
    pub fn with_files(files: Box<dyn ResctrlFiles>, root: &Path) -> Self {
        let offer = offer::read(files.as_ref(), root);
        Self { files, offer }
    }

    /// The names of all groups but the topmost.
    pub fn groups(&self) -> io::Result<Vec<String>> {
        self.files.groups()
    }

    /// Keeps other processes from changing groups until it is dropped, if they ask as well: pqos does.
    pub fn lock(&self) -> io::Result<Option<File>> {
        self.files.lock()
    }

    /// What a group may take.
    pub fn schemata(&self, group: &str) -> io::Result<Schemata> {
        Ok(parse_schemata(&self.files.read(&within(group, "schemata"))?))
    }

    /// Changes what a group may take of a domain of a resource.
    pub fn set_share(&self, group: &str, resource: &str, domain: u32, value: u64) -> io::Result<()> {
        let line = schemata_line(resource, domain, value);
        self.explained(self.files.write(&within(group, "schemata"), &line))
    }

    /// The CPUs of a group.
    pub fn cpus(&self, group: &str) -> io::Result<CpuSet> {
        let text = self.files.read(&within(group, "cpus_list"))?;
        CpuSet::from_str(text.trim()).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Gives a group these CPUs. Those that it has no more are the topmost group's.
    pub fn set_cpus(&self, group: &str, cpus: &CpuSet) -> io::Result<()> {
        self.explained(self.files.write(&within(group, "cpus_list"), &format!("{cpus}\n")))
    }

    /// Whether threads are in a group by themselves, and not by their CPUs.
    pub fn has_tasks(&self, group: &str) -> io::Result<bool> {
        Ok(!self.files.read(&within(group, "tasks"))?.trim().is_empty())
    }

    /// Makes a group.
    pub fn make_group(&self, group: &str) -> io::Result<()> {
        self.explained(self.files.make_group(group))
    }

    /// Removes a group.
    pub fn remove_group(&self, group: &str) -> io::Result<()> {
        self.explained(self.files.remove_group(group))
    }

    /// The names of a group's monitoring groups: parts of its CPUs that are counted by themselves as well.
    pub fn monitoring_groups(&self, group: &str) -> io::Result<Vec<String>> {
        self.files.monitoring_groups(group)
    }

    /// A monitoring group of a group, as a group.
    pub fn monitoring_group(group: &str, name: &str) -> String {
        within(group, &format!("{MONITORING}/{name}"))
    }

    /// Bytes between the cache of a domain and memory for a group since its monitors started, with those of its monitoring
    /// groups. None while the hardware has no counter for it (`Unavailable`).
    pub fn total_bytes(&self, group: &str, domain: u32) -> Option<u64> {
        self.bytes(group, domain, "mbm_total_bytes")
    }

    /// The part of that to and from memory of the cache's own node. None also where the hardware does not count it.
    pub fn local_bytes(&self, group: &str, domain: u32) -> Option<u64> {
        self.bytes(group, domain, "mbm_local_bytes")
    }

    fn bytes(&self, group: &str, domain: u32, file: &str) -> Option<u64> {
        let path = format!("mon_data/mon_L3_{domain:02}/{file}");
        number(self.files.read(&within(group, &path)).ok()?.trim(), 10)
    }

    /// Adds what the kernel says about a failed change.
    fn explained(&self, done: io::Result<()>) -> io::Result<()> {
        let error = match done {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => error,
            done => return done,
        };
        let status = self.files.read("info/last_cmd_status").unwrap_or_default();
        match status.trim() {
            "" | "ok" => Err(error),
            said => Err(io::Error::new(error.kind(), format!("{error}; the kernel says: {}", crate::printable(said)))),
        }
    }
}

fn within(group: &str, file: &str) -> String {
    if group.is_empty() { file.to_owned() } else { format!("{group}/{file}") }
}
