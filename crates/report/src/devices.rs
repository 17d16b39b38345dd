//! Devices beside their nodes, and the nodes that serve their interrupts.

use crate::Table;
use crate::layout::Layout;
use machine::{CpuSet, NodeId, NodeSet, PciDevice, PciKind};
use serde::Serialize;
use std::fmt;

/// Devices, by node.
pub(crate) fn devices_table(devices: &[PciDevice]) -> Table {
    let mut table = Table::new(["node", "PCI address", "device", "names"]);
    for device in by_node(devices) {
        table.row(cells(device));
    }
    table
}

/// Devices of unknown nodes come last.
fn by_node(devices: &[PciDevice]) -> Vec<&PciDevice> {
    let mut devices: Vec<&PciDevice> = devices.iter().collect();
    devices.sort_by_key(|device| (device.node.is_none(), device.node));
    devices
}

fn cells(device: &PciDevice) -> [String; 4] {
    let names = if device.names.is_empty() { "-".to_owned() } else { device.names.join(", ") };
    [node_text(device.node), device.address.clone(), device.kind.to_string(), names]
}

fn node_text(node: Option<NodeId>) -> String {
    node.map_or_else(|| "unknown".to_owned(), |node| node.to_string())
}

/// Devices and their interrupts, for `nearside doctor --devices`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DevicesReport {
    /// The number of nodes: with one, no device is far from anything.
    pub nodes: usize,
    /// Every device, in the order of addresses.
    pub devices: Vec<DeviceReport>,
}

/// A device and its interrupts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceReport {
    /// The device.
    #[serde(flatten)]
    pub device: PciDevice,
    /// The nodes whose CPUs serve its interrupts.
    pub interrupt_nodes: NodeSet,
    /// The interrupts that only CPUs of other nodes serve; none if its node is unknown.
    pub far_interrupts: Vec<u32>,
}

impl DeviceReport {
    /// Judges a device by the CPUs that serve each of its interrupts. `node_of` finds the nodes of CPUs. A node without
    /// CPUs has no interrupts that could be near. Disks are judged by all their interrupts together: the kernel gives
    /// each CPU a queue, whose interrupt cannot be moved (genirq's managed interrupts).
    pub fn new(
        device: PciDevice,
        interrupts: &[(u32, CpuSet)],
        node_of: impl Fn(&CpuSet) -> NodeSet,
        with_cpus: &NodeSet,
    ) -> Self {
        let all = interrupts.iter().flat_map(|(_, cpus)| node_of(cpus).iter().collect::<Vec<_>>()).collect();
        let is_far =
            |cpus: &CpuSet| device.node.is_some_and(|node| with_cpus.contains(node) && !node_of(cpus).contains(node));
        let is_disk = matches!(device.kind, PciKind::Nvme | PciKind::Storage);
        let is_spread = is_disk && interrupts.iter().any(|(_, cpus)| !is_far(cpus));
        let far = interrupts.iter().filter(|(_, cpus)| !is_spread && is_far(cpus)).map(|(number, _)| *number).collect();
        Self { device, interrupt_nodes: all, far_interrupts: far }
    }
}

impl DevicesReport {
    /// Whether nothing is to be done: no interrupt is far, and on a machine of several nodes each device's is known.
    pub fn is_fine(&self) -> bool {
        let is_fine = |device: &DeviceReport| device.far_interrupts.is_empty() && device.device.node.is_some();
        self.nodes < 2 || self.devices.iter().all(is_fine)
    }
}

