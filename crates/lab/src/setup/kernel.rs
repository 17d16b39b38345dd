//! The guest's kernel: an image and its modules.

use super::absolute;
use machine::chain;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::apt::Apt;
use super::cache::{Cache, create_folder};
use super::kernel_packages::KernelOffer;
use super::modules::{GUEST_MODULES, Place, builtin_list, place_of};
use super::requirements::{KERNEL_FOLDER_VARIABLE, KERNEL_MINIMUM};
use super::{KernelVersion, SetupError, Version};

/// The default kernel's name in the cache folder.
pub const FOLDER: &str = "kernel";
/// The cache's folder of other kernels, each in a folder named by its release.
pub const OTHERS: &str = "kernels";

#[derive(Debug)]
pub struct Kernel {
    pub image: PathBuf,
    pub modules: PathBuf,
    pub version: String,
}

impl Kernel {
    /// The default kernel, or the newest one that matches the request.
    pub fn find(cache: &Cache, wanted: Option<&KernelVersion>) -> Result<Kernel, SetupError> {
        if let Some(path) = named_folder() {
            return Kernel::open(&path, wanted).map_err(|reason| SetupError::Variable {
                variable: KERNEL_FOLDER_VARIABLE,
                path,
                reason,
                expected: format!(
                    "a folder with boot/vmlinuz-VERSION and lib/modules/VERSION of a kernel {KERNEL_MINIMUM} or newer"
                ),
            });
        }
        let not_set_up = |what, tried, options| SetupError::NotSetUp { what, tried, options };
        let Some(wanted) = wanted else {
            let folder = cache.path(FOLDER);
            return cache
                .undamaged(&folder)
                .and_then(|()| Kernel::open(&folder, None))
                .map_err(|reason| not_set_up("kernel for the guest".to_string(), vec![reason], String::new()));
        };
        let folders = cached_folders(cache);
        let found = folders.iter().filter_map(|folder| Kernel::open(folder, Some(wanted)).ok());
        let options = format!(" --kernel {wanted}");
        let what = format!("kernel {wanted} for the guest");
        let newest = found.max_by_key(|kernel| Version::parse(&kernel.version)).ok_or_else(|| {
            let mut there: Vec<Kernel> = folders.iter().filter_map(|folder| Kernel::open(folder, None).ok()).collect();
            there.sort_by_key(|kernel| Version::parse(&kernel.version));
            let mut fetched: Vec<String> = there.iter().map(|kernel| format!("there is {}", kernel.version)).collect();
            if fetched.is_empty() {
                fetched.push("there is none yet".to_string());
            }
            not_set_up(what.clone(), fetched, options.clone())
        })?;
        let undamaged = folder_of(&newest.modules).map_or(Ok(()), |folder| cache.undamaged(folder));
        undamaged.map(|()| newest).map_err(|reason| not_set_up(what, vec![reason], options))
    }

    /// The newest matching kernel in a folder with the layout of unpacked packages; or the problem with it.
    fn open(folder: &Path, wanted: Option<&KernelVersion>) -> Result<Kernel, String> {
        let images =
            images(folder).into_iter().filter(|(_, release, _)| wanted.is_none_or(|wanted| wanted.matches(release)));
        let (number, version, image) = images.max().ok_or_else(|| {
            let name = wanted.map_or("VERSION".to_string(), ToString::to_string);
            format!("no boot/vmlinuz-{name} and no lib/modules/{name}/vmlinuz in {}", folder.display())
        })?;
        if number < KERNEL_MINIMUM {
            return Err(format!("{} is older than {KERNEL_MINIMUM}", image.display()));
        }
        File::open(&image).map_err(|error| format!("cannot read {}: {error}", image.display()))?;
        let places = MODULES.map(|place| folder.join(place).join(&version).join("kernel"));
        let modules = places.iter().find(|place| place.is_dir());
        let modules = modules.ok_or_else(|| format!("no folder {}", places[0].display()))?.clone();
        for name in GUEST_MODULES {
            place_of(&modules, name).map_err(|error| chain(&error))?;
        }
        Ok(Kernel { image, modules, version })
    }
}

