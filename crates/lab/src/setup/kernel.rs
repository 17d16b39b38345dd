//! The guest's kernel: an image and the modules that it needs before it has a root file system.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use lzma_rust2::XzReader;

use super::apt::Apt;
use super::cache::{Cache, create_folder};
use super::{SetupError, Version};

/// Names a folder with `boot/vmlinuz-VERSION` and `lib/modules/VERSION`, used instead of what setup fetches.
pub const KERNEL_FOLDER_VARIABLE: &str = "NEARSIDE_KERNEL_DIR";

/// The long-term series that the lab is built against: weighted interleave is there, and so is the running task where
/// the plugin looks for it.
pub const KERNEL_MINIMUM: Version = Version::series(6, 12);

/// The modules between the guest's start and the host's files as its root, in loading order: `modules.dep`, which
/// would tell, is made when a package is installed, and these are only unpacked.
pub const GUEST_MODULES: [&str; 6] = [
    "fs/netfs/netfs",
    "net/9p/9pnet",
    "net/9p/9pnet_virtio",
    "fs/9p/9p",
    "fs/overlayfs/overlay",
    "drivers/char/virtio_console",
];

/// Its name in the cache folder.
pub const FOLDER: &str = "kernel";

/// No module comes near this size in bytes; a damaged archive could claim to.
const MODULE_LIMIT: u64 = 64 << 20;

#[derive(Debug)]
pub struct Kernel {
    pub image: PathBuf,
    pub modules: PathBuf,
    pub version: String,
}

impl Kernel {
    pub fn find(cache: &Cache) -> Result<Kernel, SetupError> {
        if let Some(folder) = std::env::var_os(KERNEL_FOLDER_VARIABLE) {
            let path = PathBuf::from(folder);
            return Kernel::open(&path).map_err(|reason| SetupError::Variable {
                variable: KERNEL_FOLDER_VARIABLE,
                path,
                reason,
                expected: format!(
                    "a folder with boot/vmlinuz-VERSION and lib/modules/VERSION of a kernel {KERNEL_MINIMUM} or newer"
                ),
            });
        }
        Kernel::open(&cache.path(FOLDER))
            .map_err(|reason| SetupError::NotSetUp { what: "kernel for the guest", tried: vec![reason] })
    }

    /// The newest kernel in a folder laid out as a package unpacks; else what is wrong with it.
    fn open(folder: &Path) -> Result<Kernel, String> {
        let boot = folder.join("boot");
        let entries = fs::read_dir(&boot).map_err(|error| format!("cannot read {}: {error}", boot.display()))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let newest = names
            .filter_map(|name| Some((Version::parse(name.strip_prefix("vmlinuz-")?)?, name)))
            .max()
            .ok_or_else(|| format!("no vmlinuz-VERSION in {}", boot.display()))?;
        let (number, name) = newest;
        if number < KERNEL_MINIMUM {
            return Err(format!("{} is older than {KERNEL_MINIMUM}", boot.join(name).display()));
        }
        let image = boot.join(&name);
        File::open(&image).map_err(|error| format!("cannot read {}: {error}", image.display()))?;
        let version = name.trim_start_matches("vmlinuz-").to_string();
        // Debian moves from lib to usr/lib between 12 and 13.
        let places = ["lib/modules", "usr/lib/modules"].map(|place| folder.join(place).join(&version).join("kernel"));
        let modules = places.iter().find(|place| place.is_dir());
        let modules = modules.ok_or_else(|| format!("no folder {}", places[0].display()))?.clone();
        for name in GUEST_MODULES {
            place_of(&modules, name).map_err(|error| error.to_string())?;
        }
        Ok(Kernel { image, modules, version })
    }
}

/// Where a module's code is.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    BuiltIn,
    Plain(PathBuf),
    Xz(PathBuf),
}

