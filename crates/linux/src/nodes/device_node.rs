//! The NUMA node of a device, with devices named as in numactl.

use machine::{Device, DeviceKind, NodeId, NodeSet, bounded};
use std::fs;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The nodes of a device, from `sys`, the /sys directory: its own node, or that of the nearest bus that has one. Needs
/// no privileges. The error text says what was examined.
pub fn device_nodes(sys: &Path, device: &Device) -> Result<NodeSet, String> {
    let class = |class: &str, name: &str| sys.join("class").join(class).join(name);
    let folder = match device.kind {
        DeviceKind::Network => class("net", plain(&device.name)?),
        DeviceKind::Block => class("block", plain(&device.name)?),
        DeviceKind::Host => class("net", &interface_to(&device.name)?),
        DeviceKind::File => block_device_of(sys, Path::new(&device.name))?,
        DeviceKind::Pci => {
            let address = pci_address(&device.name).ok_or("a PCI device is [segment:]bus:device[.function]")?;
            sys.join("bus/pci/devices").join(address)
        }
    };
    let real = fs::canonicalize(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    nearest_node(&real).ok_or_else(|| {
        format!(
            "{} and its parent devices have no numa_node: the firmware does not report their location",
            real.display()
        )
    })
}

/// Rejects names that would leave their directory.
fn plain(name: &str) -> Result<&str, String> {
    let plain = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
    if plain { Ok(name) } else { Err(format!("`{name}` is not a device name")) }
}

/// Walks from a device up its buses to the first that has a node.
fn nearest_node(device: &Path) -> Option<NodeSet> {
    let node = |folder: &Path| {
        let text = bounded::text(folder.join("numa_node")).or_else(|_| bounded::text(folder.join("device/numa_node")));
        // -1 if the node is unknown.
        text.ok()?.trim().parse().ok().map(NodeId)
    };
    device.ancestors().find_map(node).map(|node| [node].into_iter().collect())
}

/// Parses `[segment:]bus:device[.function]`, in hexadecimal as in /sys.
fn pci_address(text: &str) -> Option<String> {
    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
    let (place, function) = text.rsplit_once('.').unwrap_or((text, "0"));
    let parts: Vec<&str> = place.split(':').collect();
    let (segment, bus, device) = match parts[..] {
        [bus, device] => ("0", bus, device),
        [segment, bus, device] => (segment, bus, device),
        _ => return None,
    };
    Some(format!("{:04x}:{:02x}:{:02x}.{:x}", hex(segment)?, hex(bus)?, hex(device)?, hex(function)?))
}

/// The block device that holds a file or, for a device file, that device.
fn block_device_of(sys: &Path, path: &Path) -> Result<PathBuf, String> {
    let file = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let number = if file.file_type().is_block_device() { file.st_rdev() } else { file.st_dev() };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let folder = sys.join(format!("dev/block/{major}:{minor}"));
    let lost = || format!("{} is on device {major}:{minor}, which is not a block device", path.display());
    if folder.exists() { Ok(folder) } else { Err(lost()) }
}

/// The network device on the route to a host. Sends no packets, but may query a name server.
fn interface_to(host: &str) -> Result<String, String> {
    let failed = |what: &str, error: std::io::Error| format!("{what} {host}: {error}");
    let unknown = || format!("the host {host} is unknown");
    let address = (host, 9).to_socket_addrs().map_err(|error| failed("cannot look up", error))?.next();
    let address = address.ok_or_else(unknown)?;
    let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    // A connected socket has the address of the interface that the kernel would send from.
    let local = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(address)?;
        socket.local_addr()
    });
    let local = local.map_err(|error| failed("no route to", error))?.ip();
    let table =
        crate::nodes::interfaces::with_addresses().map_err(|error| failed("cannot list the interfaces for", error))?;
    let found = table.into_iter().find(|(_, address)| *address == local);
    found.map(|(name, _)| name).ok_or_else(|| format!("no interface has the address {local}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn device(kind: DeviceKind, name: &str) -> Device {
        Device { kind, name: name.to_owned() }
    }

    #[test]
    fn a_device_is_where_its_bus_is() {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path();
        let bus = sys.join("devices/pci0000:3a/0000:3a:00.0");
        fs::create_dir_all(bus.join("0000:3b:00.0/net/eth0")).unwrap();
        fs::create_dir_all(bus.join("0000:3b:00.1/virtual")).unwrap();
        for folder in ["class/net", "class/block", "bus/pci/devices"] {
            fs::create_dir_all(sys.join(folder)).unwrap();
        }
        symlink(bus.join("0000:3b:00.0/net/eth0"), sys.join("class/net/eth0")).unwrap();
        symlink(bus.join("0000:3b:00.1"), sys.join("bus/pci/devices/0000:3b:00.1")).unwrap();
        let nodes = |kind, name: &str| device_nodes(sys, &device(kind, name)).map(|nodes| nodes.to_string());
        assert!(nodes(DeviceKind::Network, "eth0").unwrap_err().contains("no numa_node"));
        fs::write(bus.join("0000:3b:00.0/numa_node"), "-1\n").unwrap();
        fs::write(bus.join("numa_node"), "1\n").unwrap();
        assert_eq!(nodes(DeviceKind::Network, "eth0"), Ok("1".to_owned()));
        assert_eq!(nodes(DeviceKind::Pci, "3b:0.1"), Ok("1".to_owned()));
        for name in ["..", "a/b", "", "eth1"] {
            assert!(nodes(DeviceKind::Network, name).is_err(), "{name}");
        }
        assert!(nodes(DeviceKind::Pci, "x").is_err() && nodes(DeviceKind::File, "/nowhere").is_err());
        assert!(nodes(DeviceKind::File, "/proc/self/maps").unwrap_err().contains("not a block device"));
    }

    #[test]
    fn a_host_is_behind_an_interface() {
        assert_eq!(interface_to("127.0.0.1").unwrap(), "lo");
        assert!(interface_to("host that is none").is_err());
    }

    #[test]
    fn addresses_of_pci_have_optional_parts() {
        assert_eq!(pci_address("0000:3b:00.1").as_deref(), Some("0000:3b:00.1"));
        assert_eq!(pci_address("3b:1f").as_deref(), Some("0000:3b:1f.0"));
        assert!(["", "3b", "a:b:c:d", "3b:zz"].iter().all(|text| pci_address(text).is_none()));
    }
}