/// The folder named by the user; no other place is searched then.
pub fn named_folder() -> Option<PathBuf> {
    std::env::var_os(KERNEL_FOLDER_VARIABLE).map(|folder| absolute(folder.into()))
}

/// Debian moved from the first to the second between 12 and 13.
const MODULES: [&str; 2] = ["lib/modules", "usr/lib/modules"];

/// The folder that holds `lib/modules/VERSION/kernel`.
pub fn folder_of(modules: &Path) -> Option<&Path> {
    modules.ancestors().nth(4)
}

/// Every image in a folder with the layout of unpacked packages, with its version and release: in `boot`, or beside its
/// modules, where newer packages have it.
fn images(folder: &Path) -> Vec<(Version, String, PathBuf)> {
    let boot = files(&folder.join("boot")).into_iter().filter_map(|path| {
        let release = path.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_string();
        Some((Version::parse(&release)?, release, path))
    });
    let beside_modules = MODULES.iter().flat_map(|place| files(&folder.join(place))).filter_map(|path| {
        let release = path.file_name()?.to_str()?.to_string();
        let image = path.join("vmlinuz");
        image.exists().then_some((Version::parse(&release)?, release, image))
    });
    boot.chain(beside_modules).collect()
}

fn cached_folders(cache: &Cache) -> Vec<PathBuf> {
    let mut folders = vec![cache.path(FOLDER)];
    folders.extend(files(&cache.path(OTHERS)));
    folders
}