fn place_of(modules: &Path, name: &str) -> Result<Place, SetupError> {
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

/// `modules.builtin` lies beside the folder `kernel`.
fn builtin_list(modules: &Path) -> PathBuf {
    modules.with_file_name("modules.builtin")
}

fn is_built_in(list: &str, name: &str) -> bool {
    list.lines().any(|line| line.strip_prefix("kernel/").and_then(|line| line.strip_suffix(".ko")) == Some(name))
}

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

/// Fetches a kernel package and keeps in `into` what [`Kernel::open`] asks for, a tenth of it.
pub fn fetch(apt: &Apt, into: &Path, progress: &dyn Fn(&str)) -> Result<(), SetupError> {
    let package = apt.choose_kernel(KERNEL_MINIMUM)?;
    progress(&format!("fetching {package} (100 MB)"));
    let unpacked = apt.download(&package)?;
    progress("keeping the kernel and the modules that the guest needs");
    let unusable =
        |reason| SetupError::Unavailable { reason: format!("{package} is not what the guest needs: {reason}") };
    let kernel = Kernel::open(&unpacked).map_err(unusable)?;
    let modules = into.join("lib/modules").join(&kernel.version).join("kernel");
    keep(&kernel.image, &into.join("boot").join(format!("vmlinuz-{}", kernel.version)))?;
    for name in GUEST_MODULES {
        match place_of(&kernel.modules, name)? {
            Place::BuiltIn => {}
            Place::Plain(path) => keep(&path, &modules.join(format!("{name}.ko")))?,
            Place::Xz(path) => keep(&path, &modules.join(format!("{name}.ko.xz")))?,
        }
    }
    create_folder(&modules)?;
    keep(&builtin_list(&kernel.modules), &builtin_list(&modules))
}

fn keep(from: &Path, to: &Path) -> Result<(), SetupError> {
    to.parent().map_or(Ok(()), create_folder)?;
    fs::rename(from, to).map_err(SetupError::io("create", to))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "hello\n" by `xz --check=crc32`.
    const HELLO_XZ: &[u8] = &[
        253, 55, 122, 88, 90, 0, 0, 1, 105, 34, 222, 54, 2, 0, 33, 1, 22, 0, 0, 0, 116, 47, 229, 163, 1, 0, 5, 104,
        101, 108, 108, 111, 10, 0, 0, 0, 32, 48, 58, 54, 0, 1, 26, 6, 197, 234, 200, 121, 144, 66, 153, 13, 1, 0, 0, 0,
        0, 1, 89, 90,
    ];

    fn write(path: &Path, bytes: &[u8]) {
        fs::create_dir_all(path.parent().expect("a path in a folder")).expect("a scratch folder");
        fs::write(path, bytes).expect("a scratch file");
    }

    /// A kernel with the first module compressed, the last built in and the others plain.
    fn tree(folder: &Path, place: &str, version: &str) {
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

    #[test]
    fn reads_modules_and_skips_what_is_built_in() {
        for place in ["lib/modules", "usr/lib/modules"] {
            let folder = tempfile::tempdir().expect("a scratch folder");
            tree(folder.path(), place, "6.12.95+deb12-amd64");
            let kernel = Kernel::open(folder.path()).expect("a whole kernel");
            assert_eq!(kernel.version, "6.12.95+deb12-amd64");
            assert_eq!(module(&kernel.modules, GUEST_MODULES[0]).expect("compressed"), Some(b"hello\n".to_vec()));
            assert_eq!(module(&kernel.modules, GUEST_MODULES[1]).expect("plain"), Some(b"plain".to_vec()));
            assert_eq!(module(&kernel.modules, GUEST_MODULES[5]).expect("built in"), None);
            let error = module(&kernel.modules, "fs/no/such").expect_err("neither").to_string();
            assert!(error.contains("fs/no/such.ko.xz") && error.contains("modules.builtin"), "{error}");
        }
    }

    #[test]
    fn takes_the_newest_kernel_and_refuses_old_and_broken_ones() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let refused = |expected: &str| {
            let reason = Kernel::open(folder.path()).expect_err("no kernel");
            assert!(reason.contains(expected), "{reason}");
        };
        refused("cannot read");
        write(&folder.path().join("boot/config-6.12.0"), b"");
        refused("no vmlinuz-VERSION");
        tree(folder.path(), "lib/modules", "6.1.0-50-amd64");
        refused("older than 6.12.0");
        tree(folder.path(), "lib/modules", "6.12.9+deb13-amd64");
        tree(folder.path(), "lib/modules", "6.12.10+deb13-amd64");
        assert_eq!(Kernel::open(folder.path()).expect("two whole kernels").version, "6.12.10+deb13-amd64");
        let modules = folder.path().join("lib/modules/6.12.10+deb13-amd64");
        fs::remove_file(modules.join("kernel").join(format!("{}.ko", GUEST_MODULES[3]))).expect("a module");
        refused(GUEST_MODULES[3]);
        fs::remove_dir_all(&modules).expect("its modules");
        refused("no folder");
    }

    #[test]
    fn a_damaged_module_is_an_error() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        tree(folder.path(), "lib/modules", "6.12.1");
        let kernel = Kernel::open(folder.path()).expect("a whole kernel");
        let path = kernel.modules.join(format!("{}.ko.xz", GUEST_MODULES[0]));
        for length in 0..HELLO_XZ.len() {
            fs::write(&path, &HELLO_XZ[..length]).expect("a scratch file");
            assert!(module(&kernel.modules, GUEST_MODULES[0]).is_err(), "cut after {length} bytes");
        }
    }
}