impl fmt::Display for DevicesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.devices.len();
        let far = self.devices.iter().filter(|device| !device.far_interrupts.is_empty()).count();
        let unknown = self.devices.iter().filter(|device| device.device.node.is_none()).count();
        let layout = Layout::of(f);
        let title = match (count, self.nodes) {
            (0, _) => return writeln!(f, "No network cards, disks or other processors on PCI"),
            (_, 1) => format!("Devices: {count}; this machine has one node, so all are near"),
            _ => format!("Devices: {count}; with interrupts on other nodes: {far}; at unknown nodes: {unknown}"),
        };
        f.write_str(&layout.wrapped("", &title))?;
        let mut table = Table::new(["node", "PCI address", "device", "names", "interrupts", "served by nodes"]);
        for DeviceReport { device, interrupt_nodes, .. } in &self.devices {
            let nodes = if interrupt_nodes.is_empty() { "-".to_owned() } else { interrupt_nodes.to_string() };
            let rest = [device.interrupts.len().to_string(), nodes];
            table.row(cells(device).into_iter().chain(rest));
        }
        writeln!(f)?;
        fmt::Display::fmt(&table, f)?;
        if self.nodes < 2 {
            return Ok(());
        }
        for DeviceReport { device, far_interrupts, .. } in &self.devices {
            let name = device.names.first().unwrap_or(&device.address);
            let (Some(node), Some(first)) = (device.node, far_interrupts.first()) else { continue };
            let (far, all) = (far_interrupts.len(), device.interrupts.len());
            let why = format!("{name}: CPUs of other nodes serve {far} of its {all} interrupts; it is at node {node}");
            write!(f, "\n{}", layout.wrapped("", &why))?;
            f.write_str(&layout.wrapped("  ", "for each of them (irqbalance may move them back):"))?;
            let list = format!("/sys/devices/system/node/node{node}/cpulist");
            f.write_str(&layout.wrapped("  ", &format!("cat {list} | sudo tee /proc/irq/{first}/smp_affinity_list")))?;
        }
        if unknown > 0 {
            let why = "unknown: the firmware does not report the node of these devices (numa_node is -1)";
            let cure = "a newer firmware, or the slot's processor in the board's manual";
            write!(f, "\n{}{}", layout.wrapped("", why), layout.wrapped("  ", cure))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MachineText;

    fn device(address: &str, kind: PciKind, names: &[&str], node: Option<u32>, interrupts: &[u32]) -> PciDevice {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        PciDevice { address: address.to_owned(), kind, names, node: node.map(NodeId), interrupts: interrupts.to_vec() }
    }

    fn report(nodes: usize) -> DevicesReport {
        let node_of = |cpus: &CpuSet| cpus.iter().map(|cpu| NodeId(cpu.0 / 4)).collect::<NodeSet>();
        let with_cpus: NodeSet = "0-1".parse().unwrap();
        let judged = |device: PciDevice, cpus: &[(u32, &str)]| {
            let cpus: Vec<_> = cpus.iter().map(|(number, cpus)| (*number, cpus.parse().unwrap())).collect();
            DeviceReport::new(device, &cpus, node_of, &with_cpus)
        };
        let card = device("0000:3b:00.0", PciKind::Network, &["eth0", "mlx5_0"], Some(1), &[40, 41, 42]);
        let disk = device("0000:5e:00.0", PciKind::Nvme, &["nvme0n1"], Some(0), &[50, 51]);
        let memory = device("0000:80:00.0", PciKind::CxlMemory, &[], Some(2), &[60]);
        let devices = vec![
            judged(card, &[(40, "0-7"), (41, "2"), (42, "5")]),
            judged(disk, &[(50, "1"), (51, "5")]),
            judged(memory, &[(60, "1")]),
            judged(device("0000:af:00.0", PciKind::Graphics, &["card0"], None, &[]), &[]),
        ];
        DevicesReport { nodes, devices }
    }

    #[test]
    fn interrupts_on_other_nodes_are_found() {
        let report = report(3);
        assert_eq!(report.devices[0].far_interrupts, [41]);
        assert_eq!(report.devices[0].interrupt_nodes.to_string(), "0-1");
        // A node without CPUs cannot serve any.
        assert!(report.devices[1..].iter().all(|device| device.far_interrupts.is_empty()));
        assert!(!report.is_fine() && super::DevicesReport { nodes: 1, ..report.clone() }.is_fine());
        let text = report.to_string();
        assert!(text.starts_with("Devices: 4; with interrupts on other nodes: 1; at unknown nodes: 1\n"), "{text}");
        for part in [
            "\neth0: CPUs of other nodes serve 1 of its 3 interrupts; it is at node 1\n",
            "/node1/cpulist | sudo tee /proc/irq/41/smp_affinity_list\n",
            "\nunknown: the firmware does not report the node of these devices",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn unknown_nodes_are_the_last() {
        let devices: Vec<PciDevice> = report(3).devices.into_iter().rev().map(|device| device.device).collect();
        let text = devices_table(&devices).to_string();
        let addresses: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(addresses, ["0000:5e:00.0", "0000:3b:00.0", "0000:80:00.0", "0000:af:00.0"], "{text}");
        assert!(text.lines().last().is_some_and(|line| line.starts_with("unknown ")), "{text}");
        // Below a heading, as every table of a machine.
        let machine = machine::presets::find("small-2x2").unwrap();
        let text = MachineText::new(&machine).with_devices(&devices).to_string();
        let of_devices = text.split("\nDevices\n").nth(1).unwrap();
        assert!(of_devices.lines().all(|line| line.starts_with("  ")), "{text}");
        assert!(!MachineText::new(&machine).to_string().contains("Devices"));
    }
}
