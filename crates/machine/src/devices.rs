//! Devices and the nodes that they are at: network cards, disks, graphics and other processors on PCI.

use crate::files::{Archive, Files};
use crate::ids::NodeId;
use crate::set::CpuSet;
use serde::Serialize;
use std::fmt;
use std::path::Path;

const PCI: &str = "bus/pci/devices";

/// A PCI device that moves data. Bridges and controllers of buses are none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PciDevice {
    /// Its address, such as `0000:3b:00.0`.
    pub address: String,
    /// What it is.
    pub kind: PciKind,
    /// The kernel's names for it, such as `eth0`, `nvme0n1`, `card0`, in alphabetical order; none without a driver.
    pub names: Vec<String>,
    /// Its node, as the firmware reports it; `None` if the firmware does not: the kernel's -1.
    pub node: Option<NodeId>,
    /// The interrupts that it has, by the kernel's numbers, in ascending order.
    pub interrupts: Vec<u32>,
}

/// What a PCI device is, by its class code (PCI Code and ID Assignment Specification, section 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PciKind {
    /// A network card, also for InfiniBand: 02.
    Network,
    /// A disk of an `NVMe` controller: 01.08.
    Nvme,
    /// Another controller of disks: 01, and 0c.04 for Fibre Channel.
    Storage,
    /// A graphics processor: 03.
    Graphics,
    /// Another processor: 0b, 12.
    Accelerator,
    /// Memory on CXL: 05.02.
    CxlMemory,
}

impl PciKind {
    fn of_class(class: u32) -> Option<Self> {
        match (class >> 16, (class >> 8) & 0xff) {
            (0x01, 0x08) => Some(Self::Nvme),
            (0x01, _) | (0x0c, 0x04) => Some(Self::Storage),
            (0x02, _) => Some(Self::Network),
            (0x03, _) => Some(Self::Graphics),
            (0x05, 0x02) => Some(Self::CxlMemory),
            (0x0b | 0x12, _) => Some(Self::Accelerator),
            _ => None,
        }
    }
}

impl fmt::Display for PciKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network => "network",
            Self::Nvme => "NVMe",
            Self::Storage => "storage",
            Self::Graphics => "graphics",
            Self::Accelerator => "accelerator",
            Self::CxlMemory => "CXL memory",
        })
    }
}

impl PciDevice {
    /// The devices of a sysfs tree, `/sys` or a saved one, in the order of their addresses. Those that cannot be read
    /// are left out. Needs no privileges.
    pub fn all_of_sysfs(root: &Path) -> Vec<Self> {
        all(&Files::Folder(root.to_owned()))
    }

    /// The devices in an archive of a sysfs tree; none if it is no such archive.
    pub fn all_of_archive(bytes: &[u8]) -> Vec<Self> {
        let Ok(archive) = Archive::read(bytes) else { return Vec::new() };
        archive.sysfs().map_or_else(Vec::new, |root| all(&Files::Archive { archive, root }))
    }

    /// The CPUs that may serve each of its interrupts, from `proc`, the folder /proc. Interrupts without a file, or with
    /// one that cannot be read, are left out.
    pub fn interrupt_cpus(&self, proc: &Path) -> Vec<(u32, CpuSet)> {
        let files = Files::Folder(proc.to_owned());
        // The CPU that the kernel chose, or where it does not tell, those from which it may choose.
        let names = ["effective_affinity_list", "smp_affinity_list"];
        let cpus = |number: &u32| {
            let found = names.iter().find_map(|name| {
                let text = files.text(&format!("irq/{number}/{name}")).ok()?;
                text.trim().parse::<CpuSet>().ok().filter(|cpus| !cpus.is_empty())
            });
            found.map(|cpus| (*number, cpus))
        };
        self.interrupts.iter().filter_map(cpus).collect()
    }
}

fn all(files: &Files) -> Vec<PciDevice> {
    let mut addresses = files.names(PCI);
    addresses.sort();
    let mut left = MOST_FOLDERS;
    let mut read = |address| {
        let mut own = left.min(MOST_OF_DEVICE);
        left -= own;
        let device = device(files, address, &mut own);
        left += own;
        device
    };
    addresses.into_iter().filter_map(&mut read).collect()
}

