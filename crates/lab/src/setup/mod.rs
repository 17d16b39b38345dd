//! The lab's requirements from a distribution: QEMU with its libraries and firmware, and a kernel with its modules.
//!
//! [`Assets::find`] locates them without network access; [`setup`] fetches missing ones. Everything fetched goes to one
//! cache folder through a private apt, so nothing is installed and no privileges are needed.

mod apt;
mod cache;
mod command;
mod error;
mod hashes;
mod headers;
mod interrupts;
mod kernel;
mod kernel_packages;
mod kernel_version;
mod modules;
mod qemu;
mod requirements;
mod version;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use apt::{Apt, Releases};
use cache::Cache;
pub use cache::keep_in;
pub use error::SetupError;
use hashes::Check;
pub(crate) use hashes::hexadecimal;
use interrupts::Interrupts;
use kernel::Kernel;
use kernel_version::KERNEL_VERSIONS;
pub use kernel_version::{KERNEL_VARIABLE, KernelVersion, NoKernelVersion};
pub use modules::GUEST_MODULES;
pub use qemu::Qemu;
use requirements::KERNEL_MINIMUM;
pub use requirements::{KERNEL_FOLDER_VARIABLE, QEMU_VARIABLE};
pub use version::Version;

/// The files that a virtual machine is started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assets {
    /// The QEMU program.
    pub qemu: Qemu,
    /// The guest's kernel, a bzImage.
    pub kernel_image: PathBuf,
    /// `lib/modules/<version>/kernel`; its entries are named as in [`GUEST_MODULES`].
    pub modules: PathBuf,
    /// `uname -r` in the guest.
    pub kernel_version: String,
}

impl Assets {
    /// Locates files on this host without fetching: environment variables first, then `PATH` and the cache folder. If
    /// `kernel` is `None`, takes the default one, or the one that [`KERNEL_VARIABLE`] names.
    pub fn find(kernel: Option<&KernelVersion>) -> Result<Assets, SetupError> {
        Assets::find_in(&Cache::of_this_user(Check::Quick)?, wanted(kernel)?.as_ref())
    }

    fn find_in(cache: &Cache, kernel: Option<&KernelVersion>) -> Result<Assets, SetupError> {
        let qemu = Qemu::find(cache)?;
        let kernel = Kernel::find(cache, kernel)?;
        Ok(Assets { qemu, kernel_image: kernel.image, modules: kernel.modules, kernel_version: kernel.version })
    }

    /// The first damaged file, and what is wrong with it. Reads all fetched files.
    pub fn damage(&self) -> Option<String> {
        self.folders().find_map(|folder| hashes::damage(folder, Check::Whole))
    }

    /// The folders that setup fetched, or may have fetched.
    fn folders(&self) -> impl Iterator<Item = &Path> {
        self.qemu.folder().into_iter().chain(kernel::folder_of(&self.modules))
    }

    /// The module with this path below [`Assets::modules`] (`net/9p/9pnet`), decompressed and ready for `init_module`;
    /// `None` if it is built into the kernel.
    pub fn module(&self, name: &str) -> Result<Option<Vec<u8>>, SetupError> {
        modules::module(&self.modules, name)
    }

    /// The modules that the guest loads, in loading order, without those that are built in.
    pub fn guest_modules(&self) -> Result<Vec<(&'static str, Vec<u8>)>, SetupError> {
        let read = |name: &&'static str| self.module(name).map(|bytes| bytes.map(|bytes| (*name, bytes))).transpose();
        GUEST_MODULES.iter().filter_map(read).collect()
    }
}

/// The folder in which the lab keeps files of this user, if there can be one.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    Cache::of_this_user(Check::Quick).map(|cache| cache.path("")).ok()
}

/// Where QEMU's packages are unpacked, in the scratch folder.
const QEMU_SCRATCH: &str = "apt-qemu";

/// The kernel named by an option, or else by the variable.
fn wanted(option: Option<&KernelVersion>) -> Result<Option<KernelVersion>, SetupError> {
    let from_variable = |value: OsString| {
        value.to_string_lossy().parse().map_err(|error: NoKernelVersion| SetupError::Variable {
            variable: KERNEL_VARIABLE,
            path: value.into(),
            reason: error.to_string(),
            expected: KERNEL_VERSIONS.to_string(),
        })
    };
    option
        .cloned()
        .map_or_else(|| std::env::var_os(KERNEL_VARIABLE).map(from_variable).transpose(), |version| Ok(Some(version)))
}

