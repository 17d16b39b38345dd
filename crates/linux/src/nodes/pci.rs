//! PCI devices.

use machine::bounded;
use std::fs;
use std::path::{Path, PathBuf};

/// The memory of the first PCI device with these IDs whose file has this name and size, if there is one. `sys` is `/sys`.
/// Needs no privileges.
pub fn pci_memory(sys: &Path, (vendor, device): (u16, u16), resource: &str, bytes: u64) -> Option<PathBuf> {
    let number = |folder: &Path, file| {
        let text = bounded::text(folder.join(file)).ok()?;
        u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
    };
    let mut folders: Vec<PathBuf> =
        fs::read_dir(sys.join("bus/pci/devices")).ok()?.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    folders
        .into_iter()
        .filter(|folder| number(folder, "vendor") == Some(vendor) && number(folder, "device") == Some(device))
        .map(|folder| folder.join(resource))
        .find(|file| fs::metadata(file).is_ok_and(|file| file.len() == bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_devices_memory_is_found_by_its_numbers_and_size() -> std::io::Result<()> {
        let sys = tempfile::tempdir()?;
        let devices = [
            ("0000:00:02.0", "0x8086", "0x1237", 64),
            ("0000:00:03.0", "0x1af4", "0x1110", 64),
            ("0000:00:04.0", "0x1af4", "0x1110", 32),
        ];
        for (address, vendor, device, bytes) in devices {
            let folder = sys.path().join("bus/pci/devices").join(address);
            fs::create_dir_all(&folder)?;
            fs::write(folder.join("vendor"), format!("{vendor}\n"))?;
            fs::write(folder.join("device"), format!("{device}\n"))?;
            fs::write(folder.join("resource2"), vec![0; bytes])?;
        }
        let found = |device, bytes| pci_memory(sys.path(), (0x1af4, device), "resource2", bytes);
        let at = |address| Some(sys.path().join("bus/pci/devices").join(address).join("resource2"));
        assert_eq!((found(0x1110, 64), found(0x1110, 32)), (at("0000:00:03.0"), at("0000:00:04.0")));
        assert_eq!((found(0x1110, 128), found(0x1041, 64)), (None, None));
        assert_eq!(pci_memory(&sys.path().join("none"), (0x1af4, 0x1110), "resource2", 64), None);
        Ok(())
    }
}
