//! A model of the kernel's rules for resctrl on the files of a saved machine, for tests.

use linux::{CpuSet, Resctrl, ResctrlFiles, Schemata, parse_schemata};
use saved_files::SavedFiles;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A saved machine whose resctrl obeys.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    root: Arc<SavedFiles>,
    /// Classes that its hardware has.
    classes: usize,
    /// Whether masks may have no gaps.
    contiguous: bool,
    /// All changes, as texts.
    pub log: Arc<Mutex<Vec<String>>>,
}

/// Files of a machine: resctrl with these `info` files and this `schemata`, and level 3 caches of these CPUs by their IDs.
pub(crate) fn machine(vendor: &str, info: &[(&str, &str)], schemata: &str, caches: &[(u32, &str)]) -> SavedFiles {
    let root = SavedFiles::new();
    root.put("proc/cpuinfo", &format!("processor\t: 0\n{vendor}\n"));
    root.put("proc/mounts", "resctrl /sys/fs/resctrl resctrl rw,relatime 0 0\n");
    for (file, text) in info {
        root.put(&format!("sys/fs/resctrl/info/{file}"), &format!("{text}\n"));
    }
    root.put("sys/fs/resctrl/info/last_cmd_status", "ok\n");
    root.put("sys/fs/resctrl/schemata", schemata);
    root.put("sys/fs/resctrl/tasks", "1\n2\n");
    let mut all = CpuSet::new();
    for (id, cpus) in caches {
        for cpu in cpus.parse::<CpuSet>().unwrap().iter() {
            let folder = format!("sys/devices/system/cpu/cpu{}/cache/index3", cpu.0);
            root.put(&format!("{folder}/level"), "3\n");
            root.put(&format!("{folder}/id"), &format!("{id}\n"));
            all.insert(cpu);
        }
        root.put(&format!("sys/fs/resctrl/mon_data/mon_L3_{id:02}/mbm_total_bytes"), "0\n");
    }
    root.put("sys/fs/resctrl/cpus_list", &format!("{all}\n"));
    root
}

impl Kernel {
    pub(crate) fn of(root: SavedFiles, classes: usize, contiguous: bool) -> Self {
        let kernel = Self { root: Arc::new(root), classes, contiguous, log: Arc::default() };
        fs::copy(kernel.path("schemata"), kernel.root.path().join("at-start")).unwrap();
        kernel
    }

    pub(crate) fn resctrl(&self) -> Resctrl {
        Resctrl::with_files(Box::new(self.clone()), self.root.path())
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        self.root.put(&format!("sys/fs/resctrl/{path}"), text);
    }

    /// Unmounts it, as root may at any time.
    pub(crate) fn unmount(&self) {
        fs::remove_dir_all(self.path("")).unwrap();
        fs::create_dir(self.path("")).unwrap();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join("sys/fs/resctrl").join(path)
    }

    fn fail(&self, kind: io::ErrorKind, status: &str) -> io::Error {
        self.put("info/last_cmd_status", &format!("{status}\n"));
        kind.into()
    }

    fn cpus(&self, group: &str) -> CpuSet {
        fs::read_to_string(self.path(group).join("cpus_list")).unwrap().trim().parse().unwrap()
    }

    fn set_cpus(&self, group: &str, cpus: &CpuSet) {
        fs::write(self.path(group).join("cpus_list"), format!("{cpus}\n")).unwrap();
    }

    /// The kernel's answer to a line of `schemata`.
    fn merge(&self, group: &str, line: &str) -> io::Result<()> {
        let refused = |why: &str| self.fail(io::ErrorKind::InvalidInput, why);
        let wanted = parse_schemata(line.strip_suffix('\n').ok_or_else(|| refused("no line end"))?);
        let now = parse_schemata(&fs::read_to_string(self.path(group).join("schemata"))?);
        let mut text = String::new();
        for resource in ["L3", "L3CODE", "L3DATA", "MB"] {
            let had: BTreeMap<u32, u64> = now.domains(resource).collect();
            for (domain, value) in wanted.domains(resource) {
                let run = value >> value.trailing_zeros().min(63);
                if !had.contains_key(&domain) {
                    return Err(refused("Unknown domain"));
                } else if resource.starts_with('L') && (value == 0 || self.contiguous && run & (run + 1) != 0) {
                    return Err(refused(&format!("The mask {value:x} has non-consecutive 1-bits")));
                }
            }
            let merged = had.into_iter().map(|(domain, had)| {
                let value = wanted.value(resource, domain).unwrap_or(had);
                if resource == "MB" { format!("{domain}={value:4}") } else { format!("{domain}={value:x}") }
            });
            let merged: Vec<String> = merged.collect();
            if !merged.is_empty() {
                text.extend([resource, ":", &merged.join(";"), "\n"]);
            }
        }
        fs::write(self.path(group).join("schemata"), text)
    }
}