/// Fetches what is missing or damaged and reports each step to `progress`. If `kernel` is `None`, takes the default one, or the
/// one that [`KERNEL_VARIABLE`] names. Concurrent setups take turns; a killed setup leaves the previous state, and the
/// next one removes its leftovers; Ctrl-C removes them at once.
pub fn setup(kernel: Option<&KernelVersion>, progress: &dyn Fn(&str)) -> Result<Assets, SetupError> {
    let cache = Cache::of_this_user(Check::Whole)?;
    let kernel = wanted(kernel)?;
    let kernel = kernel.as_ref();
    // Only the archive knows which one is newest, even if one is cached.
    let ask_for_newest = kernel == Some(&KernelVersion::Newest) && kernel::named_folder().is_none();
    if !ask_for_newest && let Ok(assets) = Assets::find_in(&cache, kernel) {
        keep_missing_hashes(&cache, &assets, progress);
        return Ok(assets);
    }
    let _lock = cache.lock(progress)?;
    let need_qemu = is_missing(Qemu::find(&cache))?;
    let need_kernel = is_missing(Kernel::find(&cache, kernel))?;
    let interrupts = Interrupts::noted()?;
    let scratch = cache.scratch()?;
    let apt = |name, releases| Apt::new(&scratch.path().join(name), releases, &interrupts, progress);
    if need_qemu {
        let apt = apt(QEMU_SCRATCH, Releases::Qemu)?;
        fetch(&cache, scratch.path(), qemu::FOLDER, &|into| qemu::fetch(&apt, into, progress))?;
        // The disk need not hold both.
        cache::remove(&scratch.path().join(QEMU_SCRATCH))?;
    }
    if need_kernel || ask_for_newest {
        let apt = apt("apt-kernel", if kernel.is_some() { Releases::Newer } else { Releases::Host })?;
        let offer = apt.choose_kernel(kernel, KERNEL_MINIMUM)?;
        let offered = KernelVersion::Release(offer.release.clone());
        if need_kernel || is_missing(Kernel::find(&cache, Some(&offered)))? {
            let other = format!("{}/{}", kernel::OTHERS, offer.release);
            let name = if kernel.is_some() { &other } else { kernel::FOLDER };
            fetch(&cache, scratch.path(), name, &|into| kernel::fetch(&apt, &offer, into, progress))?;
        }
    }
    Assets::find_in(&cache, kernel)
}

/// Fetches the headers of a kernel that [`setup`] returned, if they are missing or damaged, and returns the folder with
/// which modules for it are built: `make -C FOLDER M=$PWD modules`.
pub fn setup_headers(assets: &Assets, progress: &dyn Fn(&str)) -> Result<PathBuf, SetupError> {
    let cache = Cache::of_this_user(Check::Quick)?;
    let release = assets.kernel_version.as_str();
    let folder = headers::build_folder(&cache, release);
    if headers::are_there(&cache, release) {
        return Ok(folder);
    }
    let _lock = cache.lock(progress)?;
    // Another setup may have fetched them meanwhile.
    if !headers::are_there(&cache, release) {
        let interrupts = Interrupts::noted()?;
        let scratch = cache.scratch()?;
        let apt = Apt::new(&scratch.path().join("apt-headers"), Releases::Newer, &interrupts, progress)?;
        let name = format!("{}/{release}", headers::FOLDER);
        fetch(&cache, scratch.path(), &name, &|into| headers::fetch(&apt, &cache, assets, into, progress))?;
    }
    Ok(folder)
}

/// Keeps the hashes of what an older version fetched. A cache that cannot be written to is used without.
fn keep_missing_hashes(cache: &Cache, assets: &Assets, progress: &dyn Fn(&str)) {
    let is_fetched = |folder: &&Path| folder.starts_with(cache.path("")) && !folder.join(hashes::LIST).exists();
    for folder in assets.folders().filter(is_fetched) {
        let _ = cache.lock(progress).and_then(|_lock| hashes::keep(folder));
    }
}

/// Whether it should be fetched. Files that the user named by a variable are not: the user has to fix a mistake there.
fn is_missing<T>(found: Result<T, SetupError>) -> Result<bool, SetupError> {
    match found {
        Ok(_) => Ok(false),
        Err(SetupError::NotSetUp { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

fn fetch(
    cache: &Cache,
    scratch: &Path,
    name: &str,
    assemble: &dyn Fn(&Path) -> Result<(), SetupError>,
) -> Result<(), SetupError> {
    let whole = scratch.join(name);
    cache::create_folder(&whole)?;
    assemble(&whole)?;
    hashes::keep(&whole)?;
    cache.replace(name, &whole)
}

/// A path from the root: QEMU runs in another folder.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}
