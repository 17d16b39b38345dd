//! PCI devices.

use machine::bounded;
use std::fs;
use std::path::{Path, PathBuf};

/// The directory of the first PCI device with these IDs, if there is one. `sys` is `/sys`. Needs no privileges.
pub fn pci_device(sys: &Path, vendor: u16, device: u16) -> Option<PathBuf> {
    let number = |folder: &Path, file| {
        let text = bounded::text(folder.join(file)).ok()?;
        u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
    };
    let mut folders: Vec<PathBuf> =
        fs::read_dir(sys.join("bus/pci/devices")).ok()?.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    folders
        .into_iter()
        .find(|folder| number(folder, "vendor") == Some(vendor) && number(folder, "device") == Some(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_its_numbers() -> std::io::Result<()> {
        let sys = tempfile::tempdir()?;
        for (address, vendor, device) in [("0000:00:02.0", "0x8086", "0x1237"), ("0000:00:03.0", "0x1af4", "0x1110")] {
            let folder = sys.path().join("bus/pci/devices").join(address);
            fs::create_dir_all(&folder)?;
            fs::write(folder.join("vendor"), format!("{vendor}\n"))?;
            fs::write(folder.join("device"), format!("{device}\n"))?;
        }
        let found = pci_device(sys.path(), 0x1af4, 0x1110);
        assert_eq!(found, Some(sys.path().join("bus/pci/devices/0000:00:03.0")));
        assert_eq!(pci_device(sys.path(), 0x1af4, 0x1041), None);
        assert_eq!(pci_device(&sys.path().join("none"), 0x1af4, 0x1110), None);
        Ok(())
    }
}
