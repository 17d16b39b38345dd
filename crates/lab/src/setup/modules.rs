//! The kernel modules that the guest needs before it has a root file system.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use lzma_rust2::XzReader;

use super::SetupError;

/// The modules that the guest needs to mount the host's files as its root, in loading order. `modules.dep`, which has
/// the order, is generated when a package is installed; these packages are only unpacked.
pub const GUEST_MODULES: [&str; 6] = [
    "fs/netfs/netfs",
    "net/9p/9pnet",
    "net/9p/9pnet_virtio",
    "fs/9p/9p",
    "fs/overlayfs/overlay",
    "drivers/char/virtio_console",
];

/// Upper limit of a module's size in bytes, far above real ones; a damaged archive could claim more.
const MODULE_LIMIT: u64 = 64 << 20;

/// Where a module's code is.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    BuiltIn,
    Plain(PathBuf),
    Xz(PathBuf),
}

/// Its path in the kernel's modules folder, or that it is built in.
pub fn place_of(modules: &Path, name: &str) -> Result<Place, SetupError> {
    let plain = modules.join(format!("{name}.ko"));
    let xz = modules.join(format!("{name}.ko.xz"));
    if plain.is_file() {
        return Ok(Place::Plain(plain));
    }
    if xz.is_file() {
        return Ok(Place::Xz(xz));
    }
    let list = builtin_list(modules);
    let text = fs::read_to_string(&list).map_err(SetupError::io("read", &list))?;
    if is_built_in(&text, name) {
        return Ok(Place::BuiltIn);
    }
    let reason = format!("neither a module nor in {}", list.display());
    Err(SetupError::Module { name: name.to_string(), folder: modules.to_path_buf(), reason })
}

/// `modules.builtin`, beside the folder `kernel`.
pub fn builtin_list(modules: &Path) -> PathBuf {
    modules.with_file_name("modules.builtin")
}

fn is_built_in(list: &str, name: &str) -> bool {
    list.lines().any(|line| line.strip_prefix("kernel/").and_then(|line| line.strip_suffix(".ko")) == Some(name))
}

/// Its code, decompressed; `None` if it is built in.
pub fn module(modules: &Path, name: &str) -> Result<Option<Vec<u8>>, SetupError> {
    match place_of(modules, name)? {
        Place::BuiltIn => Ok(None),
        Place::Plain(path) => fs::read(&path).map(Some).map_err(SetupError::io("read", &path)),
        Place::Xz(path) => {
            let file = File::open(&path).map_err(SetupError::io("read", &path))?;
            let mut bytes = Vec::new();
            let read = XzReader::new(file, true).take(MODULE_LIMIT).read_to_end(&mut bytes);
            read.map(|_| Some(bytes)).map_err(|error| SetupError::Module {
                name: name.to_string(),
                folder: modules.to_path_buf(),
                reason: format!("cannot decompress it: {error}"),
            })
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// "hello\n" by `xz --check=crc32`.
    const HELLO_XZ: &[u8] = &[
        253, 55, 122, 88, 90, 0, 0, 1, 105, 34, 222, 54, 2, 0, 33, 1, 22, 0, 0, 0, 116, 47, 229, 163, 1, 0, 5, 104,
        101, 108, 108, 111, 10, 0, 0, 0, 32, 48, 58, 54, 0, 1, 26, 6, 197, 234, 200, 121, 144, 66, 153, 13, 1, 0, 0, 0,
        0, 1, 89, 90,
    ];

    pub fn write(path: &Path, bytes: &[u8]) {
        fs::create_dir_all(path.parent().expect("a path in a folder")).expect("a scratch folder");
        fs::write(path, bytes).expect("a scratch file");
    }

    /// A kernel with the first module compressed, the last built in and the others plain.
    pub fn tree(folder: &Path, place: &str, version: &str) {
        write(&folder.join(format!("boot/vmlinuz-{version}")), b"image");
        let modules = folder.join(place).join(version);
        let last = GUEST_MODULES.len() - 1;
        for (index, name) in GUEST_MODULES.iter().enumerate() {
            match index {
                0 => write(&modules.join(format!("kernel/{name}.ko.xz")), HELLO_XZ),
                _ if index == last => write(&modules.join("modules.builtin"), format!("kernel/{name}.ko\n").as_bytes()),
                _ => write(&modules.join(format!("kernel/{name}.ko")), b"plain"),
            }
        }
    }

    fn modules(folder: &Path, place: &str) -> PathBuf {
        tree(folder, place, "6.12.95+deb12-amd64");
        folder.join(place).join("6.12.95+deb12-amd64/kernel")
    }

    #[test]
    fn reads_modules_and_skips_what_is_built_in() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let modules = modules(folder.path(), "usr/lib/modules");
        assert_eq!(module(&modules, GUEST_MODULES[0]).expect("compressed"), Some(b"hello\n".to_vec()));
        assert_eq!(module(&modules, GUEST_MODULES[1]).expect("plain"), Some(b"plain".to_vec()));
        assert_eq!(module(&modules, GUEST_MODULES[5]).expect("built in"), None);
        let error = module(&modules, "fs/no/such").expect_err("neither").to_string();
        assert!(error.contains("fs/no/such.ko.xz") && error.contains("modules.builtin"), "{error}");
    }

    #[test]
    fn a_damaged_module_is_an_error() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let modules = modules(folder.path(), "lib/modules");
        let path = modules.join(format!("{}.ko.xz", GUEST_MODULES[0]));
        for length in 0..HELLO_XZ.len() {
            fs::write(&path, &HELLO_XZ[..length]).expect("a scratch file");
            assert!(module(&modules, GUEST_MODULES[0]).is_err(), "cut after {length} bytes");
        }
    }
}