/// The entries of a folder; empty if it does not exist.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// Fetches the packages of a kernel and keeps the files that [`Kernel::open`] needs in `into`, a tenth of them.
pub fn fetch(apt: &Apt, offer: &KernelOffer, into: &Path, progress: &dyn Fn(&str)) -> Result<(), SetupError> {
    let packages = offer.packages.join(", ");
    progress(&format!("fetching {packages} (95 MiB)"));
    let unpacked = apt.download(&offer.packages)?;
    progress("keeping the kernel and the modules that the guest needs");
    let unusable =
        |reason| SetupError::Unavailable { reason: format!("{packages}: not what the guest needs: {reason}") };
    let kernel = Kernel::open(&unpacked, None).map_err(unusable)?;
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
    use super::super::hashes;
    use super::super::modules::tests::{tree, write};
    use super::*;

    fn wanted(version: &str) -> KernelVersion {
        version.parse().expect("a version")
    }

    #[test]
    fn takes_the_newest_kernel_and_refuses_old_and_broken_ones() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let refused = |expected: &str| {
            let reason = Kernel::open(folder.path(), None).expect_err("no kernel");
            assert!(reason.contains(expected), "{reason}");
        };
        refused("no boot/vmlinuz-VERSION");
        write(&folder.path().join("boot/config-6.12.0"), b"");
        refused("no boot/vmlinuz-VERSION");
        tree(folder.path(), "lib/modules", "6.1.0-50-amd64");
        refused("older than 6.12.0");
        tree(folder.path(), "lib/modules", "6.12.9+deb13-amd64");
        tree(folder.path(), "lib/modules", "6.12.10+deb13-amd64");
        assert_eq!(Kernel::open(folder.path(), None).expect("two whole kernels").version, "6.12.10+deb13-amd64");
        let modules = folder.path().join("lib/modules/6.12.10+deb13-amd64");
        fs::remove_file(modules.join("kernel").join(format!("{}.ko", GUEST_MODULES[3]))).expect("a module");
        refused(GUEST_MODULES[3]);
        fs::remove_dir_all(&modules).expect("its modules");
        refused("no folder");
    }

    #[test]
    fn takes_images_beside_their_modules() {
        for place in MODULES {
            let folder = tempfile::tempdir().expect("a scratch folder");
            tree(folder.path(), place, "7.3.4+deb13-amd64");
            let image = folder.path().join(place).join("7.3.4+deb13-amd64/vmlinuz");
            fs::rename(folder.path().join("boot/vmlinuz-7.3.4+deb13-amd64"), &image).expect("an image");
            let kernel = Kernel::open(folder.path(), None).expect("a whole kernel");
            assert_eq!((kernel.image, kernel.version.as_str()), (image, "7.3.4+deb13-amd64"));
        }
    }

    #[test]
    fn takes_the_newest_kernel_that_is_wanted() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        for version in ["6.12.95+deb12-amd64", "6.18.5+deb13-amd64", "6.18.15+deb13-amd64"] {
            tree(folder.path(), "lib/modules", version);
        }
        let open = |version: &str| Kernel::open(folder.path(), Some(&wanted(version))).map(|kernel| kernel.version);
        assert_eq!(open("6.12").as_deref(), Ok("6.12.95+deb12-amd64"));
        assert_eq!(open("6.18.5").as_deref(), Ok("6.18.5+deb13-amd64"));
        for version in ["newest", "6.18", "6"] {
            assert_eq!(open(version).as_deref(), Ok("6.18.15+deb13-amd64"), "{version}");
        }
        assert!(open("7.3").is_err_and(|reason| reason.contains("no boot/vmlinuz-7.3 ")));
    }

    #[test]
    fn a_damaged_kernel_is_named_with_the_cure() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let cache = Cache::in_folder(folder.path());
        for (place, version, request) in [(FOLDER, "6.12.95", None), ("kernels/7.3.4", "7.3.4", Some("7.3"))] {
            tree(&cache.path(place), "lib/modules", version);
            hashes::keep(&cache.path(place)).expect("a list");
            let find = || Kernel::find(&cache, request.map(wanted).as_ref());
            let image = find().expect("a whole kernel").image;
            fs::write(&image, "cut").expect("damage");
            let error = find().expect_err("a damaged kernel").to_string();
            let options = request.map_or(String::new(), |version| format!(" --kernel {version}"));
            let ending = format!("{} is damaged\nrun: nearside lab setup{options}", image.display());
            assert!(error.ends_with(&ending), "{error}");
        }
    }

    #[test]
    fn other_kernels_are_kept_beside_the_default_one() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let cache = Cache::in_folder(folder.path());
        let find = |version: Option<&str>| Kernel::find(&cache, version.map(wanted).as_ref());
        let refused = |version, expected: [&str; 2]| {
            let error = find(version).expect_err("no kernel").to_string();
            assert!(expected.iter().all(|part| error.contains(part)), "{error}");
        };
        refused(None, ["no usable kernel for the guest", "run: nearside lab setup"]);
        refused(Some("7.3"), ["there is none yet", "run: nearside lab setup --kernel 7.3"]);
        for version in ["6.18.15+deb13-amd64", "7.3.4+deb13-amd64"] {
            tree(&cache.path(OTHERS).join(version), "lib/modules", version);
        }
        refused(None, ["no usable kernel for the guest", "run: nearside lab setup"]);
        tree(&cache.path(FOLDER), "lib/modules", "6.12.95+deb12-amd64");
        for (version, expected) in
            [(None, "6.12.95"), (Some("6"), "6.18.15"), (Some("6.12"), "6.12.95"), (Some("newest"), "7.3.4")]
        {
            let found = find(version).expect("a kernel").version;
            assert_eq!(found.split('+').next(), Some(expected), "{version:?}");
        }
        refused(
            Some("7.4"),
            [
                "there is 6.12.95+deb12-amd64; there is 6.18.15+deb13-amd64; there is 7.3.4",
                "run: nearside lab setup --kernel 7.4",
            ],
        );
    }
}