impl ResctrlFiles for Kernel {
    fn read(&self, path: &str) -> io::Result<String> {
        fs::read_to_string(self.path(path))
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let (group, file) = path.rsplit_once('/').unwrap_or(("", path));
        self.log.lock().unwrap().push(format!("{path} {}", text.trim()));
        if file == "schemata" {
            return self.merge(group, text);
        }
        assert_eq!((file, group.is_empty()), ("cpus_list", false), "{path}");
        if let Some((parent, _)) = monitored(group) {
            let wanted = text.trim().parse::<CpuSet>().unwrap();
            if !wanted.is_subset(&self.cpus(parent)) {
                return Err(
                    self.fail(io::ErrorKind::InvalidInput, "Can only add CPUs to mongroup that belong to parent")
                );
            }
            self.set_cpus(group, &wanted);
            return Ok(());
        }
        let (had, wanted) = (self.cpus(group), text.trim().parse::<CpuSet>().unwrap());
        for other in self.groups()?.iter().map(String::as_str).chain([""]) {
            let given_up = had.iter().filter(|&cpu| other.is_empty() && !wanted.contains(cpu));
            let left = self.cpus(other).iter().filter(|&cpu| !wanted.contains(cpu)).chain(given_up).collect();
            self.set_cpus(other, &left);
        }
        self.set_cpus(group, &wanted);
        Ok(())
    }

    fn make_group(&self, name: &str) -> io::Result<()> {
        if self.path(name).exists() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if monitored(name).is_some() {
            self.log.lock().unwrap().push(format!("mkdir {name}"));
            self.put(&format!("{name}/cpus_list"), "\n");
            return Ok(());
        }
        if self.groups()?.len() + 1 >= self.classes {
            return Err(self.fail(io::ErrorKind::StorageFull, "Out of CLOSIDs"));
        }
        self.log.lock().unwrap().push(format!("mkdir {name}"));
        fs::create_dir(self.path(name))?;
        for (file, text) in [("cpus_list", "\n"), ("tasks", "")] {
            self.put(&format!("{name}/{file}"), text);
        }
        // A new group has all.
        fs::copy(self.root.path().join("at-start"), self.path(name).join("schemata")).map(drop)
    }

    fn remove_group(&self, name: &str) -> io::Result<()> {
        self.log.lock().unwrap().push(format!("rmdir {name}"));
        if monitored(name).is_some() {
            return fs::remove_dir_all(self.path(name));
        }
        let back = self.cpus("").iter().chain(self.cpus(name).iter()).collect();
        self.set_cpus("", &back);
        fs::remove_dir_all(self.path(name))
    }

    fn groups(&self) -> io::Result<Vec<String>> {
        let no_groups = ["info", "mon_data", "mon_groups"].map(|name| self.path(name));
        let folders = fs::read_dir(self.path(""))?.flatten().map(|entry| entry.path());
        let groups = folders.filter(|path| path.is_dir() && !no_groups.contains(path));
        let mut names: Vec<String> = groups.map(|path| name_of(&path)).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn monitoring_groups(&self, group: &str) -> io::Result<Vec<String>> {
        let folders = fs::read_dir(self.path(group).join("mon_groups")).into_iter().flatten().flatten();
        Ok(folders.map(|entry| name_of(&entry.path())).collect())
    }

    fn lock(&self) -> io::Result<Option<File>> {
        Ok(None)
    }
}

/// The group of a monitoring group, and the name that it has there.
fn monitored(name: &str) -> Option<(&str, &str)> {
    name.split_once("/mon_groups/").or_else(|| Some(("", name.strip_prefix("mon_groups/")?)))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// What a group may take now.
pub(crate) fn schemata(kernel: &Kernel, group: &str) -> Schemata {
    parse_schemata(&fs::read_to_string(kernel.path(group).join("schemata")).unwrap())
}