/// One device, whose names are searched in at most this number of folders.
fn device(files: &Files, address: String, folders: &mut usize) -> Option<PciDevice> {
    let folder = format!("{PCI}/{address}");
    let text = |name: &str| files.text(&format!("{folder}/{name}")).ok().map(|text| text.trim().to_owned());
    let class = u32::from_str_radix(text("class")?.strip_prefix("0x")?, 16).ok()?;
    let kind = PciKind::of_class(class)?;
    let node = text("numa_node").and_then(|node| node.parse().ok()).map(NodeId);
    let mut names = Vec::new();
    find_names(files, &folder, folders, &mut names);
    names.sort();
    names.dedup();
    let message = files.names(&format!("{folder}/msi_irqs"));
    let mut interrupts: Vec<u32> = message.iter().filter_map(|number| number.parse().ok()).collect();
    if interrupts.is_empty() {
        // 0 if it has none.
        interrupts.extend(text("irq").and_then(|number| number.parse().ok()).filter(|&number: &u32| number > 0));
    }
    interrupts.sort_unstable();
    Some(PciDevice { address, kind, names, node, interrupts })
}

/// Folders of a device whose entries are what users know it by.
const NAMED: [&str; 4] = ["net", "block", "drm", "infiniband"];
/// Most folders of all devices, and of one, that are looked into: thousands of disks have fewer, and links of a saved tree
/// may lead back.
const MOST_FOLDERS: usize = 50_000;
const MOST_OF_DEVICE: usize = 10_000;

/// Collects the names of what a device's driver made of it, in at most this number of folders.
fn find_names(files: &Files, folder: &str, folders: &mut usize, names: &mut Vec<String>) {
    if *folders == 0 {
        return;
    }
    *folders -= 1;
    for entry in files.names(folder) {
        let below = format!("{folder}/{entry}");
        if NAMED.contains(&entry.as_str()) {
            // Outputs of graphics cards (card0-HDMI-A-1) and their twins for rendering (renderD128) are no devices.
            let is_device = |name: &String| entry != "drm" || (name.starts_with("card") && !name.contains('-'));
            names.extend(files.names(&below).into_iter().filter(is_device));
        } else if is_namespace(&entry) {
            names.push(entry);
        } else if is_part(&entry) {
            find_names(files, &below, folders, names);
        }
    }
}

