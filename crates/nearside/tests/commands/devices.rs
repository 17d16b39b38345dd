//! Devices of saved systems, in `topology` and `doctor --devices`.

use assert_cmd::Command;
use saved_files::SavedFiles;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

fn nearside(arguments: &[&str]) -> std::process::Output {
    Command::cargo_bin("nearside").unwrap().args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Two nodes with a network card, a disk on virtio and an `NVMe` disk, behind links as the kernel has them. CPU 1, of the
/// other node, serves the interrupt of the network card.
fn system() -> SavedFiles {
    let system = SavedFiles::new();
    for node in 0..2 {
        let folder = format!("sys/devices/system/node/node{node}");
        system.put(&format!("{folder}/cpulist"), &format!("{node}\n"));
        system.put(&format!("{folder}/distance"), if node == 0 { "10 20\n" } else { "20 10\n" });
        system.put(&format!("{folder}/meminfo"), &format!("Node {node} MemTotal: 1048576 kB\n"));
    }
    system.put("sys/devices/system/node/online", "0-1\n");
    system.put("sys/devices/system/cpu/online", "0-1\n");
    let links = system.path().join("sys/bus/pci/devices");
    fs::create_dir_all(&links).unwrap();
    for (address, class, node, part) in [
        ("0000:00:03.0", "0x020000", 0, "virtio2/net/eth0/mtu"),
        ("0000:00:04.0", "0x010000", 1, "virtio3/block/vda/size"),
        ("0000:00:05.0", "0x010802", 1, "nvme/nvme0/nvme0n1/size"),
    ] {
        let folder = format!("sys/devices/pci0000:00/{address}");
        system.put(&format!("{folder}/class"), &format!("{class}\n"));
        system.put(&format!("{folder}/numa_node"), &format!("{node}\n"));
        system.put(&format!("{folder}/irq"), "7\n");
        system.put(&format!("{folder}/{part}"), "1\n");
        symlink(format!("../../../devices/pci0000:00/{address}"), links.join(address)).unwrap();
    }
    system.put("sys/devices/pci0000:00/0000:00:03.0/msi_irqs/40", "msix\n");
    system.put("proc/irq/40/effective_affinity_list", "1\n");
    system
}

/// Runs the line of docs/topology.md that saves a machine, or its part without devices, on these files.
fn saved(system: &Path, with_devices: bool) -> PathBuf {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/topology.md");
    let manual = fs::read_to_string(manual).unwrap();
    let block = manual.split("```bash\n").nth(1).and_then(|rest| rest.split("\nnearside topology").next()).unwrap();
    let pci = block.find("\\\n").unwrap();
    let line = if with_devices { block } else { &block[..pci] };
    assert_eq!(with_devices, line.contains("/sys/bus/pci/devices"), "{line}");
    let line = line.replace("/sys/", &format!("{}/sys/", system.display()));
    Command::new("bash").args(["-c", &line]).current_dir(system).assert().success();
    system.join("machine.tar.gz")
}

#[test]
fn the_archive_of_the_manual_has_the_devices() {
    let system = system();
    let archive = saved(system.path(), true);
    let shown = nearside(&["topology", "--from", archive.to_str().unwrap()]);
    let live = nearside(&["topology", "--from", system.path().to_str().unwrap()]);
    let table = |output: &[u8]| text(output).split("\nDevices\n").nth(1).unwrap_or_default().to_owned();
    assert_eq!(table(&shown.stdout), table(&live.stdout));
    let shown = table(&shown.stdout);
    let rows: Vec<Vec<&str>> = shown.lines().skip(1).map(|row| row.split_whitespace().collect()).collect();
    let expected = [
        ["0", "0000:00:03.0", "network", "eth0"],
        ["1", "0000:00:04.0", "storage", "vda"],
        ["1", "0000:00:05.0", "NVMe", "nvme0n1"],
    ];
    assert_eq!(rows, expected);
}

#[test]
fn an_archive_without_devices_has_the_same_machine() {
    let system = system();
    let shown = nearside(&["topology", "--from", saved(system.path(), false).to_str().unwrap()]);
    let (of_archive, of_folder) =
        (text(&shown.stdout), nearside(&["topology", "--from", system.path().to_str().unwrap()]));
    assert!(shown.status.success() && of_archive.contains("2 nodes"), "{of_archive}");
    assert_eq!(text(&of_folder.stdout).split("\nDevices\n").next().unwrap().trim_end(), of_archive.trim_end());
}

#[test]
fn doctor_judges_interrupts_of_a_saved_system() {
    let system = system();
    let root = system.path().to_str().unwrap();
    let judged = nearside(&["doctor", "--devices", "--root", root]);
    let said = text(&judged.stdout);
    assert_eq!(judged.status.code(), Some(3), "{said}");
    assert!(said.contains("Devices: 3; with interrupts on other nodes: 1; at unknown nodes: 0"), "{said}");
    assert!(said.contains("eth0: CPUs of other nodes serve 1 of its 1 interrupts; it is at node 0"), "{said}");

    // tar saves the files of /proc empty: no interrupt is judged by them.
    system.put("proc/irq/40/effective_affinity_list", "");
    let judged = nearside(&["doctor", "--devices", "--root", root]);
    assert!(judged.status.success(), "{}", text(&judged.stdout));

    let refused = nearside(&["doctor", "--root", root]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--root needs --devices"), "{}", text(&refused.stderr));
}
