//! The headers of the guest's kernel, for building kernel modules.

use std::fs;
use std::path::{Path, PathBuf};

use super::apt::Apt;
use super::cache::Cache;
use super::kernel::folder_of;
use super::{Assets, SetupError};

/// The cache's folder of headers, each kernel's in a folder named by its release.
pub const FOLDER: &str = "headers";

/// Where Debian's packages of headers have their folders; their build files name it.
const INSTALLED: &str = "/usr/src/";

/// The folder for `make -C` of a kernel's release, whether it exists or not.
pub fn build_folder(cache: &Cache, release: &str) -> PathBuf {
    cache.path(FOLDER).join(release).join(build_folder_within(release))
}

fn build_folder_within(release: &str) -> PathBuf {
    Path::new("usr/src").join(format!("linux-headers-{release}"))
}

/// Whether they were fetched and are undamaged.
pub fn are_there(cache: &Cache, release: &str) -> bool {
    build_folder(cache, release).join("Makefile").is_file()
        && cache.undamaged(&cache.path(FOLDER).join(release)).is_ok()
}

/// Fetches the packages of a kernel's headers into `into`, which is to become `build_folder` of this release.
pub fn fetch(
    apt: &Apt,
    cache: &Cache,
    kernel: &Assets,
    into: &Path,
    progress: &dyn Fn(&str),
) -> Result<(), SetupError> {
    let release = kernel.kernel_version.as_str();
    let cached = folder_of(&kernel.modules).filter(|folder| folder.starts_with(cache.path("")));
    let packages = apt.header_packages(release, cached)?;
    progress(&format!("fetching {} (17 MiB)", packages.join(", ")));
    let unpacked = apt.download(&packages)?;
    let build = unpacked.join(build_folder_within(release));
    let makefile = build.join("Makefile");
    let text = fs::read_to_string(&makefile).map_err(SetupError::io("read", &makefile))?;
    let here = cache.path(FOLDER).join(release).join("usr/src/");
    let text = text.replace(INSTALLED, &format!("{}/", here.display()));
    fs::write(&makefile, text).map_err(SetupError::io("write", &makefile))?;
    // Only types for modules' own BTF, which takes a program that hosts seldom have.
    let types = build.join("vmlinux");
    if types.exists() {
        fs::remove_file(&types).map_err(SetupError::io("remove", &types))?;
    }
    let usr = into.join("usr");
    fs::rename(unpacked.join("usr"), &usr).map_err(SetupError::io("create", &usr))
}