/// Whether it is a disk of an `NVMe` controller, which stands right below it: `nvme0n1`, and with several paths `nvme0c0n1`.
fn is_namespace(name: &str) -> bool {
    name.strip_prefix("nvme")
        .is_some_and(|rest| rest.contains('n') && rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// How folders between a controller and its disks begin: those of SATA, SCSI, SAS (`port-0:0/end_device-0:0`), Fibre Channel
/// (`rport-7:0-0`), virtio and `NVMe`.
const PARTS: [&str; 9] = ["ata", "host", "target", "port-", "expander-", "end_device-", "rport-", "virtio", "nvme"];

/// Whether a folder belongs to a device's own tree. Links lead elsewhere, and have other names.
fn is_part(name: &str) -> bool {
    let scsi = || name.split(':').count() == 4 && name.split(':').all(|part| part.parse::<u32>().is_ok());
    PARTS.iter().any(|word| name.starts_with(word)) || scsi()
}

#[cfg(test)]
mod tests {
    use super::*;
    use saved_files::SavedFiles;

    /// A network card, an `NVMe` disk, a disk on SATA, a graphics card and a bridge, as kernel 6.12 lists them.
    fn tree() -> SavedFiles {
        let tree = SavedFiles::new();
        let put = |address: &str, class: &str, node: &str, files: &[&str]| {
            let folder = format!("sys/{PCI}/{address}");
            tree.put(&format!("{folder}/class"), class);
            tree.put(&format!("{folder}/numa_node"), node);
            for file in files {
                tree.put(&format!("{folder}/{file}"), "1\n");
            }
        };
        put("0000:00:1f.0", "0x060100\n", "0\n", &[]);
        put(
            "0000:3b:00.0",
            "0x020000\n",
            "1\n",
            &["net/eth0/mtu", "msi_irqs/41", "msi_irqs/40", "infiniband/mlx5_0/x"],
        );
        put("0000:5e:00.0", "0x010802\n", "0\n", &["nvme/nvme0/nvme0n1/size", "nvme/nvme0/model"]);
        let disk = "ata1/host0/target0:0:0/0:0:0:0/block/sda/size";
        put("0000:00:17.0", "0x010601\n", "-1\n", &[disk, "subsystem/block/sdz/size"]);
        let sas = "host1/port-1:0/expander-1:0/port-1:0:2/end_device-1:0:2/target1:0:2/1:0:2:0/block/sdb/size";
        put("0000:18:00.0", "0x010700\n", "0\n", &[sas]);
        let fibre = "host7/rport-7:0-0/target7:0:0/7:0:0:1/block/sdc/size";
        put("0000:19:00.0", "0x0c0400\n", "0\n", &[fibre]);
        put("0000:af:00.0", "0x030200\n", "1\n", &["drm/card0/x", "drm/card0-HDMI-A-1/x", "drm/renderD128/x"]);
        tree.put(&format!("sys/{PCI}/0000:3b:00.1/class"), "nonsense\n");
        tree.put("proc/irq/40/smp_affinity_list", "0-3\n");
        tree.put("proc/irq/41/smp_affinity_list", "0-3\n");
        tree.put("proc/irq/41/effective_affinity_list", "2\n");
        tree
    }

    #[test]
    fn devices_have_their_node_and_names() {
        let tree = tree();
        let devices = PciDevice::all_of_sysfs(&tree.path().join("sys"));
        let line = |device: &PciDevice| {
            let node = device.node.map_or("unknown".to_owned(), |node| node.to_string());
            format!("{} {} {} {}", device.address, device.kind, device.names.join(","), node)
        };
        assert_eq!(
            devices.iter().map(line).collect::<Vec<_>>(),
            [
                "0000:00:17.0 storage sda unknown",
                "0000:18:00.0 storage sdb 0",
                "0000:19:00.0 storage sdc 0",
                "0000:3b:00.0 network eth0,mlx5_0 1",
                "0000:5e:00.0 NVMe nvme0n1 0",
                "0000:af:00.0 graphics card0 1",
            ]
        );
        assert_eq!(PciDevice::all_of_sysfs(&tree.path().join("none")), []);
        // Links that lead back end as well.
        let disks = tree.path().join("sys").join(PCI).join("0000:18:00.0");
        for number in 100..200 {
            std::os::unix::fs::symlink(".", disks.join(format!("host{number}"))).unwrap();
        }
        let again = PciDevice::all_of_sysfs(&tree.path().join("sys"));
        assert_eq!(again.iter().map(line).collect::<Vec<_>>(), devices.iter().map(line).collect::<Vec<_>>());
    }

    #[test]
    fn interrupts_have_the_cpus_that_serve_them() {
        let tree = tree();
        let devices = PciDevice::all_of_sysfs(&tree.path().join("sys"));
        let card = devices.iter().find(|device| device.kind == PciKind::Network).unwrap();
        let cpus = card.interrupt_cpus(&tree.path().join("proc"));
        let lines: Vec<String> = cpus.iter().map(|(number, cpus)| format!("{number}: {cpus}")).collect();
        assert_eq!(lines, ["40: 0-3", "41: 2"]);
    }

    #[test]
    fn an_archive_has_the_same_devices() {
        let tree = tree();
        tree.put("sys/devices/system/cpu/online", "0-3\n");
        let mut archive = tar::Builder::new(Vec::new());
        archive.append_dir_all("saved", tree.path()).unwrap();
        let bytes = archive.into_inner().unwrap();
        assert_eq!(PciDevice::all_of_archive(&bytes), PciDevice::all_of_sysfs(&tree.path().join("sys")));
        assert_eq!(PciDevice::all_of_archive(b"none"), []);
    }
}
